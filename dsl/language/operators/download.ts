import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'

/**
 * Copies a device value to the host, where an output is an array. The lane is the copy's alone; without one
 * the value comes from the device that it is on.
 */
export const download = (lane?: Lane) => {
  const at = here()
  const copy = (x: unknown): unknown => {
    const { builder, id, spec, hint } = piped(x, 'device', at, 'download')
    const own = builder.lane(lane, at, 'download')
    return builder.flow({ op: 'download', inputs: [id], spec, place: 'host', lane: own, at }, hint)
  }
  return copy as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'host', A>
}
