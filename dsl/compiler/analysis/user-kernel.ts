import type { CompileError, GraphNode } from '../../ir/graph.js'
import type { BoundSpec } from '../../ir/tensor.js'
import * as kernels from '../../language/bound-kernel.js'
import { fault } from './faults.js'
import { kernelAttrs } from './operators.js'

export type { BoundKernel } from '../../language/bound-kernel.js'

type Dims = ReadonlyMap<string, number>

/** The kernel of a node with every dimension bound. */
export const boundKernel = (node: GraphNode, reads: readonly BoundSpec[], dims: Dims): kernels.BoundKernel =>
  kernels.boundKernel(kernelAttrs(node), reads, Object.fromEntries(dims))

/**
 * The error of a kernel node once dimensions are bound, if any: in its ports, its donations or its launch.
 */
export const kernelFault = (
  node: GraphNode,
  reads: readonly BoundSpec[],
  dims: Dims,
): CompileError | undefined => {
  const error = kernels.kernelError(kernelAttrs(node), reads, Object.fromEntries(dims))
  return error && fault(error._tag, node.at, node.name, error.wanted, error.found, error.next)
}
