import type { MapSpec } from '../../ir/kernel-spec.js'
import { type BoundSpec, isFloat } from '../../ir/tensor.js'
import { coalesce, denseStrides } from './shapes.js'

/** A kernel that writes a dense result, reading element `offset + Σ index[d] · strides[d]` of its operand. */
export const stridedCopy = ({ dtype, shape }: BoundSpec, strides: readonly number[], offset = 0): MapSpec => {
  const merged = coalesce(shape, [strides, denseStrides(shape)])
  return {
    kind: 'map',
    shape: merged.shape,
    compute: isFloat(dtype) ? 'f32' : 'i32',
    operands: [{ dtype, offset, strides: merged.strides[0] ?? [] }],
    code: [['operand', 0]],
    results: [{ value: 0, dtype }],
  }
}
