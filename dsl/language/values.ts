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
  const result = new Float32Array(values.length)
  if (dtype === 'f16') for (let i = 0; i < values.length; i++) result[i] = fromF16(values[i]!)
  else for (let i = 0; i < values.length; i++) result[i] = fromBf16(values[i]!)
  return result
}

/** Stores `n` numbers, each at its place, as `writer` has it. A loop for each type: a call for each is slow. */
export const store = (
  into: HostArray,
  dtype: DType,
  places: Float64Array,
  values: Float64Array,
  n: number,
): void => {
  if (dtype === 'f32') for (let e = 0; e < n; e++) into[places[e]!] = values[e]!
  else if (dtype === 'f16') for (let e = 0; e < n; e++) into[places[e]!] = toF16(values[e]!)
  else if (dtype === 'bf16') for (let e = 0; e < n; e++) into[places[e]!] = toBf16(values[e]!)
  else {
    const write = writer(dtype)
    for (let e = 0; e < n; e++) into[places[e]!] = write(values[e]!)
  }
}

/** The array that holds the numbers, each stored as `writer` has it. */
export const stored = (values: Float32Array | Float64Array, dtype: DType): HostArray => {
  const result = hostArray(dtype, values.length)
  if (dtype === 'f32') result.set(values)
  else if (dtype === 'f16') for (let i = 0; i < values.length; i++) result[i] = toF16(values[i]!)
  else if (dtype === 'bf16') for (let i = 0; i < values.length; i++) result[i] = toBf16(values[i]!)
  else {
    const write = writer(dtype)
    for (let i = 0; i < values.length; i++) result[i] = write(values[i]!)
  }
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
