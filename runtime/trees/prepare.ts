import * as E from 'fp-ts/lib/Either.js'
import type { ByShape, Keep } from '../../dsl/index.js'
import {
  bodyOf,
  type LaidOutTree,
  type Lifetime,
  layOutTree,
  type Member,
  type PlanBody,
  proofOf,
  residentPlan,
  type TreeFault,
  treeFormFault,
  unknownPlan,
  verifyLoaded,
} from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { DeviceError } from '../errors.js'
import { checkedPlan, unrunnable } from '../session/check-plan.js'
import { brokenLaws } from '../session/messages.js'
import {
  eachShape,
  type Families,
  type FamilyMember,
  familyFaults,
  memberOf,
  type TreeSpec,
} from './families.js'
import { notATree } from './messages.js'

/** What the argument of `planTree` says, or what of it has another form than a tree. */
export const readTree = (given: unknown): E.Either<DeviceError, TreeSpec> => {
  const fault = treeFormFault(given)
  if (fault !== undefined) return E.left(notATree(fault))
  const { plans, start, then, keep } = given as Readonly<Record<'plans' | 'then' | 'keep', object>> & {
    readonly start: readonly string[]
  }
  const all = entriesOf<Plan | ByShape>(plans)
  return E.right(
    eachShape(all, {
      start,
      then: entriesOf<readonly string[]>(then),
      keep: new Map([...entriesOf<object>(keep)].map(([plan, outputs]) => [plan, entriesOf<Keep>(outputs)])),
    }),
  )
}

const entriesOf = <A>(object: object): ReadonlyMap<string, A> =>
  new Map(Object.entries(object).filter(([, value]) => value !== undefined))

/** A plan of the tree, with its ports moved to the arena and everything laid out. */
export interface PreparedPlan {
  readonly name: string
  /** Of a plan by shape: the name that all its shapes have, and the key of this one. */
  readonly family?: FamilyMember
  /** As it was compiled: its provenance is known by it. */
  readonly source: Plan
  readonly body: PlanBody
  /** Outputs that each launch copies out of the arena. */
  readonly owned: ReadonlySet<string>
}

export interface PreparedTree {
  readonly plans: readonly PreparedPlan[]
  readonly families: Families
  readonly start: readonly number[]
  readonly next: readonly (readonly number[])[]
  readonly layouts: LaidOutTree
}

/** Every error of the tree and of its plans, or all of its layouts, each of them proved. */
export const prepareTree = (
  spec: TreeSpec,
  variants: number | undefined,
): E.Either<readonly DeviceError[], PreparedTree> => {
  const names = [...spec.plans.keys()]
  const faults = namesFaults(spec, names)
  if (faults.length > 0) return E.left(faults.map(asDeviceError))
  const errors: DeviceError[] = []
  const checked = new Map<string, Plan>()
  for (const [name, plan] of spec.plans) {
    const result = checkedPlan(plan)
    if (E.isLeft(result)) errors.push(...result.left)
    else {
      errors.push(...unrunnable(result.right))
      checked.set(name, result.right)
    }
  }
  if (errors.length > 0) return E.left(errors)
  const mixed = familyFaults(spec.families, checked)
  if (mixed.length > 0) return E.left(mixed.map(asDeviceError))
  const ports = new Ports(spec, checked)
  const plans: PreparedPlan[] = []
  for (const [name, source] of checked) {
    const resident = residentPlan(source, { inputs: ports.given(name), outputs: ports.staying(name) })
    if (E.isLeft(resident)) errors.push(...resident.left.map(asDeviceError))
    else {
      const family = memberOf(spec.families, name)
      const body = bodyOf(resident.right)
      plans.push({
        name,
        source,
        body,
        owned: ports.owned(name),
        ...(family === undefined ? {} : { family }),
      })
    }
  }
  if (errors.length > 0) return E.left(errors)
  const indices = (list: readonly string[]): readonly number[] => list.map(name => names.indexOf(name))
  const next = names.map(name => indices(spec.then.get(name) ?? []))
  const members = plans.map(
    ({ name, body }, i): Member => ({
      body: body.body,
      next: next[i]!,
      lifetimes: ports.lifetimes(name, names),
    }),
  )
  const layouts = layOutTree({
    members,
    start: indices(spec.start),
    carries: (from, output, to, input) => output === input && ports.carries(names[from]!, names[to]!, input),
    ...(variants === undefined ? {} : { variants }),
  })
  const prepared = { plans, families: spec.families, start: indices(spec.start), next, layouts }
  const broken = layouts.nodes.flatMap((_, node) => brokenBy(prepared, node))
  return broken.length > 0 ? E.left(broken) : E.right(prepared)
}

/** The laws that a node breaks: none, or the planning of trees is at fault. */
export const brokenBy = ({ plans, layouts }: PreparedTree, node: number): readonly DeviceError[] => {
  const { plan, layout, contract } = layouts.nodes[node]!
  const proof = proofOf(plans[plan]!.body, layout, contract.kept)
  const [first, ...others] = verifyLoaded(proof, { safety: true })
  return first === undefined ? [] : [brokenLaws(proof, [first, ...others])]
}

const asDeviceError = (fault: TreeFault): DeviceError => ({ ...fault, _tag: 'BadPlan' })

const namesFaults = ({ start, then, keep }: TreeSpec, names: readonly string[]): readonly TreeFault[] => {
  const wrong = (at: string, given: readonly string[]): readonly TreeFault[] =>
    given.filter(name => !names.includes(name)).map(name => unknownPlan(at, name, names))
  return [
    ...wrong('start', start),
    ...wrong('then', [...then.keys()]),
    ...[...then].flatMap(([name, next]) => wrong(`then.${name}`, next)),
    ...wrong('keep', [...keep.keys()]),
    ...[...keep].flatMap(([name, outputs]) =>
      [...outputs].flatMap(([output, how]) =>
        how.lives === 'until' ? wrong(`keep.${name}.${output}`, [how.plan]) : [],
      ),
    ),
  ]
}

/** Which ports of which plans lie in the arena. */
class Ports {
  constructor(
    private readonly spec: TreeSpec,
    private readonly plans: ReadonlyMap<string, Plan>,
  ) {}

  private port(plan: string, life: 'input' | 'output', name: string): PlanBuffer | undefined {
    return this.plans
      .get(plan)!
      .buffers.find(buffer => buffer.life === life && buffer.alias === undefined && buffer.name === name)
  }

  private names(plan: string, life: 'input' | 'output'): readonly string[] {
    return this.plans
      .get(plan)!
      .buffers.filter(buffer => buffer.life === life && buffer.alias === undefined)
      .map(({ name }) => name)
  }

  /** Whether the output of one plan has the type of the input of that name of another one. */
  carries(from: string, to: string, name: string): boolean {
    const made = this.port(from, 'output', name)
    const read = this.port(to, 'input', name)
    return (
      made !== undefined &&
      read !== undefined &&
      made.bytes === read.bytes &&
      made.dtype === read.dtype &&
      String(made.shape) === String(read.shape)
    )
  }

  private keepOf(plan: string, output: string): Keep | undefined {
    return this.spec.keep.get(plan)?.get(output)
  }

  staying(plan: string): ReadonlySet<string> {
    const next = this.spec.then.get(plan) ?? []
    const kept = this.spec.keep.get(plan)?.keys() ?? []
    const read = this.names(plan, 'output').filter(name => next.some(to => this.carries(plan, to, name)))
    return new Set([...kept, ...read])
  }

  given(plan: string): ReadonlySet<string> {
    const makers = [...this.plans.keys()]
    const lasts = (maker: string, name: string): boolean => {
      const lives = this.keepOf(maker, name)?.lives
      return lives === 'until' || lives === 'ring'
    }
    return new Set(
      this.names(plan, 'input').filter(name =>
        makers.some(
          maker =>
            this.carries(maker, plan, name) &&
            ((this.spec.then.get(maker) ?? []).includes(plan) || lasts(maker, name)),
        ),
      ),
    )
  }

  owned(plan: string): ReadonlySet<string> {
    return new Set([...this.staying(plan)].filter(output => this.keepOf(plan, output)?.lives === 'owned'))
  }

  lifetimes(plan: string, names: readonly string[]): ReadonlyMap<string, Lifetime> {
    const found = new Map<string, Lifetime>()
    for (const output of this.staying(plan)) {
      const keep = this.keepOf(plan, output)
      if (keep?.lives === 'until') found.set(output, { ...keep, plan: names.indexOf(keep.plan) })
      else if (keep?.lives === 'ring') found.set(output, keep)
    }
    return found
  }
}
