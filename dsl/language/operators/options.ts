// The options of an operator: one object, whose fields have names.

import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'

/** The options of an operator, by name; none where nothing is given. */
export const named = (options: unknown): Readonly<Record<string, unknown>> =>
  typeof options === 'object' && options !== null ? (options as Readonly<Record<string, unknown>>) : {}

/** Reads the options of an operator, which has these and no others; all of them may be left out. */
export const withOptions =
  <O>(
    options: unknown,
    names: readonly string[],
    read: (x: TensorSpec) => E.Either<UnplacedError, O>,
  ): ((x: TensorSpec) => E.Either<UnplacedError, O>) =>
  x => {
    if (options === undefined) return read(x)
    const listed = names.length === 1 ? `the option ${names[0]}` : `the options ${names.join(', ')}`
    const isPlain =
      typeof options === 'object' &&
      options !== null &&
      [Object.prototype, null].includes(Object.getPrototypeOf(options) as object | null)
    if (!isPlain)
      return E.left(badAttribute(`an object with ${listed}`, show(options), `name it: { ${names[0]}: … }`))
    const stranger = Object.keys(options).find(name => !names.includes(name))
    return stranger === undefined
      ? read(x)
      : E.left(badAttribute(`no more than ${listed}`, stranger, 'correct its name, or leave it out'))
  }
