import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { type FlowValue, piped } from '../builder.js'
import type { UnplacedError } from '../messages.js'
import type { Attrs, Operator } from './operator.js'

/**
 * The result of an operator that is composed of others: what `make` makes of the piped value and of the
 * options. Where one of the two is wrong the error is reported, and a guess goes on.
 */
export const parted = <O, R>(
  name: string,
  at: Where,
  x: unknown,
  options: (x: TensorSpec) => E.Either<UnplacedError, O>,
  make: (x: FlowValue, options: O) => R,
): R | FlowValue => {
  const value = piped(x, 'device', at, name)
  const { builder, spec } = value
  if (value.place !== 'device') return builder.placeholder(spec, 'device', at)
  const known = options(spec)
  if (E.isRight(known)) return make(value, known.right)
  if (!builder.guesses.has(value.id)) builder.report(at, name, known.left)
  return builder.guess(spec, at)
}

/**
 * Makes the node of an operator over device flows, on the lane that the piped flow carries. `others` are its
 * further operands by role. An error is reported, and the result then has the type of the first operand.
 */
export const apply = (
  operator: Operator,
  at: Where,
  x: unknown,
  others: readonly (readonly [role: string, flow: unknown])[],
  attrs: Attrs | ((x: TensorSpec) => E.Either<UnplacedError, Attrs>),
): FlowValue => {
  const { name } = operator
  const first = piped(x, 'device', at, name)
  const { builder, hint } = first
  // Of exact length: a large graph has a million of them.
  const inputs = new Array<number>(1 + others.length)
  const specs = new Array<TensorSpec>(inputs.length)
  inputs[0] = first.id
  specs[0] = first.spec
  const { reports } = builder
  const { guesses } = builder
  let follows = guesses.size > 0 && guesses.has(first.id)
  for (let i = 0; i < others.length; i++) {
    const [role, flow] = others[i]!
    const { id, spec } = builder.take(flow, 'device', at, name, role, first.spec)
    inputs[i + 1] = id
    specs[i + 1] = spec
    follows ||= guesses.size > 0 && guesses.has(id)
  }
  const known = typeof attrs === 'function' ? attrs(first.spec) : E.right(attrs)
  const inferred = E.isLeft(known) ? known : operator.infer(specs, known.right)
  // The type of an operand that is none, or that follows from an error, is a guess: that it does not fit is no
  // further error.
  const isGuess = follows || builder.reports > reports
  if (E.isLeft(inferred) && !isGuess) builder.report(at, name, inferred.left)
  const isKnown = E.isRight(inferred) || (operator.keepsType === true && E.isLeft(known))
  if (isGuess || !isKnown) guesses.add(builder.nodes.length)
  return builder.flow(
    {
      op: name,
      inputs,
      attrs: E.isRight(known) ? known.right : {},
      spec: E.isRight(inferred) ? inferred.right : first.spec,
      place: 'device',
      lane: hint,
      at,
    },
    hint,
  )
}
