import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { type DType, elementBytes, elements, tensorBytes } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute } from '../messages.js'
import { isDType } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { mapSpec } from './elementwise.js'
import { runMap } from './map-reference.js'
import type { Operator } from './operator.js'
import type { Device, Shape } from './types.js'

const same: readonly MapInstruction[] = [['operand', 0]]

/** Attributes: `{ to: DType }`. One rounding, or one truncation; exact on every device. */
export const castOperator: Operator = {
  name: 'cast',
  infer: ([x], { to }) =>
    isDType(to)
      ? E.right({ dtype: to, shape: x?.shape ?? [] })
      : E.left(
          badAttribute(
            `an element type: ${Object.keys(elementBytes).join(', ')}`,
            show(to),
            'give one of these',
          ),
        ),
  lower: (inputs, output) => ({
    as: 'run',
    kernel: mapSpec(inputs, output, same),
    flops: elements(output.shape),
    movedBytes: inputs.reduce((sum, input) => sum + tensorBytes(input), tensorBytes(output)),
    workspace: 0,
  }),
  reference: (inputs, specs, output) => runMap(mapSpec(specs, output, same), inputs)[0]!,
  tolerance: () => 0,
}

/** The same of an operator's own value. */
export const castTo = (to: DType, at: Where, x: FlowValue): FlowValue =>
  x.spec.dtype === to ? x : apply(castOperator, at, x, [], { to })

/**
 * Another element type: floats round to nearest even; floats to whole numbers truncate toward zero and
 * saturate, a NaN becoming 0; i32 to u8 saturates. A cast to the type that the value has already is the flow
 * itself.
 */
export const cast = <E extends DType>(to: E) => {
  const at = here()
  const convert = (x: unknown): unknown =>
    x instanceof FlowValue && x.place === 'device' && x.spec.dtype === to && x.builder.open
      ? x
      : apply(castOperator, at, x, [], { to })
  return convert as unknown as <D extends DType, S extends Shape>(x: Device<D, S>) => Device<E, S>
}
