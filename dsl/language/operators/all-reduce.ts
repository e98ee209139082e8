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
 * The values of all ranks of the group, reduced element by element; every rank gets the same result. Takes
 * any shape and element type and keeps both; `'mean'` takes floats only (else a `DTypeMismatch`). Whole
 * numbers wrap. `ncclAllReduce`. The lane is the collective's alone: compute that follows it runs where `on`
 * decides.
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
