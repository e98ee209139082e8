import type { Fault } from './fault.js'
import type { TensorSpec } from './tensor.js'

export type { Dim, DType, TensorSpec } from './tensor.js'

/**
 * A logical stream, as the user names it. Two lanes of one name are the same lane; one without a name is
 * whichever lane of its device the compiler chooses.
 */
export interface LaneSpec {
  readonly name: string
  readonly priority: 'low' | 'normal' | 'high'
  /** Which of the plan's devices it is on; absent: 0. */
  readonly device?: number
}

/** Where a value lies: pinned host memory, or device memory. */
export type Place = 'host' | 'device'

/** A position in the user's source, captured when a node is made and rendered only when it is read. */
export interface Where {
  /** `file:line:column`, the file relative to the working directory where that is known. */
  toString(): string
}

/**
 * One node of a graph: one value a tick, or as many as its rate (language/rates.ts). `inputs` are indices
 * into `GraphIR.nodes`, always smaller than the node's own index, except that a `delay` node's single input
 * (the value it remembers for the next tick) may be any index.
 *
 * A collective (`allReduce`, `allGather`, `reduceScatter`, `allToAll`, `broadcast`, `permute`) reads one
 * device value. Its attrs are `communicator: { name, size, groups? }` and, by operator, `how`, `root`,
 * `pairs` or `ahead`. Its `lane` is for the collective alone, not for operators after it.
 *
 * Structural operators, which the compiler knows by name (all others go through the operator registry):
 *
 * | op | place | inputs | attrs |
 * |---|---|---|---|
 * | `input` | host | none | `{}`; `name` is the feed's name |
 * | `param` | host/device | none | `{}`; `name` is the parameter's name; on the host it is read in place |
 * | `upload` | device | 1 host value | `{ ahead?: number }` |
 * | `download` | host | 1 device value | `{}` |
 * | `delay` | device | 1 device value | `{ init, name? }`: init (a number, or a list), then the previous input |
 * | `window` | as its input | 1 value | `{ n }`: n successive values as one, once for n |
 * | `every` | as its input | 1 value | `{ n }`: the last of n values, once for n |
 * | `hold` | device | 1 device value | `{ init, n? }`: the newest value of a slow flow, at a higher rate |
 * | `empty` | host/device | none | `{}`; a value without elements; only the compiler makes it |
 * | `peer` | device | 1 value of another device | `{}`; only the compiler makes it |
 * | `kernel` | device | the reads | `KernelAttrs` (language/kernel.ts); its first write |
 * | `port` | device | 1 kernel | `{ index }`: write `index` of a kernel, not the first |
 */
export interface GraphNode {
  readonly id: number
  readonly op: string
  readonly name: string
  readonly inputs: readonly number[]
  readonly attrs: Readonly<Record<string, unknown>>
  readonly spec: TensorSpec
  readonly place: Place
  /**
   * The lane, or the device, that the user gave by `on`, `upload(lane)` or `download(lane)`; undefined where
   * the compiler chooses.
   */
  readonly lane: LaneSpec | undefined
  readonly at: Where
}

/** A flow that leaves the graph under the output's name: a host value, or one that stays on the device. */
export interface GraphOutput {
  readonly name: string
  readonly node: number
}

/**
 * The pure description that `graph(...)` builds. `problems` are the errors that types could not stop
 * (JavaScript callers).
 */
export interface GraphIR {
  readonly name: string
  readonly nodes: readonly GraphNode[]
  readonly outputs: readonly GraphOutput[]
  readonly problems: readonly CompileError[]
}

export type CompileErrorTag =
  | 'NotAFlow' // a value that is not a flow, where a flow is expected
  | 'ForeignFlow' // a flow of another graph
  | 'ShapeMismatch'
  | 'DTypeMismatch'
  | 'PlaceMismatch' // a host value where a device value is expected, or the reverse
  | 'BadAttribute' // an invalid option or argument of an operator: axis out of range, ahead: -1, NaN …
  | 'NoGradient' // an operator without a gradient, or a value that the loss does not follow from
  | 'UnboundSymbol' // a dimension by name to which `dims` gives no size
  | 'UnboundDelay' // a delay or scan that was never closed
  | 'Cycle' // a cycle that crosses no delay
  | 'RateMismatch' // flows that come differently often meet
  | 'UnknownRate' // the rate of a hold's result is not known
  | 'LongPeriod' // a tick would be too many values of a flow
  | 'UseAfterDonate'
  | 'DuplicateName' // two inputs, params or outputs of one name
  | 'BadDimension' // a dimension that is negative or fractional, or beyond 2^53 bytes in all
  | 'NoOutputs'
  | 'BadOption' // an option of compile
  | 'OverBudget' // memory: BYTES cannot hold the plan
  | 'MissingParam' // a parameter without a value, where `interpret` runs the graph
  | 'Unrepeatable' // a function that yields something else at a later call, where runs are compared
  | 'Unsupported'
  | 'Unverified' // the plan that compile made breaks a law: a bug in the compiler, reported instead of run

export type CompileError = Fault<CompileErrorTag>
