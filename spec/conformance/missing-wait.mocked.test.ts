// A missing wait cannot hide: whichever wait of a plan is dropped, some order of the work that the plan then
// allows yields other values than `interpret`. With all waits, none does. The host device delays one copy or
// kernel at a time, so that what no longer waits for it comes first.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { afterAll, describe, expect, it, vi } from 'vitest'
import {
  add,
  type CompileOptions,
  compile,
  type DeviceFlow,
  delay,
  download,
  type Graph,
  graph,
  lane,
  mul,
  on,
  orThrow,
  type Plan,
  tensor,
  upload,
} from '../../dsl/index.js'
import type { Command } from '../../dsl/ir/plan.js'
import { verify } from '../../dsl/verify/verify.js'
import { type HostOptions, open, pulled, type Session } from '../../runtime/index.js'
import { type Sample, valuesOf } from '../fixtures/graphs/random.js'
import { planOf } from '../fixtures/plans/by-hand.js'
import { often, runs } from '../fixtures/runs.js'
import { meantOf, mismatch, outputsOf, type Values } from './meant.js'

// `open` proves a plan that `compile` did not make. Here broken plans are to run.
vi.mock('../../runtime/session/check-plan.js', async original => ({
  ...(await original<object>()),
  checkedPlan: (plan: Plan) => E.right(plan),
}))

/** Each delay on its way lets a wrong value of the second tick out one tick later. */
const ticksOf = (made: readonly Step[]): number => 4 + made.filter(({ late }) => late).length
const vector = tensor('f32', [32])
type Vector = DeviceFlow<typeof vector>

/** A value from two earlier ones, so far back; on a lane; of this tick or, `late`, of the one before. */
interface Step {
  readonly back: readonly [number, number]
  readonly lane: number
  readonly late: boolean
}

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.record({
    back: fc.tuple(fc.nat(5), fc.nat(5)),
    lane: fc.nat(3),
    late: fc.integer({ min: 0, max: 3 }).map(n => n === 0),
  }),
  { minLength: 2, maxLength: 10 },
)

/**
 * No value hides an operand, as `max` would, and no two values are alike: each is the sum of two, one of them
 * times a number of its own.
 */
const graphOf = (made: readonly Step[]): Graph =>
  graph('ordered', { x: vector, z: vector }, ({ x, z }) => {
    const lanes = Array.from({ length: 4 }, (_, i) => lane(`lane ${i}`))
    const [into, out] = [lane('in'), lane('out')]
    const values: Vector[] = [x.pipe(upload(into)), z.pipe(upload(into))]
    const read = new Set<number>()
    made.forEach(({ back, lane, late }, i) => {
      const [a, b] = back.map(n => Math.max(0, values.length - 1 - n)) as [number, number]
      read.add(a).add(b)
      const sum = values[a]!.pipe(on(lanes[lane]!), mul(1 + i / 8), add(values[b]!)) as Vector
      values.push(late ? (sum.pipe(delay(i)) as Vector) : sum)
    })
    const ends = values.flatMap((value, i) =>
      read.has(i) ? [] : [[`y${i}`, value.pipe(download(out))] as const],
    )
    return Object.fromEntries(ends)
  }) as unknown as Graph

const feedsOf = (ticks: number) =>
  Object.fromEntries(
    ['x', 'z'].map((name, i) => [
      name,
      Array.from({ length: ticks }, (_, t) => valuesOf('f32', 32, 100 * i + t + 1)),
    ]),
  )

const sampleOf = (made: readonly Step[], inFlight: number): Sample => {
  const own = graphOf(made)
  const outputs = Object.fromEntries(
    orThrow(compile(own, { mode: 'eager' }))
      .buffers.filter(({ life }) => life === 'output')
      .map(({ name }) => [name, 'f32' as const]),
  )
  const ticks = ticksOf(made)
  return { graph: own, dims: {}, inFlight, params: {}, feeds: feedsOf(ticks), ticks, outputs, text: '' }
}

const ran = async (plan: Plan, made: Sample, host: HostOptions): Promise<readonly Values[]> => {
  const options = { device: 'host', params: made.params as never, host: { poison: true, ...host } } as const
  await using session = orThrow(await open(plan, options)())
  return await outputsOf(session, made)
}

type Run = Extract<Command, readonly ['run', ...unknown[]]>
const runsOf = (plan: Plan): readonly Run[] =>
  plan.commands.filter((command): command is Run => command[0] === 'run')

/** Which piece of work of the device a run of the plan is: `open` copies the first value of each state. */
const pieceOf = (plan: Plan, tick: number, run: number): number =>
  plan.buffers.filter(({ life }) => life === 'state').length + tick * runsOf(plan).length + run + 1

/** Makes one run of the plan take longer, in its second tick. */
const delaying = (plan: Plan, run: number, milliseconds: number): HostOptions => ({
  faults: [{ call: 'run', nth: pieceOf(plan, 1, run), delayMicroseconds: 1000 * milliseconds }],
})

/**
 * The runs whose delay may show that the wait at `c` is missing, the likeliest first: those of the lane that
 * was waited for, from its record back, then those after the record, whose results a later tick may read
 * after the wait, then those of other lanes, which it may have waited for.
 */
const suspects = (plan: Plan, c: number): readonly number[] => {
  const [, event, waiting] = plan.commands[c] as Extract<Command, readonly ['wait', ...unknown[]]>
  const record = plan.commands.findIndex(([op, own]) => op === 'record' && own === event)
  const [, , recorded] = plan.commands[record] as Extract<Command, readonly ['record', ...unknown[]]>
  const before = plan.commands.slice(0, record).filter(([op]) => op === 'run').length
  const list = runsOf(plan).map(([, , lane], run) => ({ run, lane }))
  const all = list.filter(({ lane }) => lane === recorded).reverse()
  const own = [...all.filter(({ run }) => run < before), ...all.filter(({ run }) => run >= before)]
  const others = list.filter(({ lane }) => lane !== recorded && lane !== waiting)
  return [...own, ...others].map(({ run }) => run)
}

/** Whether a run without the wait, with one of the suspects delayed, yields what the graph does not mean. */
const isSeen = async (plan: Plan, c: number, made: Sample): Promise<boolean> => {
  const wanted = await meantOf(made)
  // With memory enough, so that the session's pool makes no lane wait by itself.
  const bound = { ...plan.bound, device: plan.bound.device.map(bytes => 16 * bytes) }
  const spacious = plan.storage === 'pooled' ? { bound } : {}
  const without: Plan = { ...plan, ...spacious, commands: plan.commands.toSpliced(c, 1) }
  // Longer where the processor was busy, so that what must come first did not.
  for (const milliseconds of [3, 20, 100, 500])
    for (const run of suspects(plan, c)) {
      const got = await ran(without, made, delaying(plan, run, milliseconds))
      if (mismatch(made, wanted, got) !== undefined) return true
    }
  return false
}

/** Waits whose loss lets values be read or overwritten too early, not only memory be counted wrongly. */
const waitsOfValues = (plan: Plan): readonly number[] =>
  plan.commands.flatMap((command, c) => {
    if (command[0] !== 'wait') return []
    const broken = verify({ ...plan, commands: plan.commands.toSpliced(c, 1) }, { safety: true })
    const ordered = plan.storage === 'planned' ? ['L1', 'L2', 'L3'] : ['L1', 'L2']
    return broken.some(({ law }) => ordered.includes(law)) ? [c] : []
  })

describe('a plan of which one wait is missing', () => {
  const compiling: fc.Arbitrary<CompileOptions> = fc.record({
    storage: fc.constantFrom('pooled' as const, 'planned' as const),
    memory: fc.constantFrom('fast' as const, 'small' as const),
    inFlight: fc.integer({ min: 1, max: 3 }),
  })
  let dropped = 0
  let previous = 0
  let ofFused = 0

  it('has one piece of work for each of its runs', async () => {
    const made = sampleOf(fc.sample(steps, { seed: 7, numRuns: 1 })[0]!, 2)
    const plan = orThrow(compile(made.graph, { mode: 'eager', inFlight: 2 }))
    expect(plan.buffers.some(({ life }) => life === 'state')).toBe(true)
    const failing = (nth: number): HostOptions => ({ faults: [{ call: 'run', nth }] })
    const last = pieceOf(plan, made.ticks! - 1, runsOf(plan).length - 1)
    await expect(ran(plan, made, failing(last))).rejects.toThrow('was made to fail')
    expect(mismatch(made, await meantOf(made), await ran(plan, made, failing(last + 1)))).toBeUndefined()
  })

  it('yields wrong values in some order, and with the wait right ones in each', {
    timeout: 900_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(steps, compiling, async (own, options) => {
        const made = sampleOf(own, options.inFlight!)
        const plan = orThrow(compile(made.graph, { mode: 'eager', ...options }))
        const wanted = await meantOf(made)
        for (let run = 0; run < runsOf(plan).length; run++)
          expect(mismatch(made, wanted, await ran(plan, made, delaying(plan, run, 1)))).toBeUndefined()
        for (const c of waitsOfValues(plan)) {
          const what = `commands[${c}] of\n${plan.commands.map(command => command.join(' ')).join('\n')}`
          expect(await isSeen(plan, c, made), what).toBe(true)
          dropped++
          if (plan.nodes.some(({ op }) => op === 'fused')) ofFused++
          if (plan.commands[c]![3] === -1) previous++
        }
      }),
      { numRuns: runs(40) },
    )
  })

  afterAll(() => {
    expect(dropped).toBeGreaterThan(often(60))
    expect(ofFused).toBeGreaterThan(often(20))
    expect(previous).toBeGreaterThan(often(5))
  })
})

describe('a slowed copy', () => {
  const bytes = 2 ** 16
  // Lane 0 uploads `a`. Lane 1 downloads something else for half of that time, then reads `a` at once.
  const plan = (waits: boolean): Plan => {
    const sketch = planOf({
      name: 'half old',
      lanes: ['copy', 'math'],
      inFlight: 1,
      buffers: [
        { name: 'x', life: 'input', bytes },
        { name: 'a', bytes },
        { name: 'k', life: 'state', init: 0, bytes: bytes / 2, home: 1 },
        { name: 'z', life: 'output', bytes: bytes / 2 },
        { name: 'b', bytes, home: 1 },
        { name: 'y', life: 'output', bytes },
      ],
      commands: [
        ['alloc', 1, 0],
        ['run', 0, 0, [0], [1]],
        ['record', 0, 0],
        ['run', 1, 1, [2], [3]],
        ['wait', 0, 1],
        ['alloc', 4, 1],
        ['run', 0, 1, [1], [4]],
        ['record', 1, 1],
        ['use', 1, 1, 1],
        ['free', 1],
        ['run', 0, 1, [4], [5]],
        ['free', 4],
      ],
    })
    const nodes = sketch.nodes.map((node, i) => ({
      ...node,
      op: 'copy',
      kernel: { kind: 'copy' as const, bytes: i === 0 ? bytes : bytes / 2 },
    }))
    const commands = sketch.commands.filter(([op]) => waits || op !== 'wait')
    return { ...sketch, nodes, commands }
  }
  const halves = async (waits: boolean) => {
    const host = { copyRate: bytes / 0.03, poison: true }
    await using session = orThrow(await open(plan(waits), { device: 'host', host })()) as unknown as Session
    const rows = [1, 2].map(value => new Uint8Array(bytes).fill(value))
    let last = new Uint8Array()
    await session.run({ x: pulled(rows) } as never).forEach(lease => {
      using held = lease as unknown as { readonly y: Uint8Array<ArrayBuffer> } & Disposable
      last = held.y.slice()
    })
    return [last.subarray(0, bytes / 2), last.subarray(bytes / 2)].map(half => [...new Set(half)])
  }

  it('is half done in the middle of its time, for a reader that does not wait', async () => {
    expect(await halves(true)).toEqual([[2], [2]])
    let seen: number[][] = []
    // Again where the processor was busy, and the reader came late.
    for (let tries = 0; tries < 20 && `${seen}` !== '2,1'; tries++) seen = await halves(false)
    expect(seen).toEqual([[2], [1]])
  })
})
