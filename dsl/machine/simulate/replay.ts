// Over 300 lines as one thing: the order of events of one simulated run, whose actors change each other's state at every step.
import { laneDepth } from '../machine.js'
import { Heap } from './heap.js'
import { type Program, Step } from './program.js'
import { Shares } from './shares.js'
import type { Timeline } from './timeline.js'

const Cause = { start: 0, lane: 1, wait: 2, engine: 3, issue: 4, queue: 5, tick: 6, feed: 7 } as const
const State = { idle: 0, ready: 1, latency: 2, working: 3, engine: 4, event: 5 } as const

/**
 * The plan on the machine, `ticks` ticks of it, event by event. Four kinds of actors: the program's own thread, which feeds a tick when its slot is free; the
 * issuing thread, which issues a fed tick's commands one after the other; lanes, which carry out what was issued in order; and runs at work, which share
 * the device (`Shares`). The two threads are ahead of the rest: their times follow from what they waited for, so they go on until only a run that has not ended yet
 * can tell when they go on.
 */
export const replay = (program: Program, ticks: number): Timeline => new Replay(program, ticks).timeline()

class Replay {
  // Lanes: what each is at, and since when it is free for its next step; the cause of that and the run behind it.
  private readonly head: Float64Array
  private readonly issuedSteps: Float64Array
  private readonly state: Uint8Array
  private readonly free: Float64Array
  private readonly freeCause: Uint8Array
  private readonly freeAfter: Int32Array
  private readonly outstanding: Int32Array
  private readonly current: Int32Array
  private readonly due: Float64Array
  // Steps, by slot: when they were issued, and for a run why not earlier.
  private readonly slots: number
  private readonly issueTime: Float64Array
  private readonly issueCause: Uint8Array
  private readonly issueAfter: Int32Array
  // Events, by slot: when they happen (NaN: not known yet), the run behind that, and the lane that waits, with links to further ones.
  private readonly eventTime: Float64Array
  private readonly eventAfter: Int32Array
  private readonly eventLane: Int32Array
  private readonly waiter: Int32Array
  private readonly nextWaiter: Int32Array
  private readonly recorded: Uint8Array
  // Engines: how many are free, and the lanes that stand in line.
  private readonly engineFree: Int32Array
  private readonly lines: number[][]
  // Ticks: runs that have not ended.
  private readonly left: Int32Array
  // The threads.
  private fed = 0
  private thread = 0
  private issueTick = 0
  private issueStep = 0
  private waitsForTick = -1
  private waitsForLane = -1
  private blockedBy = -1
  private blockedCause: number = Cause.issue

  private readonly heap: Heap
  private readonly shares: Shares
  private readonly todo: number[] = []
  private now = 0
  private readonly depth: number
  private readonly line: {
    node: Int32Array
    lane: Int32Array
    tick: Int32Array
    start: Float64Array
    end: Float64Array
    cause: Uint8Array
    after: Int32Array
    issued: Float64Array
    ended: Float64Array
  }

  constructor(
    private readonly program: Program,
    private readonly ticks: number,
  ) {
    const { lanes, events, steps, runs, engineSize, plan } = program
    // A tick is issued when that of inFlight before has ended, and reads marks of the one before it: so three more than are in flight never meet.
    this.slots = Math.min(ticks, plan.inFlight + 3)
    this.head = new Float64Array(lanes)
    this.issuedSteps = new Float64Array(lanes)
    this.state = new Uint8Array(lanes)
    this.free = new Float64Array(lanes)
    this.freeCause = new Uint8Array(lanes)
    this.freeAfter = new Int32Array(lanes).fill(-1)
    this.outstanding = new Int32Array(lanes)
    this.depth = laneDepth(program.machine.device, Math.ceil(lanes / plan.devices))
    this.current = new Int32Array(lanes)
    this.due = new Float64Array(lanes)
    this.issueTime = new Float64Array(steps * this.slots)
    this.issueCause = new Uint8Array(steps * this.slots)
    this.issueAfter = new Int32Array(steps * this.slots)
    this.eventTime = new Float64Array(events * this.slots).fill(Number.NaN)
    this.eventAfter = new Int32Array(events * this.slots)
    this.eventLane = new Int32Array(events * this.slots)
    this.waiter = new Int32Array(events * this.slots).fill(-1)
    this.nextWaiter = new Int32Array(lanes)
    this.recorded = new Uint8Array(events)
    for (let s = 0; s < steps; s++)
      if (program.kind[s] === Step.record) this.recorded[program.subject[s]!] = 1
    this.engineFree = engineSize.slice()
    this.lines = Array.from(engineSize, () => [])
    this.left = new Int32Array(ticks).fill(runs)
    this.heap = new Heap(lanes)
    this.shares = new Shares(program)
    const all = runs * ticks
    this.line = {
      node: new Int32Array(all),
      lane: new Int32Array(all),
      tick: new Int32Array(all),
      start: new Float64Array(all),
      end: new Float64Array(all),
      cause: new Uint8Array(all),
      after: new Int32Array(all).fill(-1),
      issued: new Float64Array(ticks),
      ended: new Float64Array(ticks),
    }
    for (let tick = 0; tick < ticks; tick++) {
      this.line.node.set(program.node, tick * runs)
      this.line.lane.set(program.laneOf, tick * runs)
      this.line.tick.fill(tick, tick * runs, (tick + 1) * runs)
    }
  }

  timeline(): Timeline {
    const { heap, shares, ticks, program, line } = this
    this.beginTick()
    this.issue()
    this.goOn()
    for (;;) {
      const next = Math.min(heap.earliest, shares.next)
      if (next === Number.POSITIVE_INFINITY) break
      this.now = next
      if (shares.next <= next) shares.take(next, lane => this.end(lane))
      while (heap.earliest <= next) this.wake(heap.pop())
      this.goOn()
    }
    const resource = Array.from(
      { length: program.runs * ticks },
      (_, i) => program.resource[i % program.runs]!,
    )
    return { runs: program.runs * ticks, ticks, ...line, resource }
  }

  /** Lanes that may go on do, until none may at this time. */
  private goOn(): void {
    for (let lane = this.todo.pop(); lane !== undefined; lane = this.todo.pop()) this.advance(lane)
  }

  /** The next tick is fed, if its slot is free: else when that tick ends. */
  private beginTick(): void {
    const { program, line, ticks } = this
    const { host } = program.machine
    while (this.issueTick < ticks) {
      const before = this.issueTick - program.plan.inFlight
      let slotFree = 0
      let after = -1
      if (before >= 0) {
        if (this.left[before]! > 0) {
          this.waitsForTick = before
          return
        }
        slotFree = line.ended[before]! + host.turnaround
        after = this.lastOf(before)
      }
      this.waitsForTick = -1
      const feedFrom = Math.max(this.fed, slotFree)
      this.fed = feedFrom + program.feed
      // What held the tick up: an earlier one that had to end, or a thread that was at work.
      if (this.fed <= this.thread) {
        this.blockedBy = -1
        this.blockedCause = Cause.issue
      } else {
        this.thread = this.fed
        this.blockedBy = slotFree > 0 && feedFrom === slotFree ? after : -1
        this.blockedCause = this.blockedBy >= 0 ? Cause.tick : Cause.feed
      }
      line.issued[this.issueTick] = this.thread
      this.issueStep = 0
      const slot = this.issueTick % this.slots
      const { events } = program
      this.eventTime.fill(Number.NaN, slot * events, (slot + 1) * events)
      if (program.runs > 0) return
      // A tick without runs ends when it has been issued.
      this.thread += program.trailing
      line.ended[this.issueTick] = this.thread
      this.issueTick++
    }
  }

  /** The run of a tick that ended last. */
  private lastOf(tick: number): number {
    const { end } = this.line
    const { runs } = this.program
    const at = this.line.ended[tick]!
    for (let i = (tick + 1) * runs - 1; i >= tick * runs; i--) if (end[i] === at) return i
    return -1
  }

  /** The issuing thread goes on until it has issued everything, or has to wait for a run to end. */
  private issue(): void {
    const { program, slots, todo, state } = this
    const { steps, lanes, kind, lane, cost, pause } = program
    const { depth } = this
    while (this.issueTick < this.ticks && this.waitsForTick < 0) {
      const base = (this.issueTick % slots) * steps
      for (; this.issueStep < steps; this.issueStep++) {
        const s = this.issueStep
        const l = lane[s]!
        if (kind[s] === Step.run) {
          if (this.outstanding[l]! >= depth) {
            this.waitsForLane = l
            return
          }
          this.outstanding[l]!++
        }
        this.thread += pause[s]! + cost[s]!
        this.issueTime[base + s] = this.thread
        this.issueCause[base + s] = this.blockedCause
        this.issueAfter[base + s] = this.blockedBy
        this.issuedSteps[l]!++
        if (state[l] === State.idle) todo.push(l)
      }
      this.thread += program.trailing
      this.issueTick++
      this.issueStep = 0
      this.beginTick()
      if (todo.length > lanes) this.goOn()
    }
  }

  /** A lane carries out what it can at this time. */
  private advance(l: number): void {
    const { program, state, head, issuedSteps, free, slots } = this
    const { steps, kind, subject, laneStart, laneSteps, events, machine } = program
    if (state[l] !== State.idle) return
    const first = laneStart[l]!
    const length = laneStart[l + 1]! - first
    while (head[l]! < issuedSteps[l]!) {
      const tick = Math.floor(head[l]! / length)
      const s = laneSteps[first + (head[l]! - tick * length)]!
      const slot = tick % slots
      const issued = this.issueTime[slot * steps + s]!
      switch (kind[s]) {
        case Step.record: {
          const e = slot * events + subject[s]!
          this.eventTime[e] = Math.max(free[l]!, issued)
          this.eventAfter[e] = this.freeAfter[l]!
          this.eventLane[e] = l
          this.wakeWaiters(e)
          break
        }
        case Step.wait:
        case Step.previous: {
          const from = kind[s] === Step.wait ? tick : tick - 1
          if (from < 0) break
          const e = (from % slots) * events + subject[s]!
          const time = this.eventTime[e]!
          // What is never recorded orders nothing.
          if (this.recorded[subject[s]!] === 0) break
          if (Number.isNaN(time)) {
            state[l] = State.event
            this.nextWaiter[l] = this.waiter[e]!
            this.waiter[e] = l
            return
          }
          const known = this.eventLane[e] === l ? time : time + machine.device.waitLatency
          if (known > free[l]!) {
            free[l] = known
            this.freeCause[l] = Cause.wait
            this.freeAfter[l] = this.eventAfter[e]!
          }
          break
        }
        default:
          this.current[l] = tick * program.runs + subject[s]!
          this.ready(l, slot * steps + s, issued)
          return
      }
      head[l]!++
    }
  }

  private wakeWaiters(e: number): void {
    let l = this.waiter[e]!
    this.waiter[e] = -1
    while (l >= 0) {
      const next = this.nextWaiter[l]!
      this.state[l] = State.idle
      this.todo.push(l)
      l = next
    }
  }

  /** A lane's next step is a run: it starts as soon as the lane, the issuing thread and its engine let it. */
  private ready(l: number, at: number, issued: number): void {
    const { line, free } = this
    const i = this.current[l]!
    if (issued > free[l]!) {
      line.cause[i] = this.issueCause[at]!
      line.after[i] = this.issueAfter[at]!
    } else {
      line.cause[i] = this.freeCause[l]!
      line.after[i] = this.freeAfter[l]!
    }
    this.due[l] = Math.max(free[l]!, issued, this.now)
    this.state[l] = State.ready
    // Through the heap even if it may start now: whoever was issued first takes an engine first.
    this.heap.push(l, this.due[l]!, i)
  }

  private start(l: number): void {
    const i = this.current[l]!
    const run = i % this.program.runs
    const engine = this.program.engine[run]!
    if (engine >= 0) {
      if (this.engineFree[engine] === 0) {
        this.state[l] = State.engine
        this.lines[engine]!.push(l)
        return
      }
      this.engineFree[engine]!--
    }
    this.line.start[i] = this.now
    this.state[l] = State.latency
    this.heap.push(l, this.now + this.program.latency[run]!, i)
  }

  private wake(l: number): void {
    if (this.state[l] === State.ready) {
      this.start(l)
      return
    }
    const run = this.current[l]! % this.program.runs
    this.state[l] = State.working
    if (this.program.work[run]! > 0) this.shares.add(l, run, this.program.work[run]!, this.now)
    else this.end(l)
  }

  private end(l: number): void {
    const { line, program, now } = this
    const i = this.current[l]!
    line.end[i] = now
    this.free[l] = now
    this.freeCause[l] = Cause.lane
    this.freeAfter[l] = i
    this.state[l] = State.idle
    this.head[l]!++
    this.outstanding[l]!--
    this.todo.push(l)
    const engine = program.engine[i % program.runs]!
    if (engine >= 0) {
      this.engineFree[engine]!++
      const next = this.keeps(l, engine) ? undefined : this.lines[engine]!.shift()
      if (next !== undefined) {
        line.cause[this.current[next]!] = Cause.engine
        line.after[this.current[next]!] = i
        this.start(next)
      }
    }
    const tick = line.tick[i]!
    if (--this.left[tick]! === 0) line.ended[tick] = now
    this.resume(l, tick, i)
  }

  /**
   * Whether a lane whose copy has just ended copies on: an engine turns to another lane only when the one that it serves has to wait. Source: uploads on two lanes,
   * in spec/bench/results/pipelines.md.
   */
  private keeps(l: number, engine: number): boolean {
    const { program, state, due, current, now } = this
    if (this.lines[engine]!.length === 0) return false
    this.advance(l)
    return state[l] === State.ready && due[l]! <= now && program.engine[current[l]! % program.runs] === engine
  }

  /** The issuing thread goes on if this end is what it waited for. */
  private resume(l: number, tick: number, run: number): void {
    if (this.waitsForTick === tick && this.left[tick] === 0) {
      this.waitsForTick = -1
      this.beginTick()
    } else if (this.waitsForLane === l) {
      this.waitsForLane = -1
      if (this.now > this.thread) {
        this.thread = this.now
        this.blockedBy = run
        this.blockedCause = Cause.queue
      }
    } else return
    this.issue()
  }
}
