import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { aheadOf } from './ahead.js'

export interface UploadOptions {
  /**
   * Of a host parameter: how many uploads of its window may be issued before their reader; at most `ahead +
   * 1` are in memory.
   */
  readonly ahead?: number
}

/**
 * Copies a host value to the device, on a lane that the compiler chooses where none is given. The lane is the
 * copy's alone: compute that follows it runs where `on` decides. Parameters with one `ahead` on one lane form
 * a window.
 *
 * The lane determines the device; `upload(device(1))` gives the device alone. Without either the value goes
 * to the device that reads it most.
 */
export const upload = (lane?: Lane, options?: UploadOptions) => {
  const at = here()
  const copy = (x: unknown): unknown => {
    const source = piped(x, 'host', at, 'upload')
    const { builder, id, spec, hint } = source
    const attrs = aheadOf(source, at, 'upload', options)
    const own = builder.lane(lane, at, 'upload')
    const name = builder.nodes[id]?.name ?? 'upload'
    return builder.flow(
      { op: 'upload', name, inputs: [id], attrs, spec, place: 'device', lane: own, at },
      hint,
    )
  }
  return copy as <A extends AnyTensor>(x: Flow<'host', A>) => Flow<'device', A>
}
