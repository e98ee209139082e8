import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import type { DType } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { elementwise } from './elementwise.js'
import type { Attrs } from './operator.js'
import { withOptions } from './options.js'
import type { Device, Floats, Shape } from './types.js'

export const geluOperator = elementwise('gelu')

export interface GeluOptions {
  readonly approximate?: 'none' | 'tanh'
}

// x · (1 + erf(x / √2)) / 2
const exactGelu: readonly MapInstruction[] = [
  ['operand', 0],
  ['const', Math.SQRT1_2],
  ['mul', 0, 1],
  ['erf', 2],
  ['const', 1],
  ['add', 3, 4],
  ['const', 0.5],
  ['mul', 0, 6],
  ['mul', 7, 5],
]

/** x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2 */
export const tanhGelu: readonly MapInstruction[] = [
  ['operand', 0],
  ['mul', 0, 0],
  ['mul', 1, 0],
  ['const', 0.044715],
  ['mul', 2, 3],
  ['add', 0, 4],
  ['const', Math.sqrt(2 / Math.PI)],
  ['mul', 5, 6],
  ['tanh', 7],
  ['const', 1],
  ['add', 8, 9],
  ['const', 0.5],
  ['mul', 0, 11],
  ['mul', 12, 10],
]

const attrsOf = (approximate: unknown): E.Either<UnplacedError, Attrs> => {
  if (approximate === 'none') return E.right({ code: exactGelu })
  if (approximate === 'tanh') return E.right({ code: tanhGelu })
  return E.left(
    badAttribute(
      "approximate: 'none' or 'tanh'",
      show(approximate),
      "leave the option out for the exact form, or give 'tanh'",
    ),
  )
}

/**
 * The Gaussian error linear unit, elementwise, of floats, in its exact form unless `approximate: 'tanh'`
 * (torch.nn.functional.gelu).
 */
export const gelu = (options?: GeluOptions) => {
  const at = here()
  const activated = (x: unknown): unknown =>
    apply(
      geluOperator,
      at,
      x,
      [],
      withOptions(options, ['approximate'], () => attrsOf(options?.approximate ?? 'none')),
    )
  return activated as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D>,
  ) => Device<D, S>
}
