import { Observable } from 'rxjs'
import type { FeedsOf, HostArray, HostArrayOf, Lease, Ports } from '../../dsl/index.js'
import { here } from '../../dsl/internal.js'
import type { Fault } from '../../dsl/ir/fault.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { DeviceSummary } from '../device/devices.js'
import { DisposedError, RunError, type RunErrorTag } from '../errors.js'
import { type TraceRecord, traceRecords } from '../trace/trace.js'
import { arrayOver, describe } from '../values.js'
import type { Engine } from './engine.js'
import { feedOf } from './feeds.js'
import { iterate } from './iterate.js'
import { specOf } from './ports.js'
import { type NamedFeed, Run } from './run.js'
import { watch } from './stalls.js'
import { type SessionStats, sessionStats } from './stats.js'

export type ValuesOf<O extends Ports> = { readonly [K in keyof O]: HostArrayOf<O[K]> }

/** A run: an Observable, and for `for await` as well (which asks for nothing ahead: leases in hand hold the slots). */
export type Leases<O extends Ports> = Observable<Lease<ValuesOf<O>>> & AsyncIterable<Lease<ValuesOf<O>>>

export interface RunOptions {
  /** Aborting submits nothing more, drains, and ends the run with the signal's reason. */
  readonly signal?: AbortSignal
  /** Ticks after which the run completes; needed where a graph without inputs should end by itself. */
  readonly ticks?: number
}

/** A plan opened on a device. Its state lives on from run to run. */
export interface Session<I extends Ports = Ports, O extends Ports = Ports> extends AsyncDisposable {
  readonly plan: Plan<I, O>
  /** The first of its devices, mostly the only one. */
  readonly device: DeviceSummary
  /** By device of the plan. */
  readonly devices: readonly DeviceSummary[]
  /** Ticks that may be between a feed and the return of their lease. */
  readonly inFlight: number
  readonly closed: boolean
  /**
   * Cold: each subscription is a run, one at a time. Every output is a lease that holds its slot until it is given back. Of an input
   * that comes r times a tick (`window`, `every`) its feed gives r values for each; an output that comes r times has its r values one after
   * the other in one array. Ends with the shortest feed; values that are fewer than a tick's then are dropped, counted, and warned of. Its error is a `RunError`, told after all in flight is drained. Throws a DisposedError once the session is closed.
   */
  run(feeds: FeedsOf<I>, options?: RunOptions): Leases<O>
  stats(): SessionStats
  /** What ran, if opened with `trace: true`: each run command of each tick, with its lane and times. */
  trace(): readonly TraceRecord[]
  /** Copies a state or device parameter out, by its buffer's name, after what is in flight. */
  read(name: string): Promise<HostArray>
  /** Stops a run that is active, drains, then frees. Idempotent. */
  close(): Promise<void>
}

export interface SessionParts {
  readonly plan: Plan
  readonly devices: readonly DeviceSummary[]
  readonly engine: Engine
  readonly traced: boolean
  readonly leaseWarningMs: number
}

export const makeSession = <I extends Ports, O extends Ports>(parts: SessionParts): Session<I, O> =>
  new OpenSession(parts) as unknown as Session<I, O>

const engines = new WeakMap<object, Engine>()

/** Shows every value that is fed to a session, as it lies in its slot, which is valid during the call only. Not public. */
export const captureFeeds = (
  session: Session<never, never> | Session,
  seen: (input: string, tick: number, value: HostArray) => void,
): void => {
  engines.get(session)!.onFed = seen
}

const feedsNeeded = (names: readonly string[]): string =>
  names.length === 0 ? 'no feeds: the graph has no inputs' : `a feed for each input: ${names.join(', ')}`

class OpenSession {
  readonly plan: Plan
  readonly device: DeviceSummary
  readonly devices: readonly DeviceSummary[]
  readonly inFlight: number
  readonly #engine: Engine
  #closing: Promise<void> | undefined

  constructor(private readonly parts: SessionParts) {
    this.plan = parts.plan
    this.devices = parts.devices
    this.device = parts.devices[0]!
    this.#engine = parts.engine
    this.inFlight = parts.engine.ticks.size
    engines.set(this, parts.engine)
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
    const error = (
      _tag: RunErrorTag,
      subject: string,
      fault: Omit<Fault, '_tag' | 'at' | 'subject'>,
    ): RunError => new RunError({ _tag, at, subject, ...fault })
    const leases = new Observable<Lease<unknown>>(subscriber => {
      const problem = this.#problem(error) ?? checkRunOptions(options, error)
      const named = problem ? problem : this.#named(feeds, error)
      if (named instanceof Error) {
        subscriber.error(named)
        return
      }
      const { signal, ticks = Number.POSITIVE_INFINITY } = options
      if (signal?.aborted) {
        subscriber.error(signal.reason)
        return
      }
      const engine = this.#engine
      const run = new Run(engine, subscriber, named, ticks, at)
      engine.run = run
      const unwatch = watch(
        {
          get stalled() {
            return run.stalled
          },
          describe: () => ({ ticks: engine.ticks.leased(), at, subject: `a run of "${this.plan.name}"` }),
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
    return Object.assign(leases, { [Symbol.asyncIterator]: () => iterate(leases) })
  }

  stats(): SessionStats {
    this.#alive()
    return sessionStats(this.#engine, this.plan)
  }

  trace(): readonly TraceRecord[] {
    this.#alive()
    if (!this.parts.traced)
      throw new TypeError('this session keeps no trace. Next: open(plan, { trace: true })')
    return traceRecords(this.#engine.trace(), this.plan)
  }

  async read(name: string): Promise<HostArray> {
    this.#alive()
    const readable = this.plan.buffers.filter(
      ({ life, space, alias }) =>
        space === 'device' && alias === undefined && (life === 'state' || life === 'param'),
    )
    const buffer = readable.find(candidate => candidate.name === name)
    if (!buffer)
      throw new TypeError(
        `read: wanted the name of a state or device parameter (${readable.map(b => b.name).join(', ') || 'this plan has none'}); found ${describe(name)}`,
      )
    return arrayOver(await this.#engine.read(buffer.id), 0, specOf(buffer))
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
  }

  #alive(): void {
    if (this.#closing) throw new DisposedError('this session', 'open the plan again')
  }

  #problem(
    error: (tag: RunErrorTag, subject: string, fault: Omit<Fault, '_tag' | 'at' | 'subject'>) => RunError,
  ): Error | undefined {
    if (this.#closing) return new DisposedError('this session', 'open the plan again')
    const { failure, run } = this.#engine
    if (failure)
      return error('SessionFailed', `the session of "${this.plan.name}"`, {
        wanted: 'a device that works',
        found: `an earlier failure of a tick: ${failure.found}`,
        next: 'open the plan again: the process and other sessions live on',
      })
    if (run)
      return error('AlreadyRunning', `the session of "${this.plan.name}"`, {
        wanted: 'one run at a time',
        found: `a run started at ${run.at} that has not ended`,
        next: 'unsubscribe from it or let it end first, or open a second session',
      })
    return undefined
  }

  #named(
    feeds: unknown,
    error: (tag: RunErrorTag, subject: string, fault: Omit<Fault, '_tag' | 'at' | 'subject'>) => RunError,
  ): readonly NamedFeed[] | RunError {
    const names = this.#engine.inputs.map(({ spec }) => spec.name)
    const given = typeof feeds === 'object' && feeds !== null ? (feeds as Record<string, unknown>) : undefined
    if (!given)
      return error('WrongFeeds', 'feeds', {
        wanted: feedsNeeded(names),
        found: describe(feeds),
        next: 'pass an object of feeds by input name',
      })
    const extra = Object.keys(given).filter(name => !names.includes(name))
    const missing = names.filter(name => !Object.hasOwn(given, name) || given[name] === undefined)
    if (extra.length > 0 || missing.length > 0)
      return error('WrongFeeds', 'feeds', {
        wanted: feedsNeeded(names),
        found: [
          missing.length > 0 ? `none for ${missing.join(', ')}` : '',
          extra.length > 0 ? `one for ${extra.join(', ')}, which is no input` : '',
        ]
          .filter(Boolean)
          .join('; '),
        next: 'give exactly one feed by each name',
      })
    const named: NamedFeed[] = []
    for (const { spec, rate } of this.#engine.inputs) {
      const { name } = spec
      const feed = feedOf(given[name])
      if (!feed)
        return error('WrongFeeds', name, {
          wanted: 'a feed: a source that has said what it does when the session is full',
          found: describe(given[name]),
          next: "wrap it: pulled(iterable), or pushed(observable, 'dropOldest' | 'dropNewest' | 'fail')",
        })
      named.push({ name, feed, rate })
    }
    return named
  }
}

const checkRunOptions = (
  options: RunOptions,
  error: (tag: RunErrorTag, subject: string, fault: Omit<Fault, '_tag' | 'at' | 'subject'>) => RunError,
): RunError | undefined => {
  const wrong = (subject: string, found: string): RunError =>
    error('BadOption', subject, {
      wanted: 'an object with the options ticks and signal, or nothing',
      found,
      next: 'write { ticks: 10 }, or leave it out',
    })
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    return wrong('options', describe(options))
  const unknown = Object.keys(options).find(name => name !== 'ticks' && name !== 'signal')
  if (unknown !== undefined) return wrong(unknown, `the option ${unknown}`)
  const { ticks, signal } = options
  if (
    ticks !== undefined &&
    ticks !== Number.POSITIVE_INFINITY &&
    !(Number.isSafeInteger(ticks) && ticks >= 0)
  )
    return error('BadOption', 'ticks', {
      wanted: 'a whole number from 0',
      found: describe(ticks),
      next: 'leave it out to run until the feeds end',
    })
  if (signal !== undefined && !(signal instanceof AbortSignal))
    return error('BadOption', 'signal', {
      wanted: 'an AbortSignal',
      found: describe(signal),
      next: 'pass controller.signal',
    })
  return undefined
}
