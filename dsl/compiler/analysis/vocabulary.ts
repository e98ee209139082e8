import type { CompileError, GraphNode } from '../../ir/graph.js'
import type { CudaSpec } from '../../ir/kernel-spec.js'
import type { BoundSpec, TensorSpec } from '../../ir/tensor.js'
import {
  checkKernel,
  donationsOf,
  type KernelAttrs,
  kernelDims,
  lowerKernel,
  runReference,
} from '../../language/bound-kernel.js'
import { communicatorOf } from '../../language/communicator.js'
import type { Operator } from '../../language/operators/operator.js'
import { operators } from '../../language/operators/registry.js'
import type { HostArray } from '../../language/values.js'
import { fault } from './faults.js'

/** A user's kernel with every dimension bound. */
export interface BoundKernel {
  readonly kernel: CudaSpec
  readonly reads: readonly BoundSpec[]
  readonly writes: readonly BoundSpec[]
  /** For each write, the read that it overwrites; undefined: fresh memory. */
  readonly donates: readonly (number | undefined)[]
  readonly tolerance: number
  /** Fills `writes`; a donated one holds its read's values already. */
  readonly reference: (reads: readonly HostArray[], writes: readonly HostArray[]) => void
}

type Dims = ReadonlyMap<string, number>

/** Operators that the compiler knows by name; all others go through the registry. */
export const structural: ReadonlySet<string> = new Set([
  'input',
  'param',
  'upload',
  'download',
  'peer',
  'delay',
  'window',
  'every',
  'hold',
  'kernel',
  'port',
])

/** Whether a value is the memory of the node's first input, or might be: a collective of one rank is the value itself. */
export const isView = (node: GraphNode): boolean =>
  operatorOf(node.op)?.mayBeView === true || communicatorOf(node)?.size === 1

export const operatorOf = (name: string): Operator | undefined => operators[name]

const attrsOf = (node: GraphNode): KernelAttrs => node.attrs as unknown as KernelAttrs

/** The reads that a kernel node donates, by index; needs no dimensions. */
export const donatedReads = (node: GraphNode): readonly number[] => [...donationsOf(attrsOf(node)).values()]

const bindPort = (
  { dtype, shape }: TensorSpec,
  own: Readonly<Record<string, number>>,
  dims: Dims,
): BoundSpec => ({
  dtype,
  shape: shape.map(dim => (typeof dim === 'number' ? dim : (own[dim] ?? dims.get(dim) ?? 1))),
})

const same = (a: BoundSpec, b: BoundSpec): boolean =>
  a.dtype === b.dtype && a.shape.length === b.shape.length && a.shape.every((dim, i) => dim === b.shape[i])

export const boundKernel = (node: GraphNode, reads: readonly BoundSpec[], dims: Dims): BoundKernel => {
  const attrs = attrsOf(node)
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

/** What is wrong with a kernel node once dimensions are bound: its ports, its donations, its launch. */
export const kernelFault = (
  node: GraphNode,
  reads: readonly BoundSpec[],
  dims: Dims,
): CompileError | undefined => {
  const attrs = attrsOf(node)
  const own = kernelDims(attrs, reads)
  const misfit = attrs.reads.findIndex(({ spec }, i) => !same(bindPort(spec, own, dims), reads[i]!))
  if (misfit >= 0) {
    const { name, spec } = attrs.reads[misfit]!
    const wanted = `${spec.dtype}[${bindPort(spec, own, dims).shape.join(', ')}] as the read ${name}`
    return fault(
      'ShapeMismatch',
      node.at,
      node.name,
      wanted,
      `${reads[misfit]!.dtype}[${reads[misfit]!.shape.join(', ')}]`,
      'bind the symbols of its reads so that they agree',
    )
  }
  const writes = attrs.writes.map(({ spec }) => bindPort(spec, own, dims))
  for (const [write, read] of donationsOf(attrs))
    if (!same(writes[write]!, reads[read]!))
      return fault(
        'ShapeMismatch',
        node.at,
        node.name,
        'a donated write of the type of its read',
        attrs.writes[write]!.name,
        'do not donate it',
      )
  const mistake = checkKernel(attrs, Object.fromEntries(dims), reads, writes)
  return mistake && fault(mistake._tag, node.at, node.name, mistake.wanted, mistake.found, mistake.next)
}
