import type { CompileError, GraphNode } from '../../ir/graph.js'
import type { CudaSpec } from '../../ir/kernel-spec.js'
import type { BoundSpec, TensorSpec } from '../../ir/tensor.js'
import {
  checkKernel,
  donationsOf,
  kernelDims,
  lowerKernel,
  runReference,
} from '../../language/bound-kernel.js'
import type { HostArray } from '../../language/values.js'
import { fault } from './faults.js'
import { kernelAttrs } from './operators.js'

/** A user's kernel with every dimension bound. */
export interface BoundKernel {
  readonly kernel: CudaSpec
  readonly reads: readonly BoundSpec[]
  readonly writes: readonly BoundSpec[]
  /** For each write, the index of the read that it overwrites; undefined: fresh memory. */
  readonly donates: readonly (number | undefined)[]
  readonly tolerance: number
  /** Fills `writes`; a donated write holds its read's values when this is called. */
  readonly reference: (reads: readonly HostArray[], writes: readonly HostArray[]) => void
}

type Dims = ReadonlyMap<string, number>

const bindPort = (
  { dtype, shape }: TensorSpec,
  own: Readonly<Record<string, number>>,
  dims: Dims,
): BoundSpec => ({
  dtype,
  shape: shape.map(dim => (typeof dim === 'number' ? dim : (own[dim] ?? dims.get(dim) ?? 1))),
})

export const sameSpec = (a: BoundSpec, b: BoundSpec): boolean =>
  a.dtype === b.dtype && a.shape.length === b.shape.length && a.shape.every((dim, i) => dim === b.shape[i])

export const boundKernel = (node: GraphNode, reads: readonly BoundSpec[], dims: Dims): BoundKernel => {
  const attrs = kernelAttrs(node)
  const own = kernelDims(attrs, reads)
  const writes = attrs.writes.map(({ spec }) => bindPort(spec, own, dims))
  const all = { ...Object.fromEntries(dims), ...kernelDims(attrs, reads, writes) }
  const donations = donationsOf(attrs)
  return {
    kernel: lowerKernel(attrs, all, reads, writes),
    reads,
    writes,
    donates: writes.map((_, i) => donations.get(i)),
    tolerance: attrs.tolerance,
    reference: (from, to) => runReference(attrs, from, to, all),
  }
}

/** The error of a kernel node once dimensions are bound, if any: in its ports, its donations or its launch. */
export const kernelFault = (
  node: GraphNode,
  reads: readonly BoundSpec[],
  dims: Dims,
): CompileError | undefined => {
  const attrs = kernelAttrs(node)
  const own = kernelDims(attrs, reads)
  const show = ({ dtype, shape }: BoundSpec): string => `${dtype}[${shape.join(', ')}]`
  const unlike = attrs.reads.findIndex(({ spec }, i) => !sameSpec(bindPort(spec, own, dims), reads[i]!))
  if (unlike >= 0) {
    const { name, spec } = attrs.reads[unlike]!
    const wanted = `${show(bindPort(spec, own, dims))} as the read ${name}`
    const next = 'bind the symbols of its reads so that they agree'
    return fault('ShapeMismatch', node.at, node.name, wanted, show(reads[unlike]!), next)
  }
  const writes = attrs.writes.map(({ spec }) => bindPort(spec, own, dims))
  for (const [write, read] of donationsOf(attrs))
    if (!sameSpec(writes[write]!, reads[read]!)) {
      const wanted = 'a donated write of the type of its read'
      const found = attrs.writes[write]!.name
      return fault('ShapeMismatch', node.at, node.name, wanted, found, 'do not donate it')
    }
  const error = checkKernel(attrs, Object.fromEntries(dims), reads, writes)
  return error && fault(error._tag, node.at, node.name, error.wanted, error.found, error.next)
}
