import type { Observable } from 'rxjs'

/** The policy of a source that cannot wait, for values that arrive while the session has no credit. */
export type WhenFull = 'dropOldest' | 'dropNewest' | 'fail'

/** A source that yields a value on request; made by `pulled`. */
export interface PulledFeed<out A> {
  readonly feed: 'pulled'
  readonly source: Iterable<A> | AsyncIterable<A>
}

/** A source that emits at its own pace, with the policy for a full session; made by `pushed`. */
export interface PushedFeed<out A> {
  readonly feed: 'pushed'
  readonly source: Observable<A>
  readonly whenFull: WhenFull
}

/** A source whose behaviour at a full session is known. A bare Observable has none. */
export type Feed<A> = PulledFeed<A> | PushedFeed<A>

/**
 * An output value that is given back by `using`, which returns a credit upstream. Its arrays are empty
 * afterwards, and its blocks are disposed of.
 */
export type Lease<A> = A & Disposable
