// Plans by shape: one name for a plan of each shape, of which a launch takes the one that fits its values.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  add,
  byShape,
  download,
  graph,
  mul,
  orThrow,
  ring,
  tensor,
  tree,
  until,
  upload,
} from '../../../dsl/index.js'
import { type Handle, planTree } from '../../../runtime/index.js'
import { runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'
import { all, copy, only, planned, treeOn } from './kit.js'

const sizes = [1, 2, 4, 8]
const promptOf = (batch: number) =>
  planned(
    graph(`prompt ${batch}`, { x: tensor('f32', [batch, 64]) }, ({ x }) => ({
      state: x.pipe(upload(copy), mul(2), download(copy)),
    })),
  )
const stepOf = (batch: number) => {
  const rows = tensor('f32', [batch, 64])
  return planned(
    graph(`step ${batch}`, { state: rows, token: rows }, ({ state, token }) => {
      const next = state.pipe(upload(copy), add(token.pipe(upload(copy))))
      return { state: next.pipe(download(copy)), seen: next.pipe(mul(10), download(copy)) }
    }),
  )
}
const each = <P>(of: (batch: number) => P): Record<string, P> =>
  Object.fromEntries(sizes.map(batch => [batch, of(batch)]))
const plans = { prompt: byShape(each(promptOf)), step: byShape(each(stepOf)) }
const decoder = tree({ plans, start: ['prompt'], then: { prompt: ['step'], step: ['step'] } })

describe.each(present)('plans by shape, on %s', device => {
  it('are picked by what is given, and follow each other within one key', async () => {
    await using t = await treeOn(device, decoder)
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.tuple(fc.constantFrom(...sizes), fc.array(fc.integer({ min: -9, max: 9 }), { maxLength: 4 })),
        ),
        async turns => {
          for (const [batch, tokens] of turns) {
            const first = t.launch('prompt', { x: all(3, 64 * batch) })
            expect([first.plan, first.shape, t.last]).toEqual(['prompt', String(batch), 'prompt'])
            let value = 6
            for (const token of tokens) {
              value += token
              const { shape, values } = t.launch('step', { token: all(token, 64 * batch) })
              expect(shape).toBe(String(batch))
              const { seen } = await values
              expect(seen).toHaveLength(64 * batch)
              expect(only(seen)).toBe(10 * value)
            }
          }
        },
      ),
      { numRuns: runs(20) },
    )
    // One arena, as large as the largest shape asks for.
    await using largest = await treeOn(
      device,
      tree({
        plans: { prompt: promptOf(8), step: stepOf(8) },
        start: ['prompt'],
        then: { prompt: ['step'], step: ['step'] },
      }),
    )
    expect(t.stats().arena).toBe(largest.stats().arena)
    expect(Object.keys(t.stats().alone)).toContain('step/8')
    expect(t.explain()).toContain('step/8')
  })

  it('keep values by key, and take handles of them', async () => {
    const kept = tree({
      plans,
      start: ['prompt'],
      then: { prompt: ['step'], step: ['step'] },
      keep: { prompt: { state: until('prompt') }, step: { seen: ring(2) } },
    })
    await using t = await treeOn(device, kept)
    for (const batch of [2, 8]) {
      const { state } = t.launch('prompt', { x: all(1, 64 * batch) }).handles
      const { seen } = t.launch('step', { token: all(1, 64 * batch) }).handles
      t.launch('step', { token: all(5, 64 * batch), state })
      expect(only(await seen.read())).toBe(30)
      expect(only(await state.read())).toBe(2)
    }
  })

  it('begin a run with one shape where another one has as many values as may be', async () => {
    const full = tree({
      plans,
      start: ['prompt'],
      then: { prompt: ['prompt', 'step'], step: ['step'] },
      keep: { prompt: { state: until('step') } },
    })
    await using t = await treeOn(device, full)
    t.launch('prompt', { x: all(1, 64) })
    expect(() => t.launch('prompt', { x: all(1, 64) })).toThrow(/prompt\/1/)
    expect(t.launch('prompt', { x: all(3, 512) }).shape).toBe('8')
    expect(only((await t.launch('step', { token: all(1, 512) }).values).seen)).toBe(70)
  })

  it('are refused as a whole where none fits, and nothing has changed', async () => {
    await using t = await treeOn(device, decoder)
    const before = t.stats()
    expect(() => t.launch('prompt', { x: all(1, 100) })).toThrow(
      /prompt[\s\S]*one of its shapes: 1 \(x \[1,64\]\), 2 \(x \[2,64\]\)[\s\S]*100/,
    )
    for (const given of [undefined, null, 7, {}, { y: all(1) }, { x: 'text' }, { x: { length: 64 } }])
      expect(() => t.launch('prompt', given as never)).toThrow(/WrongValue/)
    expect(() => t.launch('step', { token: all(1) } as never)).toThrow(/may begin/)
    expect(t.stats()).toEqual(before)
    const { handles } = t.launch('prompt', { x: all(1, 128) })
    // One key follows: another one is refused by its name, and a size of none by what that one wants.
    expect(() => t.launch('step', { token: all(1, 64) })).toThrow(
      /after prompt\/2[\s\S]*step\/2[\s\S]*step\/1/,
    )
    expect(() => t.launch('step', { token: all(1, 100) })).toThrow(/step\/2\.token/)
    const other = handles.state as unknown as Handle
    expect(() => t.launch('prompt', { x: other } as never)).toThrow(/WrongValue/)
    expect(only((await t.launch('step', { token: all(1, 128) }).values).seen)).toBe(30)
  })
})

describe('a tree with plans by shape', () => {
  const faultsOf = async (spec: unknown) => {
    const opened = await planTree(spec as typeof decoder, { device: 'host' })()
    return isLeft(opened) ? [opened.left, ...(opened.left.others ?? [])] : []
  }
  const open = (given: Record<string, unknown>) => ({ start: [], then: {}, keep: {}, ...given })

  it('has the same ports in each, and shapes that tell them apart', async () => {
    const mixed = { a: byShape({ 1: promptOf(1), 2: stepOf(2) as never }) }
    expect((await faultsOf(open({ plans: mixed })))[0]).toMatchObject({
      at: 'plans.a',
      found: /of its shape 2: /,
    })
    const twice = { a: byShape({ 1: promptOf(1), one: promptOf(1) }) }
    expect((await faultsOf(open({ plans: twice })))[0]).toMatchObject({ found: /two plans of x \[1,64\]/ })
  })

  it('is checked as any other: names, forms, plans', async () => {
    expect(() => byShape({})).toThrow(/byShape[\s\S]*at least one/)
    expect(() => byShape(7 as never)).toThrow(/byShape/)
    for (const shapes of [7, [], {}, null])
      expect((await faultsOf(open({ plans: { a: { shapes } } })))[0]?.at).toBe('plans.a.shapes')
    expect((await faultsOf(open({ plans: { a: { shapes: { 1: 7 } } } })))[0]).toBeDefined()
    const unknown = await faultsOf(open({ plans, start: ['prompt', 'nothing'] }))
    expect(unknown[0]).toMatchObject({ _tag: 'BadPlan', at: 'start', found: 'nothing' })
    // A name of the caller's that is that of a shape stays the caller's.
    const named = { ...plans, 'step/8': promptOf(8) }
    await using t = orThrow(
      await planTree(tree({ plans: named, start: ['prompt', 'step/8'], then: { prompt: ['step'] } }), {
        device: 'host',
      })(),
    )
    expect(t.launch('step/8', { x: all(1, 512) }).shape).toBeUndefined()
    expect(t.launch('prompt', { x: all(1, 512) }).next('step', { token: all(1, 512) }).shape).toBe('8')
  })
})
