import { from, type Observable, Subject, takeUntil } from 'rxjs'
import type { PulledFeed, PushedFeed } from '../../dsl/index.js'
import type { NamedFeed } from './feeds.js'
import { warnReturnThrew } from './messages.js'

/** What a run does for the readers of its feeds. */
export interface ReaderHost {
  /** Whether this tick's slot may be filled now. */
  fillable(tick: number): boolean
  /** Copies a value into the slot of a tick, as number `part` there; false: it was refused and the run is ending with an error. */
  fill(tick: number, part: number, value: unknown): boolean
  /** Something changed: more may be submitted. */
  wake(): void
  failed(cause: unknown): void
  /** A push on a `fail` feed without a slot. */
  full(): void
  dropped(): void
  /** The source is over, and gave only so many of the values of a tick. */
  unfinished(had: number): void
}

/** One feed of one run. It fills the slots of ticks `first`, `first + 1` … in order, each with as many values as the feed gives for a tick. */
export interface Reader {
  /** The tick that it fills next, or is filling. */
  readonly filled: number
  /** The first tick that it cannot fill because its source is over; Infinity until that is known. */
  readonly end: number
  start(): void
  /** Tick `next` may be filled and is to be submitted: pull for it, or take what waits. May fill at once. */
  ask(next: number): void
  /** Nothing more is wanted. Idempotent. */
  stop(): void
  /** Whether the source is over and its last value still waits for a slot. */
  readonly pending: boolean
  /** Drops the pending value. */
  drop(): void
}

export const makeReader = (named: NamedFeed, first: number, host: ReaderHost): Reader => {
  const { feed, rate } = named
  const slots = new Slots(first, rate, host)
  return feed.feed === 'pulled' ? new PulledReader(feed, slots, host) : new PushedReader(feed, slots, host)
}

/** Where a feed's values go: so many to each tick, one tick after the other. */
class Slots {
  /** The first tick that cannot be filled because the source is over; Infinity until that is known. */
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

  /** The next value; false: it was refused. */
  put(value: unknown): boolean {
    if (!this.host.fill(this.filled, this.#part, value)) return false
    if (++this.#part < this.rate) return true
    this.#part = 0
    this.filled++
    return true
  }

  /** The source is over: a tick runs with all of its values, so the last few may be too few. */
  close(): void {
    this.end = this.filled
    if (this.#part > 0) this.host.unfinished(this.#part)
    this.#part = 0
  }
}

type AnyIterator = Iterator<unknown> | AsyncIterator<unknown>

// Looking at a caller's value may run the caller's code. A value that throws is no promise: it goes on as a value.
const isThenable = (value: unknown): value is PromiseLike<unknown> => {
  try {
    return (
      typeof value === 'object' &&
      value !== null &&
      typeof (value as PromiseLike<unknown>).then === 'function'
    )
  } catch {
    return false
  }
}

/** Asks its iterator for the values of one tick at a time, so a run that ends early has taken at most one tick's too many. */
class PulledReader implements Reader {
  readonly pending = false
  #iterator: AnyIterator | undefined
  #asking = false
  #stopped = false

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
      const iterator = source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]!()
      if (typeof (iterator as Partial<AnyIterator> | undefined)?.next !== 'function')
        throw new TypeError('its iterator has no next()')
      this.#iterator = iterator
    } catch (cause) {
      this.#stopped = true
      this.host.failed(cause)
    }
  }

  ask(next: number): void {
    while (this.filled <= next && !this.#asking && !this.#stopped) this.#pull()
  }

  #pull(): void {
    this.#asking = true
    let result: unknown
    try {
      result = this.#iterator!.next()
    } catch (cause) {
      this.#threw(cause)
      return
    }
    if (isThenable(result))
      result.then(
        answer => this.#answered(answer, true),
        cause => this.#threw(cause),
      )
    else this.#answered(result, false)
  }

  // `later`: on a turn of its own, so the run must be woken; otherwise the run is asking and looks by itself.
  #answered(answer: unknown, later: boolean): void {
    if (typeof answer !== 'object' || answer === null) {
      this.#threw(new TypeError(`the iterator's next() gave ${String(answer)}, not a result`))
      return
    }
    const { done, value } = answer as IteratorResult<unknown>
    if (done) {
      this.#asking = false
      if (this.#stopped) return
      this.#stopped = true // an iterator that is done is not returned
      this.slots.close()
      if (later) this.host.wake()
    } else if (isThenable(value)) {
      value.then(
        resolved => this.#took(resolved, true),
        cause => this.#threw(cause),
      )
    } else this.#took(value, later)
  }

  #took(value: unknown, later: boolean): void {
    this.#asking = false
    if (this.#stopped) return
    if (this.slots.put(value) && later) this.host.wake()
  }

  #threw(cause: unknown): void {
    this.#asking = false
    if (this.#stopped) return
    this.#stopped = true // an iterator that threw is over
    this.host.failed(cause)
  }

  drop(): void {}

  stop(): void {
    if (this.#stopped) return
    this.#stopped = true
    // A failure of the source's cleaning up no longer changes how the run ends, so it is a warning.
    try {
      const returned: unknown = this.#iterator?.return?.()
      if (isThenable(returned)) returned.then(undefined, warnReturnThrew)
    } catch (error) {
      warnReturnThrew(error)
    }
  }
}

const nothing = Symbol('nothing waits')

/** Takes a push into the next slot while there is one; else does what the feed said. Its end never stands behind its data. */
class PushedReader implements Reader {
  #waiting: unknown = nothing
  #over = false
  #stopped = false
  // Not a subscription: a source that emits while it is being subscribed to could not be stopped by one.
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
        this.#waiting = nothing
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
    this.#waiting = nothing
    this.host.dropped()
    this.slots.close()
  }

  stop(): void {
    if (this.#stopped) return
    this.#stopped = true
    this.#waiting = nothing
    this.#stop.next()
  }
}
