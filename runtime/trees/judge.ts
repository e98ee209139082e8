import type { HostArray } from '../../dsl/index.js'
import type { Where } from '../../dsl/ir/graph.js'
import { describe, fill, type ValueSpec } from '../values.js'
import { Handle, type HandleOwner, partsOf } from './handle.js'
import { type Admitted, type Feeds, noFeeds, type Stage } from './launch.js'
import * as messages from './messages.js'
import type { Copy, Step } from './steps.js'

const noValues: ReadonlyMap<string, HostArray> = new Map()
const nothing: readonly never[] = Object.freeze([])

/** An input may have the name of something that every object inherits. */
const ownOf = (given: Feeds, name: string): unknown => (Object.hasOwn(given, name) ? given[name] : undefined)

/** What a launch is given, checked: every input is in the arena, or to be moved there, or the host's. */
export const judge = (at: Where, step: Step, given: Feeds, owner: HandleOwner): Admitted => {
  checkNames(at, step, given)
  const feeds = step.host.length === 0 ? noValues : hostValues(at, step, given)
  if (given === noFeeds) return { step, feeds, stages: nothing, copies: step.moves }
  const stages: Stage[] = []
  let copies = step.moves
  for (const { spec, to, isKept } of step.resident) {
    const value = ownOf(given, spec.name)
    if (value === undefined) continue
    if (isKept) throw keptInput(at, step, spec)
    copies = copies.filter(copy => copy.to !== to)
    if (Handle.is(value)) {
      const from = placeOf(at, step, spec, value, owner)
      if (from !== to) copies = [...copies, { from, to, bytes: spec.bytes } satisfies Copy]
      continue
    }
    const mismatch = fill(undefined, value, spec)
    if (mismatch) throw messages.wrongFeed(at, step.plan.name, spec.name, mismatch)
    stages.push({ to, spec, value: (value as HostArray).slice() as HostArray })
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

/** A value that is kept beyond this launch cannot be replaced: a later plan waits for it. */
const keptInput = (at: Where, { plan }: Step, { name }: ValueSpec): messages.TreeError =>
  messages.wrongFeed(at, plan.name, name, {
    wanted: 'no value: the one in the arena is kept for a later plan',
    found: 'another value',
    next: 'leave it out',
  })

const placeOf = (at: Where, { plan }: Step, spec: ValueSpec, handle: Handle, owner: HandleOwner): number => {
  const { owner: its, slot, spec: own } = partsOf(handle)
  if (its !== owner || own.bytes !== spec.bytes || own.dtype !== spec.dtype)
    throw messages.foreignHandle(at, plan.name, spec.name)
  handle.check(at)
  return slot.from
}
