// Behaviours of graph trees about what is limited, what is alive, and what is written. The numbers are those
// of behaviours.ts.
import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  download,
  graph,
  kernel,
  mul,
  orThrow,
  owned,
  param,
  reshape,
  ring,
  slice,
  tensor,
  tree,
  until,
  upload,
} from '../../../dsl/index.js'
import { Device, type Handle, StaleHandleError } from '../../../runtime/index.js'
import { numbersFrom } from '../../fixtures/trees.js'
import { present } from '../devices.js'
import { affine, all, copy, only, planned, prompt, row, step, treeOn, width } from './kit.js'

const decoder = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})

describe.each(present)('limits of trees on %s', device => {
  it('20, 21 above the limit of layouts a value is moved, and explain() says so, once', async () => {
    await using t = await treeOn(device, decoder, { variants: 1 })
    const [layout, ...others] = t.layouts.filter(({ plan }) => plan === 'step')
    expect(others).toEqual([])
    const at = layout!.inputs['state']!
    const beside = layout!.outputs['state']!
    const line = `  moves      state, where it lies at ${beside}, to ${at}: step has 1 layout, and variants is 1\n`
    const before = t.explain(layout!.id)
    expect(before.split(line)).toHaveLength(2)
    for (let round = 1; round <= 3; round++) {
      let last = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
      for (let i = 2; i <= 9; i++) {
        last = last.next('step', { token: all(1) })
        expect(only((await last.values).seen)).toBe(10 * (2 + i))
      }
      expect(t.stats()).toMatchObject({ layouts: 2, moves: 8 * round, staged: 0 })
      expect(t.stats().executables).toMatchObject({ made: 2, remade: 0 })
    }
    expect(t.explain(layout!.id).split(line)).toHaveLength(2)
  })

  it('22 an input that comes from outside meets no limit: nothing is recorded for it', async () => {
    await using t = await treeOn(device, decoder, { variants: 1 })
    await t.prepare()
    const { layouts, executables } = t.stats()
    for (let i = 0; i < 6; i++) {
      const { values } = t.launch('prompt', { x: all(1) }).next('step', { state: all(i), token: all(1) })
      expect(only((await values).seen)).toBe(10 * (i + 1))
    }
    expect(t.stats()).toMatchObject({ layouts, staged: 6, moves: 0, executables: { made: executables.made } })
  })

  it('23 below the limit nothing is moved, and explain() has nothing to say of it', async () => {
    await using t = await treeOn(device, decoder, { variants: 2 })
    let last = t.launch('prompt', { x: all(1) }).next('step', { token: all(1) })
    for (let i = 0; i < 8; i++) last = last.next('step', { token: all(1) })
    expect(only((await last.values).seen)).toBe(110)
    expect(t.stats()).toMatchObject({ layouts: 3, moves: 0 })
    expect(t.explain()).not.toMatch(/moves/)
  })

  it('20, 21 kept values in many places take layouts up to a limit too, then one that serves beside all', async () => {
    const note = affine('note', 'x', 'kept', 3, 0)
    const spec = tree({
      plans: { prompt, step, note, drop: affine('drop', 'kept', 'y', 1, 0) },
      start: ['prompt', 'note'],
      then: {
        prompt: ['step', 'note', 'drop'],
        step: ['step', 'note', 'drop'],
        note: ['step', 'note', 'drop'],
        drop: ['step', 'note', 'drop'],
      },
      keep: { note: { kept: until('drop', 3) }, step: { state: ring(2) } },
    })
    const random = numbersFrom(3)
    for (const variants of [1, 2]) {
      await using t = await treeOn(device, spec, { variants, arena: 64 * 1024 })
      const notes: { readonly handle: Pick<Handle, 'read'>; readonly value: number }[] = []
      let state = 2
      let last = t.launch('prompt', { x: all(1) }).next('step', { token: all(0) })
      for (let i = 0; i < 60; i++) {
        const choice = Math.floor(random() * 4)
        if (choice === 0 && notes.length < 3)
          notes.push({ handle: t.launch('note', { x: all(i) }).handles.kept, value: 3 * i })
        else if (choice === 1 && notes.length > 0)
          expect(only((await t.launch('drop').values).y)).toBe(notes.pop()!.value)
        else {
          state += i
          last = t.launch('step', { token: all(i), state: last.handles.state })
          expect(only((await last.values).seen)).toBe(10 * state)
        }
        for (const { handle, value } of notes) expect(only((await handle.read()) as Float32Array)).toBe(value)
        expect(only(await last.handles.state.read())).toBe(state)
      }
      const count = (plan: string): number => t.layouts.filter(layout => layout.plan === plan).length
      expect(count('drop')).toBeLessThanOrEqual(variants + 1)
      expect(count('step')).toBeLessThanOrEqual(2 * (variants + 1))
      expect(count('note')).toBeLessThanOrEqual(3 * (variants + 1))
      expect(t.explain()).toMatch(
        /a fallback: each of the \d layouts of \w+ before it writes over a kept value/,
      )
    }
  })

  it('27 where two layouts would do, the one that was found first is used', async () => {
    const first = graph('first', { x: row }, ({ x }) => {
      const d = x.pipe(upload(copy))
      return { state: d.pipe(mul(2), download(copy)), more: d.pipe(mul(3), download(copy)) }
    })
    const far = graph('far', { state: row, more: row }, ({ state, more }) => ({
      state: state.pipe(upload(copy), add(more.pipe(upload(copy))), download(copy)),
    }))
    const spec = tree({
      plans: { prompt, first: planned(first), far: planned(far), step },
      start: ['prompt', 'first'],
      then: { prompt: ['step'], first: ['far'], far: ['step'], step: ['step'] },
    })
    const launched = async (variants: number) => {
      await using t = await treeOn(device, spec, { variants })
      const last = t
        .launch('first', { x: all(1) })
        .next('far')
        .next('step', { token: all(1) })
      expect(only((await last.values).seen)).toBe(60)
      const layouts = t.layouts.filter(({ plan }) => plan === 'step')
      const made = layouts.map(({ id }) => t.explain(id).includes('made by a launch'))
      return { places: layouts.map(({ inputs }) => inputs['state']!), made, moves: t.stats().moves }
    }
    // What far leaves lies where neither of the two layouts of step has it, and could be moved to either.
    const all3 = await launched(8)
    expect(all3).toMatchObject({ made: [false, false, true], moves: 0 })
    expect(await launched(2)).toEqual({ places: all3.places.slice(0, 2), made: [true, false], moves: 1 })
  })
})

/** Waits until an object that nobody refers to has been collected. */
const collected = async (reference: WeakRef<object>): Promise<void> => {
  for (let i = 0; i < 50 && reference.deref() !== undefined; i++) {
    await setImmediate()
    globalThis.gc!()
  }
  expect(reference.deref()).toBeUndefined()
}

describe.each(present)('what is alive in trees on %s', device => {
  const opened = async () => {
    const own = orThrow(await Device.open(device)())
    return { own, blocks: () => own.stats()['allocation.all.current']! }
  }

  const branches = (sizes: readonly number[]) => {
    const plans = Object.fromEntries(
      sizes.flatMap((size, i) => [
        [`double${i}`, affine('double', 'x', 'y', 2, 0, size)],
        [`plus${i}`, affine('plus', 'y', 'z', 1, 1, size)],
        [`minus${i}`, affine('minus', 'y', 'z', 1, -1, size)],
      ]),
    )
    const then = Object.fromEntries(sizes.map((_, i) => [`double${i}`, [`plus${i}`, `minus${i}`]]))
    return tree({ plans, start: sizes.map((_, i) => `double${i}`), then } as never) as typeof decoder
  }
  interface Loose extends AsyncDisposable {
    launch(plan: string, feeds?: object): { readonly values: Promise<Readonly<Record<'z', Float32Array>>> }
    prepare(): Promise<void>
    stats(): { readonly values: number; readonly executables: { readonly remade: number } }
  }

  it('8, 84 branches and sizes take no memory of their own: one value is alive, the newest', async () => {
    const { own, blocks } = await opened()
    const before = blocks()
    const sizes = [width, 16 * width]
    const t = (await treeOn('', branches(sizes), { device: own, poison: false })) as unknown as Loose
    await t.prepare()
    const open = blocks()
    expect(t.stats().values).toBe(0)
    // The first branch again and again, and then, by what came out, the other one.
    for (let i = 0; i < 6; i++)
      for (const [k, size] of sizes.entries()) {
        t.launch(`double${k}`, { x: all(i, size) })
        expect(t.stats().values).toBe(1)
        const { z } = await t.launch(i < 4 ? `plus${k}` : `minus${k}`).values
        expect(only(z)).toBe(2 * i + (i < 4 ? 1 : -1))
        expect(t.stats().values).toBe(1)
        expect(blocks()).toBe(open)
      }
    await t[Symbol.asyncDispose]()
    expect(blocks()).toBe(before)
    await own.close()
  })

  const parts = planned(
    graph('parts', { x: tensor('f32', [2, width]) }, ({ x }) => {
      const d = x.pipe(upload(copy), mul(2))
      const part = (at: number) => d.pipe(slice(0, at, at + 1), reshape([width]))
      return { p: part(0).pipe(download(copy)), q: part(1).pipe(download(copy)) }
    }),
  )

  it('10, 43 a handle that is dropped, and collected, ends no value, and frees nothing twice', async () => {
    const { own, blocks } = await opened()
    const before = blocks()
    const spec = tree({
      plans: { parts, use: affine('use', 'p', 'r', 1, 1) },
      start: ['parts'],
      then: { parts: ['use'] },
      keep: { parts: { q: ring(1) } },
    })
    const t = await treeOn('', spec, { device: own, poison: false })
    await t.prepare()
    const open = blocks()
    const x = new Float32Array(2 * width).fill(1, 0, width).fill(5, width)
    const dropped = (): WeakRef<Handle> => {
      const { handles } = t.launch('parts', { x })
      // Of one part the handle is disposed of as well.
      handles.q[Symbol.dispose]()
      return new WeakRef(handles.p as Handle)
    }
    for (let round = 0; round < 3; round++) {
      const reference = dropped()
      expect(t.stats().values).toBe(2)
      await t.drained()
      await collected(reference)
      expect([t.stats().values, blocks()]).toEqual([2, open])
      // Both parts are still there: one for the plan after it, the other until the next launch.
      expect(only((await t.launch('use').values).r)).toBe(3)
      expect(blocks()).toBe(open)
    }
    const { handles } = t.launch('parts', { x })
    expect(only(await handles.q.read())).toBe(10)
    t.launch('parts', { x })
    expect(() => handles.q.read()).toThrow(StaleHandleError)
    await t.close()
    expect(blocks()).toBe(before)
    await own.close()
  })

  it("81 blocks that were copied out are the caller's: each is freed once, by its owner", async () => {
    const { own, blocks } = await opened()
    const before = blocks()
    const spec = tree({ plans: { parts }, start: ['parts'], keep: { parts: { p: owned, q: ring(1) } } })
    const t = await treeOn('', spec, { device: own, poison: false })
    await t.prepare()
    const open = blocks()
    const launches = [2, 3, 4].map(value => t.launch('parts', { x: all(value, 2 * width) }))
    const taken = await Promise.all(launches.map(({ owned }) => owned.p))
    expect([blocks(), t.stats().values]).toEqual([open + 3, 2])
    const seen: number[] = []
    for (const block of taken) {
      const lane = own.defaultLane
      using host = own.pinned(4 * width, lane)
      using written = block.lane.record()
      lane.wait(written)
      lane.copy(host, block)
      await lane.synchronize()
      seen.push(only(new Float32Array(host.view().slice(0))), blocks() - open)
      block.free()
      expect(() => block.free()).toThrow(/is closed/)
    }
    expect(seen).toEqual([4, 3, 6, 2, 8, 1])
    expect(blocks()).toBe(open)
    await t.close()
    expect(blocks()).toBe(before)
    await own.close()
  })
})

describe.each(present)('what is written in trees on %s', device => {
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

  it('62 a constant is never written: a kernel that would is refused, and may write a copy', async () => {
    const bumped = (copied: boolean) =>
      compile(
        graph('bumped', { x: row }, ({ x }) => {
          const constant = param('constant', row)
          const { y } = bump({ x: copied ? constant.pipe(add(0)) : constant })
          return { z: x.pipe(upload(copy), add(y), download(copy)) }
        }),
        { storage: 'planned' },
      )
    expect(bumped(false)).toMatchObject({
      _tag: 'Left',
      left: [{ _tag: 'UseAfterDonate', wanted: expect.stringMatching(/constant/) }],
    })
    const spec = tree({ plans: { bumped: orThrow(bumped(true)) }, start: ['bumped'] })
    await using t = await treeOn(device, spec, { params: { constant: all(5) } })
    for (let i = 0; i < 3; i++) expect(only((await t.launch('bumped', { x: all(i) }).values).z)).toBe(i + 6)
  })
})
