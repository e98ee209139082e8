import type { JoinSpec } from '../../ir/kernel-spec.js'
import { type BoundSpec, elements, tensorBytes } from '../../ir/tensor.js'
import { type HostArray, hostArray, writer } from '../values.js'
import type { RunLowering } from './operator.js'

// What `concat` and `pad` have in common: pieces one after the other along an axis.

/** The kernel for a result of which the pieces lie along an axis. */
export const joinSpec = (output: BoundSpec, axis: number, pieces: JoinSpec['pieces']): JoinSpec => ({
  kind: 'join',
  outer: elements(output.shape.slice(0, axis)),
  inner: elements(output.shape.slice(axis + 1)),
  dtype: output.dtype,
  pieces,
})

export const lowerJoin = (
  kernel: JoinSpec,
  inputs: readonly BoundSpec[],
  output: BoundSpec,
): RunLowering => ({
  as: 'run',
  kernel,
  flops: 0,
  movedBytes: inputs.reduce((bytes, x) => bytes + tensorBytes(x), tensorBytes(output)),
  workspace: 0,
})

/** The meaning of a `join` kernel. */
export const runJoin = (
  { outer, inner, dtype, pieces }: JoinSpec,
  inputs: readonly HostArray[],
): HostArray => {
  const row = pieces.reduce((total, { length }) => total + length, 0) * inner
  const result = hostArray(dtype, outer * row)
  const write = writer(dtype)
  let source = 0
  let at = 0
  for (const { length, fill } of pieces) {
    const own = length * inner
    const values = fill === undefined ? inputs[source++]! : undefined
    for (let o = 0; o < outer; o++) {
      const from = o * row + at
      if (values) result.set(values.subarray(o * own, (o + 1) * own), from)
      else result.fill(write(fill!), from, from + own)
    }
    at += own
  }
  return result
}
