import * as E from 'fp-ts/lib/Either.js'
import { isNonEmpty } from 'fp-ts/lib/ReadonlyArray.js'
import type { CompileError, CompileErrorTag } from '../../ir/graph.js'
import type { Passed } from './pass.js'

export const fault = (
  _tag: CompileErrorTag,
  at: { toString(): string },
  subject: string,
  wanted: string,
  found: string,
  next: string,
): CompileError => ({ _tag, at: String(at), subject, wanted, found, next })

/** The value, or all errors if there are any. */
export const unless = <A>(errors: readonly CompileError[], value: () => A): Passed<A> =>
  isNonEmpty(errors) ? E.left(errors) : E.right(value())

export const fail = (error: CompileError): Passed<never> => E.left([error])
