import type { ByShape, Keep } from '../../dsl/index.js'
import { mixedShapes, type TreeFault } from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'

/**
 * A tree as data: what `tree` makes, whatever its types. Names are any text, so they are keys of maps. A plan by
 * shape is there as one plan for each of its keys.
 */
export interface TreeSpec {
  readonly plans: ReadonlyMap<string, Plan>
  readonly families: Families
  readonly start: readonly string[]
  readonly then: ReadonlyMap<string, readonly string[]>
  readonly keep: ReadonlyMap<string, ReadonlyMap<string, Keep>>
}

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
