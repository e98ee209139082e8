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
 * Each rank of the group sends one part to each rank: part p of the value goes to place p, and the part
 * received from place p is part p of the result. The shape is unchanged; the leading dimension is the
 * communicator's size (else a `ShapeMismatch`). Takes any element type. Applied twice it yields the value
 * itself. `ncclAlltoAll`. The lane is the collective's alone: compute that follows it runs where `on`
 * decides.
 */
export const allToAll = <const N extends number>(world: Communicator<N>, lane?: Lane) => {
  const at = here()
  const exchange = (x: unknown): unknown => collective(allToAllOperator, at, x, world, lane)
  return exchange as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & LedBy<N, S>,
  ) => Device<D, S>
}
