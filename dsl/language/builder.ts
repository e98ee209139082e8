import type { CompileError, GraphNode, GraphOutput, LaneSpec, Place, Where } from '../ir/graph.js'
import { show } from '../ir/show.js'
import type { TensorSpec } from '../ir/tensor.js'
import {
  type Communicator,
  communicatorProblem,
  otherGroups,
  otherRanks,
  ranksOf,
  sameGroups,
} from './communicator.js'
import { isLane } from './lane.js'
import {
  badAttribute,
  foreignFlow,
  misplaced,
  noBody,
  notAFlow,
  notALane,
  otherDevice,
  otherPriority,
  type UnplacedError,
} from './messages.js'
import { NestedBodies } from './nested-bodies.js'
import { validSpec } from './tensor.js'
import { here } from './where.js'

export interface NewNode {
  readonly op: string
  /** Given for inputs, params and copies; others are counted: `matmul[3]`. */
  readonly name?: string
  readonly inputs: readonly number[]
  readonly attrs?: Readonly<Record<string, unknown>>
  readonly spec: TensorSpec
  readonly place: Place
  readonly lane?: LaneSpec | undefined
  readonly at: Where
}

/** A composed operator as if it were one node. */
export interface Composite {
  readonly op: string
  readonly inputs: readonly number[]
  readonly attrs: Readonly<Record<string, unknown>>
}

/** Nodes that gradients make again: those from one number up to another. */
export interface Recomputed {
  readonly from: number
  readonly to: number
}

const scalar: TensorSpec = { dtype: 'f32', shape: [] }
const none: Readonly<Record<string, never>> = Object.freeze({})

/**
 * A graph while its body runs. A caller's error is never thrown. It is added to `problems`, and the flow
 * continues with the most likely type, so that `compile` can report every error at once.
 */
export class Builder {
  readonly nodes: GraphNode[] = []
  readonly outputs: GraphOutput[] = []
  /** The errors, each once. */
  readonly problems: CompileError[] = []
  /** How many errors were reported, each as often as it was. */
  reports = 0
  readonly params = new Set<string>()
  readonly states = new Set<string>()
  /** Groups of states whose next values are not set yet, each by its first node: how to report it. */
  readonly unset = new Map<number, () => void>()
  readonly bodies = new NestedBodies()
  /** By node: the composed operator whose value it is, where that has a gradient as a whole. */
  readonly composites = new Map<number, Composite>()
  /** Nodes whose type is a guess, since something before them is wrong: what follows from them is not reported. */
  readonly guesses = new Set<number>()
  /** Nodes whose values gradients take for constants. */
  readonly constants = new Set<number>()
  /** By node that gradients make again: the part of the graph that they make again as a whole. */
  readonly recomputing = new Map<number, Recomputed>()
  open = true
  /** Whether a part that gradients make again is being made. */
  private inRecomputed = false
  private readonly counts = new Map<string, { next: number }>()
  private readonly lanes = new Map<string, LaneSpec>()
  private readonly communicators = new Map<string, Communicator>()
  private readonly checked = new Set<unknown>()
  private readonly known = new Set<string>()
  /** The operator whose parts are being made. */
  private whole: { readonly subject: string; readonly name: string; reported: boolean } | undefined

  constructor(readonly name: string) {}

  report(at: Where, subject: string, error: UnplacedError): void {
    const { whole } = this
    // One mistake would make several parts wrong: the first error names the operator, the others add nothing.
    if (whole?.reported) return
    if (whole) whole.reported = true
    this.reports++
    const problem = { ...error, at: at.toString(), subject: whole?.subject ?? subject }
    // A line that is run for each layer makes the same mistake each time.
    const text = JSON.stringify(problem)
    if (!this.known.has(text)) this.problems.push(problem)
    this.known.add(text)
  }

  /**
   * Makes the nodes of an operator that is composed of others. Their names begin with its own, as in
   * `softmax[0].max`, and their errors name the operator that the user called.
   */
  parts<A>(operator: string, make: () => A): A {
    const outer = this.whole
    this.whole = { subject: outer?.subject ?? operator, name: this.counted(operator), reported: false }
    try {
      return make()
    } finally {
      if (outer && this.whole.reported) outer.reported = true
      this.whole = outer
    }
  }

  /** Makes nodes that gradients make again. A part within another belongs to that one. */
  recomputed<A>(make: () => A): A {
    if (this.inRecomputed) return make()
    const from = this.nodes.length
    this.inRecomputed = true
    try {
      return make()
    } finally {
      this.inRecomputed = false
      const part: Recomputed = { from, to: this.nodes.length }
      for (let id = from; id < part.to; id++) this.recomputing.set(id, part)
    }
  }

  node(made: NewNode): number {
    const id = this.nodes.length
    const { op, inputs, spec, place, at } = made
    if (this.guesses.size > 0 && inputs.some(input => this.guesses.has(input))) this.guesses.add(id)
    this.nodes.push({
      id,
      op,
      name: made.name ?? this.counted(op),
      inputs,
      attrs: made.attrs ?? none,
      spec,
      place,
      lane: made.lane,
      at,
    })
    return id
  }

  flow(made: NewNode, hint?: LaneSpec): FlowValue {
    return new FlowValue(this, this.node(made), made.spec, made.place, hint)
  }

  /** Gives a delay its input, which is made after the delay itself. */
  close(delay: number, input: number): void {
    const node = this.nodes[delay]
    if (node) this.nodes[delay] = { ...node, inputs: [input] }
  }

  rename(id: number, name: string): void {
    const node = this.nodes[id]
    if (node) this.nodes[id] = { ...node, name }
  }

  /**
   * Replaces a value that is missing or belongs to another graph, so that the graph stays well formed. The
   * error has been reported before.
   */
  placeholder(spec: TensorSpec, place: Place, at: Where): FlowValue {
    const op = place === 'host' ? 'input' : 'param'
    return this.flow({ op, name: `?${this.nodes.length}`, inputs: [], spec, place, at })
  }

  /** A value in place of one that an error keeps from being made. */
  guess(spec: TensorSpec, at: Where): FlowValue {
    const value = this.placeholder(spec, 'device', at)
    this.guesses.add(value.id)
    return value
  }

  /**
   * The value as a flow of this graph at `place`. An error is reported, and a placeholder replaces the value.
   * `role` names the value in the message: `the operand`.
   */
  take(value: unknown, place: Place, at: Where, subject: string, role: string, guess = scalar): FlowValue {
    if (!(value instanceof FlowValue)) {
      this.report(at, subject, notAFlow(role, value))
      return this.placeholder(guess, place, at)
    }
    if (value.builder !== this) {
      this.report(at, subject, foreignFlow(this.name, value.builder.name))
      return this.placeholder(value.spec, place, at)
    }
    if (!this.open) this.report(at, subject, foreignFlow(this.name))
    if (value.place !== place) this.report(at, subject, misplaced(place, role, value.spec, value.place))
    return value
  }

  /** The value as a lane; undefined without a value, or, with an error reported, for one that is no lane. */
  lane(value: unknown, at: Where, subject: string): LaneSpec | undefined {
    if (value === undefined) return undefined
    if (!isLane(value)) {
      this.report(at, subject, notALane(value))
      return undefined
    }
    // A device alone: the compiler chooses the lane.
    if (value.name === '') return value
    const known = this.lanes.get(value.name)
    if (known === undefined) {
      this.lanes.set(value.name, value)
      return value
    }
    if (known.priority !== value.priority) this.report(at, subject, otherPriority(known, value))
    if ((known.device ?? 0) !== (value.device ?? 0)) this.report(at, subject, otherDevice(known, value))
    return known
  }

  /**
   * The value as a communicator; undefined, with an error reported, if it is none. All communicators of a
   * graph with more than one rank have the same ranks.
   */
  communicator(value: unknown, at: Where, subject: string): Communicator | undefined {
    // Groups may list 65,536 ranks, and a graph has many collectives: a communicator is checked at its first
    // use.
    if (this.checked.has(value)) return value as Communicator
    const problem = communicatorProblem(value)
    if (problem !== undefined) {
      this.report(at, subject, problem)
      return undefined
    }
    const given = value as Communicator
    const known = this.communicators.get(given.name)
    if (known !== undefined) {
      if (!sameGroups(known, given)) this.report(at, subject, otherGroups(known, given))
      return known
    }
    const other = [...this.communicators.values()].find(({ size }) => size > 1)
    if (given.size > 1 && other !== undefined && ranksOf(other) !== ranksOf(given))
      this.report(at, subject, otherRanks(other, given))
    this.communicators.set(given.name, given)
    this.checked.add(given)
    return given
  }

  /** The value as a tensor's type; a valid replacement, with an error reported, if it is none. */
  spec(value: unknown, at: Where, subject: string): TensorSpec {
    const { spec, problem } = validSpec(value)
    if (problem) this.report(at, subject, problem)
    return spec
  }

  /**
   * A name with its number: `relu[0]`. Of a part: `softmax[0].sub`, and `softmax[0].sub[1]` for its second.
   */
  counted(op: string): string {
    const name = this.whole ? `${this.whole.name}.${op}` : op
    let count = this.counts.get(name)
    if (count === undefined) this.counts.set(name, (count = { next: 0 }))
    const n = count.next++
    return this.whole && n === 0 ? name : `${name}[${n}]`
  }
}

/**
 * A flow as the language holds it: a node of a builder, and the lane that `on` hinted for the compute that
 * follows in its pipe.
 */
export class FlowValue {
  constructor(
    readonly builder: Builder,
    readonly id: number,
    readonly spec: TensorSpec,
    readonly place: Place,
    readonly hint: LaneSpec | undefined,
  ) {}

  pipe(...operators: readonly unknown[]): unknown {
    let value: unknown = this
    for (const operator of operators) {
      if (typeof operator === 'function') value = operator(value)
      else
        this.builder.report(
          here(),
          'pipe',
          badAttribute(
            'operators, such as relu()',
            show(operator),
            'pass operators to pipe, separated by commas',
          ),
        )
    }
    return value
  }

  toString(): string {
    return `flow ${this.builder.nodes[this.id]?.name ?? ''}`
  }
}

const bodies: Builder[] = []

/** Runs a graph's body. Flows that it makes belong to its builder. */
export const within = <A>(builder: Builder, body: () => A): A => {
  bodies.push(builder)
  try {
    return body()
  } finally {
    bodies.pop()
  }
}

/**
 * The graph whose body is running. Outside of every body, a graph that nothing reads: a flow of it is an
 * error wherever it is used.
 */
export const current = (): Builder => bodies[bodies.length - 1] ?? new Builder(noBody)

/** The graph that an operator's result belongs to: the graph of the piped flow, while that graph is open. */
export const builderOf = (x: unknown): Builder => {
  if (!(x instanceof FlowValue)) return current()
  if (x.builder.open) return x.builder
  return bodies[bodies.length - 1] ?? x.builder
}

/**
 * The value piped into the operator `subject`, as a flow at `place`. Its builder is the graph that the result
 * belongs to.
 */
export const piped = (x: unknown, place: Place, at: Where, subject: string): FlowValue =>
  builderOf(x).take(x, place, at, subject, 'the piped value')

/** The place of a piped value, for operators of both places. */
export const placeOf = (x: unknown): Place => (x instanceof FlowValue ? x.place : 'device')
