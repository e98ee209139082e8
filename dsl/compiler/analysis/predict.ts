import { play } from '../../machine/simulate/simulator.js'
import { playUntilSteady } from '../../machine/simulate/steady-state.js'
import { Step, type Workload } from '../../machine/simulate/workload.js'
import type { Costs } from './costs.js'
import type { Synchronized } from './ir.js'

/** What a tick of an order takes by the machine's figures. Nanoseconds. */
export interface Prediction {
  /** From one tick to the next, with as many in flight as the plan allows. */
  readonly tick: number
  /** One tick on an idle device, from its first issue to the end of its last operation. */
  readonly latency: number
  /** Of a tick, how long the issuing thread could not go on since a lane's queue was full. */
  readonly blocked: number
}

type Ordered = Pick<Synchronized, 'laneOf' | 'waitStart' | 'waitOn' | 'waitTick' | 'begins' | 'settings'> & {
  readonly lanes: { readonly length: number }
}

/**
 * Predictions do not tell ticks apart that differ by less than this part. Less is worth no unusual order, no
 * further lane, and no other form of the graph.
 */
export const worth = 0.01

/** Ticks beyond so many in flight overlap no further than these do. */
const deepest = 4

/**
 * Ticks are simulated until their pace is steady, as long as they have no more operations than this in all.
 * Of a larger graph the fewest ticks are simulated from which a pace can be told.
 */
const played = 2 ** 13

/**
 * Plays an order on the machine of `costs`, by the same simulator that `simulate` plays a plan on. Two things
 * a plan has are left out, since no order changes them: what the issuing thread takes for memory, and the
 * program's own thread that feeds ticks. No tick is shorter than what its power takes.
 */
export const predict = (ir: Ordered, costs: Costs): Prediction => {
  const workload = workloadOf(ir, costs)
  const { inFlight, runs, laneSets = 1 } = workload
  if (runs === 0) return { tick: 0, latency: 0, blocked: 0 }
  if ((2 * inFlight + 4) * runs > played) {
    const ticks = inFlight + 2
    const { ended, blocked } = play(workload, ticks)
    // Ticks with lanes of their own end in groups.
    const span = Math.max(Math.min(inFlight, 2), laneSets)
    const tick = (ended[ticks - 1]! - ended[ticks - 1 - span]!) / span
    return { tick: Math.max(tick, costs.power), latency: ended[0]!, blocked: blocked / ticks }
  }
  const { ended, blocked, pace } = playUntilSteady(workload, Math.floor(played / runs) - inFlight)
  return { tick: Math.max(pace.tick, costs.power), latency: ended[0]!, blocked: blocked / ended.length }
}

/**
 * The operations as steps: what each waits for, and the records that others wait for: of when its lane comes
 * to it, and of its end.
 */
const workloadOf = (ir: Ordered, costs: Costs): Workload => {
  const { laneOf, waitStart, waitOn, waitTick, begins } = ir
  const alone = ir.settings.mode === 'graph' && ir.settings.arenas === 1
  const count = laneOf.length
  const startEvent = new Int32Array(count).fill(-1)
  const endEvent = new Int32Array(count).fill(-1)
  let events = 0
  for (let w = 0; w < waitOn.length; w++) {
    const event = begins?.[w] === 1 ? startEvent : endEvent
    if (event[waitOn[w]!] === -1) event[waitOn[w]!] = events++
  }
  const steps = count + waitOn.length + events
  const workload = {
    lanes: ir.lanes.length,
    events,
    // A graph is one piece of its lane, so the next tick's comes after it, unless it has lanes of its own.
    inFlight: alone ? 1 : Math.min(ir.settings.inFlight, deepest),
    laneSets: Math.min(ir.settings.arenas, deepest),
    steps,
    kind: new Uint8Array(steps),
    lane: new Int32Array(steps),
    subject: new Int32Array(steps),
    issue: new Float64Array(steps),
    trailing: 0,
    runs: count,
    usage: costs,
    waitLatency: costs.waitLatency,
    depth: costs.depth(ir.lanes.length),
    feed: 0,
    turnaround: 0,
  }
  let s = 0
  const put = (kind: number, lane: number, subject: number): void => {
    workload.kind[s] = kind
    workload.lane[s] = lane
    workload.subject[s++] = subject
  }
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    const waits = waitStart[i + 1]! - waitStart[i]!
    // The issuing thread takes the time of an operation and its events before the first of them.
    workload.issue[s] = costs.issue[i]! + waits * (costs.wait + costs.record)
    for (let w = waitStart[i]!; w < waitStart[i + 1]!; w++) {
      const event = begins?.[w] === 1 ? startEvent : endEvent
      put(waitTick[w] === 0 ? Step.wait : Step.waitPrevious, lane, event[waitOn[w]!]!)
    }
    if (startEvent[i] !== -1) put(Step.record, lane, startEvent[i]!)
    put(Step.run, lane, i)
    if (endEvent[i] !== -1) put(Step.record, lane, endEvent[i]!)
  }
  return workload
}
