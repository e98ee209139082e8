import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type DType, elements } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Lane } from '../lane.js'
import { here } from '../where.js'
import { collective, collectiveOperator, parted, partsOf } from './collective.js'
import { inferJoined, type Joins, joined, joinTolerance, type ReduceOp, reduceOpOf } from './reduce-op.js'
import type { Device, LedBy, Shape, Unled } from './types.js'

export const reduceScatterOperator = collectiveOperator({
  name: 'reduceScatter',
  infer: (x, size, attrs) =>
    pipe(
      parted(x, size, 'reduceScatter'),
      E.chain(whole => inferJoined(whole, attrs)),
      E.map(({ dtype, shape }) => ({ dtype, shape: shape.slice(1) })),
    ),
  count: (_input, output) => elements(output.shape),
  exchange: (given, spec, _output, attrs) => partsOf(joined(given, spec, attrs), given.length),
  tolerance: joinTolerance,
})

/**
 * The values of all ranks of the group, reduced element by element, of which each rank gets its part: `[size,
 * …shape]` becomes `[…shape]`, the part at the rank's place. The leading dimension is the communicator's size
 * (else a `ShapeMismatch`). Takes any element type; `'mean'` takes floats only (else a `DTypeMismatch`).
 * Whole numbers wrap. `ncclReduceScatter`. The lane is the collective's alone: compute that follows it runs
 * where `on` decides.
 */
export const reduceScatter = <const N extends number, const H extends ReduceOp>(
  world: Communicator<N>,
  how: H,
  lane?: Lane,
) => {
  const at = here()
  const reduce = (x: unknown): unknown =>
    collective(reduceScatterOperator, at, x, world, lane, reduceOpOf(how))
  return reduce as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & LedBy<N, S> & Joins<H, D>,
  ) => Device<D, Unled<S>>
}
