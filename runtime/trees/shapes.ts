import type { ByShape, Keep } from '../../dsl/index.js'
import { mixedShapes, type TreeFault } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { ValueSpec } from '../values.js'
import { Handle, partsOf } from './handle.js'
import type { Feeds } from './launch.js'
import * as messages from './messages.js'
import type { TreeSpec } from './prepare.js'
import type { Step } from './steps.js'

/** By name of a plan by shape, and by key: the name of the plan of that shape. */
export type Families = ReadonlyMap<string, ReadonlyMap<string, string>>

export interface FamilyMember {
  readonly name: string
  readonly key: string
}

/** The name and the key of the plan of one shape. */
export const memberOf = (families: Families, plan: string): FamilyMember | undefined => {
  for (const [name, members] of families)
    for (const [key, member] of members) if (member === plan) return { name, key }
  return undefined
}

const isByShape = (plan: Plan | ByShape): plan is ByShape =>
  typeof plan === 'object' && plan !== null && 'shapes' in plan

/** A name that no other plan has. */
const freeName = (name: string, taken: ReadonlyMap<string, unknown>): string =>
  taken.has(name) ? freeName(`${name}'`, taken) : name

/** The tree with a plan for each shape: what is said of a name holds for each of them, within one key. */
export const eachShape = (
  given: ReadonlyMap<string, Plan | ByShape>,
  { start, then, keep }: Omit<TreeSpec, 'plans' | 'families'>,
): TreeSpec => {
  const families = new Map<string, ReadonlyMap<string, string>>()
  const plans = new Map<string, Plan>()
  for (const [name, plan] of given) {
    if (!isByShape(plan)) {
      plans.set(name, plan)
      continue
    }
    const members = new Map<string, string>()
    for (const [key, own] of Object.entries(plan.shapes)) {
      const member = freeName(`${name}/${key}`, given)
      members.set(key, member)
      plans.set(member, own)
    }
    families.set(name, members)
  }
  if (families.size === 0) return { plans, families, start, then, keep }
  /** The plans that a name stands for, seen from a plan of some key. */
  const seen = (name: string, key: string | undefined): readonly string[] => {
    const members = families.get(name)
    if (members === undefined) return [name]
    const own = key === undefined ? [...members.values()] : [members.get(key)]
    return own.filter(member => member !== undefined)
  }
  const each = <A>(
    by: ReadonlyMap<string, A>,
    of: (value: A, key: string | undefined) => A,
  ): Map<string, A> =>
    new Map(
      [...by].flatMap(([name, value]) => {
        const members = families.get(name)
        return members === undefined
          ? [[name, of(value, undefined)] as const]
          : [...members].map(([key, member]) => [member, of(value, key)] as const)
      }),
    )
  const until = (how: Keep, key: string | undefined): Keep =>
    how.lives === 'until' && key !== undefined ? { ...how, plan: seen(how.plan, key)[0] ?? how.plan } : how
  return {
    plans,
    families,
    start: start.flatMap(name => seen(name, undefined)),
    then: each(then, (next, key) => next.flatMap(name => seen(name, key))),
    keep: each(
      keep,
      (outputs, key) => new Map([...outputs].map(([output, how]) => [output, until(how, key)] as const)),
    ),
  }
}

const portsOf = ({ buffers }: Plan, life: PlanBuffer['life']): readonly PlanBuffer[] =>
  buffers.filter(buffer => buffer.life === life && buffer.alias === undefined)
const typesOf = (plan: Plan): string =>
  (['input', 'output'] as const)
    .flatMap(life => portsOf(plan, life).map(({ name, dtype }) => `${life} ${name}: ${dtype}`))
    .sort()
    .join(', ')
const sizesOf = (plan: Plan): string =>
  portsOf(plan, 'input')
    .map(({ name, shape }) => `${name} [${shape}]`)
    .sort()
    .join(', ')

/** Plans under one name have the same ports, and inputs whose shapes tell them apart. */
export const familyFaults = (families: Families, plans: ReadonlyMap<string, Plan>): readonly TreeFault[] =>
  [...families].flatMap(([name, members]) => {
    const all = [...members].map(([key, member]) => ({ key, plan: plans.get(member)! }))
    const [first, ...others] = all
    const other = others.find(({ plan }) => typesOf(plan) !== typesOf(first!.plan))
    if (other !== undefined)
      return [
        mixedShapes(
          name,
          `the ports of its shape ${first!.key} for each shape: ${typesOf(first!.plan)}`,
          `of its shape ${other.key}: ${typesOf(other.plan)}`,
          'give plans with other ports names of their own',
        ),
      ]
    const twin = all.find(({ plan }, i) => all.slice(0, i).some(one => sizesOf(one.plan) === sizesOf(plan)))
    if (twin === undefined) return []
    const sizes = sizesOf(twin.plan)
    return [
      mixedShapes(
        name,
        'inputs whose shapes tell its plans apart',
        `two plans of ${sizes === '' ? 'no inputs' : sizes}, one of them its shape ${twin.key}`,
        'leave one out, or give it a name of its own',
      ),
    ]
  })

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
