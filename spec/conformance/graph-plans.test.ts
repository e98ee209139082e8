// Plans in graph mode, on every device: one launch where eager issue has a call for every command, and the
// same bits.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CompileOptions } from '../../dsl/index.js'
import {
  add,
  compile,
  download,
  graph,
  lane,
  mul,
  on,
  orThrow,
  param,
  scan,
  tensor,
  upload,
} from '../../dsl/index.js'
import { verify } from '../../dsl/verify/verify.js'
import { open, pulled, RunError } from '../../runtime/index.js'
import { rejectionOf } from '../fixtures/errors.js'
import { patternGraph, patternInput, patterns } from '../fixtures/graphs/patterns.js'
import { sample } from '../fixtures/graphs/random.js'
import { withArenas } from '../fixtures/plans/arenas.js'
import { runs } from '../fixtures/runs.js'
import { floats, rows, runner } from './both-modes.js'
import { fleets, opened, present, until } from './devices.js'
import { expectMeant } from './meant.js'

describe.each(present)('a plan in graph mode on %s', device => {
  const { shaken, expectSame, expectKept } = runner(device)

  it('yields what the graph means, and the bits of eager issue', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        sample(),
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.boolean(),
        async (made, seed, memory, fuse) => {
          const { graph, params, dims, inFlight } = made
          const running = { graph, params, feeds: made.feeds, compile: { dims, inFlight, memory, fuse } }
          const all = await expectSame({ ...running, ...(made.ticks ? { ticks: made.ticks } : {}) }, seed)
          for (const got of all) await expectMeant(made, got)
        },
      ),
      { numRuns: runs(100) },
    )
  })

  it('over lanes that hardly meet, with up to 4 ticks in flight', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        patterns(60),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 1e6 }),
        async (pattern, inFlight, seed) => {
          const x = Array.from({ length: 10 }, (_, tick) =>
            floats(patternInput, i => Math.sin(i + 1000 * tick)),
          )
          await expectSame({ graph: patternGraph(pattern), compile: { inFlight }, feeds: { x } }, seed)
        },
      ),
      { numRuns: runs(40) },
    )
  })

  const four = tensor('f32', [4])
  const [left, right] = [lane('left'), lane('right')]
  /** A state that every tick reads and writes, and two lanes that meet. */
  const net = graph('net', { x: four }, ({ x }) => {
    const w = param('w', four)
    const a = x.pipe(upload(left), mul(w))
    const b = x.pipe(upload(right), add(1))
    const sum = a.pipe(
      add(b),
      scan((total, value) => total.pipe(mul(0.5), add(value)), 0),
    )
    return { y: sum.pipe(download(left)) }
  })
  const params = { w: floats(4, i => i + 1) }
  const compiling = (inFlight: number): CompileOptions => ({ mode: 'graph', storage: 'planned', inFlight })

  it('keeps its states, over many ticks and several runs', async () => {
    for (const inFlight of [1, 2, 3, 4]) {
      const made = { graph: net, params, compile: { inFlight }, feeds: { x: rows(200) } }
      await expectSame(made as never, inFlight)
    }
  })

  it('waits for a reader that keeps its leases, whatever slot comes free', async () => {
    await expectKept({ graph: net as never, params, compile: { inFlight: 3 } })
  })

  it('closes in the middle of a run, and leaves its memory to the next session', async () => {
    for (let turn = 0; turn < 5; turn++) {
      const session = await opened(net, device, { compile: compiling(2), params, ...shaken(turn + 1) })
      let seen = 0
      const running = session.run({ x: pulled(rows(10_000)) }).subscribe({
        next: lease => {
          seen++
          lease[Symbol.dispose]()
        },
        error: () => undefined,
      })
      await until(() => seen > turn * 3)
      await session.close()
      running.unsubscribe()
    }
  })
})

describe('a plan in graph mode on a host device', () => {
  const long = tensor('f32', [1 << 16])
  const row = new Float32Array(1 << 16).fill(1)
  const [up, down] = [lane('up'), lane('down')]
  /** The second value goes up while the first comes down. */
  const streams = graph('streams', { x: long, z: long }, ({ x, z }) => ({
    a: x.pipe(upload(up), add(1), download(down)),
    b: z.pipe(upload(up), add(2), download(down)),
  }))
  const slow = { host: { copyRate: 4 * 65_536 * 200, deviceRate: 0 } } // 5 ms a copy

  it('overlaps its lanes inside a launch as eager issue does', async () => {
    await using session = await opened(streams, 'host', {
      ...slow,
      trace: true,
      compile: { mode: 'graph', storage: 'planned', inFlight: 1 },
    })
    const overlap = (tick: number): boolean => {
      const of = session.trace().filter(record => record.tick === tick)
      return of.some(one =>
        of.some(
          other =>
            one.laneId !== other.laneId && one.startMs < other.endMs - 1 && other.startMs < one.endMs - 1,
        ),
      )
    }
    // On a busy machine a tick may not; serial work never does. So some tick, of as many as it takes.
    const rows = Array.from({ length: 300 }, () => row)
    let [ticks, overlapped] = [0, false]
    for await (using _ of session.run({ x: pulled(rows), z: pulled(rows) })) {
      overlapped = overlap(ticks++)
      if (overlapped) break
    }
    expect(overlapped).toBe(true)
    const runsOf = session.plan.commands.filter(([op]) => op === 'run').length
    expect(session.trace().filter(({ tick }) => tick < ticks)).toHaveLength(ticks * runsOf)
    expect(session.stats().graphLaunches).toBeGreaterThanOrEqual(ticks)
  })

  it('names the node that fails, or the launch', async () => {
    const failing = async (call: string, nth: number) => {
      await using session = await opened(streams, 'host', {
        host: { faults: [{ call, nth }] },
        compile: { mode: 'graph', storage: 'planned', inFlight: 1 },
      })
      const error = await rejectionOf(
        session
          .run({ x: pulled([row, row, row]), z: pulled([row, row, row]) })
          .forEach(lease => void lease[Symbol.dispose]()),
      )
      return error as Error
    }
    const plan = orThrow(compile(streams, { mode: 'graph' }))
    const nodes = plan.commands.flatMap(command =>
      command[0] === 'run' ? [plan.nodes[command[1]]!.name] : [],
    )
    const third = await failing('run', nodes.length + 3)
    expect(third).toBeInstanceOf(RunError)
    expect(third.message).toContain(nodes[2])
    expect((await failing('execLaunch', 2)).message).toContain('execLaunch')
  })
})

describe.each(fleets)('a plan in graph mode on %s and the others', (...fleet) => {
  const { onHost, shaken, expectSame } = runner(fleet)

  it('yields what the graph means, and the bits of eager issue', { timeout: 300_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        sample({ kernels: onHost, devices: fleet.length }),
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.boolean(),
        async (made, seed, memory, fuse) => {
          const { graph, params, dims, inFlight } = made
          const running = { graph, params, feeds: made.feeds, compile: { dims, inFlight, memory, fuse } }
          const all = await expectSame({ ...running, ...(made.ticks ? { ticks: made.ticks } : {}) }, seed)
          for (const got of all) await expectMeant(made, got)
        },
      ),
      { numRuns: runs(onHost ? 60 : 30) },
    )
  })

  const four = tensor('f32', [4])
  const near = lane('near', { device: 0 })
  const far = lane('far', { device: fleet.length - 1 })
  /** There and back, with a state on each of the two devices. */
  const net = graph('there and back', { x: four }, ({ x }) => {
    const there = x.pipe(
      upload(near),
      scan((total, value) => total.pipe(mul(0.5), add(value)), 0),
    )
    const back = there.pipe(
      on(far),
      mul(param('w', four)),
      scan((total, value) => total.pipe(mul(0.5), add(value)), 0),
    )
    return { y: back.pipe(on(near), add(there), download()) }
  })
  const params = { w: floats(4, i => i + 1) }

  it('keeps its states on each of them, over many ticks', async () => {
    for (const inFlight of [1, 2, 3, 4]) {
      const made = { graph: net, params, compile: { inFlight }, feeds: { x: rows(100) } }
      await expectSame(made as never, inFlight)
    }
  })

  it('has ticks with arenas of their own', async () => {
    const free = graph('free', { x: four }, ({ x }) => ({
      y: x.pipe(upload(near), mul(2), on(far), add(1), on(near), mul(2), download()),
    }))
    const one = orThrow(compile(free, { mode: 'graph', inFlight: 1 }))
    for (const inFlight of [2, 3]) {
      const plan = withArenas(one as never, inFlight) as typeof one
      expect(verify(plan)).toEqual([])
      await using session = orThrow(await open(plan, { device: fleet, poison: true, ...shaken(inFlight) })())
      let tick = 0
      for await (const lease of session.run({ x: pulled(rows(100)) })) {
        using out = lease
        const from = 4 * tick++
        expect([...out.y]).toEqual([0, 1, 2, 3].map(i => 4 * (from + i) + 2))
      }
      expect(tick).toBe(100)
    }
  })

  it('with a trace has every operation of each device in it', async () => {
    const compiling: CompileOptions = { mode: 'graph', storage: 'planned', inFlight: 2 }
    await using session = await opened(net, fleet, { compile: compiling, params, trace: true, ...shaken(3) })
    for await (const lease of session.run({ x: pulled(rows(10)) })) lease[Symbol.dispose]()
    const { commands, lanes } = session.plan
    const runsOfTick = commands.filter(([op]) => op === 'run')
    const events = session.trace()
    expect(events).toHaveLength(10 * runsOfTick.length)
    expect(new Set(runsOfTick.map(([, , on]) => lanes[on as number]!.device)).size).toBe(2)
  })
})
