import * as E from 'fp-ts/lib/Either.js'
import { from, type ObservableInput } from 'rxjs'
import type { Feed, PulledFeed, PushedFeed, WhenFull } from '../../dsl/index.js'
import type { RunError } from '../errors.js'
import { describe } from '../values.js'
import { notAFeed, notFeeds, otherFeeds } from './messages.js'
import type { Port } from './ports.js'

/** A feed under its input's name. */
export interface NamedFeed {
  readonly name: string
  readonly feed: Feed<unknown>
  /** Values for each tick. */
  readonly rate: number
}

/** The feeds that the caller gave to `run` at `at`, one for each input. */
export const namedFeeds = (
  inputs: readonly Port[],
  feeds: unknown,
  at: string,
): E.Either<RunError, readonly NamedFeed[]> => {
  const names = inputs.map(({ spec }) => spec.name)
  if (typeof feeds !== 'object' || feeds === null) return E.left(notFeeds(at, names, feeds))
  const given = feeds as Readonly<Record<string, unknown>>
  const extra = Object.keys(given).filter(name => !names.includes(name))
  const missing = names.filter(name => !Object.hasOwn(given, name) || given[name] === undefined)
  if (extra.length > 0 || missing.length > 0) return E.left(otherFeeds(at, names, missing, extra))
  const named: NamedFeed[] = []
  for (const { spec, rate } of inputs) {
    const feed = feedOf(given[spec.name])
    if (!feed) return E.left(notAFeed(at, spec.name, given[spec.name]))
    named.push({ name: spec.name, feed, rate })
  }
  return E.right(named)
}

/**
 * A feed that can be run, or undefined for any other value, such as a bare Observable, which has no policy
 * for a full session.
 */
const feedOf = (value: unknown): Feed<unknown> | undefined => {
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

// These are iterable too, but are meant as one value.
const isSingle = (value: unknown): boolean => typeof value === 'string' || ArrayBuffer.isView(value)

/**
 * A source that waits: a value is requested only when a slot is free for it, and the iterator's `return` is
 * called when the run ends first. Each run iterates anew. Throws a TypeError for a value that is not
 * iterable.
 */
export const pulled = <A>(source: Iterable<A> | AsyncIterable<A>): PulledFeed<A> => {
  if (isSingle(source))
    throw new TypeError(
      `pulled: wanted an iterable of values, one a tick; found ${describe(source)}. ` +
        'Next: wrap it: pulled([value])',
    )
  if (!isIterable(source) && !isAsyncIterable(source))
    throw new TypeError(
      `pulled: wanted an iterable or an async iterable; found ${describe(source)}. ` +
        'Next: for an Observable use pushed(source, whenFull)',
    )
  return Object.freeze({ feed: 'pulled', source })
}

const policies: readonly WhenFull[] = ['dropOldest', 'dropNewest', 'fail']

/**
 * A source that does not wait, with a policy while every slot is taken: `dropOldest` keeps the newest value
 * for the next slot, `dropNewest` drops the value that arrives, `fail` ends the run with an error. Throws a
 * TypeError for a value that is no Observable.
 */
export const pushed = <A>(source: ObservableInput<A>, whenFull: WhenFull): PushedFeed<A> => {
  if (!policies.includes(whenFull))
    throw new TypeError(
      `pushed: wanted 'dropOldest', 'dropNewest' or 'fail' as its second argument; ` +
        `found ${describe(whenFull)}. ` +
        'Next: say what is dropped when the session is full',
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
