import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { type FlowValue, piped } from '../builder.js'
import type { UnplacedError } from '../messages.js'
import type { Attrs, Operator } from './operator.js'

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
  const flows = [
    first,
    ...others.map(([role, flow]) => builder.take(flow, 'device', at, name, role, first.spec)),
  ]
  const known = typeof attrs === 'function' ? attrs(first.spec) : E.right(attrs)
  const inferred = E.isLeft(known)
    ? known
    : operator.infer(
        flows.map(({ spec }) => spec),
        known.right,
      )
  if (E.isLeft(inferred)) builder.report(at, name, inferred.left)
  return builder.flow(
    {
      op: name,
      inputs: flows.map(({ id }) => id),
      attrs: E.isRight(known) ? known.right : {},
      spec: E.isRight(inferred) ? inferred.right : first.spec,
      place: 'device',
      lane: hint,
      at,
    },
    hint,
  )
}
