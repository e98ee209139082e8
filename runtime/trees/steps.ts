import * as E from 'fp-ts/lib/Either.js'
import type { Instead, Layout } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import { portsOf, specOf } from '../session/ports.js'
import type { ValueSpec } from '../values.js'
import * as messages from './messages.js'
import { brokenBy, type PreparedPlan, type PreparedTree } from './prepare.js'
import type { NodeSlots, Slots } from './slots.js'

/** Bytes of the arena that are copied to other bytes of it. */
export interface Copy {
  readonly from: number
  readonly to: number
  readonly bytes: number
}

/** An input that may lie in the arena when its plan is launched. */
export interface ResidentInput {
  readonly spec: ValueSpec
  /** Where the layout has it. */
  readonly to: number
  /** Whether the value there outlives the launch: then no other one may take its place. */
  readonly isKept: boolean
}

/** An output that stays in the arena. */
interface StayingOutput {
  readonly name: string
  readonly spec: ValueSpec
  /** Each launch copies it out of the arena. */
  readonly isOwned: boolean
}

/** All that a launch of one plan in one state of the arena asks for, found once. */
export interface Step {
  readonly plan: PreparedPlan
  readonly node: number
  readonly layout: Layout
  /** The state of the arena after it. */
  readonly to: number
  readonly moves: readonly Copy[]
  /** Inputs that always come from the host, and those that may lie in the arena. */
  readonly host: readonly ValueSpec[]
  readonly resident: readonly ResidentInput[]
  /** Names that have to be given, and names that may be. */
  readonly wanted: readonly string[]
  readonly known: ReadonlySet<string>
  /** In the order of the node's slots. */
  readonly outputs: readonly StayingOutput[]
  readonly slots: NodeSlots
}

/** What is the same for every launch of a plan. */
interface PlanPorts {
  readonly host: readonly ValueSpec[]
  readonly resident: readonly ValueSpec[]
}

/** The steps of a tree, by state of the arena and plan. */
export class Steps {
  private readonly steps = new Map<number, Step>()
  /** Steps whose inputs get other values than the newest: by these as well. */
  private readonly others = new Map<string, Step>()
  private readonly indices: ReadonlyMap<string, number>
  private readonly ports: readonly PlanPorts[]
  private readonly nodes: { readonly outputs: readonly StayingOutput[]; readonly slots: NodeSlots }[] = []
  private readonly proved = new Set<number>()

  constructor(
    private readonly tree: PreparedTree,
    private readonly arenaBytes: number,
    private readonly slots: Slots,
  ) {
    this.indices = new Map(tree.plans.map(({ name }, index) => [name, index]))
    this.ports = tree.plans.map(portsOfPlan)
  }

  /** The plan that was launched last in a state. */
  last(state: number): PreparedPlan | undefined {
    const { layouts, plans } = this.tree
    return plans[layouts.states[state]!.last]
  }

  /** Whether a plan may come now, with no more values kept than may be, or a run may begin with it. */
  mayCome(state: number, name: string): boolean {
    const { layouts, start } = this.tree
    const index = this.indices.get(name)!
    const found = layouts.transition(state, index)
    return found === undefined ? start.includes(index) : E.isRight(found)
  }

  /** All inputs of a plan. */
  inputsOf(name: string): readonly ValueSpec[] {
    const { host, resident } = this.ports[this.indices.get(name)!]!
    return [...host, ...resident]
  }

  /**
   * The step of a plan, or throws: the plan may not be launched now. `instead`: values that its inputs do not
   * get.
   */
  find(at: Where, state: number, name: string, instead?: Instead): Step {
    const index = this.indices.get(name) ?? -1
    if (instead !== undefined) return this.findInstead(at, state, name, index, instead)
    const key = state * this.tree.plans.length + index
    let step = index === -1 ? undefined : this.steps.get(key)
    if (step === undefined) {
      step = this.made(at, state, name, index)
      this.steps.set(key, step)
    }
    return step
  }

  private findInstead(at: Where, state: number, name: string, index: number, instead: Instead): Step {
    const key = JSON.stringify([state, index, [...instead].map(([input, offset]) => [input, offset ?? -1])])
    let step = this.others.get(key)
    if (step === undefined) {
      step = this.made(at, state, name, index, instead)
      this.others.set(key, step)
    }
    return step
  }

  private made(at: Where, state: number, name: string, index: number, instead?: Instead): Step {
    const { layouts, start, plans, next } = this.tree
    const begins = layouts.transition(state, index) === undefined && start.includes(index)
    const found = layouts.transition(begins ? 0 : state, index, instead)
    if (found === undefined) {
      const last = layouts.states[state]!.last
      const allowed = [...new Set([...(last === -1 ? [] : next[last]!), ...start])]
      const names = allowed.map(plan => plans[plan]!.name)
      throw messages.notASuccessor(at, name, this.last(state)?.name, names)
    }
    if (E.isLeft(found)) throw messages.tooManyKept(at, name, found.left.output, found.left.count)
    const { node, to, moves, carried } = found.right
    this.prove(node)
    const { layout } = layouts.nodes[node]!
    if (layout.top > this.arenaBytes) throw messages.arenaTooSmall(at, name, layout.top, this.arenaBytes)
    const plan = plans[index]!
    const { host, resident } = this.ports[index]!
    const { held } = layouts.states[to]!
    const isKept = (input: string): boolean => {
      const value = carried.get(input)
      return held.some(
        ({ from, output, offset }) =>
          from === value?.from && output === value.output && offset === value.offset,
      )
    }
    return {
      ...{ plan, node, layout, to, host },
      moves: moves.map(({ from, to, bytes }) => ({ from, to, bytes })),
      resident: resident.map(spec => ({
        spec,
        to: layout.inputs.get(spec.name)!,
        isKept: isKept(spec.name),
      })),
      wanted: [...host, ...resident.filter(({ name }) => !carried.has(name))].map(({ name }) => name),
      known: new Set([...host, ...resident].map(({ name }) => name)),
      ...this.node(plan, node, layout),
    }
  }

  /** Those that were found ahead are proved. */
  private prove(node: number): void {
    if (node < this.tree.layouts.ahead || this.proved.has(node)) return
    const [broken] = brokenBy(this.tree, node)
    if (broken !== undefined) throw new Error(broken.found)
    this.proved.add(node)
  }

  private node({ body, owned }: PreparedPlan, node: number, { outputs, clobbers }: Layout) {
    const { plan, outputs: ids } = body.source
    this.nodes[node] ??= {
      outputs: [...outputs.keys()].map(name => ({
        name,
        spec: specOf(plan.buffers[ids.get(name)!]!),
        isOwned: owned.has(name),
      })),
      slots: this.slots.add(
        clobbers,
        [...outputs].map(([output, from]) => ({
          output,
          from,
          to: from + plan.buffers[ids.get(output)!]!.bytes,
        })),
      ),
    }
    return this.nodes[node]
  }
}

const portsOfPlan = ({ body }: PreparedPlan): PlanPorts => {
  const { plan, inputs } = body.source
  const ports = portsOf(plan, 'input').filter(({ root }) => plan.buffers[root]!.space === 'pinned')
  return {
    host: ports.map(({ spec, rate }) =>
      rate === 1 ? spec : { ...spec, bytes: spec.bytes * rate, shape: [rate, ...spec.shape] },
    ),
    resident: [...inputs.values()].map(id => specOf(plan.buffers[id]!)),
  }
}
