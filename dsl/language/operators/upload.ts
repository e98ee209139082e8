import { builderOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { aheadOf } from './ahead.js'

export interface UploadOptions {
  /** Of a host parameter: how many uploads of its window may be issued before their reader; at most `ahead + 1` are in memory. */
  readonly ahead?: number
}

/**
 * Copies a host value to the device, on a lane of its own choosing where none is given. The lane is the copy's alone: compute
 * that follows goes where `on` says. Parameters with one `ahead` on one lane form a window.
 *
 * Of several devices it is that of the lane; `upload(device(1))` says no more than the device. Where nothing is said it is the one that the value is read on most.
 */
export const upload = (lane?: Lane, options?: UploadOptions) => {
  const at = here()
  const copy = (x: unknown): unknown => {
    const builder = builderOf(x)
    const source = builder.take(x, 'host', at, 'upload', 'the piped value', { dtype: 'f32', shape: [] })
    const ahead = aheadOf(builder, at, 'upload', options, source)
    return builder.flow(
      {
        op: 'upload',
        name: builder.nodes[source.id]?.name ?? 'upload',
        inputs: [source.id],
        attrs: ahead,
        spec: source.spec,
        place: 'device',
        lane: builder.lane(lane, at, 'upload'),
        at,
      },
      source.hint,
    )
  }
  return copy as <A extends AnyTensor>(x: Flow<'host', A>) => Flow<'device', A>
}
