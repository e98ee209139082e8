import fc from 'fast-check'
import type { Command, Life, Plan } from '../../dsl/ir/plan.js'
import { oracle, oraclePeak, without } from './oracle.js'
import { type BufferSketch, planOf } from './plans.js'

/**
 * Valid plans that the compiler had no part in: a random graph on random lanes, synchronised naively but correctly (every
 * dependency waits, every foreign reader is marked), then made minimal by dropping whatever the oracle says is not needed.
 */
export interface Recipe {
  readonly lanes: number
  /** Lanes are of one device after the other; what reaches across says so. */
  readonly devices: number
  readonly inFlight: number
  readonly planned: boolean
  /** Wait before each alloc for the last foreign readers of what was freed before: a smaller peak, more waits. */
  readonly thrifty: boolean
  readonly steps: readonly Step[]
}

export interface Step {
  readonly lane: number
  readonly reads: readonly number[]
  /** What it writes: a new tick buffer, by its two halves perhaps, a state, an output, or its own first read in place. */
  readonly into: 'tick' | 'state' | 'output' | 'inPlace' | 'pinned' | 'view' | 'halves'
  readonly bytes: number
}

export const recipes = (most = 8): fc.Arbitrary<Recipe> =>
  fc.record({
    lanes: fc.integer({ min: 1, max: 4 }),
    devices: fc.constantFrom(1, 1, 2),
    inFlight: fc.integer({ min: 1, max: 3 }),
    planned: fc.boolean(),
    thrifty: fc.boolean(),
    steps: fc.array(
      fc.record({
        lane: fc.nat(3),
        reads: fc.array(fc.nat(20), { minLength: 1, maxLength: 3 }),
        into: fc.constantFrom('tick', 'tick', 'tick', 'tick', 'state', 'output', 'inPlace', 'pinned', 'view', 'halves'),
        bytes: fc.integer({ min: 1, max: 4 }).map(n => n * 1024),
      }),
      { minLength: 2, maxLength: most },
    ),
  })

interface Run {
  readonly lane: number
  readonly reads: readonly number[]
  readonly writes: readonly number[]
}

export const planFrom = (recipe: Recipe): Plan => {
  const buffers: BufferSketch[] = [
    { name: 'x', life: 'input' },
    { name: 'p', life: 'param' },
    { name: 's', life: 'state', init: 0 },
  ]
  const lives = (b: number): Life => buffers[buffers[b]!.alias ?? b]!.life ?? 'tick'
  const runs: Run[] = []
  for (const step of recipe.steps) {
    const lane = step.lane % recipe.lanes
    const reads = [...new Set(step.reads.map(r => r % buffers.length))].filter(b => lives(b) !== 'output')
    const inPlace = reads.find(b => lives(b) === 'tick')
    const writes: number[] = []
    if (step.into === 'state') writes.push(2)
    else if (step.into === 'inPlace' && inPlace !== undefined) writes.push(inPlace)
    else {
      writes.push(buffers.length)
      if (step.into === 'output') buffers.push({ name: `y${buffers.length}`, life: 'output' })
      else
        buffers.push({
          name: `b${buffers.length}`,
          home: lane,
          device: lane % recipe.devices,
          bytes: step.bytes,
          space: step.into === 'pinned' ? 'pinned' : 'device',
        })
      const whole = buffers.length - 1
      const half = (at: number): BufferSketch => ({
        name: `v${buffers.length}`,
        home: lane,
        device: lane % recipe.devices,
        bytes: step.bytes / 2,
        alias: whole,
        aliasOffset: at * (step.bytes / 2),
      })
      if (step.into === 'view') buffers.push(half(1))
      else if (step.into === 'halves') {
        buffers.push(half(0))
        buffers.push(half(1))
        writes.splice(0, 1, whole + 1, whole + 2)
      }
    }
    runs.push({ lane, reads, writes })
  }
  return minimise(synchronised(recipe, buffers, runs))
}

const synchronised = (recipe: Recipe, sketches: readonly BufferSketch[], runs: readonly Run[]): Plan => {
  const root = (b: number) => sketches[b]!.alias ?? b
  const life = (b: number) => sketches[b]!.life ?? 'tick'
  const touches = (run: Run) => new Set([...run.reads, ...run.writes].map(root))
  const first = (b: number) => runs.findIndex(run => touches(run).has(b))
  const last = (b: number) => runs.findLastIndex(run => touches(run).has(b))
  const pooled = !recipe.planned
  const ticked = sketches.flatMap((sketch, b) =>
    (sketch.life ?? 'tick') === 'tick' && sketch.alias === undefined ? [b] : [],
  )
  const commands: Command[] = []
  const lastOn = (b: number, lane: number, upTo: number) =>
    runs.findLastIndex((run, i) => i <= upTo && run.lane === lane && touches(run).has(b))
  const freed: number[] = []
  runs.forEach((run, i) => {
    // Whatever touched the same buffers before, in this tick or, where the buffer lives on, in the one before. Event i follows run i.
    for (let j = 0; j < i; j++) {
      if (runs[j]!.lane !== run.lane && [...touches(runs[j]!)].some(b => touches(run).has(b)))
        commands.push(['wait', j, run.lane])
    }
    for (let j = 0; j < runs.length; j++) {
      const carried = (b: number) => life(b) === 'state' || (recipe.planned && life(b) === 'tick')
      if (runs[j]!.lane !== run.lane && [...touches(runs[j]!)].some(b => carried(b) && touches(run).has(b)))
        commands.push(['wait', j, run.lane, -1])
    }
    if (pooled) {
      for (const b of ticked) {
        if (first(b) !== i) continue
        if (recipe.thrifty) {
          for (const other of freed) {
            for (let lane = 0; lane < recipe.lanes; lane++) {
              const reader = lastOn(other, lane, i - 1)
              if (reader >= 0 && lane !== run.lane) commands.push(['wait', reader, run.lane])
            }
          }
        }
        commands.push(['alloc', b, run.lane])
      }
    }
    commands.push(['run', i, run.lane, run.reads, run.writes])
    commands.push(['record', i, run.lane])
    if (!pooled) return
    for (const b of ticked) {
      if (last(b) !== i) continue
      for (let lane = 0; lane < recipe.lanes; lane++) {
        const reader = lastOn(b, lane, i)
        if (reader >= 0 && lane !== sketches[b]!.home) commands.push(['use', b, lane, reader])
      }
      commands.push(['free', b])
      freed.push(b)
    }
  })
  const arena = Array.from({ length: recipe.devices }, () => 0)
  const placed = sketches.map(sketch => {
    if (
      pooled ||
      sketch.alias !== undefined ||
      sketch.space === 'pinned' ||
      sketch.life === 'input' ||
      sketch.life === 'output'
    )
      return sketch
    const offset = arena[sketch.device ?? 0]!
    arena[sketch.device ?? 0]! += sketch.bytes ?? 1024
    return { ...sketch, offset }
  })
  const plain = planOf({
    name: 'generated',
    devices: recipe.devices,
    lanes: Array.from({ length: recipe.lanes }, (_, lane) => `l${lane}`),
    laneDevices: Array.from({ length: recipe.lanes }, (_, lane) => lane % recipe.devices),
    buffers: placed,
    commands,
    inFlight: recipe.inFlight,
    ...(pooled ? {} : { arena }),
  })
  const reaching = plain.nodes.map((node, i) => {
    const { lane, reads, writes } = runs[i]!
    const abroad = [...reads, ...writes].some(
      b => plain.buffers[b]!.space === 'device' && plain.buffers[b]!.device !== lane % recipe.devices,
    )
    return abroad ? { ...node, peerAccess: true } : node
  })
  const plan = { ...plain, nodes: reaching }
  return bindPeak(recipe.planned ? shared(plan, arena) : plan)
}

/** Planned storage: a buffer moves onto the bytes of an earlier one wherever the order of their accesses allows it. */
const shared = (plan: Plan, arena: readonly number[]): Plan => {
  let best = plan
  for (const { id, bytes, life, offset, device } of plan.buffers) {
    if (life !== 'tick' || offset === undefined) continue
    for (let to = 0; to < offset; to += 1024) {
      const moved = {
        ...best,
        buffers: best.buffers.map(other => (other.id === id ? { ...other, offset: to } : other)),
      }
      if (to + bytes > arena[device]! || oracle(moved, false).size > 0) continue
      best = moved
      break
    }
  }
  return best
}

/** The bound that the oracle finds. */
const bindPeak = (plan: Plan): Plan => {
  const { bytes } = oraclePeak(plan)
  return { ...plan, bound: { device: bytes.slice(0, -1), pinned: bytes.at(-1)! } }
}

const minimise = (plan: Plan): Plan => {
  let best = plan
  for (let before = -1; before !== best.commands.length; ) {
    before = best.commands.length
    for (let c = best.commands.length - 1; c >= 0; c--) {
      const op = best.commands[c]![0]
      if (op !== 'wait' && op !== 'use') continue
      const fewer = without(best, c)
      if (oracle(fewer, false).size === 0) best = fewer
    }
    best = bindPeak(best)
  }
  const wanted = new Set(
    best.commands.flatMap(command => (command[0] === 'wait' ? [command[1]] : command[0] === 'use' ? [command[3]] : [])),
  )
  return { ...best, commands: best.commands.filter(command => command[0] !== 'record' || wanted.has(command[1])) }
}

/** Valid plans: every law holds, by construction and by the oracle. */
export const plans = (most = 8): fc.Arbitrary<Plan> => recipes(most).map(planFrom)
