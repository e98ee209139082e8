import type { Subscriber } from 'rxjs'
import type { Feed, Lease } from '../../dsl/index.js'
import type { Fault } from '../../dsl/ir/fault.js'
import { RunError, type RunErrorTag } from '../errors.js'
import { type Mismatch, thrown } from '../values.js'
import { makeReader, type Reader, type ReaderHost } from './readers.js'
import type { Ticks } from './ticks.js'

/** What a run needs of its session. */
export interface RunHost {
  readonly ticks: Ticks
  /** Copies a value into an input's place in the slot of a tick: that of its value `part` there. */
  fill(input: number, tick: number, part: number, value: unknown): Mismatch | undefined
  /** Hands the next tick to the device. May throw. */
  submit(): void
  dropped(input: string): void
  /** A feed was over when it had given only so many of the values of a tick. */
  unfinished(input: string, had: number, wanted: number): void
  /** The run is over and nothing of it is on the device: the session may take another. */
  ended(run: Run): void
  /** Calls back once a session whose device failed has drained and is freed. */
  freed(then: () => void): void
}

export interface NamedFeed {
  readonly name: string
  readonly feed: Feed<unknown>
  /** How many values it gives for a tick. */
  readonly rate: number
}

// `fatal`: the device failed, and the session is freed before the error is told. `quiet`: outputs still on their way are not given out.
type Ending =
  | { readonly as: 'complete' }
  | { readonly as: 'error'; readonly error: unknown; readonly fatal: boolean; readonly quiet: boolean }
  | { readonly as: 'cancel' }

/**
 * One run: it fills slots from its feeds, submits ticks, and gives out leases. It is driven by three things only: a feed's value, a
 * completed tick, a lease given back. However it ends, it first submits nothing more, stops its feeds, and waits for its own ticks.
 */
export class Run {
  readonly #readers: readonly Reader[]
  readonly #end: number
  #ending: Ending | undefined
  #flying = 0
  #pumping = false
  #again = false
  #settled = false

  constructor(
    private readonly host: RunHost,
    private readonly subscriber: Subscriber<Lease<unknown>>,
    feeds: readonly NamedFeed[],
    ticks: number,
    /** Where the caller called `run`, for what is said about its leases. */
    readonly at: string,
  ) {
    const first = host.ticks.next
    this.#end = first + ticks
    this.#readers = feeds.map((feed, input) => makeReader(feed, first, this.#readerHost(feed, input)))
  }

  start(): void {
    // Pushes that arrive while feeds are being subscribed to wait until all of them are.
    this.#pumping = true
    for (const reader of this.#readers) if (!this.#ending) reader.start()
    this.#pumping = false
    this.pump()
  }

  /** Whether nothing moves until a lease is given back. */
  get stalled(): boolean {
    const { ticks } = this.host
    return (
      !this.#ending &&
      ticks.flying === 0 &&
      ticks.next < this.#limit() &&
      ticks.before(ticks.next) === 'leased'
    )
  }

  /** Submits all that can be submitted now. Re-entrant: feeds and subscribers may call back into it from anywhere. */
  pump(): void {
    if (this.#pumping) {
      this.#again = true
      return
    }
    this.#pumping = true
    do {
      this.#again = false
      while (this.#step()) {}
    } while (this.#again)
    this.#pumping = false
    this.#settle()
  }

  /** Whether somebody still wants the outputs of its ticks. */
  get listening(): boolean {
    const ending = this.#ending
    return !this.subscriber.closed && ending?.as !== 'cancel' && !(ending?.as === 'error' && ending.quiet)
  }

  /**
   * A tick of this run is back from the device; its lease, if it is to be given out. It counts as flying until its lease has been told
   * of: the subscriber may give the lease back at once, and the end of the run must not overtake the value that it is looking at.
   */
  completed(failure: RunError | undefined, lease: Lease<unknown> | undefined): void {
    if (failure) this.#fail({ as: 'error', error: failure, fatal: true, quiet: true })
    if (lease) this.subscriber.next(lease)
    this.#flying--
    this.pump()
  }

  /** Unsubscribed: submit nothing more, drain, say nothing. */
  cancel(): void {
    if (this.#ending?.as === 'cancel') return
    this.#close({ as: 'cancel' })
    this.#settle()
  }

  /** Aborted, or the session is being closed: drain, give out nothing more, then tell why. */
  abort(reason: unknown): void {
    this.#fail({ as: 'error', error: reason, fatal: false, quiet: true })
  }

  #fail(ending: Ending): void {
    if (this.#ending?.as === 'cancel' || this.#ending?.as === 'error') return
    this.#close(ending)
    if (!this.#pumping) this.#settle()
  }

  #limit(): number {
    let limit = this.#end
    for (const reader of this.#readers) if (reader.end < limit) limit = reader.end
    return limit
  }

  // One tick forward, if it may be and every input of it is there. False: nothing more can be done now.
  #step(): boolean {
    const { ticks } = this.host
    const tick = ticks.next
    if (this.#ending) return false
    if (tick >= this.#limit()) {
      this.#close({ as: 'complete' })
      return false
    }
    if (!ticks.fillable(tick)) return false
    let ready = true
    for (const reader of this.#readers) {
      reader.ask(tick)
      if (reader.filled <= tick) ready = false
      if (this.#ending) return false
    }
    if (!ready) return tick >= this.#limit()
    try {
      this.#flying++
      this.host.submit()
    } catch (error) {
      this.#flying--
      this.#fail({ as: 'error', error, fatal: true, quiet: true })
      return false
    }
    return true
  }

  #close(ending: Ending): void {
    this.#ending = ending
    for (const reader of this.#readers) reader.stop()
  }

  // The last thing that a run does, once: when it is ending and its ticks are back.
  #settle(): void {
    if (!this.#ending) {
      this.#forsakeLingering()
      return
    }
    if (this.#settled || this.#flying > 0) return
    this.#settled = true
    const ending = this.#ending
    const tell = (): void => {
      if (ending.as === 'error') this.subscriber.error(ending.error)
      else if (ending.as === 'complete') this.subscriber.complete()
    }
    this.host.ended(this)
    if (ending.as === 'error' && ending.fatal) this.host.freed(tell)
    else tell()
  }

  // The end of a pushed feed never waits for a lease: when nothing is on the device and no slot has come back by the next turn of
  // the event loop, the value that it still held for a slot is dropped, and counted.
  #forsakeLingering(): void {
    const stuck = (reader: Reader): boolean =>
      reader.lingers &&
      !this.#ending &&
      this.host.ticks.flying === 0 &&
      this.host.ticks.before(reader.filled) === 'leased'
    if (!this.#readers.some(stuck)) return
    setImmediate(() => {
      for (const reader of this.#readers.filter(stuck)) reader.forsake()
      this.pump()
    })
  }

  #readerHost({ name, rate }: NamedFeed, input: number): ReaderHost {
    const error = (_tag: RunErrorTag, fault: Omit<Fault, '_tag' | 'at' | 'subject'>, cause?: unknown): void =>
      this.#fail({
        as: 'error',
        error: new RunError({ _tag, at: this.at, subject: name, ...fault }, { cause }),
        fatal: false,
        quiet: false,
      })
    return {
      fillable: tick => !this.#ending && tick < this.#end && this.host.ticks.fillable(tick),
      fill: (tick, part, value) => {
        if (this.#ending) return false
        const mismatch = this.host.fill(input, tick, part, value)
        if (mismatch) error('WrongValue', mismatch)
        return !mismatch
      },
      wake: () => this.pump(),
      dropped: () => this.host.dropped(name),
      unfinished: had => this.host.unfinished(name, had, rate),
      failed: cause =>
        error(
          'FeedFailed',
          {
            wanted: 'a value for each tick, or the end',
            found: `an error of the feed's source: ${thrown(cause)}`,
            next: "look at the error's `cause`; the session can run again",
          },
          cause,
        ),
      full: () =>
        error('FeedFull', {
          wanted: `at most ${this.host.ticks.size * rate} values ahead of the leases that are given back`,
          found: 'one more',
          next: "give leases back sooner, open with more inFlight, or say pushed(source, 'dropOldest')",
        }),
    }
  }
}
