import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import type { CollectiveSpec } from '../../ir/plan.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, elements, showSpec, type TensorSpec, tensorBytes } from '../../ir/tensor.js'
import { type Builder, builderOf, type FlowValue } from '../builder.js'
import { type Communicator, communicatorOf } from '../communicator.js'
import type { HostArray } from '../values.js'
import type { Attrs, Misfit, Operator } from './operator.js'

/** What tells one collective from another; the rest of its operator is the same for all. */
export interface Collective {
  readonly name: CollectiveSpec['kind']
  infer(x: TensorSpec, size: number, attrs: Attrs): E.Either<Misfit, TensorSpec>
  /** Elements as `CollectiveSpec.count` has them; the input's own where that says nothing else. */
  count?(input: BoundSpec, output: BoundSpec): number
  /** By place: what each rank of a group gave, then what each gets. */
  exchange(
    given: readonly HostArray[],
    spec: BoundSpec,
    output: BoundSpec,
    attrs: Attrs,
  ): readonly HostArray[]
  /** The largest relative error among `size` ranks; absent: bit for bit. */
  tolerance?(input: BoundSpec, size: number, attrs: Attrs): number
  /** What it is of one rank, where that is not the value itself. */
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

/** The place where a collective was called, for the mistakes of its arguments. */
export interface Call {
  readonly builder: Builder
  readonly at: Where
  readonly subject: string
  readonly source: FlowValue
  /** Ranks of a group; the most that there may be where no communicator was given. */
  readonly size: number
}

export const mistaken = (
  { builder, at, subject }: Call,
  wanted: string,
  found: unknown,
  next: string,
): void => builder.problem(at, subject, { _tag: 'BadAttribute', wanted, found: show(found), next })

export const isPlace = (place: unknown, { size }: Call): place is number =>
  Number.isSafeInteger(place) && (place as number) >= 0 && (place as number) < size

/** Makes the node of a collective: on its own lane, while what follows goes where the piped flow says. `own` checks the arguments that only it has. */
export const collective = (
  operator: Operator,
  at: Where,
  x: unknown,
  world: unknown,
  lane: unknown,
  own: (call: Call) => Attrs = () => ({}),
): FlowValue => {
  const builder = builderOf(x)
  const subject = operator.name
  const source = builder.take(x, 'device', at, subject, 'the piped value', { dtype: 'f32', shape: [] })
  const known: Communicator | undefined = builder.communicator(world, at, subject)
  const given = own({ builder, at, subject, source, size: known?.size ?? limits.ranks })
  const attrs: Attrs = known === undefined ? given : { communicator: known, ...given }
  const inferred = known === undefined ? E.right(source.spec) : operator.infer([source.spec], attrs)
  if (E.isLeft(inferred)) builder.problem(at, subject, inferred.left)
  return builder.flow(
    {
      op: operator.name,
      inputs: [source.id],
      attrs,
      spec: E.isRight(inferred) ? inferred.right : source.spec,
      place: 'device',
      lane: builder.lane(lane, at, subject),
      at,
    },
    source.hint,
  )
}

/** The type of a value whose leading dimension is a part for each rank. */
export const parted = (x: TensorSpec, size: number, name: string): E.Either<Misfit, TensorSpec> =>
  x.shape[0] === size
    ? E.right(x)
    : E.left({
        _tag: 'ShapeMismatch',
        wanted: `a leading dimension of ${size}, the size of the communicator: a part for each rank`,
        found: showSpec(x),
        next: `reshape it first, as in pipe(reshape([${size}, -1]), ${name}(…))`,
      })

/** The parts of a value, one after the other. */
export const partsOf = (value: HostArray, size: number): readonly HostArray[] => {
  const length = value.length / size
  return Array.from({ length: size }, (_, place) => value.slice(place * length, (place + 1) * length))
}
