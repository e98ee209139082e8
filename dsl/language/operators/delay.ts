import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { type Init, type StateOptions, stateNode } from './state.js'

/**
 * The previous value of the flow (of the previous tick, where the flow comes once a tick); `init` for the
 * first value. Adds a state on the device.
 */
export const delay = (init: Init, options?: StateOptions) => {
  const at = here()
  const later = (x: unknown): unknown => {
    const value = piped(x, 'device', at, 'delay')
    const first = value.builder.guesses.has(value.id) ? 0 : init
    return stateNode(value, at, 'delay', value.spec, { next: value.id, init: first, options })
  }
  return later as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
