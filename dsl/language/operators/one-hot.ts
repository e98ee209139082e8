import * as E from 'fp-ts/lib/Either.js'
import type { MapSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  isFloat,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { isDType, maxRank } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import type { Device, Shape } from './types.js'

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { classes, to } = attrs as { readonly classes: number; readonly to: DType }
  if (isFloat(x!.dtype))
    return E.left(dtypeMismatch('classes of i32 or u8', showSpec(x!), "cast them: pipe(cast('i32'))"))
  return x!.shape.length < maxRank
    ? E.right({ dtype: to, shape: [...x!.shape, classes] })
    : E.left(shapeMismatch(`at most ${maxRank - 1} dimensions`, showSpec(x!), 'reshape it to fewer'))
}

const spec = (x: BoundSpec, output: BoundSpec): MapSpec => ({
  kind: 'map',
  shape: [elements(x.shape), output.shape.at(-1)!],
  compute: 'i32',
  operands: [{ dtype: x.dtype, offset: 0, strides: [1, 0] }],
  code: [
    ['operand', 0],
    ['index', 1],
    ['eq', 0, 1],
  ],
  results: [{ value: 2, dtype: output.dtype }],
})

export const oneHotOperator: Operator = {
  name: 'oneHot',
  infer,
  lower: ([x], output) => ({
    as: 'run',
    kernel: spec(x!, output),
    flops: elements(output.shape),
    movedBytes: tensorBytes(x!) + tensorBytes(output),
    workspace: 0,
  }),
  reference: (inputs, [x], output) => runMap(spec(x!, output), inputs)[0]!,
  tolerance: () => 0,
}

export interface OneHotOptions<N extends number = number, E extends DType = DType> {
  /** How many there are: the size of the new last axis. */
  readonly classes: N
  /** The element type of the result; f32 where it is left out. */
  readonly dtype?: E
}

const attrsOf = (options: unknown): E.Either<UnplacedError, Attrs> => {
  const { classes, dtype = 'f32' } = named(options)
  return Number.isSafeInteger(classes) &&
    (classes as number) > 0 &&
    (classes as number) < 2 ** 31 &&
    isDType(dtype)
    ? E.right({ classes, to: dtype })
    : E.left(
        badAttribute(
          'classes: a whole number from 1 to 2147483647, and perhaps an element type',
          show(options),
          "as in oneHot({ classes: 10, dtype: 'bf16' })",
        ),
      )
}

/**
 * A further last axis with 1 at the place that the element names, and 0 elsewhere: of classes in i32 or u8
 * (torch.nn.functional.one_hot). A class below 0 or beyond the last one has no 1.
 */
export const oneHot = <const N extends number, E extends DType = 'f32'>(options: OneHotOptions<N, E>) => {
  const at = here()
  const hot = (x: unknown): unknown =>
    apply(
      oneHotOperator,
      at,
      x,
      [],
      withOptions(options, ['classes', 'dtype'], () => attrsOf(options)),
    )
  return hot as unknown as <D extends 'i32' | 'u8', S extends Shape>(
    x: Device<D, S>,
  ) => Device<E, number extends S['length'] ? Shape : readonly [...S, N]>
}
