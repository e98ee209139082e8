import { type DType, elements } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Lane } from '../lane.js'
import { here } from '../where.js'
import { collective, collectiveOperator, parted, partsOf } from './collective.js'
import type { Device, LedBy, Shape } from './types.js'
import { windowReference } from './window.js'

export const allToAllOperator = collectiveOperator({
  name: 'allToAll',
  infer: (x, size) => parted(x, size, 'allToAll'),
  count: ({ shape }) => elements(shape.slice(1)),
  exchange: given => {
    const parts = given.map(value => partsOf(value, given.length))
    return given.map((_, place) => windowReference(parts.map(own => own[place]!)))
  },
})

/**
 * Each rank of the group gives each a part: part p of the value goes to place p, and what came from place p is part p of the result. `[size, …shape]` stays
 * `[size, …shape]`; the leading dimension is the communicator's size (a `ShapeMismatch` else). Of any element type. Twice is the value itself. `ncclAlltoAll`. The
 * lane is the collective's alone: compute that follows goes where `on` says.
 */
export const allToAll = <const N extends number>(world: Communicator<N>, lane?: Lane) => {
  const at = here()
  const exchange = (x: unknown): unknown => collective(allToAllOperator, at, x, world, lane)
  return exchange as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & LedBy<N, S>,
  ) => Device<D, S>
}
