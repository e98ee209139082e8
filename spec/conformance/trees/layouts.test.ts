// What PyTorch's graph trees do, restated for plan trees: which layouts and executables are made, and where
// values lie. The number of a test is that of the behaviour in the list of behaviours.ts.
import { describe, expect, it } from 'vitest'
import {
  add,
  conv,
  download,
  graph,
  mul,
  orThrow,
  param,
  reshape,
  ring,
  slice,
  sum,
  tensor,
  tree,
  upload,
} from '../../../dsl/index.js'
import { Device, planTree } from '../../../runtime/index.js'
import { present } from '../devices.js'
import {
  affine,
  all,
  chain,
  copy,
  double,
  large,
  only,
  pair,
  planned,
  plusOne,
  type Row,
  renamed,
  row,
  tagOf,
  treeOn,
  width,
} from './kit.js'

describe.each(present)('layouts and executables of trees on %s', device => {
  it('1 simple, two sizes: two plans, one arena as large as the larger one needs', async () => {
    const small = affine('small', 'x', 'y', 2, 0)
    const big = affine('big', 'x', 'y', 2, 0, large)
    const keep = { y: ring(1) } as const
    const spec = tree({ plans: { small, big }, start: ['small', 'big'], keep: { small: keep, big: keep } })
    await using t = await treeOn(device, spec)
    for (let round = 0; round < 2; round++) {
      expect(only(await t.launch('small', { x: all(1) }).handles.y.read())).toBe(2)
      expect(only(await t.launch('big', { x: all(2, large) }).handles.y.read())).toBe(4)
    }
    const alone = await treeOn(device, tree({ plans: { big }, start: ['big'], keep: { big: keep } }))
    expect(t.stats().arena).toBe(alone.stats().arena)
    await alone.close()
  })

  it('2, 3, 4 phases and shape keys: each layout is made once, whatever is launched how often', async () => {
    const plans = { two: affine('two', 'x', 'y', 2, 0), three: affine('three', 'x', 'y', 3, 0, 2 * width) }
    await using t = await treeOn(device, tree({ plans, start: ['two', 'three'] }))
    const made: number[] = []
    const run = async (name: 'two' | 'three', length: number): Promise<void> => {
      await t.launch(name, { x: all(1, length) }).values
      made.push(t.stats().executables.made)
    }
    for (let i = 0; i < 3; i++) await run('two', width)
    for (let i = 0; i < 3; i++) await run('three', 2 * width)
    await run('two', width)
    expect(made).toEqual([1, 1, 1, 2, 2, 2, 2])
  })

  it('5, 6, 78, 79, 80 paths: one root and its descendants, others after a new begin; layouts are values', async () => {
    const other = affine('other', 'x', 'o', 7, 0)
    const spec = tree({ ...chain, plans: { ...chain.plans, other }, start: ['double', 'other'] })
    await using t = await treeOn(device, spec)
    const { layouts } = t
    expect(layouts.filter(({ inputs }) => Object.keys(inputs).length === 0).map(({ plan }) => plan)).toEqual([
      'double',
      'other',
    ])
    expect(layouts).toHaveLength(4)
    for (let round = 0; round < 3; round++) {
      const first = t.launch('double', { x: all(5) })
      const { values } = first.next('plusOne').next('last')
      expect(only((await values).w)).toBe(110)
      t.begin()
      expect(only((await t.launch('other', { x: all(1) }).values).o)).toBe(7)
    }
    expect(t.layouts).toEqual(layouts)
    expect(t.stats().executables).toMatchObject({ made: 4, remade: 0 })
  })

  it('7 a branch that comes late restores nothing and makes one executable', async () => {
    const minus = affine('minus', 'y', 'z', 1, -1)
    const spec = tree({
      plans: { double, plusOne, minus },
      start: ['double'],
      then: { double: ['plusOne', 'minus'] },
    })
    await using t = await treeOn(device, spec)
    for (let i = 0; i < 4; i++)
      expect(only((await t.launch('double', { x: all(i) }).next('plusOne').values).z)).toBe(2 * i + 1)
    expect(t.stats().executables.made).toBe(2)
    expect(only((await t.launch('double', { x: all(4) }).next('minus').values).z)).toBe(7)
    expect(t.stats().executables).toMatchObject({ made: 3, remade: 0 })
    expect(t.stats()).toMatchObject({ moves: 0, staged: 0 })
  })

  it('9, 25, 26 an output that nobody reads any more gives its bytes to the next plan', async () => {
    const two = planned(
      graph('two', { x: row }, ({ x }) => {
        const d = x.pipe(upload(copy))
        const wide = d.pipe(reshape([1, width]), add(0))
        return { y: d.pipe(mul(2), download(copy)), dead: wide.pipe(download(copy)) }
      }),
    )
    const wide = planned(
      graph('wide', { y: row, more: tensor('f32', [large]) }, ({ y, more }) => {
        const m = more.pipe(upload(copy), mul(2))
        const sum = m.pipe(slice(0, 0, width), add(y.pipe(upload(copy))))
        return { z: sum.pipe(download(copy)) }
      }),
    )
    const spec = tree({
      plans: { two, wide },
      start: ['two'],
      then: { two: ['wide'] },
      keep: { two: { dead: { lives: 'run' } } },
    })
    await using t = await treeOn(device, spec)
    const first = t.launch('two', { x: all(1) })
    const { dead } = first.handles
    expect(only(await dead.read())).toBe(1)
    const { values } = first.next('wide', { more: all(3, large) })
    expect(only((await values).z)).toBe(8)
    expect(dead.stale).toBe(true)
    const layouts = t.layouts.length
    // Letting go of a handle before changes nothing.
    const again = t.launch('two', { x: all(1) })
    again.handles.dead[Symbol.dispose]()
    await again.next('wide', { more: all(3, large) }).values
    expect(t.layouts).toHaveLength(layouts)
  })

  it('11, 45, 47 two outputs that are parts of one value are two values, each at its place', async () => {
    const parts = planned(
      graph('parts', { x: tensor('f32', [2, width]) }, ({ x }) => {
        const d = x.pipe(upload(copy), mul(2))
        const part = (at: number) => d.pipe(slice(0, at, at + 1), reshape([width]))
        return { p: part(0).pipe(download(copy)), q: part(1).pipe(download(copy)) }
      }),
    )
    const use = affine('use', 'p', 'r', 1, 1)
    const spec = tree({
      plans: { parts, use },
      start: ['parts'],
      then: { parts: ['use'] },
      keep: { parts: { q: ring(1) } },
    })
    await using t = await treeOn(device, spec)
    const places = new Set<number>()
    for (let round = 0; round < 4; round++) {
      const x = new Float32Array(2 * width).fill(1, 0, width).fill(5, width)
      const first = t.launch('parts', { x })
      const r = first.next('use')
      expect(only((await r.values).r)).toBe(3)
      expect(only(await first.handles.q.read())).toBe(10)
      places.add(await first.handles.q.use(t.device.defaultLane, ({ address }) => address))
    }
    expect(places.size).toBe(1)
  })

  it('12 a value from outside in place of the one in the arena is put there: no layout, no executable', async () => {
    await using t = await treeOn(device, chain)
    await t
      .launch('double', { x: all(1) })
      .next('plusOne')
      .next('last').values
    const before = t.stats()
    for (let i = 0; i < 6; i++) {
      t.launch('double', { x: all(1) })
      const { values } = t.launch('plusOne', { y: all(i) }).next('last')
      expect(only((await values).w)).toBe(10 * (i + 1))
    }
    expect(t.stats()).toMatchObject({ layouts: before.layouts, staged: 6, moves: 0 })
    expect(t.stats().executables.made).toBe(before.executables.made)
    // Another value of the arena is moved there.
    const use = affine('use', 'a', 'c', 1, 1)
    const two = tree({
      plans: { pair, use },
      start: ['pair'],
      then: { pair: ['use'] },
      keep: { pair: { b: ring(1) } },
    })
    await using other = await treeOn(device, two)
    const { handles, next } = other.launch('pair', { x: all(5) })
    expect(only((await next('use', { a: handles.b }).values).c)).toBe(16)
    expect(only(await handles.b.read())).toBe(15)
    expect(handles.a.stale).toBe(true)
    expect(other.stats()).toMatchObject({ moves: 1, staged: 0 })
    // A value of another tree is refused.
    const foreign = t.launch('double', { x: all(1) }).handles.y
    other.launch('pair', { x: all(5) })
    expect(tagOf(() => other.launch('use', { a: foreign }))).toBe('WrongValue')
  })

  const weighted = planned(
    graph('weighted', { x: row, w: row }, ({ x, w }) => ({
      y: x.pipe(upload(copy), mul(w.pipe(upload(copy))), download(copy)),
    })),
  )

  it('13, 19 other weights every time, as inputs: nothing is made again', async () => {
    const spec = tree({ plans: { weighted, plusOne }, start: ['weighted'], then: { weighted: ['plusOne'] } })
    await using t = await treeOn(device, spec)
    await t.prepare()
    const { layouts } = t
    // Five times the one array, five times another one, and the first one again.
    const [p1, p2] = [all(2), all(3)]
    for (const [round, w] of [...Array(5).fill(p1), ...Array(5).fill(p2), ...Array(5).fill(p1)].entries()) {
      const { values } = t.launch('weighted', { x: all(round), w }).next('plusOne')
      expect(only((await values).z)).toBe(round * w[0] + 1)
    }
    expect(t.layouts).toEqual(layouts)
    expect(t.stats().executables).toMatchObject({ made: 2, remade: 0 })
  })

  it("14 a child's weights change under the same parent: nothing is made again", async () => {
    const child = renamed<{ y: Row; w: Row }, { z: Row }>(weighted, { x: 'y', y: 'z' })
    const spec = tree({ plans: { double, child }, start: ['double'], then: { double: ['child'] } })
    await using t = await treeOn(device, spec)
    for (const [round, w] of [2, 2, 3, 3, 2].entries()) {
      const { values } = t.launch('double', { x: all(round) }).next('child', { w: all(w) })
      expect(only((await values).z)).toBe(2 * round * w)
    }
    expect(t.stats()).toMatchObject({ layouts: 2, moves: 0, staged: 0 })
    expect(t.stats().executables).toMatchObject({ made: 2, remade: 0 })
  })

  it('15 a child has one executable under every parent, whatever weights these have', async () => {
    const parents = { one: affine('one', 'x', 'y', 2, 0), two: affine('two', 'x', 'y', 3, 0), weighted }
    const next = { one: ['plusOne'], two: ['plusOne'], weighted: ['plusOne'] } as const
    const start = ['one', 'two', 'weighted'] as const
    await using t = await treeOn(device, tree({ plans: { ...parents, plusOne }, start, then: next }))
    for (const round of [1, 2, 3]) {
      const one = t.launch('one', { x: all(round) }).next('plusOne')
      const two = t.launch('two', { x: all(round) }).next('plusOne')
      const other = t.launch('weighted', { x: all(round), w: all(5) }).next('plusOne')
      const found = [one, two, other].map(async ({ values }) => only((await values).z))
      expect(await Promise.all(found)).toEqual([2 * round + 1, 3 * round + 1, 5 * round + 1])
    }
    expect(t.layouts.filter(({ plan }) => plan === 'plusOne')).toHaveLength(1)
    expect(t.stats().executables).toMatchObject({ made: 4, remade: 0 })
  })

  it('16 a weight or a buffer is swapped, used, and swapped back: by its array, by its values, or on the device', async () => {
    const load = planned(
      graph('load', { raw: row }, ({ raw }) => ({ w: raw.pipe(upload(copy), add(0), download(copy)) })),
    )
    const spec = tree({
      plans: { load, weighted },
      start: ['load', 'weighted'],
      then: { load: ['weighted'], weighted: ['weighted', 'load'] },
      keep: { load: { w: ring(1) } },
    })
    await using t = await treeOn(device, spec)
    const run = async (feeds: { readonly w?: Float32Array }): Promise<number> =>
      only((await t.launch('weighted', { x: all(10), ...feeds }).values).y)
    const [first, second] = [all(2), all(3)]
    // Other arrays; and other values in one array.
    expect([await run({ w: first }), await run({ w: second }), await run({ w: first })]).toEqual([20, 30, 20])
    const buffer = all(4)
    const changed = [await run({ w: buffer })]
    buffer.fill(5)
    changed.push(await run({ w: buffer }))
    buffer.fill(4)
    changed.push(await run({ w: buffer }))
    expect(changed).toEqual([40, 50, 40])
    // In the arena: loaded once and used often, then replaced there.
    const used: number[] = []
    for (const w of [6, 7, 6]) {
      t.launch('load', { raw: all(w) })
      used.push(await run({}), await run({}))
    }
    expect(used).toEqual([60, 60, 70, 70, 60, 60])
    const { executables, layouts } = t.stats()
    expect(executables.made).toBeLessThanOrEqual(layouts)
    expect(executables.remade).toBe(0)
  })

  it('17, 18 every input that is wrong is named; a parameter may change outside, the tree has its own', async () => {
    const scaled = planned(
      graph('scaled', { x: row, bias: row }, ({ x, bias }) => ({
        y: x.pipe(upload(copy), mul(param('w', row)), add(bias.pipe(upload(copy))), download(copy)),
      })),
    )
    const w = all(3)
    const spec = tree({ plans: { scaled }, start: ['scaled'] })
    await using t = await treeOn(device, spec, { params: { w } })
    for (let i = 0; i < 3; i++) {
      w.fill(i)
      expect(only((await t.launch('scaled', { x: all(2), bias: all(i) }).values).y)).toBe(6 + i)
    }
    for (let i = 0; i < 2; i++) {
      expect(() => t.launch('scaled', { x0: all(1), bias0: all(1) } as never)).toThrow(
        /x.*bias.*x0.*bias0|x0.*bias0.*x.*bias/s,
      )
      expect(() => t.launch('scaled', { x: all(1), bias: all(1, 3) })).toThrow(/bias.*64.*3/s)
    }
    const opening = await planTree(spec, { device })()
    expect(opening._tag === 'Left' && opening.left._tag).toBe('MissingParam')
  })

  it('24, 90 nothing grows with launches: the layouts that were declared, each made once', async () => {
    await using t = await treeOn(device, chain)
    const frozen = JSON.stringify(chain.plans)
    await t.prepare()
    const { layouts, executables } = t.stats()
    for (let i = 0; i < 30; i++) {
      const first = t.launch('double', { x: all(i) })
      const second = i % 3 === 0 ? t.launch('plusOne', { y: all(i) }) : first.next('plusOne')
      if (i % 2 === 0) second.next('last')
    }
    await t.drained()
    expect(t.stats().layouts).toBe(layouts)
    expect(t.stats().executables.made).toBe(executables.made)
    expect(JSON.stringify(chain.plans)).toBe(frozen)
  })

  it('76 a workspace has its place in the arena: launches allocate nothing', async () => {
    const image = tensor('f32', [1, 128, 96, 96])
    const convolved = planned(
      graph('convolved', { x: image }, ({ x }) => {
        const filters = param('filters', tensor('f32', [64, 128, 3, 3]))
        return { y: x.pipe(upload(copy), conv(filters, { padding: 1 }), sum(), download(copy)) }
      }),
    )
    const nodes = convolved.nodes.flatMap(({ kernel }) => (kernel === undefined ? [] : [kernel]))
    expect(nodes.some(kernel => 'workspace' in kernel && (kernel.workspace as number) > 0)).toBe(true)
    await using own = orThrow(await Device.open(device)())
    const spec = tree({ plans: { convolved }, start: ['convolved'] })
    const t = await treeOn('', spec, {
      device: own,
      params: { filters: all(1, 64 * 128 * 9) },
      poison: false,
    })
    await t.prepare()
    const made = () => [own.stats(), own.stats('pinned')].map(stats => stats['allocation.all.allocated'])
    const before = made()
    for (const value of [0, 1, 0]) {
      const { y } = await t.launch('convolved', { x: all(value, 128 * 96 * 96) }).values
      expect(y[0]).toBeCloseTo(value * 64 * 128 * (3 * 96 - 2) ** 2, -6)
    }
    expect(made()).toEqual(before)
    await t.close()
  })
})
