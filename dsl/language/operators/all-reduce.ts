import type { DType } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Lane } from '../lane.js'
import { here } from '../where.js'
import { collective, collectiveOperator } from './collective.js'
import { inferJoined, type Joins, joined, joinTolerance, type ReduceOp, reduceOpOf } from './reduce-op.js'
import type { Device, Shape } from './types.js'

export const allReduceOperator = collectiveOperator({
  name: 'allReduce',
  infer: (x, _size, attrs) => inferJoined(x, attrs),
  exchange: (given, spec, _output, attrs) => {
    const total = joined(given, spec, attrs)
    return given.map(() => total)
  },
  tolerance: joinTolerance,
})

/**
 * The values of all ranks of the group, joined element by element: every rank gets the same. Of any shape, which stays; of any element type, but `'mean'` is of
 * floats (a `DTypeMismatch` else). Whole numbers wrap. `ncclAllReduce`. The lane is the collective's alone: compute that follows goes where `on` says.
 */
export const allReduce = <const N extends number, const H extends ReduceOp>(
  world: Communicator<N>,
  how: H,
  lane?: Lane,
) => {
  const at = here()
  const reduce = (x: unknown): unknown => collective(allReduceOperator, at, x, world, lane, reduceOpOf(how))
  return reduce as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Joins<H, D>,
  ) => Device<D, S>
}
