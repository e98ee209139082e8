import type { Where } from '../../dsl/ir/graph.js'
import type { ValueSpec } from '../values.js'
import { Handle, partsOf } from './handle.js'
import { ownOf } from './judge.js'
import { type Feeds, noFeeds } from './launch.js'
import * as messages from './messages.js'
import type { Steps } from './steps.js'

const hasSize = (value: unknown, { bytes, dtype }: ValueSpec): boolean => {
  if (Handle.is(value)) {
    const { spec } = partsOf(value)
    return spec.bytes === bytes && spec.dtype === dtype
  }
  return ArrayBuffer.isView(value) && value.byteLength === bytes
}

/** Whether all that is given has the sizes of these inputs. */
const haveSizes = (inputs: readonly ValueSpec[], given: Feeds): boolean =>
  inputs.every(spec => {
    const value = ownOf(given, spec.name)
    return value === undefined || hasSize(value, spec)
  })

/** The plan of a family that a launch is of: the one that may come now and takes what is given. */
export const pickShape = (
  at: Where,
  name: string,
  members: ReadonlyMap<string, string>,
  given: Feeds,
  steps: Steps,
  state: number,
): string => {
  const plans = [...members.values()]
  const feeds = typeof given === 'object' && given !== null ? given : noFeeds
  const sized = plans.filter(plan => haveSizes(steps.inputsOf(plan), feeds))
  const possible = plans.filter(plan => steps.mayCome(state, plan))
  const isWhole = (plan: string): boolean =>
    steps.find(at, state, plan).wanted.every(input => ownOf(feeds, input) !== undefined)
  const found = sized.find(plan => possible.includes(plan) && isWhole(plan))
  if (found !== undefined) return found
  // Why the plan of this size may not come, or what the only one that may come misses, is said as of any plan.
  const [only, ...more] = possible
  if (sized.length > 0 && !sized.some(plan => possible.includes(plan))) return sized[0]!
  if (more.length === 0) return only ?? plans[0]!
  const shapes = [...members].filter(([, plan]) => possible.includes(plan))
  throw messages.noShape(
    at,
    name,
    shapes.map(([key, plan]) => ({ key, inputs: steps.inputsOf(plan) })),
    given,
  )
}
