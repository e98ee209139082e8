import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction, MapSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { maxRank } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { ofFloats } from './composition.js'
import { mapFlops, mapTolerance, runMapOff } from './elementwise.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { broadcast, broadcastStrides, coalesce, denseStrides } from './shapes.js'
import type { Device, Floats, Shape } from './types.js'

interface RopeAttrs {
  readonly base: number
  readonly interleaved: boolean
}

const attrsFrom = (attrs: Attrs): RopeAttrs => attrs as unknown as RopeAttrs

const infer = (inputs: readonly TensorSpec[]): E.Either<UnplacedError, TensorSpec> => {
  const [x, , positions] = inputs as readonly [TensorSpec, TensorSpec, TensorSpec?]
  const [rank, size] = [x.shape.length, x.shape.at(-1)]
  if (rank < 2 || rank >= maxRank || typeof size !== 'number' || size % 2 !== 0)
    return E.left(
      shapeMismatch(
        `a value of [..., places, size] with an even size, of at most ${maxRank - 1} dimensions`,
        showSpec(x),
        'reshape it, or slice what is to be turned',
      ),
    )
  if (positions === undefined) return E.right(x)
  if (positions.dtype !== 'i32')
    return E.left(dtypeMismatch('positions of i32', showSpec(positions), "cast them: pipe(cast('i32'))"))
  const places = x.shape.slice(0, -1)
  const shape = broadcast([places, positions.shape])
  return shape?.length === places.length && shape.every((own, d) => own === places[d])
    ? E.right(x)
    : E.left(
        shapeMismatch(
          `positions of a shape that broadcasts to [${places.join(', ')}]`,
          showSpec(positions),
          'reshape them',
        ),
      )
}

/**
 * base^(−2i / size) for the pair i, a product of one constant for each bit of i: every device makes the same
 * bits of it, and so of the angle, however large the position is.
 */
const frequency = (code: MapInstruction[], pair: number, { base }: RopeAttrs, size: number): number => {
  const emit = (instruction: MapInstruction): number => code.push(instruction) - 1
  const [one, half] = [emit(['const', 1]), emit(['const', 0.5])]
  let product = one
  let rest = pair
  for (let step = 1; step < size / 2; step *= 2) {
    const next = emit(['floor', emit(['mul', rest, half])])
    const bit = emit(['sub', rest, emit(['add', next, next])])
    const factor = emit(['const', Math.fround(base ** ((-2 * step) / size))])
    product = emit(['mul', product, emit(['select', bit, factor, one])])
    rest = next
  }
  return product
}

/** x is read twice: each element beside the other one of its pair. */
const spec = ([x, , positions]: readonly BoundSpec[], attrs: RopeAttrs): MapSpec => {
  const size = x!.shape.at(-1)!
  const places = x!.shape.slice(0, -1)
  // Places: as many dimensions as the positions need; without them their own and those before it.
  const own = denseStrides(places)
  const { shape, strides } = positions
    ? coalesce(places, [own, broadcastStrides(positions.shape, places)])
    : { shape: [elements(places.slice(0, -1)), places.at(-1)!], strides: [[places.at(-1)!, 1]] }
  const rows = (strides[0] ?? []).map(step => step * size)
  const [pairs, sides] = attrs.interleaved ? [2, 1] : [1, size / 2]
  const rank = shape.length
  const order = <T>(pair: T, side: T): T[] => (attrs.interleaved ? [pair, side] : [side, pair])
  const [pairAt, sideAt] = attrs.interleaved ? [rank, rank + 1] : [rank + 1, rank]
  const code: MapInstruction[] = [
    ['operand', 0],
    ['operand', 1],
    positions ? ['operand', 2] : ['index', 1],
    ['index', pairAt],
    ['index', sideAt],
  ]
  const emit = (instruction: MapInstruction): number => code.push(instruction) - 1
  const angle = emit(['mul', 2, frequency(code, 3, attrs, size)])
  const sine = emit(['sin', angle])
  const turn = emit(['select', 4, sine, emit(['neg', sine])])
  const kept = emit(['mul', 0, emit(['cos', angle])])
  const value = emit(['add', kept, emit(['mul', 1, turn])])
  const steps = positions
    ? [{ dtype: positions.dtype, offset: 0, strides: [...(strides[1] ?? []), 0, 0] }]
    : []
  return {
    kind: 'map',
    shape: [...shape, ...order(size / 2, 2)],
    compute: 'f32',
    operands: [
      { dtype: x!.dtype, offset: 0, strides: [...rows, ...order(pairs, sides)] },
      { dtype: x!.dtype, offset: sides, strides: [...rows, ...order(pairs, -sides)] },
      ...steps,
    ],
    code,
    results: [{ value, dtype: x!.dtype }],
  }
}

export const ropeOperator: Operator = {
  name: 'rope',
  infer,
  lower: (inputs, output, attrs) => {
    const kernel = spec(inputs, attrsFrom(attrs))
    return {
      as: 'run',
      kernel,
      flops: mapFlops(kernel.code, elements(output.shape)),
      movedBytes: 2 * tensorBytes(output) + inputs.slice(2).reduce((sum, one) => sum + tensorBytes(one), 0),
      workspace: 0,
    }
  },
  reference: (inputs, specs, _output, attrs) => runMap(spec(specs, attrsFrom(attrs)), inputs)[0]!,
  tolerance: (output, inputs, attrs) => mapTolerance(spec(inputs, attrsFrom(attrs)).code, output.dtype),
  off: (inputs, specs, _output, attrs, directions) =>
    runMapOff(spec(specs, attrsFrom(attrs)), inputs, directions),
}

export interface RopeOptions<P extends Shape = Shape> {
  /** i32, of a shape that broadcasts to [..., places]; 0, 1, 2, … along the places where it is left out. */
  readonly positions?: Device<'i32', P>
  /** Pair i turns by position · base^(−2i / size); 10,000 where it is left out. */
  readonly base?: number
  /** Pairs are of neighbours; otherwise of an element of the first half and one of the second. */
  readonly interleaved?: boolean
}

const attrsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> =>
    E.chain((): E.Either<UnplacedError, Attrs> => {
      const { base = 10_000, interleaved = false } = named(options)
      return typeof base === 'number' &&
        base >= 1 &&
        Number.isFinite(base) &&
        typeof interleaved === 'boolean'
        ? E.right({ base, interleaved })
        : E.left(
            badAttribute(
              'base: a number from 1, and interleaved: true or false',
              show({ base, interleaved }),
              'as in rope({ base: 500_000 })',
            ),
          )
    })(ofFloats(x))

/**
 * Rotary positions (RoFormer; Hugging Face's apply_rotary_pos_emb, or the pairs of GPT-J where
 * `interleaved`): of floats of [..., places, size], each pair of elements is turned by an angle that grows
 * with its position. Computed in f32, and rounded once.
 */
export const rope = <P extends Shape = Shape>(options?: RopeOptions<P>) => {
  const at = here()
  const { positions } = named(options)
  const others = positions === undefined ? [] : [['the positions', positions] as const]
  const turned = (x: unknown): unknown =>
    apply(
      ropeOperator,
      at,
      x,
      [['the value', x], ...others],
      withOptions(options, ['base', 'interleaved', 'positions'], attrsOf(options)),
    )
  return turned as unknown as <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, S>
}
