import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { builderOf, type FlowValue } from '../builder.js'
import type { Attrs, Misfit, Operator } from './operator.js'

const scalar: TensorSpec = { dtype: 'f32', shape: [] }

/**
 * Makes the node of an operator over device flows, on the lane that the piped flow carries. `others` are its further operands
 * by role. A misfit is noted and the flow goes on with the first operand's spec.
 */
export const apply = (
  operator: Operator,
  at: Where,
  x: unknown,
  others: readonly (readonly [role: string, flow: unknown])[],
  attrs: Attrs | ((x: TensorSpec) => E.Either<Misfit, Attrs>),
): FlowValue => {
  const builder = builderOf(x)
  const first = builder.take(x, 'device', at, operator.name, 'the piped value', scalar)
  const flows = [
    first,
    ...others.map(([role, flow]) => builder.take(flow, 'device', at, operator.name, role, first.spec)),
  ]
  const specs = flows.map(flow => flow.spec)
  const known = typeof attrs === 'function' ? attrs(first.spec) : E.right(attrs)
  const inferred = E.isLeft(known) ? known : operator.infer(specs, known.right)
  if (E.isLeft(inferred)) builder.problem(at, operator.name, inferred.left)
  return builder.flow(
    {
      op: operator.name,
      inputs: flows.map(flow => flow.id),
      attrs: E.isRight(known) ? known.right : {},
      spec: E.isRight(inferred) ? inferred.right : first.spec,
      place: 'device',
      lane: first.hint,
      at,
    },
    first.hint,
  )
}
