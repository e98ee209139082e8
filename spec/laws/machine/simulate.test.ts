import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compile, orThrow } from '../../../dsl/index.js'
import type { MatmulSpec } from '../../../dsl/ir/kernel-spec.js'
import type { Command, Plan, PlanNode } from '../../../dsl/ir/plan.js'
import type { Machine } from '../../../dsl/machine/machine.js'
import {
  runsOf,
  type Simulation,
  simulate,
  type TimelineRun,
} from '../../../dsl/machine/simulate/simulate.js'
import { paceOf } from '../../../dsl/machine/simulate/steady-state.js'
import { peakOf } from '../../../dsl/memory/peak.js'
import { sample } from '../../fixtures/graphs/random.js'
import { plain, uncontended } from '../../fixtures/machines/plain.js'
import { someMachines } from '../../fixtures/machines/random.js'
import { type BufferSketch, planOf } from '../../fixtures/plans/by-hand.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { often, runs } from '../../fixtures/runs.js'

const close = (value: number, wanted: number): void =>
  expect(Math.abs(value - wanted)).toBeLessThan(1e-9 + 1e-6 * wanted)

/** Plans of either origin: naive ones by hand, or the compiler's for a random graph. */
const somePlans: fc.Arbitrary<Plan> = fc.oneof(
  recipes(10).map(recipe => planFrom(recipe)),
  sample().map(({ graph, dims, inFlight }) => orThrow(compile(graph, { mode: 'eager', dims, inFlight }))),
)

/**
 * Each run starts after everything that the plan orders before it, by an independent reading of its commands
 * that keeps only times.
 */
const obeysOrder = (plan: Plan, { timeline }: Simulation): void => {
  const runs = runsOf(timeline)
  const free = plan.lanes.map(() => 0)
  let marks = new Map<number, number>()
  let i = 0
  for (let tick = 0; tick < timeline.ticks; tick++) {
    const before = marks
    marks = new Map()
    const earlier = tick - plan.inFlight
    const completed =
      earlier < 0 ? 0 : Math.max(0, ...runs.filter(run => run.tick === earlier).map(run => run.end))
    for (const command of plan.commands) {
      if (command[0] === 'record') {
        if (!marks.has(command[1])) marks.set(command[1], free[command[2]]!)
      } else if (command[0] === 'wait') {
        const mark = (command[3] === -1 ? before : marks).get(command[1]) ?? 0
        free[command[2]] = Math.max(free[command[2]]!, mark)
      } else if (command[0] === 'run') {
        const run = runs[i++]!
        expect([run.node, run.lane, run.tick]).toEqual([command[1], command[2], tick])
        expect(run.start).toBeGreaterThanOrEqual(Math.max(completed, free[command[2]]!))
        expect(run.end).toBeGreaterThanOrEqual(run.start)
        free[command[2]] = run.end
      }
    }
  }
  expect(i).toBe(runs.length)
}

/** Never more concurrent copies in one direction than it has engines. */
const obeysEngines = ({ timeline }: Simulation, engines: number): void => {
  for (const resource of ['h2d', 'd2h'] as const) {
    const edges = runsOf(timeline)
      .filter(run => run.resource === resource)
      .flatMap(run => [
        { at: run.start, by: 1 },
        { at: run.end, by: -1 },
      ])
      .sort((a, b) => a.at - b.at || a.by - b.by)
    let under = 0
    for (const { by } of edges) {
      under += by
      expect(under).toBeLessThanOrEqual(engines)
    }
  }
}

const alone = ({ start, end }: TimelineRun): number => end - start

describe('simulate, of any plan on any machine', () => {
  test('runs each operation once a tick, in the order of the plan, with one copy an engine at a time', () => {
    fc.assert(
      fc.property(somePlans, someMachines, (plan, machine) => {
        const simulation = simulate(plan, machine, { ticks: 12 })
        obeysOrder(plan, simulation)
        obeysEngines(simulation, machine.device.h2d.engines)
      }),
      { numRuns: runs(40) },
    )
  })

  test('starts each run when the last of what it waited for let it', () => {
    fc.assert(
      fc.property(somePlans, someMachines, (plan, machine) => {
        const { timeline } = simulate(plan, machine, { ticks: 8 })
        const runs = runsOf(timeline)
        for (const { after, start, cause } of runs) {
          if (after !== undefined) expect(runs[after]!.end).toBeLessThanOrEqual(start)
          if (after !== undefined && (cause === 'lane' || cause === 'engine'))
            expect(start).toBe(runs[after]!.end)
          // Later where the record itself was issued later than that.
          if (cause === 'wait')
            expect(start - runs[after!]!.end).toBeGreaterThanOrEqual(machine.device.waitLatency - 1e-3)
        }
      }),
      { numRuns: runs(30) },
    )
  })

  test('is no faster than the longest chain of runs, which is no shorter than the work of any lane', () => {
    fc.assert(
      fc.property(somePlans, someMachines, (plan, machine) => {
        const { tickMs, criticalPathMs, busy, exposed, bounds, settled } = simulate(plan, machine)
        fc.pre(settled)
        expect(criticalPathMs).toBeLessThanOrEqual(tickMs * (1 + 1e-6))
        // Slowed by concurrent runs, a lane may be busy for longer than its runs take alone, never longer
        // than the tick.
        for (const lane of Object.values(busy)) expect(lane).toBeLessThanOrEqual(tickMs * (1 + 1e-6))
        for (const [lane, ms] of Object.entries(exposed)) {
          expect(ms).toBeGreaterThanOrEqual(-1e-9)
          expect(ms).toBeLessThanOrEqual(busy[lane]! * (1 + 1e-6) + 1e-9)
        }
        const unslowed = simulate(plan, {
          ...uncontended,
          device: { ...uncontended.device, kernelLatency: 700 },
        })
        fc.pre(unslowed.settled)
        for (const lane of Object.values(unslowed.busy))
          expect(lane).toBeLessThanOrEqual(unslowed.criticalPathMs * (1 + 1e-6))
        close(
          Object.values(bounds).reduce((sum, ms) => sum + ms, 0),
          tickMs,
        )
      }),
      { numRuns: runs(40) },
    )
  })

  test('gives the same each time, and the peak of law L9', () => {
    fc.assert(
      fc.property(somePlans, someMachines, (plan, machine) => {
        const first = simulate(plan, machine)
        expect(simulate(structuredClone(plan), machine)).toEqual(first)
        const { device, pinned } = peakOf(plan)
        expect(first.peak).toEqual({ device, pinned })
        expect(first.bound).toEqual(plan.bound)
      }),
      { numRuns: runs(20) },
    )
  })

  test('begins a tick of an enforced bound after the end of the tick before, on every lane', () => {
    let overlapping = 0
    fc.assert(
      fc.property(somePlans, someMachines, (plan, machine) => {
        fc.pre(plan.storage === 'pooled')
        const overlaps = (of: Plan): boolean => {
          const { timeline } = simulate(of, machine, { ticks: 6 })
          let ended = Number.NEGATIVE_INFINITY
          for (let tick = 0; tick < 6; tick++) {
            const runs = runsOf(timeline, tick)
            if (runs.some(({ start }) => start < ended - 1e-6)) return true
            ended = runs.reduce((last, { end }) => Math.max(last, end), ended)
          }
          return false
        }
        if (overlaps(plan)) overlapping++
        expect(overlaps({ ...plan, boundKind: 'enforced' })).toBe(false)
      }),
      { numRuns: runs(40) },
    )
    expect(overlapping).toBeGreaterThan(often(0))
  })

  test('is never faster for a slower part, where nothing is in the way of anything else', () => {
    const slower: ((machine: Machine, by: number) => Machine)[] = [
      (m, by) => ({ ...m, device: { ...m.device, bandwidth: m.device.bandwidth / by, cacheBandwidth: 1 } }),
      (m, by) => ({
        ...m,
        device: {
          ...m.device,
          flops: { bf16: 1e15 / by, f16: 1e15 / by, f32: 1e14 / by, vector: 1e14 / by },
        },
      }),
      (m, by) => ({ ...m, device: { ...m.device, h2d: { ...m.device.h2d, rate: m.device.h2d.rate / by } } }),
      (m, by) => ({ ...m, device: { ...m.device, d2h: { ...m.device.d2h, rate: m.device.d2h.rate / by } } }),
      (m, by) => ({ ...m, device: { ...m.device, kernelLatency: m.device.kernelLatency + by } }),
      (m, by) => ({ ...m, device: { ...m.device, waitLatency: m.device.waitLatency + by } }),
      (m, by) => ({ ...m, host: { ...m.host, launch: m.host.launch + by } }),
      (m, by) => ({ ...m, host: { ...m.host, tick: m.host.tick + 100 * by } }),
    ]
    fc.assert(
      fc.property(
        somePlans,
        fc.nat(slower.length - 1),
        fc.integer({ min: 2, max: 100 }),
        (plan, part, by) => {
          const fast = simulate(plan, uncontended)
          const slow = simulate(plan, slower[part]!(uncontended, by))
          if (fast.settled && slow.settled)
            expect(slow.tickMs).toBeGreaterThanOrEqual(fast.tickMs * (1 - 1e-6))
        },
      ),
      { numRuns: runs(40) },
    )
  })

  test('on one lane takes as long as its runs together', () => {
    fc.assert(
      fc.property(recipes(10), someMachines, (recipe, { device }) => {
        const plan = planFrom({ ...recipe, lanes: 1 })
        const { tickMs, timeline } = simulate(plan, { ...plain, device })
        const sum = runsOf(timeline, 1).reduce((total, run) => total + alone(run), 0)
        close(tickMs, sum * 1e-6)
      }),
      { numRuns: runs(30) },
    )
  })
})

/** A plan of runs with given times in nanoseconds, by operator. */
interface Piece {
  readonly op: 'upload' | 'download' | 'elementwise' | 'matmul' | 'host'
  readonly lane: number
  readonly ns: number
  /** Runs of this tick that it waits for. */
  readonly after?: readonly number[]
}

const spaces = {
  upload: [1, 0],
  download: [0, 1],
  elementwise: [0, 0],
  matmul: [0, 0],
  host: [1, 1],
} as const

const pieces = (list: readonly Piece[], inFlight = 1): Plan => {
  const lanes = 1 + Math.max(...list.map(({ lane }) => lane))
  const buffers: BufferSketch[] = list.flatMap(({ op }, i) =>
    spaces[op].map(
      (pinned, side) =>
        ({ name: `b${i}.${side}`, life: 'state', init: 0, space: pinned ? 'pinned' : 'device' }) as const,
    ),
  )
  const commands = list.flatMap(({ lane, after = [] }, i): Command[] => [
    ...after.map((run): Command => ['wait', run, lane]),
    ['run', i, lane, [2 * i], [2 * i + 1]],
    ['record', i, lane],
  ])
  const plan = planOf({
    name: 'pieces',
    lanes: Array.from({ length: lanes }, (_, l) => `l${l}`),
    buffers,
    commands,
    inFlight,
  })
  const nodes = list.map(({ op, ns }, id): PlanNode => {
    const node = { id, op, name: `n${id}`, at: 'spec/laws/machine/simulate.test.ts:1:1' }
    if (op === 'upload' || op === 'download')
      return { ...node, kernel: { kind: 'copy', bytes: ns }, movedBytes: 2 * ns }
    if (op === 'elementwise') return { ...node, flops: 0, movedBytes: 1000 * ns }
    if (op === 'host') return { ...node, flops: 0, movedBytes: 1e9 * ns }
    return { ...node, flops: 1e5 * ns, movedBytes: 0 }
  })
  return { ...plan, nodes }
}

const nanoseconds = (list: readonly Piece[], inFlight = 1, machine: Machine = plain): number =>
  1e6 * simulate(pieces(list, inFlight), machine).tickMs

const starts = (list: readonly Piece[], machine: Machine = plain): readonly number[] =>
  runsOf(simulate(pieces(list), machine).timeline, 0).map(({ start }) => start)

describe('simulate, to the nanosecond', () => {
  test('a chain over two lanes is its sum', () => {
    close(
      nanoseconds([
        { op: 'upload', lane: 0, ns: 500 },
        { op: 'elementwise', lane: 1, ns: 300, after: [0] },
        { op: 'download', lane: 0, ns: 200, after: [1] },
      ]),
      1000,
    )
  })

  test('a copy hides behind a kernel, but for what it takes of the device memory', () => {
    const list = [
      { op: 'upload', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 1, ns: 1500 },
    ] as const
    close(nanoseconds(list), 1500)
    const { exposed, busy } = simulate(pieces(list), plain)
    close(busy['l0']!, 1e-3)
    close(exposed['l0']!, 0)
    close(exposed['l1']!, 0)
  })

  test('copy time that no kernel hides is exposed', () => {
    const { exposed, tickMs } = simulate(
      pieces([
        { op: 'upload', lane: 0, ns: 1000 },
        { op: 'matmul', lane: 1, ns: 400 },
      ]),
      plain,
    )
    close(tickMs, 1e-3)
    close(exposed['l0']!, 0.6e-3)
  })

  test('a copy takes its part of a memory that a kernel would have all of', () => {
    // The copy's rate is a thousandth of the memory's: both go 1.001 times as long while both are at work.
    close(
      nanoseconds([
        { op: 'upload', lane: 0, ns: 5000 },
        { op: 'elementwise', lane: 1, ns: 1000 },
      ]),
      5001,
    )
  })

  test('two kernels that would each fill the device take as long as one after the other', () => {
    for (const [a, b] of [
      ['matmul', 'matmul'],
      ['elementwise', 'elementwise'],
      ['matmul', 'elementwise'],
    ] as const)
      close(
        nanoseconds([
          { op: a, lane: 0, ns: 1000 },
          { op: b, lane: 1, ns: 400 },
        ]),
        1400,
      )
  })

  test('two that fill half of it each take no longer than alone', () => {
    const machine: Machine = {
      ...plain,
      device: { ...plain.device, multiprocessors: 2, bytesPerBlock: 1e6, bandwidth: 2e12 },
    }
    // A block each: half of the multiprocessors, and with them half of the bandwidth.
    close(
      nanoseconds(
        [
          { op: 'elementwise', lane: 0, ns: 1000 },
          { op: 'elementwise', lane: 1, ns: 1000 },
        ],
        1,
        machine,
      ),
      1000,
    )
  })

  test('one engine does copies of a direction in turn, concurrent with those of the other direction', () => {
    expect(
      starts([
        { op: 'upload', lane: 0, ns: 1000 },
        { op: 'upload', lane: 1, ns: 1000 },
        { op: 'download', lane: 2, ns: 1000 },
      ]),
    ).toEqual([0, 1000, 0])
  })

  test('an engine keeps copying for a lane until the lane has to wait', () => {
    const list = [
      { op: 'upload', lane: 0, ns: 1000 },
      { op: 'upload', lane: 1, ns: 500 },
      { op: 'upload', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 2, ns: 3000, after: [0] },
      { op: 'upload', lane: 0, ns: 1000, after: [3] },
    ] as const
    // Lane 1 is in the engine's queue from the start. It gets the engine after both first copies of lane 0,
    // not after the one that waits for the kernel.
    expect(starts(list)).toEqual([0, 2000, 1000, 1000, 4000])
  })

  test('ticks that end in groups take what they take on average', () => {
    const intervals = [5, 1, 1, 7, 1, 1, 7, 1, 1, 7, 1, 1]
    let at = 0
    const ended = Float64Array.from([0, ...intervals], interval => (at += interval))
    expect(paceOf(ended, 3)).toEqual({ tick: 3, over: 3, steady: true })
  })

  /**
   * The same plan with matrix products in place of `matmul`, which draw so much power that only half of their
   * full rate is sustained.
   */
  const hungry = (
    list: Parameters<typeof pieces>[0],
    inFlight: number,
    device: Partial<Machine['device']> = {},
  ): number => {
    const plan = pieces(list, inFlight)
    const of = { dtype: 'bf16', batchStride: 0 } as const
    const kernel: MatmulSpec = {
      kind: 'matmul',
      batch: 1,
      m: 1,
      n: 1,
      k: 1,
      transposeB: false,
      a: of,
      b: of,
      c: of,
      workspace: 0,
    }
    const nodes = plan.nodes.map(node =>
      node.op === 'matmul' ? { ...node, kernel, flops: 10 * node.flops! } : node,
    )
    const machine = { ...plain, device: { ...plain.device, power: { products: 0.5, memory: 0 }, ...device } }
    return 1e6 * simulate({ ...plan, nodes }, machine).tickMs
  }

  test('products that need more power than there is are bound by power, in turn or concurrent', () => {
    const product = (lane: number) => ({ op: 'matmul', lane, ns: 1000 }) as const
    for (const lane of [0, 1]) expect(hungry([product(0), product(lane)], 2) / 4000).toBeCloseTo(1, 2)
  })

  test('power is a matter of what ticks draw on average: with pauses products go at the full clock', () => {
    const list = [
      { op: 'upload', lane: 0, ns: 1500 },
      { op: 'matmul', lane: 1, ns: 1000, after: [0] },
    ] as const
    close(hungry(list, 1), 2500)
    expect(hungry(list, 2) / 2000).toBeCloseTo(1, 2)
  })

  test('a step on the host is concurrent with everything on the device', () => {
    close(
      nanoseconds([
        { op: 'host', lane: 0, ns: 900 },
        { op: 'matmul', lane: 1, ns: 1000 },
      ]),
      1000,
    )
  })

  test('ticks overlap as far as they may be in flight', () => {
    const list = [
      { op: 'upload', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 1, ns: 1000, after: [0] },
    ] as const
    close(nanoseconds(list, 1), 2000)
    close(nanoseconds(list, 2), 1000)
    close(1e6 * simulate(pieces(list, 2), plain).criticalPathMs, 1000)
  })

  test('the issuing thread bounds a plan of small runs', () => {
    const machine: Machine = { ...plain, host: { ...plain.host, launch: 100, record: 10 } }
    const list = Array.from({ length: 50 }, (_, i) => ({ op: 'matmul', lane: i % 2, ns: 5 }) as const)
    // Each tick: 50 launches and records, and an end for either lane.
    close(nanoseconds(list, 2, machine), 50 * 110 + 20)
    const { bounds } = simulate(pieces(list, 2), machine)
    expect(Object.keys(bounds).sort()).toEqual(['issue', 'tensor'])
  })

  test('the program bounds a plan whose inputs take it longer to fill than the device to work on', () => {
    const machine: Machine = { ...plain, host: { ...plain.host, tick: 400, turnaround: 50 } }
    const list = [{ op: 'matmul', lane: 0, ns: 100 }] as const
    close(nanoseconds(list, 2, machine), 400)
    close(nanoseconds(list, 1, machine), 550)
    expect(simulate(pieces(list, 2), machine).bounds).toEqual({
      feed: expect.closeTo(3e-4, 9),
      tensor: expect.closeTo(1e-4, 9),
    })
    expect(simulate(pieces(list, 1), machine).bounds).toEqual({
      turnaround: expect.closeTo(4.5e-4, 9),
      tensor: expect.closeTo(1e-4, 9),
    })
  })

  test('a lane holds as many runs as its queue is deep, and then holds up the issuing thread', () => {
    const machine: Machine = { ...plain, device: { ...plain.device, queueDepth: 2 } }
    // Only the issuing thread delays lane 1; lane 0 blocks the thread until its first run has ended.
    const list = [
      { op: 'matmul', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 0, ns: 1000 },
      { op: 'upload', lane: 1, ns: 10 },
    ] as const
    expect(starts(list, machine)).toEqual([0, 1000, 2000, 1000])
    expect(starts(list)).toEqual([0, 1000, 2000, 0])
    const { timeline } = simulate(pieces(list), machine)
    expect(runsOf(timeline, 0)[3]).toMatchObject({ cause: 'queue', after: 0 })
  })

  test('lanes that share a queue hold as much together', () => {
    const list = [
      { op: 'matmul', lane: 0, ns: 1000 },
      { op: 'matmul', lane: 0, ns: 1000 },
      { op: 'upload', lane: 1, ns: 10 },
    ] as const
    const of = (queues: number) =>
      starts(list, { ...plain, device: { ...plain.device, queueDepth: 2, queues } })
    expect(of(2)).toEqual([0, 1000, 0])
    expect(of(1)).toEqual([0, 1000, 1000])
  })

  test('marks and waits take their time between lanes', () => {
    const machine: Machine = { ...plain, device: { ...plain.device, waitLatency: 70, kernelLatency: 30 } }
    expect(
      starts(
        [
          { op: 'matmul', lane: 0, ns: 100 },
          { op: 'matmul', lane: 1, ns: 100, after: [0] },
        ],
        machine,
      ),
    ).toEqual([0, 200])
  })

  test('an all-gather occupies the link, and the part that no kernel hides is exposed', () => {
    const plan = pieces([
      { op: 'elementwise', lane: 0, ns: 100 },
      { op: 'matmul', lane: 1, ns: 100 },
    ])
    const gather = { ...plan.nodes[0]!, op: 'all-gather', movedBytes: 5000 }
    const machine = { ...plain, ranks: 4 }
    // The all-gather yields 4,000 bytes, 3,000 of them from other ranks, at 10 a nanosecond.
    const { tickMs, exposed } = simulate({ ...plan, nodes: [gather, plan.nodes[1]!] }, machine)
    close(1e6 * tickMs, 300)
    close(1e6 * exposed['l0']!, 200)
  })

  test('a run that ends too soon after a late moment to tell the two apart still ends', () => {
    const list = [
      { op: 'matmul', lane: 0, ns: 1e13 },
      ...Array.from(
        { length: 9 },
        (_, i) => ({ op: 'matmul', lane: i % 3, ns: 0.003 * (i + 1), after: [0] }) as const,
      ),
    ] as const
    close(nanoseconds(list), 1e13)
  })

  test('measured times stand before the model', () => {
    const plan = pieces([{ op: 'matmul', lane: 0, ns: 100 }])
    close(1e6 * simulate(plan, plain, { measured: new Map([['n0', 250]]) }).tickMs, 250)
  })

  test('a plan of nothing takes no time', () => {
    const plan = planOf({ name: 'nothing', lanes: [], buffers: [], commands: [] })
    expect(simulate(plan, plain)).toMatchObject({ tickMs: 0, criticalPathMs: 0, busy: {}, exposed: {} })
  })

  test('a value that is not a machine is an error', () => {
    const plan = pieces([{ op: 'matmul', lane: 0, ns: 100 }])
    expect(() => simulate(plan, 'h2000')).toThrow(/h200, h200x2, h200x8/)
    expect(() => simulate(plan, { ...plain, ranks: -1 })).toThrow(/machine.ranks/)
  })
})
