import { FlowValue, piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here, hereOnDemand } from '../where.js'

/** Lanes that a graph took as they are. */
const taken = new WeakSet<object>()

const isTaken = (lane: unknown): boolean => typeof lane === 'object' && lane !== null && taken.has(lane)

/**
 * Runs the compute that follows in this pipe on a lane, or on any lane of a device: `on(device(1))` (compare
 * RxJS's `observeOn`). Adds no node: the value stays on its device, and a reader on another device gets a
 * copy there.
 */
export const on = (lane: Lane) => {
  // Finding the place takes longer than all else. Of a lane that was taken before hardly anything can be
  // wrong: then the place of the pipe is found.
  const at = isTaken(lane) ? hereOnDemand() : here()
  const hinted = (x: unknown): unknown => {
    const { builder, id, spec, place } = piped(x, 'device', at, 'on')
    const hint = builder.lane(lane ?? null, at, 'on')
    if (hint !== undefined && hint === lane) taken.add(hint)
    return new FlowValue(builder, id, spec, place, hint)
  }
  return hinted as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
