import * as E from 'fp-ts/lib/Either.js'
import type { MapSpec } from '../../ir/kernel-spec.js'
import { type BoundSpec, type DType, elements, tensorBytes } from '../../ir/tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf, beyondPositions } from './reduce.js'
import type { Device, Shape } from './types.js'

/** An operand that the kernel is given has one element that it may read; the result needs none. */
const spec = ({ shape }: BoundSpec, { axis }: Attrs, x?: BoundSpec): MapSpec => ({
  kind: 'map',
  shape: [
    elements(shape.slice(0, axis as number)),
    shape[axis as number]!,
    elements(shape.slice((axis as number) + 1)),
  ],
  compute: 'i32',
  operands: x ? [{ dtype: x.dtype, offset: 0, strides: [0, 0, 0] }] : [],
  code: [['index', 1]],
  results: [{ value: 0, dtype: 'i32' }],
})

export const iotaOperator: Operator = {
  name: 'iota',
  infer: ([x], attrs) => {
    const beyond = beyondPositions(attrs['axis'] as number, x!)
    return beyond === undefined ? E.right({ dtype: 'i32', shape: x!.shape }) : E.left(beyond)
  },
  lower: ([x], output, attrs) => ({
    as: 'run',
    kernel: spec(output, attrs, x),
    flops: 0,
    movedBytes: tensorBytes(output),
    workspace: 0,
  }),
  reads: (inputs, attrs) => (inputs.length === 0 ? undefined : { inputs: [], attrs }),
  reference: (_inputs, _specs, output, attrs) => runMap(spec(output, attrs), [])[0]!,
  tolerance: () => 0,
}

/**
 * The index of each element of a value along an axis, as i32: a value of the same shape, whose elements do
 * not count (jax.lax.broadcasted_iota). The default is the last axis.
 */
export const iota = (options?: { readonly axis?: number }) => {
  const at = here()
  const places = (x: unknown): unknown =>
    apply(
      iotaOperator,
      at,
      x,
      [],
      withOptions(options, ['axis'], given =>
        E.map(axis => ({ axis }))(axisOf(named(options)['axis'] ?? -1, given)),
      ),
    )
  return places as unknown as <S extends Shape>(x: Device<DType, S>) => Device<'i32', S>
}
