import type { DType } from '../ir/tensor.js'
import { fromBf16, fromF16, toBf16, toF16 } from './half.js'

/** A tensor's elements on the host, row-major; of f16 and bf16 their 16 bits. */
export type HostArray = Uint8Array | Int32Array | Uint16Array | Float32Array

/** A fresh array of zeros for an element type. */
export const hostArray = (dtype: DType, length: number): HostArray => {
  switch (dtype) {
    case 'u8':
      return new Uint8Array(length)
    case 'i32':
      return new Int32Array(length)
    case 'f32':
      return new Float32Array(length)
    default:
      return new Uint16Array(length)
  }
}

/** How one element reads as a number. */
export const reader = (dtype: DType): ((stored: number) => number) =>
  dtype === 'f16' ? fromF16 : dtype === 'bf16' ? fromBf16 : stored => stored

const saturate =
  (low: number, high: number) =>
  (value: number): number =>
    Number.isNaN(value) ? 0 : value <= low ? low : value >= high ? high : Math.trunc(value)

/**
 * How a number is stored: floats round to nearest even, whole types truncate toward zero and saturate, NaN is
 * 0.
 */
export const writer = (dtype: DType): ((value: number) => number) => {
  switch (dtype) {
    case 'u8':
      return saturate(0, 255)
    case 'i32':
      return saturate(-2147483648, 2147483647)
    case 'f16':
      return toF16
    case 'bf16':
      return toBf16
    default:
      return Math.fround
  }
}

/** The numbers that an array holds; its own elements where they are numbers already. */
export const numbers = (values: HostArray, dtype: DType): HostArray | Float32Array => {
  if (dtype !== 'f16' && dtype !== 'bf16') return values
  const read = reader(dtype)
  const result = new Float32Array(values.length)
  for (let i = 0; i < values.length; i++) result[i] = read(values[i]!)
  return result
}

/**
 * Half the distance of 1 to the next number: the largest relative error of one rounding to the type. 0 for
 * whole types.
 */
export const roundoff: Readonly<Record<DType, number>> = {
  u8: 0,
  i32: 0,
  f16: 2 ** -11,
  bf16: 2 ** -8,
  f32: 2 ** -24,
}
