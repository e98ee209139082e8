// How to add an operator:
//
// 1. Write one file here, named after the operator. It exports the public function (`relu`), with a docstring
//    that gives types, errors and the source, and the Operator (`reluOperator`): its type, its lowering and
//    its meaning. `elementwise` (one expression an element), `reduction` (along an axis) and
//    `collectiveOperator` (among ranks) make whole Operators; `apply` makes the node, `attrsOfCode` its
//    expression. `relu.ts` is the shortest example, `clamp.ts` one with options. An operator composed of
//    others (`composed`, as in `softmax.ts`) has no Operator. An expression needs nothing in `native/`; an
//    operator with a kernel of its own needs one for each device. No kernel is asked for a value without
//    elements: where the result has some although an operand has none, `withEmpty` says what it is.
// 2. Add one line to `all.ts`: the compiler and `interpret` find the Operator there, by name.
// 3. Add one line to `dsl/index.ts`: users import the function from there.
// 4. Test it in `spec/laws/language/operators.test.ts` or `compositions.test.ts`, and in
//    `spec/types/language.test-d.ts` what must not compile. Add it to the random graphs of
//    `spec/fixtures/graphs/random*.ts`: they compare every device with its meaning, and
//    `spec/conformance/generated-operators.mocked.test.ts` fails for an operator that none of them has. Add
//    it with an empty axis to `spec/conformance/empty-axes.test.ts`.
// 5. Add it to `docs/reference/operators.md` and to `CHANGELOG.md`.

import type { Either } from 'fp-ts/lib/Either.js'
import type { KernelSpec } from '../../ir/kernel-spec.js'
import type { CollectiveSpec } from '../../ir/plan.js'
import type { BoundSpec, TensorSpec } from '../../ir/tensor.js'
import type { UnplacedError } from '../messages.js'
import type { HostArray } from '../values.js'

/** What an operator becomes in a plan: a run, a view of its first input, or a collective. */
export type Lowering =
  | RunLowering
  | { readonly as: 'view'; readonly offsetBytes: number }
  | CollectiveLowering

/** A kernel. */
export interface RunLowering {
  readonly as: 'run'
  readonly kernel: KernelSpec
  /** Floating-point operations, and bytes read and written in device memory. */
  readonly flops: number
  readonly movedBytes: number
  /** Bytes of workspace that the kernel takes as its last write, one buffer a lane; 0: none. */
  readonly workspace: number
}

/** A collective over the node's communicator. `movedBytes`: read and written in this rank's memory. */
export interface CollectiveLowering extends Omit<CollectiveSpec, 'communicator' | 'peer'> {
  readonly as: 'collective'
  readonly movedBytes: number
}

/** What a node reads. */
export interface Read {
  readonly inputs: readonly number[]
  readonly attrs: Attrs
}

export type Attrs = Readonly<Record<string, unknown>>

/** One operator: its type (`infer`), its lowering and its meaning. Device values in, one device value out. */
export interface Operator {
  readonly name: string
  /**
   * The result's type. Runs when the node is made, with symbols (compared by name), and again in `check` with
   * every dimension bound.
   */
  infer(inputs: readonly TensorSpec[], attrs: Attrs): Either<UnplacedError, TensorSpec>
  lower(inputs: readonly BoundSpec[], output: BoundSpec, attrs: Attrs): Lowering
  /** The result has the type that its inputs have together, whatever the attributes say. */
  readonly keepsType?: true
  /** Whether `lower` may yield a view: the result may be the memory of the first input. */
  readonly mayBeView?: true
  /**
   * The result is made in the memory of the first input: the kernel's first write is its first read. Where
   * something reads that value later, the compiler copies it first.
   */
  readonly takesMemory?: true
  /**
   * The inputs that a node reads, and its attributes with these alone: of the others it needs the shape, which
   * its result has too. Undefined, or absent: it reads all.
   */
  reads?(inputs: readonly number[], attrs: Attrs): Read | undefined
  /**
   * The result, where that has elements and an input has none: one number, which every element is; or the
   * inputs, by index, of which the same operator makes it, and one alone is the result itself. Absent: there
   * is no such result.
   */
  withEmpty?(inputs: readonly BoundSpec[], attrs: Attrs): number | readonly number[]
  /**
   * The meaning: a fresh array. The results of every device are compared with this. It is not asked for a
   * result without elements.
   */
  reference(
    inputs: readonly HostArray[],
    specs: readonly BoundSpec[],
    output: BoundSpec,
    attrs: Attrs,
  ): HostArray
  /**
   * Of a collective: the meaning among the ranks of a group. Takes the ranks' values by place and yields
   * their results by place; several places may share one array. `reference` is the meaning for a group of one
   * rank.
   */
  exchange?(
    given: readonly HostArray[],
    spec: BoundSpec,
    output: BoundSpec,
    attrs: Attrs,
  ): readonly HostArray[]
  /**
   * The largest error that a device may show against `reference`, relative to the largest element of the
   * result, or to `scale` where that is larger; 0: bit for bit.
   */
  tolerance(output: BoundSpec, inputs: readonly BoundSpec[], attrs: Attrs): number
  /**
   * The reference, each of whose steps is off by as much as a device may be, in the direction of each element:
   * 1 or -1. Absent: each element is off by the tolerance.
   */
  off?(
    inputs: readonly HostArray[],
    specs: readonly BoundSpec[],
    output: BoundSpec,
    attrs: Attrs,
    directions: Int8Array,
  ): HostArray
  /**
   * The magnitude of what the result is made of, from that of the largest element of each input: where terms
   * cancel, the result is smaller than what rounding left of them.
   */
  scale?(largest: readonly number[], inputs: readonly BoundSpec[], attrs: Attrs): number
}
