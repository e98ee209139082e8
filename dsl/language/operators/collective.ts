import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import type { CollectiveSpec } from '../../ir/plan.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, elements, showSpec, type TensorSpec, tensorBytes } from '../../ir/tensor.js'
import { type FlowValue, piped } from '../builder.js'
import { type Communicator, communicatorOf } from '../communicator.js'
import { badAttribute, shapeMismatch, type UnplacedError } from '../messages.js'
import type { HostArray } from '../values.js'
import type { Attrs, Operator } from './operator.js'

/** The parts of a collective's operator that differ from one collective to another. */
export interface Collective {
  readonly name: CollectiveSpec['kind']
  infer(x: TensorSpec, size: number, attrs: Attrs): E.Either<UnplacedError, TensorSpec>
  /** Elements as `CollectiveSpec.count` has them; absent: those of the input. */
  count?(input: BoundSpec, output: BoundSpec): number
  /** As `Operator.exchange`. */
  exchange(
    given: readonly HostArray[],
    spec: BoundSpec,
    output: BoundSpec,
    attrs: Attrs,
  ): readonly HostArray[]
  /** The largest relative error among `size` ranks; absent: bit for bit. */
  tolerance?(input: BoundSpec, size: number, attrs: Attrs): number
  /** Its lowering and meaning for a group of one rank; absent: the value itself. */
  readonly alone?: Pick<Operator, 'lower' | 'reference'>
}

const sizeOf = (attrs: Attrs): number => communicatorOf({ attrs })?.size ?? 1

const itself: Pick<Operator, 'lower' | 'reference'> = {
  lower: () => ({ as: 'view', offsetBytes: 0 }),
  reference: ([x]) => x!.slice(),
}

/** The operator of a collective. Among one rank it is a view of the value, and nothing is sent. */
export const collectiveOperator = (of: Collective): Operator => ({
  name: of.name,
  infer: ([x], attrs) => of.infer(x!, sizeOf(attrs), attrs),
  lower: (inputs, output, attrs) => {
    if (sizeOf(attrs) === 1) return (of.alone ?? itself).lower(inputs, output, attrs)
    const input = inputs[0]!
    const { how, root, pairs } = attrs as Partial<CollectiveSpec>
    return {
      as: 'collective',
      kind: of.name,
      count: of.count?.(input, output) ?? elements(input.shape),
      dtype: input.dtype,
      ...(how === undefined ? {} : { how }),
      ...(root === undefined ? {} : { root }),
      ...(pairs === undefined ? {} : { pairs }),
      movedBytes: tensorBytes(input) + tensorBytes(output),
    }
  },
  reference: (of.alone ?? itself).reference,
  exchange: of.exchange,
  tolerance: (_output, inputs, attrs) =>
    sizeOf(attrs) === 1 ? 0 : (of.tolerance?.(inputs[0]!, sizeOf(attrs), attrs) ?? 0),
})

/** A call of a collective's function, for the errors of its arguments. */
export interface Call {
  readonly source: FlowValue
  readonly at: Where
  readonly name: string
  /** Ranks of a group; without a communicator, the largest size allowed. */
  readonly size: number
}

export const reportAttribute = (
  { source, at, name }: Call,
  wanted: string,
  found: unknown,
  next: string,
): void => source.builder.report(at, name, badAttribute(wanted, show(found), next))

export const isPlace = (place: unknown, { size }: Call): place is number =>
  Number.isSafeInteger(place) && (place as number) >= 0 && (place as number) < size

/**
 * Makes the node of a collective on the collective's own lane. Compute that follows runs where the piped flow
 * decides. `own` checks the arguments that only this collective has.
 */
export const collective = (
  operator: Operator,
  at: Where,
  x: unknown,
  world: unknown,
  lane: unknown,
  own: (call: Call) => Attrs = () => ({}),
): FlowValue => {
  const { name } = operator
  const source = piped(x, 'device', at, name)
  const { builder, id, hint } = source
  const known: Communicator | undefined = builder.communicator(world, at, name)
  const given = own({ source, at, name, size: known?.size ?? limits.ranks })
  const attrs: Attrs = known === undefined ? given : { communicator: known, ...given }
  const inferred = known === undefined ? E.right(source.spec) : operator.infer([source.spec], attrs)
  if (E.isLeft(inferred)) builder.report(at, name, inferred.left)
  const spec = E.isRight(inferred) ? inferred.right : source.spec
  return builder.flow(
    { op: name, inputs: [id], attrs, spec, place: 'device', lane: builder.lane(lane, at, name), at },
    hint,
  )
}

/** The type of a value whose leading dimension is a part for each rank. */
export const parted = (x: TensorSpec, size: number, name: string): E.Either<UnplacedError, TensorSpec> =>
  x.shape[0] === size
    ? E.right(x)
    : E.left(
        shapeMismatch(
          `a leading dimension of ${size}, the size of the communicator: a part for each rank`,
          showSpec(x),
          `reshape it first, as in pipe(reshape([${size}, -1]), ${name}(…))`,
        ),
      )

/** The parts of a value, one after the other. */
export const partsOf = (value: HostArray, size: number): readonly HostArray[] => {
  const length = value.length / size
  return Array.from({ length: size }, (_, place) => value.slice(place * length, (place + 1) * length))
}
