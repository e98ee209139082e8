// What programs in plain JavaScript pass: objects that throw when they are read, and handles made by `new`.
import { thrown } from '../values.js'
import { AllocatorError, badUse } from './allocator-error.js'

/**
 * The error of a call whose arguments threw when they were read: a getter of the program's, or a proxy. An
 * error of Braid's, which has a tag, is returned as it is.
 */
export const unreadable = (cause: unknown, at: string): unknown =>
  cause instanceof Error && Object.hasOwn(cause, '_tag')
    ? cause
    : new AllocatorError(
        {
          _tag: 'BadArgument',
          at,
          subject: 'arguments',
          wanted: 'arguments that can be read',
          found: `what throws when it is read: ${thrown(cause)}`,
          next: 'pass plain values and objects; its error is the cause',
        },
        { cause },
      )

/** Checks arguments: what `check` returns, or a Braid error. It must do nothing but read. */
export const reading = <T>(at: string, check: () => T): T => {
  try {
    return check()
  } catch (cause) {
    throw unreadable(cause, at)
  }
}

/** Throws where a program has called a constructor. `own`: whether Braid did, by what it alone passes. */
export const madeBy = (own: boolean, name: string, call: string): void => {
  if (!own)
    throw badUse(`new ${name}`, 'constructor', `a ${name} that ${call} makes`, 'new', `call ${call} instead`)
}
