import type { PlanNode } from '../ir/plan.js'

/**
 * Whether the runs of a node may be nodes of an executable graph. A collective may not: its launch is matched
 * with launches of other ranks, in an order that a graph does not keep.
 */
export const isGraphNode = ({ collective }: PlanNode): boolean => collective === undefined
