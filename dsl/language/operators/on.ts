import { FlowValue, piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'

/**
 * Runs the compute that follows in this pipe on a lane, or on any lane of a device: `on(device(1))` (compare
 * RxJS's `observeOn`). Adds no node: the value stays on its device, and a reader on another device gets a
 * copy there.
 */
export const on = (lane: Lane) => {
  const at = here()
  const hinted = (x: unknown): unknown => {
    const { builder, id, spec, place } = piped(x, 'device', at, 'on')
    return new FlowValue(builder, id, spec, place, builder.lane(lane ?? null, at, 'on'))
  }
  return hinted as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
