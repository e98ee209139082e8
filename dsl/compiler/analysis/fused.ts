import type { GraphNode } from '../../ir/graph.js'
import type { MapSpec } from '../../ir/kernel-spec.js'

/** The attributes of a node that the pass `fuse` made of several. */
export interface FusedAttrs {
  readonly kernel: MapSpec
  readonly flops: number
  readonly movedBytes: number
  readonly tolerance: number
  /** The names of the nodes. */
  readonly members: readonly string[]
}

export const fusedAttrs = (node: GraphNode): FusedAttrs => node.attrs as unknown as FusedAttrs
