import type { Where } from '../../ir/graph.js'
import type { Plan } from '../../ir/plan.js'
import type { TensorSpec } from '../../ir/tensor.js'
import type { BoundKernel } from '../../language/bound-kernel.js'
import type { InitData } from '../../language/initial-value.js'
import type { PlanWorkload } from '../../machine/simulate/plan-workload.js'
import type { Change, Choice, Operation, Placed } from './ir.js'
import type { Settings } from './options.js'
import type { Passed } from './pass.js'

/** Where a lane of the plan comes from. */
export interface LaneOrigin {
  /** Names of the program's lanes that share it. */
  readonly named: readonly string[]
  /** Kinds of operations on it that the program gave no lane. */
  readonly chosen: readonly Operation['kind'][]
}

/** Uploads or gathers of one lane that run at most `ahead` before their readers. */
export interface WindowDecision {
  readonly lane: string
  readonly ahead: number
  /** What the program or the search asked for; the search may have narrowed it to `ahead`. */
  readonly asked: number
  readonly operations: readonly string[]
  /** Whether the operations are collectives. */
  readonly gathers: boolean
  readonly at: string
}

/** `ticks`: predicted nanoseconds from tick to tick with one arena and with several, where both are known. */
export interface Arenas {
  readonly because: string
  readonly ticks?: { readonly one: number; readonly several: number }
}

/**
 * Predicted nanoseconds from tick to tick in each mode, and why graph mode was not taken: empty where it was.
 */
export interface Modes {
  readonly eager: number
  readonly graph: number
  readonly against: string
}

/** Kernels of which no kernel of several operations is made. */
export type OwnKernel =
  | 'product'
  | 'attention'
  | 'convolution'
  | 'running sum'
  | 'rows of one'
  | 'largest'
  | 'append'
  | 'concatenation'
  | 'random numbers'
  | 'indices'
  | 'kernel of the program'

/** Why the kernel of a product does not compute what reads it. */
export type BesideProduct =
  | 'view of a product'
  | 'another product'
  | 'another size'
  | 'waits for others'
  | 'after a residual'
  | 'after an activation'
  | 'late cast'
  | 'late scale'
  | 'two scales'
  | 'scale of 0'
  | 'another type'
  | 'neither bias nor residual'
  | 'no such function'

/** Why a value that one kernel makes and another one reads is stored. */
export type WhyStored =
  | `made by: ${OwnKernel}`
  | `read by: ${OwnKernel}`
  | BesideProduct
  | 'keep'
  | 'after'
  | 'window'
  | 'changed memory'
  | 'indexed'
  | 'worse plan'
  | 'read by several'
  | 'another lane'
  | 'another device'
  | 'another rate'
  | 'whole numbers and floats'
  | 'order of elements'
  | 'other rows'
  | 'too large'
  | 'longer'
  | 'memory'

export interface Stored {
  readonly name: string
  readonly reader: string
  readonly because: WhyStored
  readonly at: Where
}

/** What the pass `fuse` did, and why it did no more. Of large graphs the lists are cut short. */
export interface Fusion {
  /** How far the pass went; the last one is the one that was taken. */
  readonly effort: 'wide' | 'several' | 'free' | 'lean' | 'none'
  /** Kernels of several operations. */
  readonly kernels: number
  readonly regions: readonly {
    readonly name: string
    readonly members: readonly string[]
    readonly at: Where
  }[]
  /**
   * Values that one kernel makes and another one reads; of each other kernel the first operation that reads
   * it.
   */
  readonly apart: readonly Stored[]
  /** Why what was fused first was given up. */
  readonly rejected: readonly string[]
}

/** What the compiler decided and the plan does not say. */
export interface Decisions {
  readonly memory: Settings['memory']
  /** Under `mode: 'auto'`, where both modes were tried. */
  readonly modes?: Modes
  /** In graph mode: how many arenas ticks in flight have, and why. */
  readonly arenas?: Arenas
  /**
   * Reductions of few long lines that are done in parts, where any are; and the predicted nanoseconds from
   * tick to tick with them in parts and as wholes, where both were planned.
   */
  readonly parts?: {
    readonly lines: readonly { readonly name: string; readonly parts: number; readonly at: Where }[]
    readonly ticks?: { readonly parts: number; readonly whole: number }
  }
  /** Unless `fuse` is false. */
  readonly fusion?: Fusion
  /** Kernels that change a value in its memory, or in a copy of it. */
  readonly changes: readonly Change[]
  /** The most lanes that were allowed. */
  readonly mostLanes: number
  /** By lane of the plan. */
  readonly lanes: readonly LaneOrigin[]
  /** Predicted ticks of other numbers of lanes. */
  readonly lanesTried: NonNullable<Placed['tried']>
  readonly choice: Choice | undefined
  readonly windows: readonly WindowDecision[]
  /** Whether a window keeps its memory from one upload to the next. */
  readonly keepsWindows: boolean
}

/** What `compile` knows of a plan beside the plan, which is plain data that can be written to a file. */
export interface Provenance {
  /** By plan node: the meaning of the user's kernel. */
  readonly kernels: ReadonlyMap<number, BoundKernel>
  /** By state buffer: the first values that the plan does not have. */
  readonly inits: ReadonlyMap<number, InitData>
  /** By `input NAME`, `output NAME` or `param NAME`: the type as the graph has it, with symbols. */
  readonly ports: ReadonlyMap<string, TensorSpec>
  readonly decisions: Decisions
  /**
   * While plans are compared: what is predicted, by the number of ticks that have lanes of their own, and
   * from what.
   */
  readonly compared?: { readonly ticks: Map<number, number>; workload?: PlanWorkload }
  /** Where the plan's laws are not proved yet: proves them. */
  readonly prove?: () => Passed<Plan>
}

const records = new WeakMap<Plan, Provenance>()

/** Undefined for every plan that this process did not compile. */
export const provenanceOf = (plan: Plan): Provenance | undefined => records.get(plan)

export const recordProvenance = (plan: Plan, provenance: Provenance): void => {
  records.set(plan, provenance)
}

/**
 * Whether this process compiled the plan, and so proved every law for it: it is frozen, so what was proved
 * stays true.
 */
export const isProved = (plan: Plan): boolean => {
  const record = records.get(plan)
  return record !== undefined && record.prove === undefined
}
