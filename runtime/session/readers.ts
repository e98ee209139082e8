import { from, type Observable, Subject, takeUntil } from 'rxjs'
import type { PulledFeed, PushedFeed } from '../../dsl/index.js'
import { isThenable } from '../values.js'
import type { NamedFeed } from './feeds.js'
import { warnReturnThrew } from './messages.js'

/** The run, as the readers of its feeds use it. */
export interface ReaderHost {
  /** Whether this tick's slot may be filled now. */
  fillable(tick: number): boolean
  /**
   * Copies a value into the slot of a tick, as number `part` of the tick; false: the value was rejected, and
   * the run is ending with an error.
   */
  fill(tick: number, part: number, value: unknown): boolean
  /** Tries to submit again after a change. */
  wake(): void
  failed(cause: unknown): void
  /** A push on a `fail` feed without a slot. */
  full(): void
  /** Values that no tick gets. */
  dropped(count?: number): void
  /** The source ended with fewer values than a tick has. */
  unfinished(had: number): void
}

/**
 * One feed of one run. It fills the slots of ticks `first`, `first + 1` … in order, each with as many values
 * as the feed gives for a tick.
 */
export interface Reader {
  /** The tick being filled, or the next to fill. */
  readonly filled: number
  /** The first tick that it cannot fill because its source ended; Infinity before that. */
  readonly end: number
  start(): void
  /**
   * Tick `next` may be filled and submitted: pull its value, or take the pending one. May fill synchronously.
   */
  ask(next: number): void
  /** Stops the feed: no tick from `next` on is submitted. Idempotent. */
  stop(next: number): void
  /** Whether the source ended and its last value still waits for a slot. */
  readonly pending: boolean
  /** Drops the pending value. */
  drop(): void
}

export const makeReader = (named: NamedFeed, first: number, host: ReaderHost): Reader => {
  const { feed, rate } = named
  const slots = new Slots(first, rate, host)
  return feed.feed === 'pulled' ? new PulledReader(feed, slots, host) : new PushedReader(feed, slots, host)
}

/** Distributes a feed's values over the ticks: a fixed number to each tick, in order. */
class Slots {
  /** The first tick that cannot be filled because the source ended; Infinity before that. */
  end = Number.POSITIVE_INFINITY
  #part = 0

  constructor(
    public filled: number,
    private readonly rate: number,
    private readonly host: ReaderHost,
  ) {}

  get fillable(): boolean {
    return this.host.fillable(this.filled)
  }

  /** Takes the next value; false: it was rejected. */
  put(value: unknown): boolean {
    if (!this.host.fill(this.filled, this.#part, value)) return false
    if (++this.#part < this.rate) return true
    this.#part = 0
    this.filled++
    return true
  }

  /** The run ended: what was taken for ticks from `next` on is dropped. */
  leave(next: number): void {
    const taken = (this.filled - next) * this.rate + this.#part
    if (taken > 0) this.host.dropped(taken)
    this.#part = 0
  }

  /** The source ended. A tick needs all of its values, so the last tick may be incomplete. */
  close(): void {
    this.end = this.filled
    if (this.#part > 0) this.host.unfinished(this.#part)
    this.#part = 0
  }
}

type AnyIterator = Iterator<unknown> | AsyncIterator<unknown>

// An iterator that is done is not returned; nor one whose result throws, which is over.
const isDone = (result: unknown): boolean => {
  try {
    return Boolean((result as Partial<IteratorResult<unknown>> | undefined)?.done)
  } catch {
    return true
  }
}

// A promise of what the thenable yields: one whose `then` throws rejects.
const settled = (thenable: PromiseLike<unknown>): Promise<unknown> =>
  new Promise(resolve => resolve(thenable))

/**
 * Asks its iterator for the values of one tick at a time, so a run that ends early has taken the values of at
 * most one tick too many.
 */
class PulledReader implements Reader {
  readonly pending = false
  #iterator: AnyIterator | undefined
  #asking = false
  #stopped = false
  #left = false
  /** Whether the source's own code runs: a generator cannot be returned from within. */
  #calling = false

  constructor(
    private readonly feed: PulledFeed<unknown>,
    private readonly slots: Slots,
    private readonly host: ReaderHost,
  ) {}

  get filled(): number {
    return this.slots.filled
  }

  get end(): number {
    return this.slots.end
  }

  start(): void {
    const source = this.feed.source as Partial<Iterable<unknown> & AsyncIterable<unknown>>
    try {
      const iterator = this.#called(() => source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]!())
      if (typeof (iterator as Partial<AnyIterator> | undefined)?.next !== 'function')
        throw new TypeError('its iterator has no next()')
      this.#iterator = iterator
      if (this.#stopped) this.#return()
    } catch (cause) {
      this.#stopped = true
      this.host.failed(cause)
    }
  }

  #called<A>(call: () => A): A {
    this.#calling = true
    try {
      return call()
    } finally {
      this.#calling = false
    }
  }

  ask(next: number): void {
    while (this.filled <= next && !this.#asking && !this.#stopped) this.#pull()
  }

  #pull(): void {
    this.#asking = true
    let result: unknown
    try {
      result = this.#called(() => this.#iterator!.next())
    } catch (cause) {
      this.#threw(cause)
      return
    }
    // The source has ended its own run.
    if (this.#stopped && !isDone(result)) this.#return()
    if (isThenable(result))
      settled(result).then(
        answer => this.#answered(answer, true),
        cause => this.#threw(cause),
      )
    else this.#answered(result, false)
  }

  // `later`: called asynchronously, so the run must be woken; otherwise the run is calling and checks
  // afterwards.
  #answered(answer: unknown, later: boolean): void {
    if (typeof answer !== 'object' || answer === null) {
      this.#threw(new TypeError(`the iterator's next() gave ${String(answer)}, not a result`))
      return
    }
    let done: unknown
    let value: unknown
    try {
      done = (answer as IteratorResult<unknown>).done
      if (!done) value = (answer as IteratorResult<unknown>).value
    } catch (cause) {
      this.#threw(cause)
      return
    }
    if (done) {
      this.#asking = false
      if (this.#stopped) return
      this.#stopped = true // an iterator that is done is not returned
      this.slots.close()
      if (later) this.host.wake()
    } else if (isThenable(value)) {
      settled(value).then(
        resolved => this.#took(resolved, true),
        cause => this.#threw(cause),
      )
    } else this.#took(value, later)
  }

  #took(value: unknown, later: boolean): void {
    this.#asking = false
    // It was asked for before the run ended.
    if (this.#stopped) this.host.dropped()
    else if (this.slots.put(value) && later) this.host.wake()
  }

  #threw(cause: unknown): void {
    this.#asking = false
    if (this.#stopped) return
    this.#stopped = true // an iterator that threw is over
    this.host.failed(cause)
  }

  drop(): void {}

  stop(next: number): void {
    if (!this.#left) this.slots.leave(next)
    this.#left = true
    if (this.#stopped) return
    this.#stopped = true
    if (!this.#calling) this.#return()
  }

  #return(): void {
    // A failure in the source's cleanup no longer changes how the run ends, so it becomes a warning.
    try {
      const returned: unknown = this.#iterator?.return?.()
      if (isThenable(returned)) settled(returned).then(undefined, warnReturnThrew)
    } catch (error) {
      warnReturnThrew(error)
    }
  }
}

const nothing = Symbol('nothing waits')

/**
 * Puts a pushed value into the next free slot; without one applies the feed's policy. Its end is never
 * delayed by pending data.
 */
class PushedReader implements Reader {
  #waiting: unknown = nothing
  #over = false
  #stopped = false
  #left = false
  // Not a Subscription: a source that emits during `subscribe` could not be stopped by it.
  readonly #stop = new Subject<void>()

  constructor(
    private readonly feed: PushedFeed<unknown>,
    private readonly slots: Slots,
    private readonly host: ReaderHost,
  ) {}

  get filled(): number {
    return this.slots.filled
  }

  get end(): number {
    return this.slots.end
  }

  get pending(): boolean {
    return this.#over && this.#waiting !== nothing
  }

  start(): void {
    let source: Observable<unknown>
    try {
      source = from(this.feed.source)
    } catch (cause) {
      this.#stopped = true
      this.host.failed(cause)
      return
    }
    source.pipe(takeUntil(this.#stop)).subscribe({
      next: value => this.#pushed(value),
      error: cause => {
        if (this.#stopped) return
        this.#stopped = true
        this.#dropWaiting()
        this.host.failed(cause)
      },
      complete: () => {
        if (this.#stopped) return
        this.#over = true
        if (this.#waiting === nothing) this.slots.close()
        this.host.wake()
      },
    })
  }

  #pushed(value: unknown): void {
    if (this.#stopped) return
    if (this.#waiting === nothing && this.slots.fillable) {
      if (this.slots.put(value)) this.host.wake()
    } else if (this.feed.whenFull === 'dropOldest') {
      if (this.#waiting !== nothing) this.host.dropped()
      this.#waiting = value
    } else if (this.feed.whenFull === 'dropNewest') this.host.dropped()
    else this.host.full()
  }

  ask(): void {
    if (this.#stopped || this.#waiting === nothing || !this.slots.fillable) return
    const value = this.#waiting
    this.#waiting = nothing
    if (this.slots.put(value) && this.#over) this.slots.close()
  }

  drop(): void {
    if (this.#waiting === nothing) return
    this.#dropWaiting()
    this.slots.close()
  }

  stop(next: number): void {
    if (!this.#left) this.slots.leave(next)
    this.#left = true
    if (this.#stopped) return
    this.#stopped = true
    this.#dropWaiting()
    this.#stop.next()
  }

  #dropWaiting(): void {
    if (this.#waiting !== nothing) this.host.dropped()
    this.#waiting = nothing
  }
}
