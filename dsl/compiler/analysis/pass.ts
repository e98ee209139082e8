import type { Either } from 'fp-ts/lib/Either.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import type { CompileError } from '../../ir/graph.js'

/** What every pass yields: the next form of the program, or every error that it found. */
export type Passed<A> = Either<ReadonlyNonEmptyArray<CompileError>, A>

/** Is called when a pass begins; what it returns is called when that pass ends. Passes nest and repeat. */
export type PassObserver = (name: string) => () => void

let observer: PassObserver | undefined

/** Measurements only: no pass yields anything else because of an observer. Undefined ends the observation. */
export const observePasses = (by: PassObserver | undefined): void => {
  observer = by
}

/** Gives a pass the name by which an observer knows it. */
export const pass =
  <A, B>(name: string, run: (ir: A) => B): ((ir: A) => B) =>
  ir => {
    const ended = observer?.(name)
    try {
      return run(ir)
    } finally {
      ended?.()
    }
  }
