import { from, type ObservableInput } from 'rxjs'
import type { Feed, PulledFeed, PushedFeed, WhenFull } from '../../dsl/index.js'
import { describe } from '../values.js'

/** A feed that can be run, or undefined for anything else: a bare Observable has not said what it drops. */
export const feedOf = (value: unknown): Feed<unknown> | undefined => {
  if (typeof value !== 'object' || value === null) return undefined
  const feed = value as Feed<unknown>
  if (feed.feed === 'pulled')
    return isIterable(feed.source) || isAsyncIterable(feed.source) ? feed : undefined
  if (feed.feed === 'pushed') return policies.includes(feed.whenFull) && feed.source ? feed : undefined
  return undefined
}

const isIterable = (value: unknown): value is Iterable<unknown> =>
  value !== null && value !== undefined && typeof (value as Iterable<unknown>)[Symbol.iterator] === 'function'
const isAsyncIterable = (value: unknown): value is AsyncIterable<unknown> =>
  value !== null &&
  value !== undefined &&
  typeof (value as AsyncIterable<unknown>)[Symbol.asyncIterator] === 'function'

// Iterable as well, but surely meant as one value.
const isSingle = (value: unknown): boolean => typeof value === 'string' || ArrayBuffer.isView(value)

/**
 * A source that waits: it is asked for a value only when there is a slot to put it in, and its iterator is returned when the
 * run ends before it. Each run iterates anew. Throws a TypeError for what cannot be iterated.
 */
export const pulled = <A>(source: Iterable<A> | AsyncIterable<A>): PulledFeed<A> => {
  if (isSingle(source))
    throw new TypeError(
      `pulled: wanted an iterable of values, one a tick; found ${describe(source)}. Next: wrap it: pulled([value])`,
    )
  if (!isIterable(source) && !isAsyncIterable(source))
    throw new TypeError(
      `pulled: wanted an iterable or an async iterable; found ${describe(source)}. Next: for an Observable use pushed(source, whenFull)`,
    )
  return Object.freeze({ feed: 'pulled', source })
}

const policies: readonly WhenFull[] = ['dropOldest', 'dropNewest', 'fail']

/**
 * A source that does not wait, with what is dropped while every slot is taken: `dropOldest` keeps the newest value for the next
 * slot, `dropNewest` drops what arrives, `fail` ends the run with an error. Throws a TypeError for what cannot be subscribed to.
 */
export const pushed = <A>(source: ObservableInput<A>, whenFull: WhenFull): PushedFeed<A> => {
  if (!policies.includes(whenFull))
    throw new TypeError(
      `pushed: wanted 'dropOldest', 'dropNewest' or 'fail' as its second argument; found ${describe(whenFull)}. Next: say what is dropped when the session is full`,
    )
  const wrong = (next: string): TypeError =>
    new TypeError(`pushed: wanted an Observable; found ${describe(source)}. Next: ${next}`)
  if (isSingle(source)) throw wrong('for values that wait to be asked for use pulled([value])')
  const observable = source as { subscribe?: unknown; then?: unknown } | null | undefined
  const subscribable =
    typeof observable === 'object' &&
    observable !== null &&
    (typeof observable.subscribe === 'function' ||
      typeof observable.then === 'function' ||
      Symbol.for('observable') in observable)
  if (!subscribable && !isIterable(source) && !isAsyncIterable(source))
    throw wrong('for an iterable use pulled(source)')
  try {
    return Object.freeze({ feed: 'pushed', source: from(source), whenFull })
  } catch {
    // RxJS knows an Observable by more than its `subscribe`.
    throw wrong('wrap it: new Observable(subscriber => source.subscribe(subscriber))')
  }
}
