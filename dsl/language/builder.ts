import type {
  CompileError,
  CompileErrorTag,
  GraphNode,
  GraphOutput,
  LaneSpec,
  Place,
  Where,
} from '../ir/graph.js'
import { show } from '../ir/show.js'
import { showSpec, type TensorSpec } from '../ir/tensor.js'
import {
  type Communicator,
  communicatorProblem,
  ranksOf,
  sameGroups,
  showCommunicator,
} from './communicator.js'
import { isLane, mostDevices } from './lane.js'
import { soundSpec } from './tensor.js'
import { here } from './where.js'

/** A mistake, before it is known where it was made. */
export interface Mistake {
  readonly _tag: CompileErrorTag
  readonly wanted: string
  readonly found: string
  readonly next: string
}

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

const none: Readonly<Record<string, never>> = Object.freeze({})

/**
 * A graph while its body runs. Nothing here throws at a caller's mistake: it is noted in `problems`, and the flow goes on as
 * the best guess, so that `compile` can report every mistake at once.
 */
export class Builder {
  readonly nodes: GraphNode[] = []
  readonly outputs: GraphOutput[] = []
  readonly problems: CompileError[] = []
  readonly params = new Set<string>()
  open = true
  private readonly counts = new Map<string, number>()
  private readonly lanes = new Map<string, LaneSpec>()
  private readonly communicators = new Map<string, Communicator>()

  constructor(readonly name: string) {}

  problem(at: Where, subject: string, mistake: Mistake): void {
    this.problems.push({ ...mistake, at: at.toString(), subject })
  }

  node(made: NewNode): number {
    const id = this.nodes.length
    const { op, inputs, spec, place, at } = made
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

  /** What a delay remembers is known only after what it feeds. */
  close(delay: number, input: number): void {
    const node = this.nodes[delay]
    if (node) this.nodes[delay] = { ...node, inputs: [input] }
  }

  rename(id: number, name: string): void {
    const node = this.nodes[id]
    if (node) this.nodes[id] = { ...node, name }
  }

  /** A stand-in for a value that was missing or another graph's: it keeps the graph well formed, and a problem says so already. */
  placeholder(spec: TensorSpec, place: Place, at: Where): FlowValue {
    const op = place === 'host' ? 'input' : 'param'
    return this.flow({ op, name: `?${this.nodes.length}`, inputs: [], spec, place, at })
  }

  /** A flow of this graph at `place`, whatever was given. `role` is what it was given as: `the operand`. */
  take(value: unknown, place: Place, at: Where, subject: string, role: string, guess: TensorSpec): FlowValue {
    if (!(value instanceof FlowValue)) {
      this.problem(at, subject, {
        _tag: 'NotAFlow',
        wanted: `a flow as ${role}`,
        found: show(value),
        next:
          typeof value === 'function'
            ? 'call the operator, as in relu(), and give it by pipe'
            : 'give a flow of this graph',
      })
      return this.placeholder(guess, place, at)
    }
    if (value.builder !== this || !this.open) {
      this.problem(at, subject, {
        _tag: 'ForeignFlow',
        wanted: `a flow of the graph ${this.name}, inside its body`,
        found:
          value.builder === this
            ? 'a flow whose graph is complete'
            : `a flow of the graph ${value.builder.name}`,
        next: 'flows live inside the body of their graph: pass values between graphs by outputs and inputs',
      })
      if (value.builder !== this) return this.placeholder(value.spec, place, at)
    }
    if (value.place !== place)
      this.problem(at, subject, {
        _tag: 'PlaceMismatch',
        wanted: `a ${place} value as ${role}`,
        found: `${showSpec(value.spec)} on the ${value.place}`,
        next:
          place === 'device'
            ? 'upload it first: pipe(upload(lane))'
            : 'download it first: pipe(download(lane))',
      })
    return value
  }

  /** The lane that was given, if it is one. */
  lane(value: unknown, at: Where, subject: string): LaneSpec | undefined {
    if (value === undefined) return undefined
    if (!isLane(value)) {
      this.problem(at, subject, {
        _tag: 'BadAttribute',
        wanted: `a lane with a name, a priority of 'low', 'normal' or 'high', and a device from 0 to ${mostDevices - 1}`,
        found:
          typeof value === 'object' && value !== null && 'name' in value
            ? `a lane named ${show(value.name)}${'device' in value ? ` on device ${show(value.device)}` : ''}`
            : show(value),
        next: "make one with lane('copy'), or lane('copy', { device: 1 }), or say device(1) for any lane there",
      })
      return undefined
    }
    // A device alone: the compiler chooses the lane.
    if (value.name === '') return value
    const known = this.lanes.get(value.name)
    if (known === undefined) this.lanes.set(value.name, value)
    else if (known.priority !== value.priority)
      this.problem(at, subject, {
        _tag: 'BadAttribute',
        wanted: `the lane '${value.name}' with one priority, ${known.priority}`,
        found: `priority ${value.priority}`,
        next: 'lanes of one name are one lane: give both the same priority, or another name',
      })
    if (known !== undefined && (known.device ?? 0) !== (value.device ?? 0))
      this.problem(at, subject, {
        _tag: 'BadAttribute',
        wanted: `the lane '${value.name}' on one device, ${known.device ?? 0}`,
        found: `device ${value.device ?? 0}`,
        next: 'lanes of one name are one lane, of one device: give the other one another name',
      })
    return known ?? value
  }

  /** The communicator that was given, if it is one. All of a graph with ranks to talk to have the same ranks. */
  communicator(value: unknown, at: Where, subject: string): Communicator | undefined {
    const problem = communicatorProblem(value)
    if (problem !== undefined) {
      this.problem(at, subject, { _tag: 'BadAttribute', ...problem })
      return undefined
    }
    const given = value as Communicator
    const known = this.communicators.get(given.name)
    if (known === given) return known
    if (known !== undefined && !sameGroups(known, given))
      this.problem(at, subject, {
        _tag: 'BadAttribute',
        wanted: `the communicator ${showCommunicator(known)}, as before in this graph`,
        found: showCommunicator(given),
        next: 'communicators of one name are one communicator: give both the same groups, or another name',
      })
    if (known !== undefined) return known
    const other = [...this.communicators.values()].find(({ size }) => size > 1)
    if (given.size > 1 && other !== undefined && ranksOf(other) !== ranksOf(given))
      this.problem(at, subject, {
        _tag: 'BadAttribute',
        wanted: `a communicator of the ${ranksOf(other)} ranks that ${showCommunicator(other)} has`,
        found: `${showCommunicator(given)}: ${ranksOf(given)} ranks`,
        next: 'one graph serves all ranks: put each of them into one group of every communicator',
      })
    this.communicators.set(given.name, given)
    return given
  }

  /** A tensor's type, whatever was given. */
  spec(value: unknown, at: Where, subject: string): TensorSpec {
    const { spec, problem } = soundSpec(value)
    if (problem) {
      const { tag, ...rest } = problem
      this.problem(at, subject, { _tag: tag, ...rest })
    }
    return spec
  }

  /** A name with its number: `relu[0]`. */
  counted(op: string): string {
    const n = this.counts.get(op) ?? 0
    this.counts.set(op, n + 1)
    return `${op}[${n}]`
  }
}

/** A flow as the language holds it: a node of a builder, and the lane that `on` hinted for the compute that follows in its pipe. */
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
        this.builder.problem(here(), 'pipe', {
          _tag: 'BadAttribute',
          wanted: 'operators, such as relu()',
          found: show(operator),
          next: 'pass operators to pipe, separated by commas',
        })
    }
    return value
  }

  toString(): string {
    return `flow ${this.builder.nodes[this.id]?.name ?? ''}`
  }
}

const bodies: Builder[] = []

/** Runs a graph's body with its builder as the one that new flows belong to. */
export const within = <A>(builder: Builder, body: () => A): A => {
  bodies.push(builder)
  try {
    return body()
  } finally {
    bodies.pop()
  }
}

// Where mistakes go that are made outside every graph. Nothing reads it: a flow of it is foreign wherever it is used.
const nowhere = (): Builder => new Builder('(none)')

/** The graph whose body is running; outside of all, one that leads nowhere. */
export const current = (): Builder => bodies[bodies.length - 1] ?? nowhere()

/** The graph that an operator's result belongs to: that of the flow it is piped from, while that is open. */
export const builderOf = (x: unknown): Builder => {
  if (!(x instanceof FlowValue)) return current()
  if (x.builder.open) return x.builder
  return bodies[bodies.length - 1] ?? x.builder
}
