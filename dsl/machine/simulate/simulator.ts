import { PriorityQueue } from '../../collections/priority-queue.js'
import { CauseCode as Cause } from './cause.js'
import { Sharing } from './sharing.js'
import { Step, type Workload } from './workload.js'

/**
 * The end of each simulated tick, and the total time for which the issuing thread was blocked. Nanoseconds.
 */
export interface Summary {
  readonly ended: Float64Array
  readonly blocked: number
}

/**
 * Receives the simulated runs as they happen. A run is numbered over all ticks; `cause` is a `CauseCode`,
 * `after` a run or -1.
 */
export interface Recorder {
  begin(tick: number, time: number): void
  start(run: number, time: number, cause: number, after: number): void
  end(run: number, time: number): void
}

/**
 * Simulates `ticks` ticks of a workload, event by event. Four kinds of actors: the program's own thread,
 * which feeds a tick when its slot is free; the issuing thread, which issues the steps of a fed tick one
 * after the other; lanes, which do their issued steps in order; and concurrent runs, which share the device
 * (`Sharing`). The two threads run ahead of the others: they stop only where their progress depends on the
 * end of a run. The times of single runs are kept only by a `recorder`.
 */
export const play = (workload: Workload, ticks: number, recorder?: Recorder): Summary =>
  new Simulator(alike(workload), ticks, recorder).play()

/**
 * The workload as an object of the same shape as every other one, whoever made it: V8 compiles the simulator
 * for the shapes that it has seen, and compiles it again for each new one. A number that is whole in one
 * workload and not in the next one makes two shapes, unless its field began with one that is not.
 */
const alike = (workload: Workload): Required<Workload> => {
  const { alone, latency, work, demand, firstPool, pools, engine, engineSize, resource, power } =
    workload.usage
  const same = {
    lanes: workload.lanes,
    laneSets: workload.laneSets ?? 1,
    events: workload.events,
    inFlight: workload.inFlight,
    steps: workload.steps,
    kind: workload.kind,
    lane: workload.lane,
    subject: workload.subject,
    issue: workload.issue,
    trailing: Number.NaN,
    runs: workload.runs,
    usage: { alone, latency, work, demand, firstPool, pools, engine, engineSize, resource, power },
    waitLatency: Number.NaN,
    depth: Number.NaN,
    inGraph: workload.inGraph ?? new Uint8Array(workload.runs),
    feed: Number.NaN,
    turnaround: Number.NaN,
  }
  const { trailing, waitLatency, depth, feed, turnaround } = workload
  return Object.assign(same, { trailing, waitLatency, depth, feed, turnaround })
}

const State = { idle: 0, ready: 1, latency: 2, working: 3, inLine: 4, waiting: 5 } as const

/** The steps of each lane: those of lane l are `step[first[l] .. first[l + 1]]`. */
const stepsByLane = ({ lanes, steps, lane }: Workload) => {
  const first = new Int32Array(lanes + 1)
  for (let s = 0; s < steps; s++) first[lane[s]! + 1]!++
  for (let l = 0; l < lanes; l++) first[l + 1]! += first[l]!
  const next = first.slice()
  const step = new Int32Array(steps)
  for (let s = 0; s < steps; s++) step[next[lane[s]!]!++] = s
  return { first, step }
}

class Simulator {
  // Lane l of the workload is lane l + a · lanes of every tick t with t mod laneSets = a.
  private readonly laneSets: number
  // Lanes: the steps done and issued, the state, and the time from which the lane is free for its next step.
  private readonly firstStep: Int32Array
  private readonly laneSteps: Int32Array
  private readonly done: Float64Array
  private readonly issuedSteps: Float64Array
  private readonly state: Uint8Array
  private readonly free: Float64Array
  private readonly freeCause: Uint8Array
  private readonly freeAfter: Int32Array
  // The current run of each lane: its number over all ticks, when it may start, and what it waited for last.
  private readonly current: Int32Array
  private readonly due: Float64Array
  private readonly dueCause: Uint8Array
  private readonly dueAfter: Int32Array
  private readonly outstanding: Int32Array
  // Steps of the ticks in flight: when they were issued, and the cause. At most `slots` ticks are concurrent.
  private readonly slots: number
  private readonly issueTime: Float64Array
  private readonly issueCause: Uint8Array
  private readonly issueAfter: Int32Array
  // Events of the ticks in flight: their time (NaN: not known yet), the run before, and the lanes that wait.
  private readonly eventTime: Float64Array
  private readonly eventAfter: Int32Array
  private readonly eventLane: Int32Array
  private readonly waiter: Int32Array
  private readonly nextWaiter: Int32Array
  private readonly recorded: Uint8Array
  // Engines: their free places, and the lanes in their queues.
  private readonly engineFree: Int32Array
  private readonly lines: number[][]
  // Ticks: runs that have not ended, the run that ended last, and the tick's end.
  private readonly left: Int32Array
  private readonly lastRun: Int32Array
  private readonly ended: Float64Array
  // The threads: the end of their present work, the next step to issue, and what they wait and waited for.
  private fed = 0
  private thread = 0
  private issueTick = 0
  private issueStep = 0
  private waitsForTick = -1
  private waitsForLane = -1
  private blockedAfter = -1
  private blockedCause: number = Cause.issue
  private blocked = 0

  /** Lanes that resume at `resumesAt`, earliest first; at equal times in issue order. */
  private readonly resuming: PriorityQueue
  private readonly resumesAt: Float64Array
  private readonly sharing: Sharing
  private readonly todo: number[] = []
  private now = 0

  constructor(
    private readonly workload: Required<Workload>,
    private readonly ticks: number,
    private readonly recorder: Recorder | undefined,
  ) {
    const { events, steps, runs, inFlight, usage, laneSets } = workload
    const { first, step } = stepsByLane(workload)
    this.laneSets = laneSets
    const lanes = laneSets * workload.lanes
    this.firstStep = first
    this.laneSteps = step
    this.done = new Float64Array(lanes)
    this.issuedSteps = new Float64Array(lanes)
    this.state = new Uint8Array(lanes)
    this.free = new Float64Array(lanes)
    this.freeCause = new Uint8Array(lanes)
    this.freeAfter = new Int32Array(lanes).fill(-1)
    this.current = new Int32Array(lanes)
    this.due = new Float64Array(lanes)
    this.dueCause = new Uint8Array(lanes)
    this.dueAfter = new Int32Array(lanes)
    this.outstanding = new Int32Array(lanes)
    // Tick t is issued when tick t - inFlight has ended, and waits for events of tick t - 1.
    this.slots = Math.min(ticks, inFlight + 3)
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
      if (workload.kind[s] === Step.record) this.recorded[workload.subject[s]!] = 1
    this.engineFree = usage.engineSize.slice()
    this.lines = Array.from(usage.engineSize, () => [])
    this.left = new Int32Array(ticks).fill(runs)
    this.lastRun = new Int32Array(ticks).fill(-1)
    this.ended = new Float64Array(ticks)
    this.resumesAt = new Float64Array(lanes)
    this.resuming = new PriorityQueue(this.resumesAt, this.current)
    this.sharing = new Sharing(usage, lanes)
  }

  play(): Summary {
    const { resuming, sharing } = this
    this.beginTick()
    this.issue()
    this.advanceLanes()
    for (;;) {
      const next = Math.min(resuming.least, sharing.next)
      if (next === Number.POSITIVE_INFINITY) break
      this.now = next
      if (sharing.next <= next) sharing.take(next, lane => this.end(lane))
      while (resuming.least <= next) this.wake(resuming.pop())
      this.advanceLanes()
    }
    return { ended: this.ended, blocked: this.blocked }
  }

  /** Runs the lanes until none can progress at this time. */
  private advanceLanes(): void {
    for (let lane = this.todo.pop(); lane !== undefined; lane = this.todo.pop()) this.advance(lane)
  }

  /** Feeds the next tick if its slot is free, else when the tick that holds the slot ends. */
  private beginTick(): void {
    const { workload, ticks } = this
    while (this.issueTick < ticks) {
      const before = this.issueTick - workload.inFlight
      if (before >= 0 && this.left[before]! > 0) {
        this.waitsForTick = before
        return
      }
      this.waitsForTick = -1
      const slotFree = before >= 0 ? this.ended[before]! + workload.turnaround : 0
      const feedFrom = Math.max(this.fed, slotFree)
      this.fed = feedFrom + workload.feed
      this.blockedAfter = -1
      this.blockedCause = Cause.issue
      if (this.fed > this.thread) {
        this.thread = this.fed
        if (slotFree > 0 && feedFrom === slotFree) this.blockedAfter = this.lastRun[before]!
        this.blockedCause = this.blockedAfter >= 0 ? Cause.tick : Cause.feed
      }
      this.recorder?.begin(this.issueTick, this.thread)
      this.issueStep = 0
      const slot = this.issueTick % this.slots
      const { events } = workload
      this.eventTime.fill(Number.NaN, slot * events, (slot + 1) * events)
      if (workload.runs > 0) return
      // A tick without runs ends when it has been issued.
      this.thread += workload.trailing
      this.ended[this.issueTick] = this.thread
      this.issueTick++
    }
  }

  /** The issuing thread continues until everything is issued or it must wait for a run's end. */
  private issue(): void {
    const { workload, slots, todo, state } = this
    const { steps, lanes, kind, lane, issue, depth, inGraph } = workload
    while (this.issueTick < this.ticks && this.waitsForTick < 0) {
      const base = (this.issueTick % slots) * steps
      const shift = (this.issueTick % this.laneSets) * lanes
      for (; this.issueStep < steps; this.issueStep++) {
        const s = this.issueStep
        const l = lane[s]! + shift
        if (kind[s] === Step.run && inGraph[workload.subject[s]!] === 0) {
          if (this.outstanding[l]! >= depth) {
            this.waitsForLane = l
            return
          }
          this.outstanding[l]!++
        }
        this.thread += issue[s]!
        this.issueTime[base + s] = this.thread
        this.issueCause[base + s] = this.blockedCause
        this.issueAfter[base + s] = this.blockedAfter
        this.issuedSteps[l]!++
        if (state[l] === State.idle) todo.push(l)
      }
      this.thread += workload.trailing
      this.issueTick++
      this.issueStep = 0
      this.beginTick()
      if (todo.length > this.laneSets * lanes) this.advanceLanes()
    }
  }

  /** Does the steps of a lane that are possible at this time. */
  private advance(l: number): void {
    const { workload, state, done, issuedSteps, slots } = this
    const { steps, kind, subject, events, lanes } = workload
    if (state[l] !== State.idle) return
    const first = this.firstStep[l % lanes]!
    const length = this.firstStep[(l % lanes) + 1]! - first
    while (done[l]! < issuedSteps[l]!) {
      const turn = Math.floor(done[l]! / length)
      const tick = turn * this.laneSets + Math.floor(l / lanes)
      const s = this.laneSteps[first + (done[l]! - turn * length)]!
      const slot = tick % slots
      if (kind[s] === Step.run) {
        this.current[l] = tick * workload.runs + subject[s]!
        this.ready(l, slot * steps + s)
        return
      }
      if (kind[s] === Step.record)
        this.record(l, slot * events + subject[s]!, this.issueTime[slot * steps + s]!)
      else {
        const from = kind[s] === Step.wait ? tick : tick - 1
        if (from >= 0 && !this.passes(l, subject[s]!, from % slots)) return
      }
      done[l]!++
    }
  }

  private record(l: number, event: number, issued: number): void {
    this.eventTime[event] = Math.max(this.free[l]!, issued)
    this.eventAfter[event] = this.freeAfter[l]!
    this.eventLane[event] = l
    let waiter = this.waiter[event]!
    this.waiter[event] = -1
    while (waiter >= 0) {
      const next = this.nextWaiter[waiter]!
      this.state[waiter] = State.idle
      this.todo.push(waiter)
      waiter = next
    }
  }

  /**
   * Whether a lane's wait is satisfied; if not, the lane waits for the event's record. An event without a
   * record orders nothing.
   */
  private passes(l: number, subject: number, slot: number): boolean {
    if (this.recorded[subject] === 0) return true
    const event = slot * this.workload.events + subject
    const time = this.eventTime[event]!
    if (Number.isNaN(time)) {
      this.state[l] = State.waiting
      this.nextWaiter[l] = this.waiter[event]!
      this.waiter[event] = l
      return false
    }
    const known = this.eventLane[event] === l ? time : time + this.workload.waitLatency
    if (known > this.free[l]!) {
      this.free[l] = known
      this.freeCause[l] = Cause.wait
      this.freeAfter[l] = this.eventAfter[event]!
    }
    return true
  }

  /**
   * Starts the run that is a lane's next step as soon as the lane, the issuing thread and its engine allow.
   */
  private ready(l: number, step: number): void {
    const issued = this.issueTime[step]!
    const late = issued > this.free[l]!
    this.dueCause[l] = late ? this.issueCause[step]! : this.freeCause[l]!
    this.dueAfter[l] = late ? this.issueAfter[step]! : this.freeAfter[l]!
    this.due[l] = Math.max(this.free[l]!, issued, this.now)
    this.state[l] = State.ready
    // Through the queue even if it may start now: among lanes that need an engine at the same time, the one
    // issued first gets it.
    this.resumeAt(l, this.due[l]!)
  }

  private resumeAt(l: number, at: number): void {
    this.resumesAt[l] = at
    this.resuming.push(l)
  }

  private wake(l: number): void {
    const run = this.current[l]! % this.workload.runs
    if (this.state[l] === State.ready) {
      const engine = this.workload.usage.engine[run]!
      if (engine < 0 || this.engineFree[engine]! > 0) this.start(l, run)
      else {
        this.state[l] = State.inLine
        this.lines[engine]!.push(l)
      }
      return
    }
    const work = this.workload.usage.work[run]!
    this.state[l] = State.working
    if (work > 0) this.sharing.add(l, run, work, this.now)
    else this.end(l)
  }

  private start(l: number, run: number): void {
    const { usage } = this.workload
    const engine = usage.engine[run]!
    if (engine >= 0) this.engineFree[engine]!--
    this.recorder?.start(this.current[l]!, this.now, this.dueCause[l]!, this.dueAfter[l]!)
    this.state[l] = State.latency
    this.resumeAt(l, this.now + usage.latency[run]!)
  }

  private end(l: number): void {
    const { workload, now } = this
    const i = this.current[l]!
    const tick = Math.floor(i / workload.runs)
    this.recorder?.end(i, now)
    this.free[l] = now
    this.freeCause[l] = Cause.lane
    this.freeAfter[l] = i
    this.state[l] = State.idle
    this.done[l]!++
    if (workload.inGraph?.[i - tick * workload.runs] !== 1) this.outstanding[l]!--
    this.todo.push(l)
    const engine = workload.usage.engine[i - tick * workload.runs]!
    if (engine >= 0) this.handOver(l, engine, i)
    // Among runs that end together, the one issued last.
    this.lastRun[tick] = this.ended[tick] === now ? Math.max(i, this.lastRun[tick]!) : i
    this.ended[tick] = now
    this.left[tick]!--
    this.resume(l, tick, i)
  }

  /**
   * An engine moves on to the first lane in its queue, but only when the present lane has no copy that could
   * start at this time. Source: uploads on two lanes, in spec/bench/results/pipelines.md.
   */
  private handOver(l: number, engine: number, ended: number): void {
    const line = this.lines[engine]!
    this.engineFree[engine]!++
    if (line.length === 0) return
    this.advance(l)
    const { runs, usage } = this.workload
    const goesOn = this.state[l] === State.ready && this.due[l]! <= this.now
    if (goesOn && usage.engine[this.current[l]! % runs] === engine) return
    const next = line.shift()!
    this.dueCause[next] = Cause.engine
    this.dueAfter[next] = ended
    this.start(next, this.current[next]! % runs)
  }

  /** The issuing thread continues if it waited for this end. */
  private resume(l: number, tick: number, run: number): void {
    if (this.waitsForTick === tick && this.left[tick] === 0) this.beginTick()
    else if (this.waitsForLane === l) {
      this.waitsForLane = -1
      if (this.now > this.thread) {
        this.blocked += this.now - this.thread
        this.thread = this.now
        this.blockedAfter = run
        this.blockedCause = Cause.queue
      }
    } else return
    this.issue()
  }
}
