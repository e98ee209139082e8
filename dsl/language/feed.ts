import type { Observable } from 'rxjs'

/** What a source that cannot wait does when the session has no credit. */
export type WhenFull = 'dropOldest' | 'dropNewest' | 'fail'

/** A source that waits to be asked; made by `pulled`. */
export interface PulledFeed<out A> {
  readonly feed: 'pulled'
  readonly source: Iterable<A> | AsyncIterable<A>
}

/** A source that comes when it comes, and has said what to drop; made by `pushed`. */
export interface PushedFeed<out A> {
  readonly feed: 'pushed'
  readonly source: Observable<A>
  readonly whenFull: WhenFull
}

/** A source that has said what it does when the session is full. A bare Observable has not. */
export type Feed<A> = PulledFeed<A> | PushedFeed<A>

/** An output value that is given back by `using`, which returns a credit upstream. Its arrays are empty afterwards. */
export type Lease<A> = A & Disposable
