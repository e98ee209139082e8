import type { Subscriber } from 'rxjs'
import type { Lease } from '../../dsl/index.js'
import { Block } from '../device/block.js'
import type { RunError } from '../errors.js'
import type { Mismatch } from '../values.js'
import type { NamedFeed } from './feeds.js'
import { blockFed, feedFailed, feedFull, wrongValue } from './messages.js'
import { makeReader, type Reader, type ReaderHost } from './readers.js'
import type { Ticks } from './ticks.js'

/** The session, as a run uses it. */
export interface RunHost {
  readonly ticks: Ticks
  /** Copies value number `part` of an input into the slot of a tick. */
  fill(input: number, tick: number, part: number, value: unknown): Mismatch | undefined
  /**
   * Whether something happens between two ticks, so that none is submitted. `advance` is called when it is
   * over.
   */
  readonly held: boolean
  /** Hands the next tick to the device. May throw. */
  submit(): void
  dropped(input: string, count: number): void
  /** A feed ended with fewer values than a tick has. */
  unfinished(input: string, had: number, wanted: number): void
  /** The run has ended and drained: the session may start another run. */
  ended(run: Run): void
  /** Calls back once a session whose device failed has drained and is freed. */
  freed(then: () => void): void
}

// `fatal`: the device failed, and the session is freed before the error is reported. `quiet`: outputs that
// are still on the device are not delivered.
type Ending =
  | { readonly as: 'complete' }
  | { readonly as: 'error'; readonly error: unknown; readonly fatal: boolean; readonly quiet: boolean }
  | { readonly as: 'cancel' }

/**
 * One run: it fills slots from its feeds, submits ticks, and gives out leases. It is driven by three things
 * only: a feed's value, a completed tick, a lease given back. To end, it stops submitting, stops its feeds
 * and waits for its ticks in flight.
 */
export class Run {
  readonly #readers: readonly Reader[]
  readonly #end: number
  #ending: Ending | undefined
  #flying = 0
  #advancing = false
  #again = false
  #finished = false

  constructor(
    private readonly host: RunHost,
    private readonly subscriber: Subscriber<Lease<unknown>>,
    feeds: readonly NamedFeed[],
    ticks: number,
    /** Where the caller called `run`. */
    readonly at: string,
  ) {
    const first = host.ticks.next
    this.#end = first + ticks
    this.#readers = feeds.map((feed, input) => makeReader(feed, first, this.#readerHost(feed, input)))
  }

  start(): void {
    // Pushes that arrive while feeds are being subscribed to wait until all of them are.
    this.#advancing = true
    for (const reader of this.#readers) if (!this.#ending) reader.start()
    this.#advancing = false
    this.advance()
  }

  /** Whether nothing moves until a lease is given back. */
  get stalled(): boolean {
    const { ticks } = this.host
    return (
      !this.#ending && ticks.flying === 0 && ticks.next < this.#limit() && ticks.waitsForLease(ticks.next)
    )
  }

  /** Submits every tick that can be submitted now. Re-entrant: feeds and subscribers may call it. */
  advance(): void {
    if (this.#advancing) {
      this.#again = true
      return
    }
    this.#advancing = true
    do {
      this.#again = false
      while (this.#step()) {}
    } while (this.#again)
    this.#advancing = false
    this.#finish()
  }

  /** Whether the subscriber still gets the outputs of its ticks. */
  get listening(): boolean {
    const ending = this.#ending
    return !this.subscriber.closed && ending?.as !== 'cancel' && !(ending?.as === 'error' && ending.quiet)
  }

  /**
   * A tick of this run completed, with its lease if the outputs are delivered. The tick counts as in flight
   * until the subscriber has handled the lease, so that the end of the run never precedes a value.
   */
  completed(failure: RunError | undefined, lease: Lease<unknown> | undefined): void {
    if (failure) this.#fail({ as: 'error', error: failure, fatal: true, quiet: true })
    if (lease) this.subscriber.next(lease)
    this.#flying--
    this.advance()
  }

  /** Unsubscribed: submit nothing more, drain, report nothing. */
  cancel(): void {
    if (this.#ending?.as === 'cancel') return
    this.#close({ as: 'cancel' })
    this.#finish()
  }

  /** Aborted, or the session is being closed: drain, deliver nothing more, then report the reason. */
  abort(reason: unknown): void {
    this.#fail({ as: 'error', error: reason, fatal: false, quiet: true })
  }

  #fail(ending: Ending): void {
    if (this.#ending?.as === 'cancel' || this.#ending?.as === 'error') return
    this.#close(ending)
    if (!this.#advancing) this.#finish()
  }

  #limit(): number {
    let limit = this.#end
    for (const reader of this.#readers) if (reader.end < limit) limit = reader.end
    return limit
  }

  // Submits one tick, if it may be submitted and all of its inputs are there. False: nothing more can be
  // submitted now.
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
      if (this.#ending) return false
      // The run ends here, so no other feed is asked for a value of this tick.
      if (reader.end <= tick) return true
      if (reader.filled <= tick) ready = false
    }
    if (!ready) return false
    if (this.host.held) return false
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
    for (const reader of this.#readers) reader.stop(this.host.ticks.next)
  }

  // The last step of a run, once: when it is ending and its ticks are complete.
  #finish(): void {
    if (!this.#ending) {
      this.#dropPending()
      return
    }
    if (!this.#finished && this.#flying === 0) this.#report(this.#ending)
  }

  #report(ending: Ending): void {
    this.#finished = true
    const report = (): void => {
      if (ending.as === 'error') this.subscriber.error(ending.error)
      else if (ending.as === 'complete') this.subscriber.complete()
    }
    this.host.ended(this)
    if (ending.as === 'error' && ending.fatal) this.host.freed(report)
    else report()
  }

  // The end of a pushed feed never waits for a lease: when nothing is on the device and no slot has come back
  // by the next turn of the event loop, the pending value is dropped, and counted.
  #dropPending(): void {
    if (this.host.ticks.flying > 0 || this.#readers.length === 0) return
    const stuck = (reader: Reader): boolean =>
      reader.pending &&
      !this.#ending &&
      this.host.ticks.flying === 0 &&
      this.host.ticks.waitsForLease(reader.filled)
    if (!this.#readers.some(stuck)) return
    setImmediate(() => {
      for (const reader of this.#readers.filter(stuck)) reader.drop()
      this.advance()
    })
  }

  #readerHost({ name, rate }: NamedFeed, input: number): ReaderHost {
    const fail = (error: RunError): void => this.#fail({ as: 'error', error, fatal: false, quiet: false })
    return {
      fillable: tick => !this.#ending && tick < this.#end && this.host.ticks.fillable(tick),
      fill: (tick, part, value) => {
        if (this.#ending) return false
        const mismatch = this.host.fill(input, tick, part, value)
        if (mismatch) fail(wrongValue(this.at, name, Block.is(value) ? blockFed(value, mismatch) : mismatch))
        return !mismatch
      },
      wake: () => this.advance(),
      dropped: (count = 1) => this.host.dropped(name, count),
      unfinished: had => this.host.unfinished(name, had, rate),
      failed: cause => fail(feedFailed(this.at, name, cause)),
      full: () => fail(feedFull(this.at, name, this.host.ticks.size * rate)),
    }
  }
}
