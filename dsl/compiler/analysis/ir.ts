import type { GraphNode, GraphOutput, LaneSpec, Where } from '../../ir/graph.js'
import type { KernelSpec } from '../../ir/kernel-spec.js'
import type { BoundKind, CollectiveSpec, PlanCommunicator, PlanLane } from '../../ir/plan.js'
import type { BoundSpec, DType } from '../../ir/tensor.js'
import type { BoundKernel } from '../../language/bound-kernel.js'
import type { InitData } from '../../language/initial-value.js'
import type { FlatCommands } from '../../order/flat-commands.js'
import type { Settings } from './options.js'

// The typed forms between passes. Each extends the one before, so a pass only adds what it found.

/**
 * The graph with every dimension bound. `specs[i]` is the type of node i; a node's inputs have smaller ids
 * than it, except the inputs of delays.
 */
export interface Checked {
  readonly settings: Settings
  readonly nodes: readonly GraphNode[]
  readonly specs: readonly BoundSpec[]
  readonly outputs: readonly Output[]
  /** By node, after `devices`, in a graph for several devices; absent: all nodes are on device 0. */
  readonly deviceOf?: readonly number[]
  /**
   * By node, of a graph that had rates: a number that is the same for nodes which come equally often, at the
   * same instant of the tick.
   */
  readonly turnOf?: readonly number[]
  /** Whether the graph had rates, and `unroll` made instances of its nodes. */
  readonly unrolled?: boolean
  /** Set by `fuse`: attention may write the rows that are appended to what it reads. */
  readonly joinsAppends?: true
}

/**
 * An output; one of several values holds its `parts` one after the other, and `spec` is the type of the
 * whole.
 */
export interface Output extends GraphOutput {
  readonly parts?: { readonly nodes: readonly number[]; readonly spec: BoundSpec; readonly rate: number }
}

/**
 * A buffer whose home lane is not known yet. `root` is the buffer whose bytes it views; itself if it is no
 * view.
 */
export interface Buffer {
  readonly name: string
  readonly bytes: number
  readonly space: 'device' | 'pinned'
  readonly life: 'tick' | 'state' | 'param' | 'input' | 'output'
  readonly root: number
  readonly offset: number
  /** The device whose memory it is in; absent: 0. */
  readonly device?: number
  readonly dtype?: DType
  readonly shape?: readonly number[]
  readonly init?: number | readonly number[] | 'given'
  /** How many values an input or output holds, one after the other; absent: 1. */
  readonly rate?: number
  /** Of a state, the user's line: no operation may read or write it. */
  readonly at?: Where
}

/**
 * The collective that an operation is, with its communicator by index, and the number of ranks in a group.
 */
export interface Collective extends CollectiveSpec {
  readonly ranks: number
}

/**
 * An operation becomes one run command. `after`: the operations that must be issued before it, for their data
 * or for memory; valid until `order`, which renumbers operations by their place in the issue order.
 */
export interface Operation {
  readonly op: string
  readonly name: string
  readonly at: Where
  readonly kernel: KernelSpec | undefined
  readonly flops: number
  readonly movedBytes: number
  readonly reads: readonly number[]
  readonly writes: readonly number[]
  readonly after: readonly number[]
  /** Its kind for placing and ordering; a `store` writes the next value of a state. */
  readonly kind: 'upload' | 'download' | 'peer' | 'collective' | 'store' | 'compute'
  readonly collective?: Collective | undefined
  /** The lane that the user gave. */
  readonly lane: LaneSpec | undefined
  /** The device that it runs on; absent: 0. */
  readonly device?: number
  /** Bytes of scratch wanted from the lane's workspace; 0: none. */
  readonly workspace: number
  /**
   * How far an upload or collective may run ahead of its reader, counted in operations of its window;
   * undefined: no window.
   */
  readonly ahead: number | undefined
  readonly tolerance: number
  /** The user's kernel, whose meaning goes into the provenance of the plan. */
  readonly user: BoundKernel | undefined
}

/**
 * An order that the user asked for without data: `later` begins when `earlier` has finished, or when it has
 * started. `earlier` is in the list `after` of the later operation too.
 */
export interface ControlEdge {
  readonly later: number
  readonly earlier: number
  readonly when: 'start' | 'finish'
}

/**
 * The buffers that each operation accesses, in flat columns: operation i reads `root[start[i] .. written[i]]`
 * and writes `root[written[i] .. start[i + 1]]`. A view is listed by the buffer whose bytes it has (its
 * root).
 */
export interface Accesses {
  readonly start: Int32Array
  readonly written: Int32Array
  readonly root: Int32Array
  /** As `root`, with views by their own ids; the same array where there are no views. */
  readonly named: Int32Array
}

/** Why a value is copied before a kernel changes it. */
export type CopiedFor =
  | 'later reader'
  | 'read twice'
  | 'output'
  | 'state'
  | 'not a value of the tick'
  | 'donations'
  | 'order of elements'
  | 'reduced rows'

/** Why rows are appended by a kernel of its own, and not by that of the attention which reads the value. */
export type WhySeparate =
  | 'keys or values alone'
  | 'other rows'
  | 'many queries'
  | 'other layout'
  | 'ordered by after'
  | 'another lane'
  | 'one memory'
  | 'touched between'
  | 'far apart'
  | 'donations'

/**
 * A kernel that changes a value in its memory or makes the next value of a state there; or, `copied`,
 * elsewhere.
 */
export interface Change {
  readonly name: string
  /** The name of the value, or of the state. */
  readonly of: string
  /** Whether it is the next value of a state. */
  readonly state?: true
  /** The kernel of attention that does it, where it is none of its own. */
  readonly by?: string
  /** Of rows that are appended to what attention reads: why its kernel does not do it. */
  readonly whySeparate?: { readonly reader: string; readonly because: WhySeparate }
  readonly at: Where
  readonly copied?: CopiedFor
  /** The name of the reader because of which it is a copy. */
  readonly reader?: string
}

/** Operations over buffers: without lanes, in no particular order. */
export interface Lowered {
  /** By state buffer: first values that are not in the plan. Absent where there are none. */
  readonly inits?: ReadonlyMap<number, InitData>
  /** What is decided for kernels that change a value in its memory. Absent where there are none. */
  readonly changes?: readonly Change[]
  /** Whether some copies may have several sources. */
  readonly gathers?: true
  /** Absent where there are none. */
  readonly control?: readonly ControlEdge[]
  /** Absent where there are no collectives. */
  readonly communicators?: readonly PlanCommunicator[]
  readonly settings: Settings
  readonly operations: readonly Operation[]
  readonly buffers: readonly Buffer[]
  readonly accesses: Accesses
}

/** Every operation has a lane: `laneOf[i]` is an index into `lanes`. */
export interface Placed extends Lowered {
  /**
   * The numbers of lanes that were tried for operations without a lane of the user's: predicted nanoseconds a
   * tick, and waits.
   */
  readonly tried?: readonly { readonly lanes: number; readonly tick: number; readonly waits: number }[]
  readonly lanes: readonly PlanLane[]
  readonly laneOf: Int32Array
}

/**
 * An order for the sake of memory: `later` waits for `earlier` of this tick (0) or of the tick before (-1).
 */
export interface WindowEdge {
  readonly later: number
  readonly earlier: number
  readonly tick: 0 | -1
}

/**
 * An order that two collectives need; those over the same communicator begin in issue order without a wait.
 */
export interface CollectiveEdge extends WindowEdge {
  readonly sameCommunicator: boolean
}

/** Operation i is issued i-th; `lanes` are those that are used, in order of first use. */
export interface Ordered extends Placed {
  readonly windows: readonly WindowEdge[]
  /** Absent where collectives need no order. */
  readonly collectiveEdges?: readonly CollectiveEdge[]
  /** Whether a window keeps its memory: freed where its next upload takes it, not before. */
  readonly keep: boolean
}

/**
 * `clocks[i · lanes + m]`: how many operations of lane m are known to be done when operation i is done,
 * itself among them. Operation i waits for the operations `waitOn[waitStart[i] .. waitStart[i + 1]]`, of this
 * tick (`waitTick` 0) or of the tick before (-1). `position[i]`: how many operations of its lane come before
 * operation i.
 */
export interface Synchronized extends Ordered {
  readonly position: Int32Array
  readonly clocks: Int32Array
  readonly waitStart: Int32Array
  readonly waitOn: Int32Array
  readonly waitTick: Int8Array
  /** 1 where wait w is for the start of `waitOn[w]`, not for its end; absent where no wait is for a start. */
  readonly begins?: Uint8Array
}

/** The waits of every operation and its clock. */
export type Waits = Pick<Synchronized, 'position' | 'clocks' | 'waitStart' | 'waitOn' | 'waitTick'>

/**
 * Planned storage: the offset of each root in its device's arena (-1 for views and pinned memory), and the
 * arenas' sizes.
 */
export interface Arena {
  readonly offset: Float64Array
  readonly bytes: readonly number[]
}

/** Where each tick buffer is allocated, used and freed. */
export interface Lifetimes extends Synchronized {
  /** By buffer: its home lane; for a view, that of its root. */
  readonly home: Int32Array
  /**
   * The first operation that accesses each tick buffer, and the operation after which it is freed; -1 for
   * other buffers.
   */
  readonly first: Int32Array
  readonly last: Int32Array
  /** Operation i is followed by uses of the buffers `useBuffer[useStart[i] .. useStart[i + 1]]`. */
  readonly useStart: Int32Array
  readonly useBuffer: Int32Array
  readonly elidedUses: number
  /** Planned storage only: nothing is allocated, used or freed then. */
  readonly arena?: Arena
}

/** A candidate of the search, and the figures of its plan. */
export interface Evaluation {
  readonly by: 'critical path' | 'time' | 'program'
  /** The most lanes for operations without a lane of the user's. */
  readonly spread: number
  /** The most that any upload may run ahead of its reader; it narrows windows of the user's. */
  readonly ahead: number
  /** Windows that the search gave to uploads without one of the user's. */
  readonly windows: readonly { readonly lane: string; readonly ahead: number }[]
  /**
   * Predicted nanoseconds from tick to tick, of the first tick from its start to its end, and of a tick the
   * time for which the issuing thread waits for a lane's full queue. NaN for graphs too large to predict.
   */
  readonly tick: number
  readonly latency: number
  readonly blocked: number
  /** Bytes of device memory on the device that holds most. */
  readonly bound: number
}

/** The chosen candidate, and all that were evaluated. */
export interface Choice {
  readonly chosen: Evaluation
  readonly tried: readonly Evaluation[]
}

export interface Bounded extends Lifetimes {
  readonly bound: { readonly device: readonly number[]; readonly pinned: number }
  readonly boundKind: BoundKind | undefined
  /**
   * The commands, where the bound was found from them: of a million operations a second copy is too large.
   */
  readonly flat: FlatCommands | undefined
  readonly choice?: Choice
}
