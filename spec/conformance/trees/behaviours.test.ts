// What PyTorch's graph trees do, restated for plan trees: the number of a test is that of the behaviour in
// the list of behaviours.ts, which says for each whether it is kept or changed, and why some have no test.
// Here are those about what a tree consists of; others are in layouts.test.ts, values.test.ts, limits.test.ts
// and failures.test.ts.
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  download,
  graph,
  mul,
  on,
  device as onDevice,
  orThrow,
  sum,
  tensor,
  tree,
  upload,
} from '../../../dsl/index.js'
import { Device, planTree } from '../../../runtime/index.js'
import { present } from '../devices.js'
import { behaviours } from './behaviours.js'
import {
  affine,
  all,
  chain,
  copy,
  double,
  large,
  math,
  only,
  planned,
  plusOne,
  row,
  tagOf,
  treeOn,
  width,
} from './kit.js'

describe.each(present)('behaviours of trees on %s', device => {
  it('65, 67, 68 steps of the host divide plans, one more than there are steps, for each shape that is declared', async () => {
    const parts = (size: number) => [
      affine('one', 'a', 'b', 2, 0, size),
      affine('two', 'c', 'd', 3, 0, size),
      affine('three', 'e', 'f', 1, 1, size),
    ]
    const [small, big] = [parts(width), parts(large)]
    const plans = { s1: small[0]!, s2: small[1]!, s3: small[2]!, b1: big[0]!, b2: big[1]!, b3: big[2]! }
    const spec = tree({
      plans,
      start: ['s1', 'b1'],
      then: { s1: ['s2'], s2: ['s3'], b1: ['b2'], b2: ['b3'] },
    } as never) as never
    await using t = (await treeOn(device, spec)) as unknown as AsyncDisposable & {
      launch(plan: string, feeds: object): { values: Promise<Record<string, Float32Array>> }
      stats(): { layouts: number; executables: { made: number } }
    }
    const run = async (shape: 's' | 'b', value: number, size: number): Promise<number> => {
      const { b } = await t.launch(`${shape}1`, { a: all(value, size) }).values
      // Values of any length that only the host sees make nothing.
      const kept = [...b!].filter((_, i) => i % (1 + value) === 0).map(Math.sign)
      const { d } = await t.launch(`${shape}2`, { c: b!.map(v => v + kept[0]!) }).values
      return only((await t.launch(`${shape}3`, { e: d!.map(Math.sqrt) }).values)['f']!)
    }
    for (let value = 1; value <= 4; value++)
      for (const [shape, size] of [
        ['s', width],
        ['b', large],
      ] as const)
        expect(await run(shape, value, size)).toBe(Math.fround(Math.sqrt(3 * (2 * value + 1))) + 1)
    expect(t.stats()).toMatchObject({ layouts: 6, executables: { made: 6 } })
  })

  it('66 copies and work that need no step of the host between them are one plan, and one graph', async () => {
    const mixed = planned(
      graph('mixed', { x: row, y: row }, ({ x, y }) => {
        const a = x.pipe(upload(copy), mul(2)).pipe(download(copy))
        const b = y.pipe(upload(copy), add(1))
        return { a, b: b.pipe(download(copy)), c: b.pipe(mul(3), download(copy)) }
      }),
      { mode: 'graph' },
    )
    await using t = await treeOn(device, tree({ plans: { mixed }, start: ['mixed'] }))
    const { a, b, c } = await t.launch('mixed', { x: all(1), y: all(2) }).values
    expect([a, b, c].map(only)).toEqual([2, 3, 9])
    expect(t.stats().executables).toMatchObject({ made: 1, graphLaunches: 1 })
  })

  it('69 a size that depends on data is read by the host, which launches the plan of that shape', async () => {
    const sums = (size: number) =>
      planned(
        graph(`sum of ${size}`, { kept: tensor('f32', [size]) }, ({ kept }) => ({
          total: kept.pipe(upload(copy), sum(), download(copy)),
        })),
      )
    const spec = tree({
      plans: { double, few: sums(16), many: sums(width) },
      start: ['double'],
      then: { double: ['few', 'many'] },
    })
    await using t = await treeOn(device, spec)
    for (const count of [5, 16, 17, 40]) {
      const { y } = await t.launch('double', {
        x: Float32Array.from({ length: width }, (_, i) => (i < count ? i : -1)),
      }).values
      const found = y.filter(value => value >= 0)
      expect(found.length).toBe(count)
      const kept = new Float32Array(count <= 16 ? 16 : width)
      kept.set(found)
      const { values } = t.launch(count <= 16 ? 'few' : 'many', { kept })
      expect((await values).total[0]).toBe(count * (count - 1))
    }
    expect(t.stats().executables.made).toBe(3)
  })

  it('63 a plan for several devices is refused, by name', async () => {
    const two = orThrow(
      compile(
        graph('two', { x: row }, ({ x }) => ({
          y: x.pipe(upload(onDevice(0)), mul(2), on(onDevice(1)), mul(2), download()),
        })),
        { storage: 'planned' },
      ),
    )
    const opening = await planTree(tree({ plans: { two }, start: ['two'] }), { device })()
    expect(opening._tag === 'Left' && [opening.left._tag, opening.left.found]).toEqual([
      'BadPlan',
      'a plan for 2 devices',
    ])
  })

  it('64 a tree has memory of its own device, and of no other', async () => {
    await using other = orThrow(await Device.open('host:1')())
    await using own = orThrow(await Device.open(device)())
    const held = (each: Device) =>
      [each.stats(), each.stats('pinned')].map(stats => stats['allocation.all.current'])
    const before = [held(other), held(own)]
    const t = await treeOn('', chain, { device: own })
    const beside = await treeOn('', chain, { device: other })
    await t
      .launch('double', { x: all(1) })
      .next('plusOne')
      .next('last').values
    expect(t.device).toBe(own)
    expect(held(own)).not.toEqual(before[1])
    await t.close()
    expect(held(own)).toEqual(before[1])
    expect(held(other)).not.toEqual(before[0])
    expect(
      only(
        (
          await beside
            .launch('double', { x: all(1) })
            .next('plusOne')
            .next('last').values
        ).w,
      ),
    ).toBe(30)
    await beside.close()
    expect(held(other)).toEqual(before[0])
  })

  it('85, 86 a shape that was not declared is refused every time, by its sizes; those that were go on', async () => {
    const plans = { ten: affine('ten', 'x', 'y', 2, 0, 10), twenty: affine('twenty', 'x', 'y', 2, 0, 20) }
    await using t = await treeOn(device, tree({ plans, start: ['ten', 'twenty'] }))
    const seen: number[] = []
    for (let round = 0; round < 3; round++) {
      seen.push(only((await t.launch('ten', { x: all(round, 10) }).values).y))
      seen.push(only((await t.launch('twenty', { x: all(round, 20) }).values).y))
      expect(() => t.launch('twenty', { x: all(1, 30) })).toThrow(/20.*30/s)
      expect(tagOf(() => t.launch('thirty' as never, { x: all(1, 30) } as never))).toBe('NotASuccessor')
    }
    expect(seen).toEqual([0, 0, 2, 2, 4, 4])
    expect(t.stats()).toMatchObject({ layouts: 2, launches: 6 })
    expect(t.stats().executables).toMatchObject({ made: 2, remade: 0 })
  })

  it('72, 73 several lanes in each plan, joined: values are right every time', async () => {
    const forked = planned(
      graph('forked', { x: row }, ({ x }) => {
        const d = x.pipe(upload(copy))
        const left = d.pipe(on(math), mul(2), mul(2))
        const right = d.pipe(on(copy), add(1), add(1))
        return { y: left.pipe(add(right), download(copy)) }
      }),
    )
    const spec = tree({ plans: { forked, plusOne }, start: ['forked'], then: { forked: ['plusOne'] } })
    await using t = await treeOn(device, spec)
    for (let i = 0; i < 10; i++)
      expect(only((await t.launch('forked', { x: all(i) }).next('plusOne').values).z)).toBe(5 * i + 3)
  })

  it('82, 83 a closed tree has given everything back, and refuses launches and handles', async () => {
    await using own = orThrow(await Device.open(device)())
    const held = () => [own.stats(), own.stats('pinned')].map(stats => stats['allocation.all.current'])
    const before = held()
    const t = await treeOn('', chain, { device: own })
    const { handles } = t.launch('double', { x: all(1) }).next('plusOne')
    await t.close()
    expect(held()).toEqual(before)
    expect(() => t.launch('double', { x: all(1) })).toThrow('closed')
    expect(() => handles.z.read()).toThrow('the tree is closed')
  })
})

describe('the list of behaviours', () => {
  it('has each of the 91, tested here where it says so', async () => {
    const { readFile } = await import('node:fs/promises')
    const texts = await Promise.all(
      ['behaviours', 'layouts', 'values', 'limits', 'failures'].map(name =>
        readFile(new URL(`./${name}.test.ts`, import.meta.url), 'utf8'),
      ),
    )
    const tested = new Set(
      [...texts.join('').matchAll(/^ {2}it\(\s*['"]((?:\d+, )*\d+) /gm)].flatMap(([, numbers]) =>
        numbers!.split(', ').map(Number),
      ),
    )
    expect(Object.keys(behaviours).map(Number)).toEqual(Array.from({ length: 91 }, (_, i) => i + 1))
    const claimed = Object.entries(behaviours).flatMap(([number, { ours }]) =>
      ours === 'kept' || ours === 'changed' ? [Number(number)] : [],
    )
    expect([...tested].sort((a, b) => a - b)).toEqual(claimed)
  })
})
