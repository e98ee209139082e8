import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { type DType, isFloat } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isOperandNumber } from './arithmetic.js'
import { attrsOfCode } from './code.js'
import { elementwise } from './elementwise.js'
import type { Attrs } from './operator.js'
import type { AnyUnary } from './unary.js'

export const clampOperator = elementwise('clamp')

/** The bounds of `clamp`, at least one of them. */
export type ClampOptions =
  | { readonly min: number; readonly max?: number }
  | { readonly min?: number; readonly max: number }

/** Whole numbers of which a bound must be one. */
const ranges: Partial<Readonly<Record<DType, readonly [number, number]>>> = {
  u8: [0, 255],
  i32: [-(2 ** 31), 2 ** 31 - 1],
}

const isBound = (value: unknown, dtype: DType): boolean => {
  const [least, most] = ranges[dtype] ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]
  return (
    isOperandNumber(value) && value >= least && value <= most && (isFloat(dtype) || Number.isInteger(value))
  )
}

const attrsOf = (options: unknown, dtype: DType): E.Either<UnplacedError, Attrs> => {
  const given = (typeof options === 'object' && options !== null ? options : {}) as Readonly<
    Record<string, unknown>
  >
  const bounds = (['min', 'max'] as const).filter(name => given[name] !== undefined)
  const wrong = bounds.find(name => !isBound(given[name], dtype))
  if (bounds.length === 0 || wrong !== undefined)
    return E.left(
      badAttribute(
        `min or max, or both, as numbers that ${isFloat(dtype) ? 'f32' : dtype} can hold`,
        wrong === undefined ? show(options) : `${wrong}: ${show(given[wrong])}`,
        'as in clamp({ min: 0, max: 1 }); leave out the bound that there is not',
      ),
    )
  const code: MapInstruction[] = [['operand', 0]]
  for (const [name, instruction] of [
    ['min', 'max'],
    ['max', 'min'],
  ] as const) {
    const bound = given[name]
    if (bound !== undefined)
      code.push(['const', bound as number], [instruction, code.length - 1, code.length])
  }
  return E.right(attrsOfCode(code))
}

/**
 * No less than `min` and no more than `max`, elementwise, of any element type; either bound may be left out.
 * A NaN stays a NaN, and where `min` is the larger of the two the result is `max`, as in torch.clamp. A bound
 * of floats that f32 cannot hold, or of whole numbers that their type cannot hold, is a `BadAttribute`.
 */
export const clamp = (options: ClampOptions): ReturnType<AnyUnary> => {
  const at = here()
  const clamped = (x: unknown): unknown =>
    apply(clampOperator, at, x, [], ({ dtype }) => attrsOf(options, dtype))
  return clamped as unknown as ReturnType<AnyUnary>
}
