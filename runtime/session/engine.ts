import type { HostArray } from '../../dsl/index.js'
import { type NativeFailure, type NativeStats, type NativeTrace, native } from '../addon.js'
import type { SessionDevice } from '../device/devices.js'
import type { RunError } from '../errors.js'
import type { Mismatch } from '../values.js'
import { Awake } from './awake.js'
import type { Keeper } from './kept.js'
import {
  closedSession,
  sessionFailed,
  tickFailed,
  warnCloseFailed,
  warnLostLease,
  warnUnfinishedTick,
} from './messages.js'
import type { OpenPlan, OpenPlanHost } from './open-plan.js'
import type { Port } from './ports.js'
import type { Run, RunHost } from './run.js'
import { Recent } from './stats.js'
import type { Ticks } from './ticks.js'

/**
 * The state behind a session: the plan that is open, the run that drives it, and what happens between two
 * ticks. A plan that another one has taken over from stays open until its last lease is given back.
 */
export class Engine implements RunHost, OpenPlanHost, Omit<Keeper, 'alive' | 'closing'> {
  readonly enqueueUs = new Recent()
  readonly fillUs = new Recent()
  readonly tickMs = new Recent()
  readonly drops: Map<string, number>
  /**
   * Called with each value that was fed, as it lies in its slot: `braid run --check` compares with
   * `interpret`.
   */
  onFed: ((input: string, tick: number, value: HostArray) => void) | undefined
  /** The run that has been started and has not ended. */
  run: Run | undefined
  failure: RunError | undefined
  /**
   * Aborted when the session closes, with the error of calls from then on: a plan that is being opened for it
   * is given up, and the sources of writes.
   */
  readonly closing = new AbortController()
  #open: OpenPlan
  /** Plans before it, of which leases are out or which are being closed. */
  readonly #before = new Map<OpenPlan, Promise<void> | undefined>()
  #ticksBefore = 0
  /** Inputs of ticks that were filled when another plan took over, and are not in its slots yet. */
  readonly #carried = new Map<number, readonly (readonly HostArray[])[]>()
  /** None on `host`, which computes on the processors that it would take. */
  readonly #awake: Awake | undefined
  #completedAt = 0
  #filling = 0
  #stopping: Promise<void> | undefined
  #onDrained: (() => void)[] = []
  /** Bodies of `between` that have not ended, and the end of the last one. */
  #pending = 0
  #lastBetween: Promise<unknown> = Promise.resolve()
  #lastSwap: Promise<unknown> = Promise.resolve()
  #last: { stats: NativeStats; trace: NativeTrace } | undefined

  constructor(
    first: OpenPlan,
    private readonly devices: readonly Pick<SessionDevice, 'close' | 'native'>[],
  ) {
    this.#open = first
    const computesHere = devices.some(({ native }) => native.info.kind === 'host')
    const loop = computesHere ? undefined : native().eventLoop()
    if (loop !== undefined) this.#awake = new Awake(loop)
    this.drops = new Map(first.inputs.map(({ spec }) => [spec.name, 0]))
    first.begin(0, this)
  }

  /** The plan that runs. */
  get open(): OpenPlan {
    return this.#open
  }

  get ticks(): Ticks {
    return this.#open.ticks
  }

  get inputs(): readonly Port[] {
    return this.#open.inputs
  }

  get over(): boolean {
    return this.#stopping !== undefined
  }

  fill(input: number, tick: number, part: number, value: unknown): Mismatch | undefined {
    const began = performance.now()
    this.#bringIn(tick)
    const mismatch = this.#open.fill(input, tick, part, value)
    this.#filling += performance.now() - began
    if (!mismatch && this.onFed) {
      const { spec } = this.inputs[input]!
      this.onFed(spec.name, tick, this.#open.filled(input, tick, part))
    }
    return mismatch
  }

  submit(): void {
    const began = performance.now()
    this.#bringIn(this.ticks.next)
    try {
      this.#open.submit(this.run, began)
    } catch (error) {
      this.#fail(error as NativeFailure)
      throw this.failure
    }
    this.enqueueUs.add((performance.now() - began) * 1000)
    this.fillUs.add(this.#filling * 1000)
    this.#filling = 0
  }

  dropped(input: string, count: number): void {
    this.drops.set(input, (this.drops.get(input) ?? 0) + count)
  }

  unfinished(input: string, had: number, wanted: number): void {
    this.drops.set(input, (this.drops.get(input) ?? 0) + had)
    warnUnfinishedTick(input, had, wanted)
  }

  ended(run: Run): void {
    if (this.run !== run) return
    this.run = undefined
    this.#carried.clear()
  }

  freed(then: () => void): void {
    this.close().then(then, then)
  }

  lost(tick: number): void {
    warnLostLease(tick, this.run?.at)
  }

  returned(of: OpenPlan): void {
    if (of === this.#open) this.run?.advance()
    else this.#retire(of)
  }

  stats(): NativeStats {
    const stats = this.#last?.stats ?? this.#open.program.stats()
    return { ...stats, ticks: stats.ticks + this.#ticksBefore }
  }

  trace(): NativeTrace {
    return this.#last?.trace ?? this.#open.program.trace()
  }

  get held(): boolean {
    return this.#pending > 0
  }

  async between<A>(body: (next: number) => Promise<A>): Promise<A> {
    this.#pending++
    const turn = this.#lastBetween
      .then(() => this.#drained())
      .then(() => {
        if (this.failure) throw this.#failed(this.failure)
        return body(this.ticks.next)
      })
    this.#lastBetween = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      this.#pending--
      this.run?.advance()
    }
  }

  /** Runs bodies that go over to other plans, one after the other. Closing waits for them. */
  swapping<A>(body: () => Promise<A>): Promise<A> {
    const turn = this.#lastSwap.then(body)
    this.#lastSwap = turn.catch(() => undefined)
    return turn
  }

  /**
   * Goes on with another plan, which is open on the same devices and has the same inputs. Only in the body of
   * `between`. Values that feeds have given ahead of the ticks go over with it.
   */
  goOn(to: OpenPlan): void {
    const from = this.#open
    const { next } = from.ticks
    const carried = from.ticks.unsubmitted().map(tick => [tick, from.inputsOf(tick)] as const)
    for (const [tick, values] of this.run === undefined ? [] : carried)
      if (!this.#carried.has(tick)) this.#carried.set(tick, values)
    this.#ticksBefore += from.program.stats().ticks
    to.begin(next, this)
    this.#open = to
    // A feed may have been asked for the next tick's value, and puts it there without asking again.
    to.ticks.fillable(next)
    this.#before.set(from, undefined)
    this.#retire(from)
  }

  read(buffer: number): Promise<ArrayBuffer> {
    return this.#open.program.read(buffer)
  }

  broken(failure: RunError): void {
    this.failure ??= failure
    this.run?.abort(failure)
    void this.close()
  }

  /** Drains, then frees. Idempotent, never rejects: a failure while freeing becomes a warning. */
  close(): Promise<void> {
    this.#stopping ??= this.#close()
    return this.#stopping
  }

  async #close(): Promise<void> {
    this.closing.abort(this.failure ? this.#failed(this.failure) : closedSession())
    await this.#drained()
    try {
      await this.#lastSwap
      await this.#lastBetween
      const { program } = this.#open
      this.#last = { stats: program.stats(), trace: program.trace() }
      for (const plan of [...this.#before.keys(), this.#open]) await plan.close()
      for (const device of this.devices) await device.close()
    } catch (error) {
      warnCloseFailed(error)
    }
  }

  #drained(): Promise<void> {
    return this.ticks.flying === 0 ? Promise.resolve() : new Promise(resolve => this.#onDrained.push(resolve))
  }

  #bringIn(tick: number): void {
    const values = this.#carried.get(tick)
    if (values === undefined) return
    this.#carried.delete(tick)
    for (const [input, parts] of values.entries())
      for (const [part, value] of parts.entries()) this.#open.fill(input, tick, part, value)
  }

  /** Closes a plan that runs no more, once nothing of it is leased. */
  #retire(plan: OpenPlan): void {
    if (plan.ticks.leased().length > 0 || this.#before.get(plan) !== undefined) return
    const closed = plan
      .close()
      .catch(warnCloseFailed)
      .finally(() => this.#before.delete(plan))
    this.#before.set(plan, closed)
  }

  #failed(failure: RunError): RunError {
    const { plan } = this.#open
    return sessionFailed(plan.name, plan, failure)
  }

  #fail(failure: NativeFailure): void {
    this.failure ??= tickFailed(failure, this.#open.plan)
  }

  completed(of: OpenPlan, tick: number, failure: NativeFailure | null): void {
    if (failure) this.#fail(failure)
    const { run, submittedAt, lease } = of.complete(tick, failure !== null)
    const now = performance.now()
    const took = now - Math.max(this.#completedAt, submittedAt)
    if (!failure) {
      this.tickMs.add(took)
      this.#completedAt = now
    }
    run?.completed(failure ? this.failure : undefined, lease)
    if (lease) of.handled(tick, lease)
    // A run that starts while an unsubscribed one drains waits for these slots.
    if (this.run !== run) this.run?.advance()
    this.#awake?.ended(took, this.ticks.flying > 0)
    if (this.ticks.flying > 0) return
    for (const resolve of this.#onDrained.splice(0)) resolve()
    if (this.failure) void this.close()
  }
}
