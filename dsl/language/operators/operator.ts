import type { Either } from 'fp-ts/lib/Either.js'
import type { KernelSpec } from '../../ir/kernel-spec.js'
import type { CollectiveSpec } from '../../ir/plan.js'
import type { BoundSpec, TensorSpec } from '../../ir/tensor.js'
import type { HostArray } from '../values.js'

/** Why an operator cannot take what it was given; the graph adds where. */
export interface Misfit {
  readonly _tag: 'ShapeMismatch' | 'DTypeMismatch' | 'BadAttribute'
  readonly wanted: string
  readonly found: string
  readonly next: string
}

/** What an operator becomes in a plan: work, a view of its first input that starts `offsetBytes` in, or work that ranks do together. */
export type Lowering =
  | {
      readonly as: 'run'
      readonly kernel: KernelSpec
      /** Floating-point operations, and bytes read and written in device memory. */
      readonly flops: number
      readonly movedBytes: number
      /** Bytes of scratch wanted as a last write (the lane's workspace buffer); 0: none. */
      readonly workspace: number
    }
  | { readonly as: 'view'; readonly offsetBytes: number }
  | CollectiveLowering

/** A collective over the node's communicator. `movedBytes`: read and written in this rank's memory. */
export interface CollectiveLowering extends Omit<CollectiveSpec, 'communicator' | 'peer'> {
  readonly as: 'collective'
  readonly movedBytes: number
}

export type Attrs = Readonly<Record<string, unknown>>

/** One operator: its type (`infer`), its lowering and its meaning. Device value(s) in, one device value out. */
export interface Operator {
  readonly name: string
  /** The value's spec. Runs when the node is made, with symbols (compared by name), and again in `check` with every dimension bound. */
  infer(inputs: readonly TensorSpec[], attrs: Attrs): Either<Misfit, TensorSpec>
  lower(inputs: readonly BoundSpec[], output: BoundSpec, attrs: Attrs): Lowering
  /** The meaning: a fresh array. The law of the project holds every device against this. */
  reference(
    inputs: readonly HostArray[],
    specs: readonly BoundSpec[],
    output: BoundSpec,
    attrs: Attrs,
  ): HostArray
  /**
   * Of a collective: its meaning among the ranks of a group, by place. What each gave, then what each gets; those may be one array. `reference` is that of a rank alone.
   */
  exchange?(
    given: readonly HostArray[],
    spec: BoundSpec,
    output: BoundSpec,
    attrs: Attrs,
  ): readonly HostArray[]
  /** The largest relative error a device may show against `reference`; 0: bit for bit. */
  tolerance(output: BoundSpec, inputs: readonly BoundSpec[], attrs: Attrs): number
}
