import type { HostArray } from '../../dsl/index.js'
import type { Instead } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import { copied, describe, fill, type ValueSpec } from '../values.js'
import { Handle, type HandleOwner, partsOf } from './handle.js'
import { type Admitted, type Feeds, noFeeds, type Stage } from './launch.js'
import * as messages from './messages.js'
import type { Copy, ResidentInput, Step } from './steps.js'

const noValues: ReadonlyMap<string, HostArray> = new Map()
const nothing: readonly never[] = Object.freeze([])

/** An input may have the name of something that every object inherits. */
export const ownOf = (given: Feeds, name: string): unknown =>
  Object.hasOwn(given, name) ? given[name] : undefined

/**
 * The step of the launch; with `instead`, where inputs get other values than those that are kept for them.
 */
export type FindStep = (instead?: Instead) => Step

/** What a launch is given, checked: every input is in the arena, or to be moved there, or the host's. */
export const judge = (at: Where, find: FindStep, given: Feeds, owner: HandleOwner): Admitted => {
  const step = find()
  checkNames(at, step, given)
  const feeds = step.host.length === 0 ? noValues : hostValues(at, step, given)
  if (given === noFeeds) return { step, feeds, stages: nothing, copies: step.moves }
  const values = residentValues(at, step, given, owner)
  const instead = new Map<string, number | undefined>()
  for (const [{ spec, to, isKept }, value] of values)
    if (isKept && value !== to) instead.set(spec.name, typeof value === 'number' ? value : undefined)
  return placed(instead.size === 0 ? step : find(instead), feeds, values)
}

type GivenValue = readonly [input: ResidentInput, value: number | HostArray]

/** The values that are given for inputs that may lie in the arena: where they lie there, or arrays. */
const residentValues = (at: Where, step: Step, given: Feeds, owner: HandleOwner): readonly GivenValue[] =>
  step.resident.flatMap((input): readonly GivenValue[] => {
    const { spec } = input
    const value = ownOf(given, spec.name)
    if (value === undefined) return []
    if (Handle.is(value)) return [[input, placeOf(at, step, spec, value, owner)]]
    const mismatch = fill(undefined, value, spec)
    if (mismatch) throw messages.wrongFeed(at, step.plan.name, spec.name, mismatch)
    return [[input, copied(value as HostArray)]]
  })

/** What is copied to where the step has its inputs. */
const placed = (
  step: Step,
  feeds: ReadonlyMap<string, HostArray>,
  values: readonly GivenValue[],
): Admitted => {
  const stages: Stage[] = []
  let copies = step.moves
  for (const [{ spec }, value] of values) {
    const to = step.layout.inputs.get(spec.name)!
    copies = copies.filter(copy => copy.to !== to)
    if (typeof value !== 'number') stages.push({ to, spec, value })
    else if (value !== to) copies = [...copies, { from: value, to, bytes: spec.bytes } satisfies Copy]
  }
  return { step, feeds, stages, copies }
}

const checkNames = (at: Where, { plan, wanted, known }: Step, given: Feeds): void => {
  if (typeof given !== 'object' || given === null)
    throw messages.wrongFeed(at, plan.name, 'feeds', {
      wanted: 'an object of values by name',
      found: describe(given),
      next: 'pass { x: … }, or nothing where the plan has no input from the host',
    })
  const isGiven = wanted.every(input => ownOf(given, input) !== undefined)
  if (isGiven && (given === noFeeds || Object.keys(given).every(input => known.has(input)))) return
  const missing = wanted.filter(input => ownOf(given, input) === undefined)
  const extra = Object.keys(given).filter(input => !known.has(input))
  throw messages.wrongFeeds(at, plan.name, missing, extra, wanted)
}

const hostValues = (at: Where, { plan, host }: Step, given: Feeds): ReadonlyMap<string, HostArray> => {
  const feeds = new Map<string, HostArray>()
  for (const spec of host) {
    const value = ownOf(given, spec.name)
    if (Handle.is(value)) throw messages.noHandle(at, plan.name, spec.name)
    const mismatch = fill(undefined, value, spec)
    if (mismatch) throw messages.wrongFeed(at, plan.name, spec.name, mismatch)
    feeds.set(spec.name, value as HostArray)
  }
  return feeds
}

const placeOf = (at: Where, { plan }: Step, spec: ValueSpec, handle: Handle, owner: HandleOwner): number => {
  const { owner: its, slot, spec: own } = partsOf(handle)
  if (its !== owner || own.bytes !== spec.bytes || own.dtype !== spec.dtype)
    throw messages.foreignHandle(at, plan.name, spec.name)
  handle.check(at)
  return slot.from
}
