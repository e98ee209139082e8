import type { Where } from '../../dsl/ir/graph.js'
import type { ValueSpec } from '../values.js'
import { Handle, partsOf } from './handle.js'
import type { Feeds } from './launch.js'
import * as messages from './messages.js'
import type { Step } from './steps.js'

const hasSize = (value: unknown, { bytes, dtype }: ValueSpec): boolean => {
  if (Handle.is(value)) {
    const { spec } = partsOf(value)
    return spec.bytes === bytes && spec.dtype === dtype
  }
  return ArrayBuffer.isView(value) && value.byteLength === bytes
}

/** Whether what is given is all that a step asks for, in its sizes. */
const fits = ({ host, resident, wanted }: Step, given: Feeds): boolean =>
  wanted.every(name => Object.hasOwn(given, name) && given[name] !== undefined) &&
  [...host, ...resident.map(({ spec }) => spec)].every(
    spec =>
      !Object.hasOwn(given, spec.name) || given[spec.name] === undefined || hasSize(given[spec.name], spec),
  )

/**
 * The plan of a family that a launch is of: the one that may come now and takes what is given. `stepOf` finds
 * its step, or nothing where it may not come.
 */
export const pickShape = (
  at: Where,
  name: string,
  members: ReadonlyMap<string, string>,
  given: Feeds,
  stepOf: (plan: string) => Step | undefined,
): string => {
  const steps = [...members.values()].map(stepOf)
  if (typeof given === 'object' && given !== null)
    for (const step of steps) if (step !== undefined && fits(step, given)) return step.plan.name
  const possible = steps.filter(step => step !== undefined)
  // What is wrong with the one that may come, or why none may, is said as of any other plan.
  const [only, ...more] = possible
  if (only === undefined) return [...members.values()][0]!
  if (more.length === 0) return only.plan.name
  throw messages.noShape(
    at,
    name,
    possible.map(({ plan, host, resident }) => ({
      key: plan.family!.key,
      inputs: [...host, ...resident.map(({ spec }) => spec)],
    })),
    given,
  )
}
