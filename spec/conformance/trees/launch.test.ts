// The launches of a tree: values stay on the device from plan to plan, states and parameters with them.
import { describe, expect, it } from 'vitest'
import {
  add,
  download,
  graph,
  map,
  mul,
  on,
  orThrow,
  owned,
  param,
  relu,
  ring,
  scan,
  tree,
  upload,
} from '../../../dsl/index.js'
import { type Block, Device, planTree, StaleHandleError, TreeError } from '../../../runtime/index.js'
import { roomy } from '../../fixtures/machines/roomy.js'
import { listenForWarnings } from '../../fixtures/warnings.js'
import { present } from '../devices.js'
import { affine, all, copy, math, only, planned, row, treeOn } from './kit.js'

const prompt = planned(
  graph('prompt', { x: row }, ({ x }) => {
    const w = param('w', row)
    return { state: x.pipe(upload(copy), mul(w), download(copy)) }
  }),
)
const step = planned(
  graph('step', { state: row, token: row }, ({ state, token }) => {
    const next = state.pipe(upload(copy), add(token.pipe(upload(copy))))
    const seen = next.pipe(scan((sum, value) => sum.pipe(add(value)), 0))
    return { state: next.pipe(download(copy)), seen: seen.pipe(download(copy)) }
  }),
)
const decoder = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})

describe.each(present)('a plan tree on %s', device => {
  const opened = (poison: boolean) => treeOn(device, decoder, { params: { w: all(2) }, poison })

  it.each([false, true])('carries values from launch to launch, poison %s', async poison => {
    await using t = await opened(poison)
    const first = t.launch('prompt', { x: all(3) })
    expect(only(await first.handles.state.read())).toBe(6)
    let last = first.next('step', { token: all(1) })
    expect(only((await last.values).seen)).toBe(7)
    // None of these waits for the one before.
    for (let i = 0; i < 20; i++) last = last.next('step', { token: all(1) })
    expect(only(await last.handles.state.read())).toBe(27)
    expect(t.stats()).toMatchObject({ launches: 22, moves: 0, staged: 0 })
    expect(t.stats().executables.made).toBe(t.stats().layouts)
  })

  it.each([false, true])(
    'moves the value of a handle to an input of no contract, poison %s',
    async poison => {
      const child = planned(
        graph('child', { q: row }, ({ q }) => {
          const d = q.pipe(upload(copy))
          return { v: d.pipe(mul(10), download(copy)), q: d.pipe(add(1), download(copy)) }
        }),
      )
      const spec = tree({
        plans: { start: affine('start', 'x', 'r', 1, 1), child },
        start: ['start'],
        then: { start: ['start', 'child'], child: ['child', 'start'] },
        keep: { start: { r: ring(2) } },
      })
      await using t = await treeOn(device, spec, { poison })
      const { handles } = t.launch('start', { x: all(3) })
      const { values } = t.launch('child', { q: handles.r })
      expect(only((await values).v)).toBe(40)
      expect(t.stats()).toMatchObject({ moves: 1, staged: 0 })
    },
  )

  it('keeps the state of a plan from run to run, and begins a run anew', async () => {
    await using t = await opened(true)
    const seen = async (): Promise<number> => {
      const { values } = t.launch('prompt', { x: all(1) }).next('step', { token: all(0) })
      return only((await values).seen)
    }
    expect([await seen(), await seen(), await seen()]).toEqual([2, 4, 6])
  })

  it('copies the feeds of a launch, whether it starts at once or later', async () => {
    const token = all(1)
    const bytes = token.buffer as ArrayBuffer
    for (const given of [token, Buffer.from(bytes), new DataView(bytes), bytes] as Float32Array[]) {
      await using t = await opened(false)
      token.fill(1)
      let last = t.launch('prompt', { x: all(0) }).next('step', { token: given })
      for (let i = 0; i < 10; i++) {
        token.fill(100 * i)
        last = last.next('step', { token: given })
      }
      token.fill(-1)
      expect(only(await last.handles.state.read())).toBe(1 + 4500)
    }
  })

  it('copies its parameters when it is opened, as bytes too', async () => {
    const w = all(2)
    const bytes = w.buffer as ArrayBuffer
    for (const given of [w, Buffer.from(bytes), new DataView(bytes)] as Float32Array[]) {
      w.fill(2)
      const opening = treeOn(device, decoder, { params: { w: given } })
      w.fill(3)
      await using t = await opening
      expect(only(await t.launch('prompt', { x: all(3) }).handles.state.read())).toBe(6)
    }
  })

  it('refuses a launch without changing anything', async () => {
    await using t = await opened(true)
    const { handles } = t.launch('prompt', { x: all(3) })
    const before = t.stats()
    const refused: readonly (readonly [string, () => unknown])[] = [
      ['WrongFeeds', () => t.launch('step', {} as never)],
      ['WrongFeeds', () => t.launch('step', { token: all(1), more: all(1) } as never)],
      ['WrongValue', () => t.launch('step', { token: all(1, 3) })],
      ['WrongValue', () => t.launch('step', { token: new Int32Array(64) } as never)],
      ['WrongValue', () => t.launch('step', { token: handles.state } as never)],
      ['NotASuccessor', () => t.launch('nothing' as never, {} as never)],
      [
        'Reentered',
        () =>
          t.launch('step', {
            get token(): Float32Array {
              t.launch('prompt', { x: all(1) })
              return all(1)
            },
          }),
      ],
    ]
    for (const [tag, launch] of refused) {
      let thrown: unknown
      try {
        launch()
      } catch (error) {
        thrown = error
      }
      expect(thrown).toBeInstanceOf(TreeError)
      expect((thrown as TreeError)._tag).toBe(tag)
      expect(t.stats()).toEqual(before)
    }
    expect(only(await handles.state.read())).toBe(6)
    expect(t.last).toBe('prompt')
  })

  it('makes evicted executables again at the same addresses', async () => {
    await using t = await opened(true)
    await t.prepare()
    const { layouts } = t
    const addresses: number[] = []
    const run = async (): Promise<number> => {
      const last = t.launch('prompt', { x: all(3) }).next('step', { token: all(1) })
      const lane = t.device.defaultLane
      addresses.push(await last.handles.state.use(lane, span => span.address))
      return only(await last.handles.state.read())
    }
    expect(await run()).toBe(7)
    await t.evict()
    expect(t.stats().executables.open).toBe(0)
    expect(await run()).toBe(7)
    expect(addresses[1]).toBe(addresses[0])
    expect(t.layouts).toEqual(layouts)
    expect(t.stats().executables.remade).toBeGreaterThanOrEqual(2)
  })

  it('launches plans in graph mode as executable graphs, with the values of eager mode', async () => {
    const layer = (mode: 'eager' | 'graph') => {
      const first = graph('first', { x: row }, ({ x }) => ({
        s: x.pipe(upload(copy), mul(2), download(copy)),
      }))
      const next = graph('next', { s: row, x: row }, ({ s, x }) => {
        const d = s.pipe(upload(copy))
        const sum = d.pipe(on(math), mul(0.5), add(x.pipe(upload(copy))))
        const seen = sum.pipe(scan((sum, value) => sum.pipe(add(value)), 0))
        return {
          s: sum.pipe(download(copy)),
          seen: seen.pipe(download(copy)),
          t: d.pipe(add(1), download(copy)),
        }
      })
      return tree({
        plans: { first: planned(first, { mode }), next: planned(next, { mode }) },
        start: ['first'],
        then: { first: ['next'], next: ['next'] },
      })
    }
    const run = async (mode: 'eager' | 'graph') => {
      await using t = await treeOn(device, layer(mode))
      const seen: unknown[] = []
      let last = t.launch('first', { x: all(3) }).next('next', { x: all(1) })
      for (let i = 0; i < 6; i++) {
        const { handles, values } = last
        seen.push(only(await handles.s.read()), Object.values(await values).map(only))
        if (i === 3) await t.evict()
        last = last.next('next', { x: all(i) })
      }
      await last.values
      return { seen, graphLaunches: t.stats().executables.graphLaunches }
    }
    const [eager, graphs] = [await run('eager'), await run('graph')]
    expect(graphs.seen).toEqual(eager.seen)
    expect(eager.graphLaunches).toBe(0)
    expect(graphs.graphLaunches).toBeGreaterThan(0)
  })

  // Alone its ticks overlap, and nothing in the plan orders them. In a tree one arena serves all launches.
  it('launches plans that have an arena for each tick in flight one after the other, in one arena', async () => {
    const towers = graph('towers', { s: row, x: row }, ({ s, x }) => {
      const [d, e] = [s.pipe(upload(copy)), x.pipe(upload(copy))]
      const left = d.pipe(mul(0.5), add(1))
      const right = e.pipe(on(math), mul(3), add(-2))
      return {
        s: left.pipe(on(math), add(right)).pipe(download(copy)),
        seen: left.pipe(mul(right)).pipe(download(copy)),
      }
    })
    const plan = planned(towers, { mode: 'graph', inFlight: 3, machine: roomy })
    expect(plan.arenas).toBe(3)
    const jitter = device === 'host' ? { host: { jitter: 7, jitterMicroseconds: 60 } } : {}
    const spec = tree({ plans: { towers: plan }, start: ['towers'], then: { towers: ['towers'] } })
    await using t = await treeOn(device, spec, { inFlight: 3, poison: false, ...jitter })
    await t.prepare()
    const { alone, arena } = t.stats()
    // Beside what it takes here: the arenas of two further ticks.
    expect(alone.towers).toBe(3 * plan.arena![0]!)
    expect(arena).toBeLessThan(alone.towers!)
    let s = 4
    const seen: number[] = []
    let last = t.launch('towers', { s: all(s), x: all(0) })
    const found = [last.values]
    for (let i = 0; i < 40; i++) {
      const [left, right] = [Math.fround(Math.fround(s * 0.5) + 1), i * 3 - 2]
      seen.push(Math.fround(left * right))
      s = Math.fround(left + right)
      if (i === 39) break
      last = last.next('towers', { x: all(i + 1) })
      found.push(last.values)
    }
    expect(only(await last.handles.s.read())).toBe(s)
    expect((await Promise.all(found)).map(values => only(values.seen))).toEqual(seen)
    expect(t.stats()).toMatchObject({ moves: 0, layouts: 3 })
    expect(t.stats().executables.graphLaunches).toBe(40)
  })

  it('gives its memory back, and closes twice', async () => {
    const opening = await Device.open(device)()
    if (opening._tag === 'Left') throw new Error(opening.left.found)
    await using own = opening.right
    const held = () => [own.stats(), own.stats('pinned')].map(stats => stats['allocation.all.current'])
    const before = held()
    const t = await treeOn('', decoder, { device: own, params: { w: all(2) } })
    t.launch('prompt', { x: all(3) })
    await t.close()
    await t.close()
    expect(held()).toEqual(before)
    expect(() => t.launch('prompt', { x: all(3) })).toThrow('closed')
  })

  it('ends with its device: launches and handles are refused, and closing it is quiet', async () => {
    using warned = await listenForWarnings()
    for (const owns of [true, false]) {
      const own = orThrow(await Device.open(device)())
      const t = await treeOn(device, decoder, {
        ...(owns ? {} : { device: own }),
        params: { w: all(2) },
        poison: false,
      })
      const first = t.launch('prompt', { x: all(3) })
      const second = first.next('step', { token: all(1) })
      await second.handles.state.use(t.device.defaultLane, () => undefined)
      await t.device.close()
      // What was given to the device before has run.
      expect(only((await second.values).seen)).toBe(7)
      const refused = /this tree is closed: its device .* is closed; open one again/
      expect(() => t.launch('prompt', { x: all(3) })).toThrow(refused)
      expect(() => second.next('step', { token: all(1) })).toThrow(refused)
      expect(() => t.begin()).toThrow(refused)
      await expect(t.prepare()).rejects.toThrow(refused)
      await expect(t.evict()).rejects.toThrow(refused)
      expect(second.handles.state.stale).toBe(true)
      expect(() => second.handles.state.read()).toThrow(/its device .* is closed/)
      await t.close()
      const again = await planTree(decoder, { device: t.device, params: { w: all(2) } })()
      expect(again).toMatchObject({ _tag: 'Left', left: { at: 'device', found: 'one that is closed' } })
      await own.close()
    }
    await new Promise(resolve => setTimeout(resolve, 20))
    expect(warned.messages).toEqual([])
  })

  it('fails what waits when its device closes', async () => {
    const own = orThrow(await Device.open(device)())
    const t = await treeOn('', decoder, { device: own, params: { w: all(2) }, inFlight: 1 })
    await t.prepare()
    let last = t.launch('prompt', { x: all(3) }).next('step', { token: all(1) })
    const values: Promise<unknown>[] = [last.values]
    for (let i = 0; i < 7; i++) {
      last = last.next('step', { token: all(1) })
      values.push(last.values)
    }
    const read = last.handles.state.read()
    read.catch(() => undefined)
    await own.close()
    const ends = await Promise.allSettled([...values, read])
    for (const end of ends)
      if (end.status === 'rejected') expect(end.reason.message).toMatch(/its device .* is closed/)
    expect(ends.at(-1)!.status).toBe('rejected')
    await t.close()
  })

  it('computes what its plans compute one by one', async () => {
    const half = affine('half', 'x', 'y', 0.5, 1)
    const square = planned(
      graph('square', { y: row }, ({ y }) => ({
        z: y.pipe(
          upload(copy),
          map(v => v.mul(v)),
          relu(),
          download(copy),
        ),
      })),
    )
    const chain = tree({ plans: { half, square }, start: ['half'], then: { half: ['square'] } })
    await using t = await treeOn(device, chain)
    for (const value of [0, 1, -8, 1e6]) {
      const { values } = t.launch('half', { x: all(value) }).next('square')
      expect(only((await values).z)).toBe(Math.fround((value * 0.5 + 1) ** 2))
    }
  })

  it('copies what is owned out of the arena: a block that outlives launches and handles', async () => {
    const twice = planned(
      graph('twice', { x: row }, ({ x }) => {
        const d = x.pipe(upload(copy), mul(2))
        return { y: d.pipe(download(copy)), z: d.pipe(add(1), download(copy)) }
      }),
    )
    const spec = tree({
      plans: { twice },
      start: ['twice'],
      keep: { twice: { y: owned, z: { lives: 'run' } } },
    })
    await using own = orThrow(await Device.open(device)())
    const held = () => [own.stats(), own.stats('pinned')].map(stats => stats['allocation.all.current'])
    const before = held()
    const t = await treeOn('', spec, { device: own, poison: true })
    const launches = [1, 2, 3, 4, 5].map(value => t.launch('twice', { x: all(value) }))
    expect(Object.keys(launches[0]!.owned)).toEqual(['y'])
    expect(Object.keys(launches[0]!.handles)).toEqual(['z'])
    const blocks = await Promise.all(launches.map(launch => launch.owned.y))
    expect(new Set(blocks.map(({ address }) => address)).size).toBe(5)
    // Every later launch has written over the value in the arena.
    expect(launches.map(({ handles }) => handles.z.stale)).toEqual([true, true, true, true, false])
    const lane = own.lane({ name: 'mine' })
    const read = async (block: Block): Promise<number> => {
      using host = own.pinned(4 * 64, lane)
      lane.wait(block.lane.record())
      lane.copy(host, block)
      block.recordUse(lane)
      await lane.synchronize()
      return only(new Float32Array(host.view().slice(0)).slice(0, 64))
    }
    expect(await Promise.all(blocks.map(read))).toEqual([2, 4, 6, 8, 10])
    for (const block of blocks) block.free()
    await t.close()
    lane[Symbol.dispose]()
    expect(held()).toEqual(before)
  })

  it('says which launch overwrote a value', async () => {
    await using t = await opened(true)
    const { handles } = t.launch('prompt', { x: all(3) })
    t.launch('prompt', { x: all(4) })
    expect(handles.state.stale).toBe(true)
    expect(() => handles.state.read()).toThrow(StaleHandleError)
    expect(() => handles.state.read()).toThrow(/overwritten by a launch of prompt at .*launch\.test/)
  })
})
