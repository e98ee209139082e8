import { builderOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'

/** Copies a device value to the host, where an output must lie. The lane is the copy's alone; without one the value comes from the device that it is on. */
export const download = (lane?: Lane) => {
  const at = here()
  const copy = (x: unknown): unknown => {
    const builder = builderOf(x)
    const source = builder.take(x, 'device', at, 'download', 'the piped value', { dtype: 'f32', shape: [] })
    return builder.flow(
      {
        op: 'download',
        inputs: [source.id],
        spec: source.spec,
        place: 'host',
        lane: builder.lane(lane, at, 'download'),
        at,
      },
      source.hint,
    )
  }
  return copy as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'host', A>
}
