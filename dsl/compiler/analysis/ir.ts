import type { GraphNode, GraphOutput, LaneSpec, Where } from '../../ir/graph.js'
import type { KernelSpec } from '../../ir/kernel-spec.js'
import type { CollectiveSpec, PlanCommunicator, PlanLane } from '../../ir/plan.js'
import type { BoundSpec, DType } from '../../ir/tensor.js'
import type { Peak } from '../../memory/peak.js'
import type { Accesses } from './accesses.js'
import type { Settings } from './options.js'
import type { BoundKernel } from './user-kernel.js'

/** The graph with every dimension bound. `specs[i]` is the type of node i; inputs of a node are smaller than it, but for delays. */
export interface Checked {
  readonly settings: Settings
  readonly nodes: readonly GraphNode[]
  readonly specs: readonly BoundSpec[]
  readonly outputs: readonly Output[]
  /** By node, once `devices` has run, of a graph for several; absent: all of it is on device 0. */
  readonly deviceOf?: readonly number[]
  /** Of a graph that had rates (passes/unroll.ts). */
  readonly unrolled?: boolean
}

/** An output; of several values, `parts` are the host values that it holds one after the other, and `spec` is the type of all. */
export interface Output extends GraphOutput {
  readonly parts?: { readonly nodes: readonly number[]; readonly spec: BoundSpec; readonly rate: number }
}

/** A buffer before its home is known. `root` is the buffer whose bytes it views, itself if it is no view. */
export interface Buffer {
  readonly name: string
  readonly bytes: number
  readonly space: 'device' | 'pinned'
  readonly life: 'tick' | 'state' | 'param' | 'input' | 'output'
  readonly root: number
  readonly offset: number
  /** Of device memory the device that it is on; absent: 0. */
  readonly device?: number
  readonly dtype?: DType
  readonly shape?: readonly number[]
  readonly init?: number | readonly number[]
  /** Of an input or an output: how many values it holds, one after the other; more than 1. */
  readonly rate?: number
}

/** What an operation says to other ranks, by index among `communicators`, and how many of them there are in a group. */
export interface Collective extends CollectiveSpec {
  readonly ranks: number
}

/**
 * One run command to be. `after` names operations that must be issued before it, data and hazards of memory, as they are numbered
 * until `order`: from then on their place says it.
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
  /** What it is for placing and ordering: a copy in, a copy out, a copy from another device, work with other ranks, a store of state, or work. */
  readonly kind: 'upload' | 'download' | 'peer' | 'collective' | 'store' | 'compute'
  /** Of those of that kind. */
  readonly collective?: Collective | undefined
  /** The lane that the user gave. */
  readonly lane: LaneSpec | undefined
  /** Where it runs; absent: on device 0. */
  readonly device?: number
  /** Bytes of scratch wanted from the lane's workspace; 0: none. */
  readonly workspace: number
  /** Of uploads and collectives: at most so many ahead of their reader; undefined: no window. */
  readonly ahead: number | undefined
  readonly tolerance: number
  /** A user's kernel, whose meaning travels beside the plan. */
  readonly user: BoundKernel | undefined
}

/**
 * An order that the user asked for without data: `later` begins when `earlier` has finished, or when its lane has come to it. `earlier` stands in `after` of the later
 * one too; numbered as operations are.
 */
export interface ControlEdge {
  readonly later: number
  readonly earlier: number
  readonly when: 'start' | 'finish'
}

/** Operations and buffers, no lanes, in no particular order. */
export interface Lowered {
  /** Whether there may be copies of several sources. */
  readonly gathers?: true
  /** Absent where there are none. */
  readonly control?: readonly ControlEdge[]
  /** Whom collectives are with; absent where there are none. */
  readonly communicators?: readonly PlanCommunicator[]
  readonly settings: Settings
  readonly operations: readonly Operation[]
  readonly buffers: readonly Buffer[]
  readonly accesses: Accesses
}

/** Every operation has a lane; `laneOf[i]` is an index into `lanes`, in no particular order. */
export interface Placed extends Lowered {
  /** By how many lanes for what the user gave none were looked at: nanoseconds a tick and waits. None where there was nothing to choose. */
  readonly tried?: readonly { readonly lanes: number; readonly tick: number; readonly waits: number }[]
  readonly lanes: readonly PlanLane[]
  readonly laneOf: Int32Array
}

/** An order that memory asks for beyond data: `later` waits for `earlier`, of this tick (0) or of the tick before (-1). */
export interface WindowEdge {
  readonly later: number
  readonly earlier: number
  readonly tick: 0 | -1
}

/** An order that two collectives need. `own`: they are over one communicator, whose calls begin in issue order with no wait. */
export interface CollectiveEdge extends WindowEdge {
  readonly sameCommunicator: boolean
}

/** Operation i is issued i-th; lanes are those that are used, in order of first use. */
export interface Ordered extends Placed {
  readonly windows: readonly WindowEdge[]
  /** Absent where collectives need none. */
  readonly collectiveEdges?: readonly CollectiveEdge[]
  /** Whether a window's memory stays its own: freed where the next upload takes it, not before. */
  readonly keep: boolean
}

/**
 * `clocks[i · lanes + m]`: how many operations of lane m are known to be done when operation i is, itself among them. Waits of operation i are
 * `waitOn[waitStart[i] .. waitStart[i + 1]]`, operations of this tick (`waitTick` 0) or of the one before (-1).
 */
export interface Synchronized extends Ordered {
  readonly position: Int32Array
  readonly clocks: Int32Array
  readonly waitStart: Int32Array
  readonly waitOn: Int32Array
  readonly waitTick: Int8Array
  /** 1 where a wait is for the start of `waitOn[w]`, which waits for something itself; absent where none is. */
  readonly begins?: Uint8Array
}

/** The waits of every operation and its clock. */
export type Waits = Pick<Synchronized, 'position' | 'clocks' | 'waitStart' | 'waitOn' | 'waitTick'>

/** With planned storage: the place of each root in its device's arena (-1: none, as of views and pinned memory), and the arenas' sizes. */
export interface Arena {
  readonly offset: Float64Array
  readonly bytes: readonly number[]
}

/** A use: buffer's last read on a foreign lane, by operation `after`. */
export interface Lifetimes extends Synchronized {
  /** The home lane of each root buffer (of a view: its root's). */
  readonly home: Int32Array
  /** The first operation that touches each tick buffer, and the one after which it is freed; -1 for the others. */
  readonly first: Int32Array
  readonly last: Int32Array
  /** Uses that are kept, by operation: `useBuffer[useStart[i] .. useStart[i + 1]]`, right after operation i. */
  readonly useStart: Int32Array
  readonly useBuffer: Int32Array
  readonly elidedUses: number
  /** With planned storage: nothing is allocated, used or freed then. */
  readonly arena?: Arena
}

/** One way to place and order a graph, and what it comes to. */
export interface Evaluation {
  readonly by: 'critical path' | 'time' | 'program'
  /** Lanes that work without a lane of the user's may be spread over, at most. */
  readonly spread: number
  /** The most that any upload may run ahead of its reader, whatever the user asked for. */
  readonly ahead: number
  /** How far the uploads of a lane that the user gave no window run ahead: one that the compiler found. */
  readonly windows: readonly { readonly lane: string; readonly ahead: number }[]
  /** Nanoseconds from tick to tick, by the machine's figures; of these the issuing thread waited so long for a lane's full queue. NaN in graphs too large to predict. */
  readonly tick: number
  readonly blocked: number
  /** Bytes of device memory, of the device that holds most. */
  readonly bound: number
}

/** What was chosen, and all that was looked at for it. */
export interface Choice {
  readonly chosen: Evaluation
  readonly tried: readonly Evaluation[]
}

export interface Bounded extends Lifetimes {
  /** What L9 says of the plan. */
  readonly peak: Peak
  readonly bound: { readonly device: readonly number[]; readonly pinned: number }
  readonly choice?: Choice
}
