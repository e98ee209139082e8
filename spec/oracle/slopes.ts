// What a loss changes by, from its values in f64 alone: one of the two bounds is the slope on the left, the
// other on the right. At a corner a gradient is any number between them; elsewhere they are equal.

import type { GraphIR, GraphNode } from '../../dsl/ir/graph.js'
import { elements } from '../../dsl/ir/tensor.js'
import { operators } from '../../dsl/language/operators/registry.js'
import { evaluator, type Point } from './values.js'

export type Slopes = readonly (readonly [left: number, right: number])[]

export interface Losses {
  /** The nodes that the loss is made of. */
  readonly nodes: readonly GraphNode[]
  /** The sum of the losses of all ranks. */
  readonly at: (ranks: readonly Point[]) => number
  /** The largest magnitude of what is computed on the way. */
  readonly largest: (ranks: readonly Point[]) => number
  /** The slopes by one value of one rank: of all of its elements, or of these. `near`: the step, of a value of 1. */
  readonly slopes: (
    ranks: readonly Point[],
    rank: number,
    name: string,
    which?: readonly number[],
    near?: number,
  ) => Slopes
}

// Draws are constants. Each is the first of its counter.
const drawn = ({ attrs, spec }: GraphNode): ArrayLike<number> => {
  const shape = spec.shape as readonly number[]
  const types = [{ dtype: 'i32', shape: [] }] as const
  return operators['random']!.reference(
    [Int32Array.of(0), Int32Array.of(0)],
    types,
    { dtype: 'f32', shape: [elements(shape)] },
    attrs,
  )
}

export const lossesOf = (ir: GraphIR, output = 'loss'): Losses => {
  const { nodes, run, largest } = evaluator(ir, output, drawn)
  const at = (ranks: readonly Point[]) => run(ranks).reduce((sum, { data }) => sum + data[0]!, 0)
  const slopes: Losses['slopes'] = (ranks, rank, name, which, near = 2 ** -18) => {
    const own = Float64Array.from(ranks[rank]![name]!)
    const moved = ranks.map((point, r) => (r === rank ? { ...point, [name]: own } : point))
    const here = at(moved)
    return (which ?? Array.from(own, (_, i) => i)).map(i => {
      const value = own[i]!
      const step = near * Math.max(1, 2 ** Math.floor(Math.log2(Math.abs(value) || 1)))
      const loss = (to: number): number => {
        own[i] = to
        return at(moved)
      }
      const bounds = [(here - loss(value - step)) / step, (loss(value + step) - here) / step] as const
      own[i] = value
      return bounds
    })
  }
  return { nodes, at, largest, slopes }
}
