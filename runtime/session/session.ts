import * as E from 'fp-ts/lib/Either.js'
import { Observable } from 'rxjs'
import type { FeedsOf, HostArray, HostArrayOf, Lease, OnDevice, Ports } from '../../dsl/index.js'
import { here } from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { NativeFailure } from '../addon.js'
import type { Block } from '../device/block.js'
import type { DeviceSummary } from '../device/devices.js'
import { isNativeFailure } from '../device/open-failure.js'
import { type DeviceError, DisposedError, type RunError } from '../errors.js'
import { type TraceRecord, traceRecords } from '../trace/trace.js'
import { arrayOver, describe } from '../values.js'
import type { Engine } from './engine.js'
import { namedFeeds } from './feeds.js'
import { iterate } from './iterate.js'
import { type Keeper, SessionParams, SessionState } from './kept.js'
import {
  alreadyRunning,
  badRunOptions,
  badSignal,
  badTicks,
  closedSession,
  copyFailed,
  copyRefused,
  sessionFailed,
} from './messages.js'
import type { OpenPlan } from './open-plan.js'
import { specOf } from './ports.js'
import { Run } from './run.js'
import { SharedReader } from './shared-reader.js'
import { watch } from './stalls.js'
import { type SessionStats, sessionStats } from './stats.js'
import { SwapError, type SwapOptions } from './swap.js'

/** The values of a lease: arrays, and a block of the device for each output that was not downloaded. */
export type ValuesOf<O extends Ports> = {
  readonly [K in keyof O]: O[K] extends OnDevice ? Block : HostArrayOf<O[K]>
}

/**
 * A run: an Observable, and for `for await` as well (which requests nothing ahead: unreturned leases hold
 * their slots). Arrays that the loop has not taken yet when the session closes, or fails, are kept for it.
 */
export type Leases<O extends Ports> = Observable<Lease<ValuesOf<O>>> & AsyncIterable<Lease<ValuesOf<O>>>

export interface RunOptions {
  /** Aborting submits nothing more, drains, and ends the run with the signal's reason. */
  readonly signal?: AbortSignal
  /** Ticks after which the run completes; a run of a graph without inputs needs it to end. */
  readonly ticks?: number
}

/** A plan opened on a device. Its state is kept between runs. */
export interface Session<I extends Ports = Ports, O extends Ports = Ports> extends AsyncDisposable {
  readonly plan: Plan<I, O>
  /** The first of its devices. */
  readonly device: DeviceSummary
  /** By device of the plan. */
  readonly devices: readonly DeviceSummary[]
  /** The most ticks between a feed and the return of their lease. */
  readonly inFlight: number
  readonly closed: boolean
  /**
   * Cold: each subscription is a run, one at a time. Every output is a lease that holds its slot until it is
   * given back. Where an input comes r times a tick (`window`, `every`) its feed gives r values for each
   * tick; an output that comes r times has its r values one after the other in one array. Ends with the
   * shortest feed; values that other feeds have given for a tick that is not complete are dropped, and
   * `stats().drops` counts them. A feed that ends within a tick is warned of. Its error is a
   * `RunError`, reported after everything in flight is drained. Throws a DisposedError once the session is
   * closed.
   */
  run(feeds: FeedsOf<I>, options?: RunOptions): Leases<O>
  stats(): SessionStats
  /** The runs, if opened with `trace: true`: each run command of each tick, with its lane and times. */
  trace(): readonly TraceRecord[]
  /** What `scan`, `delay` and `hold` keep from tick to tick, by name. */
  readonly state: SessionState
  /** The parameters of the plan, by name. */
  readonly params: SessionParams
  /** Copies a state or device parameter out, by its buffer's name, between two ticks. */
  read(name: string): Promise<HostArray>
  /**
   * Goes over to another plan on the same devices: it is proved, opened and its new values are loaded while
   * the present one runs; then, between two ticks, the states pass over and it goes on. A run goes on with
   * its feeds, so the inputs are the same, and the outputs at least the same; leases from before stay as they
   * are. Resolves to the number of the first tick of the plan. Rejects with a `SwapError` where the plan
   * cannot follow or cannot be opened: then nothing has changed. Several calls are carried out in order.
   */
  swap(plan: Plan, options?: SwapOptions): Promise<number>
  /** Stops a run that is active, drains, then frees. Idempotent. */
  close(): Promise<void>
}

/** Opens a plan that is to follow the one that runs; `taken`: the buffers that it takes over. */
export type Following = (
  plan: Plan,
  before: OpenPlan,
  options: SwapOptions,
  signal: AbortSignal,
) => Promise<E.Either<DeviceError, { readonly plan: OpenPlan; readonly taken: Uint32Array }>>

export interface SessionParts {
  readonly devices: readonly DeviceSummary[]
  readonly engine: Engine
  readonly traced: boolean
  readonly leaseWarningMs: number
  readonly following: Following
}

export const makeSession = <I extends Ports, O extends Ports>(parts: SessionParts): Session<I, O> =>
  new OpenSession(parts) as unknown as Session<I, O>

/** Observes every value that is fed to a session, in its slot, valid only during the call. Not public. */
export const captureFeeds = (
  session: Session<never, never> | Session,
  seen: (input: string, tick: number, value: HostArray) => void,
): void => {
  ;(session as unknown as OpenSession).capture(seen)
}

class OpenSession {
  readonly device: DeviceSummary
  readonly devices: readonly DeviceSummary[]
  readonly state: SessionState
  readonly params: SessionParams
  readonly #engine: Engine
  readonly #reader: SharedReader
  #closing: Promise<void> | undefined

  constructor(private readonly parts: SessionParts) {
    this.devices = parts.devices
    this.device = parts.devices[0]!
    this.#engine = parts.engine
    const { engine } = parts
    const keeper: Keeper = {
      get open() {
        return engine.open
      },
      get over() {
        return engine.over
      },
      closing: engine.closing.signal,
      alive: () => this.#alive(),
      between: body => engine.between(body),
      broken: failure => engine.broken(failure),
    }
    this.#reader = new SharedReader(keeper)
    this.#reader.join(engine.open)
    this.state = new SessionState(keeper)
    this.params = new SessionParams(keeper, this.#reader)
  }

  get plan(): Plan {
    return this.#engine.open.plan
  }

  get inFlight(): number {
    return this.#engine.ticks.size
  }

  get closed(): boolean {
    return this.#closing !== undefined
  }

  run(
    feeds: Readonly<Record<string, unknown>>,
    options: RunOptions = {},
  ): Observable<Lease<unknown>> & AsyncIterable<Lease<unknown>> {
    this.#alive()
    const at = here().toString()
    const leases = new Observable<Lease<unknown>>(subscriber => {
      const error = this.#closing ? closedSession() : (this.#busy(at) ?? checkRunOptions(options, at))
      const named = error ? E.left(error) : namedFeeds(this.#engine.inputs, feeds, at)
      if (E.isLeft(named)) {
        subscriber.error(named.left)
        return
      }
      const { signal, ticks = Number.POSITIVE_INFINITY } = options
      if (signal?.aborted) {
        subscriber.error(signal.reason)
        return
      }
      const engine = this.#engine
      const run = new Run(engine, subscriber, named.right, ticks, at)
      engine.run = run
      const unwatch = watch(
        {
          name: this.plan.name,
          at,
          stalled: () => run.stalled,
          leased: () => engine.ticks.leased().filter(tick => !engine.open.kept.has(tick)),
          kept: () => engine.ticks.leased().filter(tick => engine.open.kept.has(tick)),
        },
        this.parts.leaseWarningMs,
      )
      const abort = (): void => run.abort(signal!.reason)
      signal?.addEventListener('abort', abort, { once: true })
      subscriber.add(() => {
        unwatch()
        signal?.removeEventListener('abort', abort)
        if (engine.run === run) engine.run = undefined
        run.cancel()
      })
      run.start()
    })
    return Object.assign(leases, {
      [Symbol.asyncIterator]: () => iterate(leases, this.#engine.closing.signal),
    })
  }

  stats(): SessionStats {
    this.#alive()
    return sessionStats(this.#engine, this.#engine.stats(), this.plan)
  }

  trace(): readonly TraceRecord[] {
    this.#alive()
    if (!this.parts.traced)
      throw new TypeError('this session keeps no trace. Next: open(plan, { trace: true })')
    return traceRecords(this.#engine.trace(), this.plan)
  }

  async read(name: string): Promise<HostArray> {
    this.#alive()
    const at = here().toString()
    readable(this.plan, name)
    return this.#engine.between(async () => {
      const buffer = readable(this.plan, name)
      try {
        return arrayOver(await this.#engine.read(buffer.id), 0, specOf(buffer))
      } catch (failure) {
        throw copyFailed(at, `read ${name}`, failure as NativeFailure)
      }
    })
  }

  async swap(plan: Plan, options: SwapOptions = {}): Promise<number> {
    this.#alive()
    const at = here().toString()
    return this.#engine.swapping(() => this.#swap(plan, options, at))
  }

  async #swap(plan: Plan, options: SwapOptions, at: string): Promise<number> {
    const engine = this.#engine
    const alive = (): void => {
      this.#alive()
      if (engine.failure) throw sessionFailed(at, this.plan, engine.failure)
    }
    alive()
    const { closing } = engine
    // Whether the options are what they should be is seen when the plan is opened.
    const given: unknown = (options as SwapOptions | null)?.signal
    const signal = AbortSignal.any([closing.signal, ...(given instanceof AbortSignal ? [given] : [])])
    const opened = await this.parts.following(plan, engine.open, options, signal)
    if (E.isLeft(opened)) {
      alive()
      throw new SwapError([opened.left, ...(opened.left.others ?? [])])
    }
    const { plan: next, taken } = opened.right
    this.#reader.join(next)
    try {
      return await engine.between(async tick => {
        alive()
        await next.program.take(engine.open.program, taken)
        engine.goOn(next)
        return tick
      })
    } catch (error) {
      if (engine.open !== next) await next.close().catch(() => undefined)
      throw isNativeFailure(error) ? new SwapError([copyRefused(plan, error)]) : error
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#engine.run?.abort(
      new DisposedError(
        'the session of this run',
        'let a run end, or unsubscribe from it, before its session is closed',
      ),
    )
    await this.#engine.close()
    this.#reader.leave()
  }

  capture(seen: (input: string, tick: number, value: HostArray) => void): void {
    this.#engine.onFed = seen
  }

  #alive(): void {
    if (this.#closing) throw closedSession()
  }

  #busy(at: string): RunError | undefined {
    const { failure, run } = this.#engine
    if (failure) return sessionFailed(at, this.plan, failure)
    return run && alreadyRunning(at, this.plan, run.at)
  }
}

const readable = (plan: Plan, name: string): PlanBuffer => {
  const kept = plan.buffers.filter(
    ({ life, space, alias }) =>
      space === 'device' && alias === undefined && (life === 'state' || life === 'param'),
  )
  const buffer = kept.find(candidate => candidate.name === name)
  if (buffer) return buffer
  throw new TypeError(
    'read: wanted the name of a state or device parameter ' +
      `(${kept.map(b => b.name).join(', ') || 'this plan has none'}); found ${describe(name)}. ` +
      'Next: name one of them',
  )
}

const checkRunOptions = (options: RunOptions, at: string): RunError | undefined => {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    return badRunOptions(at, 'options', describe(options))
  const unknown = Object.keys(options).find(name => name !== 'ticks' && name !== 'signal')
  if (unknown !== undefined) return badRunOptions(at, unknown, `the option ${unknown}`)
  const { ticks = 0, signal } = options
  if (ticks !== Number.POSITIVE_INFINITY && !(Number.isSafeInteger(ticks) && ticks >= 0))
    return badTicks(at, ticks)
  return signal === undefined || signal instanceof AbortSignal ? undefined : badSignal(at, signal)
}
