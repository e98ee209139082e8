// The executables of a tree: made, closed and made again while launches go on.
import { describe, expect, it } from 'vitest'
import { add, download, graph, mul, orThrow, tree, upload } from '../../../dsl/index.js'
import { Device, type PlanTree, type TreeLayout } from '../../../runtime/index.js'
import { present } from '../devices.js'
import { all, copy, only, planned, prompt, type Row, renamed, row, step, treeOn } from './kit.js'

const decoder = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})

/** A tree of plans whose names types do not know. */
interface Loose extends AsyncDisposable, Pick<PlanTree, 'stats'> {
  launch(plan: string, feeds?: object): { readonly values: Promise<unknown> }
}

const ticks = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await null
}

describe.each(present)('executables of a tree on %s', device => {
  it('evict() leaves open what a launch with a copy waits to use', async () => {
    for (const poison of [false, true]) {
      await using t = await treeOn(device, decoder, { poison })
      await t.prepare()
      for (let i = 0; i < 20; i++) {
        t.begin()
        await t.launch('prompt', { x: all(1) }).values
        const before = t.evict()
        const first = t.launch('step', { state: all(5), token: all(1) })
        await ticks(i)
        const after = t.evict()
        const second = first.next('step', { token: all(1) })
        expect([only((await first.values).seen), only((await second.values).seen)]).toEqual([60, 70])
        await Promise.all([before, after])
      }
    }
  })

  it('a budget closes none that a launch waits to use, whatever prepare() makes beside it', async () => {
    const whole = await treeOn(device, decoder)
    await whole.prepare()
    const { bytes } = whole.stats().executables
    await whole.close()
    for (const executables of [1, Math.ceil(bytes / 3), bytes - 1]) {
      await using t = await treeOn(device, decoder, { executables, poison: false })
      for (let i = 0; i < 60; i++) {
        t.begin()
        const first = t.launch('prompt', { x: all(1) })
        await first.values
        const before = t.prepare()
        await ticks(i % 13)
        const second = first.next('step', { state: all(5), token: all(1) })
        await ticks(i % 17)
        const after = t.prepare()
        expect(only((await second.values).seen)).toBe(60)
        await Promise.all([before, after])
      }
      // What was in use when it should have gone has gone since.
      await t.drained()
      // One stays, however large it is.
      const left = t.stats().executables
      if (left.open > 1) expect(left.bytes).toBeLessThanOrEqual(executables)
    }
  })

  it('close() while prepare() makes them leaves nothing behind', async () => {
    await using own = orThrow(await Device.open(device)())
    const held = () => [own.stats(), own.stats('pinned')].map(stats => stats['allocation.all.current'])
    const before = held()
    for (let i = 0; i < 5; i++) {
      const t = await treeOn('', decoder, { device: own })
      const prepared = t.prepare()
      await ticks(i)
      await t.close()
      await prepared
      expect(t.stats().executables.open).toBe(0)
      expect(held()).toEqual(before)
    }
  })

  it('a budget counts what the driver takes for executable graphs', async () => {
    const chain = (nodes: number, from: string, to: string) =>
      renamed<{ [name: string]: Row }, { [name: string]: Row }>(
        planned(
          graph('chain', { x: row }, ({ x }) => {
            let value = x.pipe(upload(copy))
            for (let i = 0; i < nodes; i++) value = value.pipe(i % 2 === 0 ? add(1) : mul(0.5))
            return { y: value.pipe(download(copy)) }
          }),
          { mode: 'graph', fuse: false },
        ),
        { x: from, y: to },
      )
    const bytesOf = async (nodes: number): Promise<number> => {
      const spec = tree({ plans: { chain: chain(nodes, 'x', 'y') }, start: ['chain'] })
      await using t = await treeOn(device, spec, { poison: false })
      await t.prepare()
      return t.stats().executables.bytes
    }
    const [small, large] = [await bytesOf(1), await bytesOf(201)]
    // A node takes some hundred bytes at least, in each of the two slots.
    expect(large - small).toBeGreaterThanOrEqual(2 * 200 * 500)

    const plans = { a: chain(201, 'p', 'q'), b: chain(201, 'q', 'r'), c: chain(201, 'r', 's') }
    const spec = tree({ plans, start: ['a'], then: { a: ['b'], b: ['c'] } } as never) as never
    await using t = (await treeOn(device, spec, { executables: large, poison: false })) as unknown as Loose
    for (let i = 0; i < 3; i++) {
      await t.launch('a', { p: all(1) }).values
      await t.launch('b').values
      await t.launch('c').values
      expect(t.stats().executables.open).toBeLessThan(3)
      expect(t.stats().executables.bytes).toBeLessThanOrEqual(large)
    }
  })

  it('explain() says of a layout what it is, why there is another one, and why its executable was made', async () => {
    await using t = await treeOn(device, decoder, { poison: false })
    expect(t.explain().match(/executable none yet/g)).toHaveLength(3)
    const first = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    await first.values
    await t.evict()
    await first.next('step', { token: all(1) }).next('step', { token: all(1) }).values
    await t.prepare()
    const [one, two] = t.layouts.filter(({ plan }) => plan === 'step') as [TreeLayout, TreeLayout]
    const [at, other] = [one.inputs['state']!, two.inputs['state']!]
    expect(t.explain(0)).toMatch(/^layout 0: prompt\n {2}inputs {5}nothing\n/)
    expect(t.explain(0)).toMatch(
      /executable made 2 times, the last time by prepare\(\), since evict\(\) had closed it/,
    )
    expect(t.explain(one.id)).toContain(`state at ${at} to ${at + 256}`)
    expect(t.explain(one.id)).toContain('the first of step')
    expect(t.explain(one.id)).toContain('made 2 times, the last time by a launch')
    expect(t.explain(two.id)).toContain(
      `another one than layout ${one.id}: state lies at ${other}, there it lies at ${at}`,
    )
    expect(t.explain(two.id)).toContain('executable made by a launch')
    expect(t.explain()).toBe([0, one.id, two.id].map(id => t.explain(id)).join('\n\n'))
    for (const wrong of [3, -1, 'step', null])
      expect(() => t.explain(wrong as never)).toThrow(/the id of one of/)
  })
})
