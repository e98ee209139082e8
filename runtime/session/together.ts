import type { PulledFeed } from '../../dsl/index.js'
import { describe, isThenable } from '../values.js'
import { pulled } from './feeds.js'
import { warnReturnThrew } from './messages.js'

/** A source that yields the values of several inputs at once. */
type Source<R> = Iterable<R> | AsyncIterable<R>
type Result = IteratorResult<unknown>
type Later<A> = A | Promise<A>

const over: Result = { done: true, value: undefined }

/** One run over the source. Each input takes its part of every value, at its own time. */
class Round {
  /** By input: the parts that it has not taken yet. */
  private readonly waiting: ReadonlyMap<string, unknown[]>
  private readonly iterator: Iterator<unknown> | AsyncIterator<unknown>
  /** The value that the source has promised. */
  private promised: Promise<void> | undefined
  private isOver = false
  /** Whether the source's own code runs: a generator cannot be returned from within. */
  private isCalling = false
  private readonly opened = new Set<string>()

  constructor(source: Source<unknown>, names: readonly string[]) {
    this.waiting = new Map(names.map(name => [name, []]))
    const from = source as Partial<Iterable<unknown> & AsyncIterable<unknown>>
    this.iterator = from[Symbol.asyncIterator]?.() ?? from[Symbol.iterator]!()
  }

  /** Whether the input has not begun this round; it has from now on. */
  begins(name: string): boolean {
    if (this.opened.has(name)) return false
    this.opened.add(name)
    return true
  }

  next(name: string): Later<Result> {
    const waiting = this.waiting.get(name)!
    if (waiting.length > 0) return { done: false, value: waiting.shift() }
    if (this.isOver) return over
    if (this.promised === undefined) this.ask()
    return this.promised === undefined ? this.next(name) : this.promised.then(() => this.next(name))
  }

  private ask(): void {
    this.isCalling = true
    let result: unknown
    try {
      result = this.iterator.next()
    } catch (cause) {
      this.isOver = true
      throw cause
    } finally {
      this.isCalling = false
    }
    const wasOver = this.isOver
    const isDone = !isThenable(result) && (result as Result).done === true
    if (!isThenable(result)) this.take(result as Result)
    else
      this.promised = Promise.resolve(result).then(
        given => {
          this.promised = undefined
          this.take(given as Result)
        },
        (cause: unknown) => {
          this.promised = undefined
          this.isOver = true
          throw cause
        },
      )
    // The source has ended its own run.
    if (wasOver && !isDone) this.giveBack()
  }

  private take({ done, value }: Result): void {
    if (done) this.isOver = true
    if (done || this.isOver) return
    if (typeof value !== 'object' || value === null) {
      this.end()
      const names = [...this.waiting.keys()].join(', ')
      throw new TypeError(`pulledTogether: wanted values of ${names} by name; found ${describe(value)}`)
    }
    for (const [name, waiting] of this.waiting) waiting.push((value as Record<string, unknown>)[name])
  }

  /** The run is over for one input, and so for all: a tick has a value of each. */
  end(): void {
    if (this.isOver) return
    this.isOver = true
    if (!this.isCalling) this.giveBack()
  }

  private giveBack(): void {
    try {
      const returned: unknown = this.iterator.return?.()
      if (isThenable(returned)) Promise.resolve(returned).then(undefined, warnReturnThrew)
    } catch (error) {
      warnReturnThrew(error)
    }
  }
}

/**
 * The feeds of several inputs from one source that waits, whose values have a part for each of them, as a
 * loader of batches yields them: `session.run(pulledTogether(batches, ['x', 'y']))`. The inputs come equally
 * often. A value is requested only when a slot is free for it, the parts of one value go into one tick, and
 * the iterator's `return` is called when the run ends first. Each run iterates anew. Other feeds may stand
 * beside them: `{ ...pulledTogether(batches, ['x', 'y']), rate: pulled(rates) }`.
 *
 * Throws a TypeError for a source that is not iterable, as `pulled` does. A value that is no object ends the
 * run with an error.
 */
export const pulledTogether = <R extends object, const N extends keyof R & string>(
  source: Source<R>,
  names: readonly N[],
): { readonly [K in N]: PulledFeed<R[K]> } => {
  pulled(source)
  const isAsync = Symbol.asyncIterator in source
  let round: Round | undefined
  const iterate = (name: string) => () => {
    if (!round?.begins(name)) {
      round = new Round(source, names)
      round.begins(name)
    }
    const own = round
    const end = (): Result => {
      own.end()
      return over
    }
    return isAsync
      ? { next: async () => own.next(name), return: async () => end() }
      : { next: () => own.next(name), return: end }
  }
  const feeds = names.map(name => {
    const part = { [isAsync ? Symbol.asyncIterator : Symbol.iterator]: iterate(name) }
    return [name, pulled(part as unknown as Iterable<unknown>)] as const
  })
  return Object.fromEntries(feeds) as never
}
