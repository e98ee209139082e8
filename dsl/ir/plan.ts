import type { KernelSpec } from './kernel-spec.js'
import type { BoundSpec, DType } from './tensor.js'

/**
 * The compiled program: JSON-able data, the same for every device. Fields and commands as in the public
 * format `plan: 1` (`spec/plan.schema.json`); the meaning of *before* and the laws L1 to L11 stand in
 * `dsl/verify/verify.ts`.
 */
export interface Plan<_I = unknown, _O = unknown> {
  readonly plan: 1
  readonly name: string
  readonly devices: number
  readonly inFlight: number
  readonly storage: 'pooled' | 'planned'
  /** The most bytes that the plan holds when it runs, per device and of pinned host memory. */
  readonly bound: { readonly device: readonly number[]; readonly pinned: number }
  /** How the bound is kept; only with `storage: 'pooled'`. See `BoundKind`. */
  readonly boundKind?: BoundKind
  /** Bytes of each device's arena; only with `storage: 'planned'`. */
  readonly arena?: readonly number[]
  /**
   * How many ticks in flight have the arenas' `tick` buffers for themselves; only with `graphs`. Absent: 1,
   * one arena that all ticks share. Else it is `inFlight`: ticks share only `state` and `param` buffers,
   * which lie below the others and are there once, and no lane orders a tick after the one before.
   */
  readonly arenas?: number
  readonly lanes: readonly PlanLane[]
  readonly buffers: readonly PlanBuffer[]
  readonly nodes: readonly PlanNode[]
  readonly commands: readonly Command[]
  /** The communicators of this rank's collectives; none where no node is a collective. */
  readonly communicators?: readonly PlanCommunicator[]
  /** What runs as executable graphs, in issue order; absent: each command is issued by itself. */
  readonly graphs?: readonly PlanGraph[]
  /**
   * The largest relative error that a device may show in one operation of this plan against its reference; 0:
   * all outputs are those of `interpret` bit for bit. What errors come to at an output follows from the
   * values: `braid run --check` finds it.
   */
  readonly tolerance?: number
}

/**
 * How a plan keeps its bound, which law L9 proves. `exact`: the session's pool never takes more, however many
 * ticks run; ticks overlap. `enforced`: the pool takes no more in one tick on an idle device, and the session
 * places the blocks of every tick as in the first one; so each tick begins, on the device, after the end of
 * the tick before. Absent: as `exact`, and bytes counted wherever they lie free come to no more either.
 */
export type BoundKind = (typeof boundKinds)[number]
export const boundKinds = ['exact', 'enforced'] as const

/**
 * The commands from `from` up to `to`, which is not among them, run as one executable graph. Its nodes are
 * the runs among these commands, its `edges` pairs of commands, sorted by the later one and then by the
 * earlier one: the transitive reduction of *before* among the nodes (law L11). Records and waits of the range
 * are not issued; what they order outside the range is ordered by the launch as a whole
 * (docs/reference/plan-format.md).
 */
export interface PlanGraph {
  readonly from: number
  readonly to: number
  readonly edges: readonly (readonly [before: number, after: number])[]
}

/** A CUDA stream. `id` is its index in `lanes`. Priority: higher runs first, 0 is the default. */
export interface PlanLane {
  readonly id: number
  readonly name: string
  readonly device: number
  readonly priority: number
}

export type Space = 'device' | 'pinned'
/**
 * `tick`: allocated and freed inside the tick. `state`, `param`: live on across ticks. `input`, `output`: one
 * of `inFlight` slots, handed over by the host; `name` is the port's name.
 */
export type Life = 'tick' | 'state' | 'param' | 'input' | 'output'

/**
 * `id` is the index in `buffers`. `bytes` is what the buffer itself needs, before any rounding by the
 * allocator; 0 of what lives longer than a tick and has no elements.
 */
export interface PlanBuffer {
  readonly id: number
  readonly name: string
  readonly bytes: number
  readonly space: Space
  readonly device: number
  readonly home: number
  readonly life: Life
  /**
   * This buffer is a view of another (never of a view): `aliasOffset` bytes into it. It is never allocated or
   * freed itself.
   */
  readonly alias?: number
  readonly aliasOffset?: number
  /** Bytes into the device's arena; only with `storage: 'planned'`. */
  readonly offset?: number
  readonly dtype?: DType
  readonly shape?: readonly number[]
  /**
   * What a state buffer holds before the first tick: one value for all elements, or each; `given`: data
   * beside the plan, or what `open` is given. Absent: not initialised.
   */
  readonly init?: number | readonly number[] | 'given'
  /**
   * Of an input or output: it comes so many times a tick, and its values lie one after the other along the
   * first dimension. Absent: once.
   */
  readonly rate?: number
}

/** `id` is the index in `nodes`. A node without a `kernel` can be verified and explained, but not run. */
export interface PlanNode {
  readonly id: number
  readonly op: string
  readonly name: string
  readonly at: string
  readonly kernel?: KernelSpec
  /** The run is a collective, or a send or receive. */
  readonly collective?: CollectiveSpec
  /**
   * Nodes after which it comes in each tick without needing their data: after their end, or once their lane
   * has come to them.
   */
  readonly after?: readonly (readonly [node: number, when: 'start' | 'finish'])[]
  /**
   * Of a user's kernel: the writes that are the memory of a read, by their places among its writes and reads.
   * No other write of it may lie over a read.
   */
  readonly donates?: readonly (readonly [write: number, read: number])[]
  /** Its kernel reads or writes memory of other devices in place; a copy always may. */
  readonly peerAccess?: boolean
  /**
   * Work of the node: floating-point operations, and bytes moved through device memory. For `explain` and the
   * host's slow-down.
   */
  readonly flops?: number
  readonly movedBytes?: number
}

/**
 * `id` is the index in `communicators`; ranks know it by its `name`. Its groups are disjoint lists of ranks,
 * so that one plan may serve all of a mesh: a rank talks to the group that has it. Absent: one group of all
 * ranks, in order; then `size` may say how many these are.
 */
export interface PlanCommunicator {
  readonly id: number
  readonly name: string
  readonly groups?: readonly (readonly number[])[]
  readonly size?: number
}

export const collectiveKinds = [
  'allReduce',
  'allGather',
  'reduceScatter',
  'allToAll',
  'broadcast',
  'reduce',
  'gather',
  'scatter',
  'permute',
  'send',
  'recv',
] as const

export const collectiveReductions = ['sum', 'product', 'min', 'max', 'mean'] as const

/**
 * A node's exchange with other ranks, in NCCL's terms. `count`: the elements that each rank gives
 * (`allGather`, `gather`, `allToAll` to each), or gets (`reduceScatter`, `scatter`). `root`, `peer` and
 * `pairs` (of a `permute`: from and to) are places in the group. All ranks of the group issue the same; a
 * `send` waits for the `recv` of its peer, and a `recv` for its `send`.
 */
export interface CollectiveSpec {
  readonly kind: (typeof collectiveKinds)[number]
  readonly communicator: number
  readonly count: number
  readonly dtype: DType
  readonly how?: (typeof collectiveReductions)[number]
  readonly root?: number
  readonly peer?: number
  readonly pairs?: readonly (readonly [number, number])[]
}

export type Command =
  | readonly ['alloc', buffer: number, lane: number]
  | readonly ['free', buffer: number]
  | readonly ['run', node: number, lane: number, reads: readonly number[], writes: readonly number[]]
  | readonly ['record', event: number, lane: number]
  | readonly ['wait', event: number, lane: number]
  | readonly ['wait', event: number, lane: number, tick: -1]
  | readonly ['use', buffer: number, lane: number, event: number]

export const laws = ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7', 'L8', 'L9', 'L10', 'L11'] as const
export type Law = (typeof laws)[number]

/** All but L5 and L6, which concern quality. */
export const safetyLaws: readonly Law[] = laws.filter(law => law !== 'L5' && law !== 'L6')

/**
 * One broken law: its place and description. `command` is an index into `commands`, -1 where no single
 * command is at fault.
 */
export interface Violation {
  readonly law: Law
  readonly command: number
  readonly buffer?: number
  readonly lane?: number
  readonly event?: number
  /** The plan's place in the list, where several were verified. */
  readonly rank?: number
  /** The whole sentence: the command, the buffer by name, the expected and the actual order. */
  readonly message: string
}

export type { BoundSpec }
