import type { GraphNode } from '../../ir/graph.js'
import type { AttentionSpec, MapSpec, MatmulSpec } from '../../ir/kernel-spec.js'
import type { BoundSpec } from '../../ir/tensor.js'

/** The attributes of a node that the pass `fuse` made of several. */
export interface FusedAttrs {
  readonly kernel: MapSpec | AttentionSpec | MatmulSpec
  readonly flops: number
  readonly movedBytes: number
  /** Absent: 0. */
  readonly workspace?: number
  readonly tolerance: number
  /** What it writes beside its own value, in order. */
  readonly results: readonly { readonly name: string; readonly spec: BoundSpec }[]
  /** The names of the nodes. */
  readonly members: readonly string[]
}

export const fusedAttrs = (node: GraphNode): FusedAttrs => node.attrs as unknown as FusedAttrs
