import { builderOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import { show } from '../show.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'

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
    const ahead: unknown = options?.ahead
    const known = typeof ahead === 'number' && Number.isSafeInteger(ahead) && ahead >= 0
    if (ahead !== undefined && !known)
      builder.problem(at, 'upload', {
        _tag: 'BadAttribute',
        wanted: 'ahead: a whole number from 0',
        found: show(ahead),
        next: 'say how many uploads may run ahead of their reader, as in { ahead: 1 }',
      })
    if (known && builder.nodes[source.id]?.op === 'after')
      builder.problem(at, 'upload', {
        _tag: 'BadAttribute',
        wanted: 'ahead, or after, but not both',
        found: `ahead: ${show(ahead)}, of a value that comes after something`,
        next: 'leave one of them out: each says when the upload is issued',
      })
    return builder.flow(
      {
        op: 'upload',
        name: builder.nodes[source.id]?.name ?? 'upload',
        inputs: [source.id],
        attrs: known ? { ahead } : {},
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
