import { paceOf } from '../../machine/simulate/steady.js'
import { type Costs, resources } from './costs.js'
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

/** Ticks beyond so many in flight overlap no further than these do. */
const deepest = 4

/** Operations of all ticks up to which more ticks are played until their pace has settled; of more the fewest that tell anything. */
const played = 2 ** 13

/**
 * Plays an order on the machine of `costs`: one thread issues, a lane does its operations one after the other, and an operation that has begun has its share of
 * processors, memory bandwidth and the bus. Where more is asked of one of these than there is, all who ask for it slow down alike, so that full kernels
 * beside each other gain nothing. A copy engine does one copy at a time, and copies on for a lane until that has to wait (`simulate/replay.ts` says why). Time goes from
 * event to event, each of which looks at every lane once: linear in operations times lanes. No tick is shorter than what its power takes.
 */
export const predict = (ir: Ordered, costs: Costs): Prediction => {
  const { tick, ...found } = settledPlay(ir, costs)
  return { ...found, tick: Math.max(tick, costs.power) }
}

const settledPlay = (ir: Ordered, costs: Costs): Prediction => {
  const inFlight = Math.min(ir.settings.inFlight, deepest)
  const count = ir.laneOf.length
  if ((2 * inFlight + 4) * count > played) return new Play(ir, costs, inFlight, inFlight + 2).run()
  // The first ticks find every lane idle, and the last ones have none behind them.
  for (let ticks = 2 * inFlight + 4; ; ticks *= 2) {
    const play = new Play(ir, costs, inFlight, ticks)
    const found = play.run()
    const { tick, settled } = paceOf(play.tickEnd.subarray(0, ticks - inFlight), inFlight)
    if (settled || 2 * ticks * count > played || count === 0) return { ...found, tick }
  }
}

enum Phase {
  /** Its operation is not issued, or waits for others. */
  idle,
  /** Nothing holds it, but it begins at `until` at the earliest. */
  due,
  /** It stands in line for an engine that another lane has. */
  queued,
  /** It has begun; its own work begins at `until`. */
  latent,
  /** `left` nanoseconds of work are to do, at `rate`. */
  working,
}

class Play {
  private readonly count: number
  private readonly lanes: number
  private readonly depth: number
  /** Operations by lane: those of lane l are `member[first[l] .. first[l + 1]]`. */
  private readonly first: Int32Array
  private readonly member: Int32Array
  private readonly position: Int32Array
  /** When each operation of each tick is issued and ends; NaN: not known yet. */
  private readonly issued: Float64Array
  private readonly ends: Float64Array
  /** When a lane had come to each; only where somebody waits for that. */
  private readonly begun: Float64Array | undefined
  private readonly next: Float64Array
  private readonly phase: Uint8Array
  private readonly until: Float64Array
  private readonly left: Float64Array
  private readonly rate: Float64Array
  private readonly asked: Float64Array
  private readonly idle: number[]
  private readonly lines: number[][]
  /** Lanes that have just let go of an engine. */
  private readonly done: number[] = []
  private readonly undone: Int32Array
  readonly tickEnd: Float64Array
  private issue = 0
  private host = 0
  private now = 0
  private blocked = 0
  private full = false

  constructor(
    private readonly ir: Ordered,
    private readonly costs: Costs,
    private readonly inFlight: number,
    private readonly ticks: number,
  ) {
    const { laneOf } = ir
    this.count = laneOf.length
    this.lanes = ir.lanes.length
    this.depth = costs.depth(this.lanes)
    this.asked = new Float64Array(costs.pools)
    this.idle = [...costs.engines]
    this.lines = this.idle.map(() => [])
    this.first = new Int32Array(this.lanes + 1)
    for (const lane of laneOf) this.first[lane + 1]!++
    for (let l = 0; l < this.lanes; l++) this.first[l + 1]! += this.first[l]!
    const fill = this.first.slice()
    this.member = new Int32Array(this.count)
    this.position = new Int32Array(this.count)
    laneOf.forEach((lane, i) => {
      this.position[i] = fill[lane]! - this.first[lane]!
      this.member[fill[lane]!++] = i
    })
    this.issued = new Float64Array(this.ticks * this.count).fill(Number.NaN)
    this.ends = this.issued.slice()
    this.begun = ir.begins === undefined ? undefined : this.issued.slice()
    this.next = new Float64Array(this.lanes)
    this.phase = new Uint8Array(this.lanes)
    this.until = new Float64Array(this.lanes)
    this.left = new Float64Array(this.lanes)
    this.rate = new Float64Array(this.lanes)
    this.undone = new Int32Array(this.ticks).fill(this.count)
    this.tickEnd = new Float64Array(this.ticks).fill(Number.NaN)
  }

  run(): Prediction {
    const { ticks, tickEnd, inFlight } = this
    if (this.count === 0) return { tick: 0, latency: 0, blocked: 0 }
    for (;;) {
      this.issueMore()
      this.begin()
      this.handOver()
      if (!this.advance()) break
    }
    const span = Math.min(inFlight, 2)
    return {
      tick: (tickEnd[ticks - 1]! - tickEnd[ticks - 1 - span]!) / span,
      latency: tickEnd[0]!,
      blocked: this.blocked / ticks,
    }
  }

  /** The operation that a lane does next, over all ticks; or did `by` before that. */
  private head(lane: number, by = 0): number {
    const length = this.first[lane + 1]! - this.first[lane]!
    const at = this.next[lane]! + by
    const tick = Math.floor(at / length)
    return tick >= this.ticks ? -1 : tick * this.count + this.member[this.first[lane]! + (at % length)]!
  }

  // The thread goes on until a tick or a full queue holds it; what it has issued by then may lie in the future of the lanes.
  private issueMore(): void {
    const { count, ticks, inFlight, issued, ends, tickEnd, costs, first, position } = this
    for (; this.issue < ticks * count; this.issue++) {
      const tick = Math.floor(this.issue / count)
      const i = this.issue - tick * count
      if (i === 0 && tick >= inFlight) {
        const done = tickEnd[tick - inFlight]!
        if (Number.isNaN(done)) return
        this.host = Math.max(this.host, done)
      }
      const lane = this.ir.laneOf[i]!
      const length = first[lane + 1]! - first[lane]!
      const before = tick * length + position[i]! - this.depth
      if (before >= 0) {
        const oldest = Math.floor(before / length) * count + this.member[first[lane]! + (before % length)]!
        if (Number.isNaN(ends[oldest]!)) {
          this.full = true
          return
        }
        if (this.full) this.blocked += Math.max(0, ends[oldest]! - this.host)
        this.full = false
        this.host = Math.max(this.host, ends[oldest]!)
      }
      this.host +=
        costs.issue[i]! + (this.ir.waitStart[i + 1]! - this.ir.waitStart[i]!) * (costs.wait + costs.record)
      issued[this.issue] = this.host
    }
  }

  private begin(): void {
    const { lanes, phase, issued, ends, begun, until, count, ir, costs } = this
    for (let lane = 0; lane < lanes; lane++) {
      if (phase[lane] !== Phase.idle) continue
      const at = this.head(lane)
      if (at < 0 || Number.isNaN(issued[at]!)) continue
      const tick = Math.floor(at / count)
      const i = at - tick * count
      let start = Math.max(issued[at]!, this.now)
      let held = false
      for (let w = ir.waitStart[i]!; w < ir.waitStart[i + 1]! && !held; w++) {
        const on = (tick + ir.waitTick[w]!) * count + ir.waitOn[w]!
        if (on < 0) continue
        const done = ir.begins?.[w] === 1 ? begun![on]! : ends[on]!
        held = Number.isNaN(done)
        start = Math.max(start, done + costs.waitLatency)
      }
      if (held) continue
      phase[lane] = Phase.due
      until[lane] = start
      if (begun !== undefined) begun[at] = start
    }
  }

  /** An engine that has done a copy goes on with the same lane if that has the next one ready, else with who stands in line the longest. */
  private handOver(): void {
    for (let lane = this.done.pop(); lane !== undefined; lane = this.done.pop()) {
      const engine = this.costs.engine[this.head(lane, -1) % this.count]!
      const goesOn = this.phase[lane] === Phase.due && this.until[lane]! <= this.now
      if (goesOn && this.costs.engine[this.head(lane) % this.count] === engine) continue
      const next = this.idle[engine]! > 0 ? this.lines[engine]!.shift() : undefined
      if (next !== undefined) this.start(next)
    }
  }

  private advance(): boolean {
    const { lanes, phase, until, left, rate } = this
    this.share()
    let at = Number.POSITIVE_INFINITY
    for (let lane = 0; lane < lanes; lane++) {
      if (phase[lane] === Phase.idle || phase[lane] === Phase.queued) continue
      at = Math.min(at, phase[lane] === Phase.working ? this.now + left[lane]! / rate[lane]! : until[lane]!)
    }
    if (at === Number.POSITIVE_INFINITY) return false
    const passed = at - this.now
    this.now = at
    for (let lane = 0; lane < lanes; lane++) {
      if (phase[lane] === Phase.working) {
        left[lane]! -= passed * rate[lane]!
        if (left[lane]! <= 1e-6 * passed + 1e-9) this.finish(lane)
      } else if (phase[lane] === Phase.due && until[lane]! <= at) this.take(lane)
      else if (phase[lane] === Phase.latent && until[lane]! <= at) this.work(lane)
    }
    return true
  }

  private take(lane: number): void {
    const engine = this.costs.engine[this.head(lane) % this.count]!
    if (engine >= 0 && this.idle[engine] === 0) {
      this.phase[lane] = Phase.queued
      this.lines[engine]!.push(lane)
    } else this.start(lane)
  }

  private start(lane: number): void {
    const { costs, phase, until, now } = this
    const i = this.head(lane) % this.count
    if (costs.engine[i]! >= 0) this.idle[costs.engine[i]!]!--
    phase[lane] = Phase.latent
    until[lane] = now + costs.latency[i]!
    if (costs.latency[i] === 0) this.work(lane)
  }

  private work(lane: number): void {
    this.left[lane] = this.costs.work[this.head(lane) % this.count]!
    this.phase[lane] = Phase.working
    if (this.left[lane]! <= 0) this.finish(lane)
  }

  private finish(lane: number): void {
    const at = this.head(lane)
    this.ends[at] = this.now
    this.phase[lane] = Phase.idle
    this.next[lane]!++
    const tick = Math.floor(at / this.count)
    const engine = this.costs.engine[at - tick * this.count]!
    if (engine >= 0) {
      this.idle[engine]!++
      this.done.push(lane)
    }
    if (--this.undone[tick]! === 0) this.tickEnd[tick] = this.now
  }

  /** How fast each working lane goes: what is asked for beyond what there is slows all who ask. */
  private share(): void {
    const { lanes, phase, rate, asked, costs } = this
    const { demand, shared } = costs
    asked.fill(0)
    for (let lane = 0; lane < lanes; lane++) {
      if (phase[lane] !== Phase.working) continue
      const i = this.head(lane) % this.count
      for (let r = 0; r < resources; r++) asked[shared[i]! + r]! += demand[resources * i + r]!
    }
    for (let lane = 0; lane < lanes; lane++) {
      if (phase[lane] !== Phase.working) continue
      const i = this.head(lane) % this.count
      let slowest = 1
      for (let r = 0; r < resources; r++)
        if (demand[resources * i + r]! > 0 && asked[shared[i]! + r]! > 1)
          slowest = Math.min(slowest, 1 / asked[shared[i]! + r]!)
      rate[lane] = slowest
    }
  }
}
