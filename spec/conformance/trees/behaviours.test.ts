// What PyTorch's graph trees do, restated for plan trees: the number of a test is that of the behaviour in
// the list of behaviours.ts, which says for each whether it is kept or changed, and why some have no test.
// Those about limits, about what is alive, and about failures are in limits.test.ts and failures.test.ts.
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  conv,
  download,
  graph,
  kernel,
  mul,
  on,
  device as onDevice,
  orThrow,
  param,
  reshape,
  ring,
  scan,
  slice,
  sum,
  tensor,
  tree,
  uniform,
  until,
  upload,
} from '../../../dsl/index.js'
import { Device, type Handle, planTree, StaleHandleError, TreeError } from '../../../runtime/index.js'
import { present } from '../devices.js'
import { behaviours } from './behaviours.js'
import { affine, all, copy, math, only, planned, type Row, renamed, row, treeOn, width } from './kit.js'

const large = 64 * width
const tagOf = (run: () => unknown): string | undefined => {
  try {
    run()
    return undefined
  } catch (error) {
    return error instanceof TreeError ? error._tag : String(error)
  }
}

/** a = 2x, b = 3x */
const pair = planned(
  graph('pair', { x: row }, ({ x }) => {
    const d = x.pipe(upload(copy))
    return { a: d.pipe(mul(2), download(copy)), b: d.pipe(mul(3), download(copy)) }
  }),
)
const double = affine('double', 'x', 'y', 2, 0)
const plusOne = affine('plusOne', 'y', 'z', 1, 1)
const chain = tree({
  plans: { double, plusOne, last: affine('last', 'z', 'w', 10, 0) },
  start: ['double'],
  then: { double: ['plusOne'], plusOne: ['last'] },
  keep: { plusOne: { z: ring(1) } },
})

/** saved = 2x; grad = saved + y */
const forward = affine('forward', 'x', 'saved', 2, 0)
const backward = planned(
  graph('backward', { saved: row, y: row }, ({ saved, y }) => ({
    grad: saved.pipe(upload(copy), add(y.pipe(upload(copy))), download(copy)),
  })),
)
const training = (count: number) =>
  tree({
    plans: { forward, backward },
    start: ['forward'],
    then: { forward: ['forward', 'backward'], backward: ['forward', 'backward'] },
    keep: { forward: { saved: until('backward', count) } },
  })

describe.each(present)('behaviours of trees on %s', device => {
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

  it('28, 31, 32, 35 what a backward pass needs is kept until it comes: the newest first, so many at most', async () => {
    await using t = await treeOn(device, training(2))
    const one = t.launch('forward', { x: all(1) }).handles.saved
    const two = t.launch('forward', { x: all(10) }).handles.saved
    expect(tagOf(() => t.launch('forward', { x: all(100) }))).toBe('TooManyKept')
    expect([only(await one.read()), only(await two.read())]).toEqual([2, 20])
    expect(only((await t.launch('backward', { y: all(1) }).values).grad)).toBe(21)
    // The launch of one backward pass has made room for one more forward pass.
    const three = t.launch('forward', { x: all(50) }).handles.saved
    expect([only(await one.read()), only(await three.read())]).toEqual([2, 100])
    expect(two.stale).toBe(true)
    expect(only((await t.launch('backward', { y: all(1) }).values).grad)).toBe(101)
    expect(only((await t.launch('backward', { y: all(1) }).values).grad)).toBe(3)
  })

  it('33, 34, 36, 37 a backward pass that never comes: a new begin gives its values up, that one time', async () => {
    await using t = await treeOn(device, training(1))
    for (let i = 0; i < 3; i++) {
      t.launch('forward', { x: all(i) })
      expect(tagOf(() => t.launch('forward', { x: all(i) }))).toBe('TooManyKept')
      t.begin()
    }
    const { layouts } = t.stats()
    t.launch('forward', { x: all(1) })
    expect(only((await t.launch('backward', { y: all(1) }).values).grad)).toBe(3)
    expect(t.stats().layouts).toBe(layouts)
  })

  it('38, 39, 40, 41 an overwritten value is refused after the first launch, the second, and every later one', async () => {
    const spec = tree({ plans: { double }, start: ['double'], keep: { double: { y: { lives: 'run' } } } })
    await using t = await treeOn(device, spec)
    let old: Pick<Handle, 'read' | 'use' | 'stale'> | undefined
    for (let i = 0; i < 5; i++) {
      const { handles } = t.launch('double', { x: all(i) })
      if (i === 3) await t.evict()
      if (old !== undefined) {
        const { read, use } = old
        expect(old.stale).toBe(true)
        expect(() => read.call(old)).toThrow(StaleHandleError)
        expect(() => use.call(old, t.device.defaultLane, () => 0)).toThrow(
          'overwritten by a launch of double',
        )
      }
      expect(only(await handles.y.read())).toBe(2 * i)
      old = handles.y
    }
  })

  it('77 the values that are alive are those whose handles are not stale', async () => {
    const spec = tree({
      plans: { pair, use: affine('use', 'a', 'c', 1, 1) },
      start: ['pair'],
      then: { pair: ['use'] },
      keep: { pair: { b: ring(2) }, use: { c: { lives: 'run' } } },
    })
    await using t = await treeOn(device, spec)
    const handles: Pick<Handle, 'stale'>[] = []
    for (let i = 0; i < 6; i++) {
      const first = t.launch('pair', { x: all(i) })
      handles.push(...Object.values(first.handles))
      if (i % 2 === 0) handles.push(...Object.values(first.next('use').handles))
      expect(t.stats().values).toBe(handles.filter(({ stale }) => !stale).length)
    }
  })

  it('30, 46, 48, 49, 50 an input or a parameter that is an output too keeps its value', async () => {
    const same = planned(
      graph('same', { x: row }, ({ x }) => {
        const w = param('w', row)
        const d = x.pipe(upload(copy))
        return {
          x: d.pipe(download(copy)),
          w: w.pipe(download(copy)),
          s: w.pipe(add(d), download(copy)),
        }
      }),
    )
    const spec = tree({
      plans: { same },
      start: ['same'],
      then: { same: ['same'] },
      keep: { same: { s: ring(1) } },
    })
    await using t = await treeOn(device, spec, { params: { w: all(7) } })
    let last = t.launch('same', { x: all(1) })
    for (let round = 0; round < 4; round++) {
      expect(only((await last.values).w)).toBe(7)
      expect(only(await last.handles.s.read())).toBe(8)
      expect(only(await last.handles.x.read())).toBe(1)
      last = last.next('same')
    }
    expect(only((await last.values).w)).toBe(7)
  })

  it('53, 54, 55, 56 inputs that are broadcast, lie anywhere, and are never written', async () => {
    const wide = planned(
      graph('wide', { one: tensor('f32', [1]), x: row }, ({ one, x }) => ({
        y: x.pipe(upload(copy), add(one.pipe(upload(copy))), download(copy)),
      })),
    )
    await using t = await treeOn(device, tree({ plans: { wide }, start: ['wide'] }))
    const memory = new Float32Array(width + 3).fill(2)
    const x = memory.subarray(1, width + 1)
    for (let i = 0; i < 3; i++)
      expect(only((await t.launch('wide', { one: all(i, 1), x }).values).y)).toBe(i + 2)
    expect(only(memory)).toBe(2)
  })

  it('57, 61 a state counts every launch once, the first one too', async () => {
    const counter = planned(
      graph('counter', { x: row }, ({ x }) => ({
        n: x.pipe(
          upload(copy),
          scan((sum, value) => sum.pipe(add(value)), 0),
          download(copy),
        ),
      })),
    )
    await using t = await treeOn(device, tree({ plans: { counter }, start: ['counter'] }))
    const seen: number[] = []
    for (let i = 0; i < 3; i++) {
      seen.push(only((await t.launch('counter', { x: all(1) }).values).n))
      await t.evict()
    }
    expect(seen).toEqual([1, 2, 3])
  })

  it('70 each launch draws other random numbers, the same ones in each tree', async () => {
    const noise = planned(
      graph('noise', { x: row }, ({ x }) => ({
        y: x.pipe(upload(copy), uniform({ seed: 7 }), download(copy)),
      })),
    )
    const drawn = async (): Promise<readonly number[]> => {
      await using t = await treeOn(device, tree({ plans: { noise }, start: ['noise'] }))
      const seen: number[] = []
      for (let i = 0; i < 4; i++) {
        seen.push((await t.launch('noise', { x: all(1) }).values).y[0]!)
        if (i === 1) await t.evict()
      }
      return seen
    }
    const [one, other] = [await drawn(), await drawn()]
    expect(new Set(one).size).toBe(4)
    expect(other).toEqual(one)
  })

  it('71 random numbers that are needed again are kept: each backward pass gets those of its forward pass', async () => {
    const drawing = planned(
      graph('drawing', { x: row }, ({ x }) => {
        const noise = x.pipe(upload(copy), uniform({ seed: 7 }))
        return { noise: noise.pipe(download(copy)), seen: noise.pipe(mul(1), download(copy)) }
      }),
    )
    const again = affine('again', 'noise', 'used', 1, 0)
    const spec = tree({
      plans: { drawing, again },
      start: ['drawing'],
      then: { drawing: ['drawing', 'again'], again: ['drawing', 'again'] },
      keep: { drawing: { noise: until('again', 2) } },
    })
    await using t = await treeOn(device, spec)
    for (let round = 0; round < 3; round++) {
      const [one, two] = [t.launch('drawing', { x: all(1) }), t.launch('drawing', { x: all(1) })]
      const used = [t.launch('again'), t.launch('again')].map(async ({ values }) => (await values).used)
      const seen = await Promise.all([two, one].map(async ({ values }) => (await values).seen))
      expect(await Promise.all(used)).toEqual(seen)
      expect(seen[0]).not.toEqual(seen[1])
    }
  })

  it('51, 52 a value without elements takes no place in the arena, and is read as it is', async () => {
    const treeOf = (shape: readonly number[]) => {
      const empty = graph('empty', { x: tensor('f32', shape), z: tensor('f32', [64]) }, ({ x, z }) => ({
        y: x.pipe(upload(copy), mul(2), download(copy)),
        w: z.pipe(upload(copy), mul(2), download(copy)),
      }))
      return tree({ plans: { empty: planned(empty as never) }, start: ['empty'] })
    }
    const without = await treeOn(device, treeOf([4, 0]))
    const one = await treeOn(device, treeOf([4, 64]))
    expect(without.stats().arena).toBeLessThan(one.stats().arena)
    await one.close()
    await using t = without
    const { values } = t.launch('empty', {
      x: new Float32Array(0),
      z: new Float32Array(64).fill(3),
    } as never)
    const { y, w } = (await values) as unknown as Record<'y' | 'w', Float32Array>
    expect([y, only(w)]).toEqual([new Float32Array(0), 6])
    expect(tagOf(() => t.launch('empty', { x: new Float32Array(1), z: new Float32Array(64) } as never))).toBe(
      'WrongValue',
    )
  })

  it('29 a value that a later plan has read is there, or is refused: no other one is shown', async () => {
    const spec = tree({
      plans: { double, plusOne },
      start: ['double'],
      then: { double: ['plusOne'], plusOne: ['double'] },
    })
    await using t = await treeOn(device, spec)
    let refused = 0
    for (let i = 1; i <= 5; i++) {
      const { handles } = t.launch('double', { x: all(i) })
      for (let k = 0; k < 3; k++) {
        if (k > 0) t.launch(k === 1 ? 'plusOne' : 'double', (k === 1 ? undefined : { x: all(-1) }) as never)
        if (handles.y.stale) {
          expect(() => handles.y.read()).toThrow(StaleHandleError)
          refused++
        } else expect(only(await handles.y.read())).toBe(2 * i)
      }
    }
    expect(refused).toBeGreaterThan(0)
  })

  it('58, 59, 60 a kernel writes its input in place: in a copy, of a value in the arena and of the host', async () => {
    const bump = kernel({
      name: 'bump',
      cuda: 'extern "C" __global__ void bump(float* x) { x[threadIdx.x] += 1.0f; }',
      reads: { x: row },
      writes: { y: row },
      donates: { y: 'x' },
      launch: { grid: 1, block: width },
      reference: (_, { y }) => {
        for (let i = 0; i < y.length; i++) y[i]! += 1
      },
    })
    const bumped = planned(
      graph('bumped', { y: row }, ({ y }) => ({
        z: bump({ x: y.pipe(upload(copy)) }).y.pipe(download(copy)),
      })),
    )
    const spec = tree({ plans: { double, bumped }, start: ['double'], then: { double: ['bumped'] } })
    await using t = await treeOn(device, spec)
    const own = all(5)
    for (let round = 0; round < 3; round++) {
      const managed = t.launch('double', { x: all(3) })
      expect(only((await managed.next('bumped').values).z)).toBe(7)
      if (!managed.handles.y.stale) expect(only(await managed.handles.y.read())).toBe(6)
      const external = t.launch('double', { x: all(3) }).next('bumped', { y: own })
      expect(only((await external.values).z)).toBe(6)
      expect(only(own)).toBe(5)
    }
    expect(t.stats().executables).toMatchObject({ made: 2, remade: 0 })
  })

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

  it("74, 75 a lane of the caller's reads at once, and allocates beside the tree", async () => {
    await using t = await treeOn(device, chain)
    const lane = t.device.lane({ name: 'mine' })
    for (let i = 0; i < 5; i++) {
      const first = t.launch('double', { x: all(i) }).next('plusOne')
      using block = t.device.malloc(4 * width, lane)
      using host = t.device.pinned(4 * width, lane)
      await first.handles.z.use(lane, span => lane.copy(block, span))
      // Written over before the lane has come to the copy, as far as the host knows.
      for (let k = 0; k < 3; k++) t.launch('double', { x: all(100) }).next('plusOne')
      lane.copy(host, block)
      await lane.synchronize()
      expect(only(new Float32Array(host.view()).slice(0, width))).toBe(2 * i + 1)
    }
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

  it('88, 89 an output that is the next input of its own plan needs no copy, and alternates between two places', async () => {
    const step = planned(
      graph('step', { s: row }, ({ s }) => ({ s: s.pipe(upload(copy), mul(2), add(1), download(copy)) })),
    )
    const spec = tree({ plans: { step }, start: ['step'], then: { step: ['step'] } })
    await using t = await treeOn(device, spec)
    let last = t.launch('step', { s: all(0) })
    for (let i = 0; i < 9; i++) last = last.next('step')
    expect(only(await last.handles.s.read())).toBe(2 ** 10 - 1)
    expect(t.stats()).toMatchObject({ moves: 0, staged: 1 })
    expect(new Set(t.layouts.map(({ outputs }) => outputs['s'])).size).toBe(2)
  })
})

describe('the list of behaviours', () => {
  it('has each of the 91, tested here where it says so', async () => {
    const { readFile } = await import('node:fs/promises')
    const texts = await Promise.all(
      ['behaviours', 'limits', 'failures'].map(name =>
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
