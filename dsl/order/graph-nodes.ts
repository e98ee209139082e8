import type { PlanNode } from '../ir/plan.js'

/**
 * Why the runs of a node cannot be nodes of an executable graph; undefined: they can. A collective's launch
 * is matched with launches of other ranks, in an order that a graph does not keep.
 */
export const whyNoNode = ({ collective, kernel }: PlanNode): string | undefined => {
  if (collective !== undefined) return 'a collective, whose launch is matched with those of other ranks'
  if (kernel?.kind === 'cuda' && kernel.graph === false) return 'its kernel says that it is in no graph'
  return undefined
}
