// What PyTorch's graph trees do, restated for plan trees: which values are alive, and what they are. The
// number of a test is that of the behaviour in the list of behaviours.ts.
import { describe, expect, it } from 'vitest'
import {
  add,
  download,
  graph,
  kernel,
  mul,
  param,
  ring,
  scan,
  tensor,
  tree,
  uniform,
  until,
  upload,
} from '../../../dsl/index.js'
import { type Handle, StaleHandleError } from '../../../runtime/index.js'
import { present } from '../devices.js'
import {
  affine,
  all,
  chain,
  copy,
  double,
  only,
  pair,
  planned,
  plusOne,
  row,
  tagOf,
  treeOn,
  width,
} from './kit.js'

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

describe.each(present)('values of trees on %s', device => {
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
