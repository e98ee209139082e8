// What gradients of largest and smallest values share: of a reduction, of pooling and among ranks.

import type { FlowValue } from '../builder.js'
import type { Backward } from './backward.js'

/** 1 for each element that is the extreme beside it, else 0; NaN where the extreme is NaN. */
export const pickedOf = (x: FlowValue, extreme: FlowValue, make: Backward): FlowValue =>
  // Counts of f16 end at 65,504, and of bf16 at 256.
  make.cast(
    make.map((a, y) => a.eq(y).select(1, y.eq(y).select(0, y)), make.here(x), extreme),
    'f32',
  )

/**
 * The gradient of an extreme for the elements that it is of: those that equal it share it equally. Where it is
 * NaN, so is the gradient of all. `counted` adds up how many there are.
 */
export const shared = (
  x: FlowValue,
  extreme: FlowValue,
  gradient: FlowValue,
  make: Backward,
  counted: (picked: FlowValue) => FlowValue,
): FlowValue => {
  const picked = pickedOf(x, extreme, make)
  const wide = make.cast(gradient, 'f32')
  const share = make.map((p, g, n) => p.select(g.div(n), 0), make.here(picked), wide, counted(picked))
  return make.cast(share, x.spec.dtype)
}
