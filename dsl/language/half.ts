// Conversions between f32 and the two 16-bit formats, bit for bit as IEEE 754 and the devices do them: to
// nearest, ties to even.

const word = new Uint32Array(1)
const real = new Float32Array(word.buffer)

/** The 16 bits of a number as bf16: the upper half of its f32. NaN stays NaN, and keeps its sign. */
export const toBf16 = (value: number): number => {
  real[0] = value
  const bits = word[0]!
  if (Number.isNaN(value)) return ((bits >>> 16) & 0x8000) | 0x7fc0
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}

export const fromBf16 = (bits: number): number => {
  word[0] = bits << 16
  return real[0]!
}

/**
 * The 16 bits of an f32 as f16. Beyond 65,519.99… it is infinite; below 2^-24 it rounds to a subnormal or to
 * 0.
 */
export const toF16 = (value: number): number => {
  real[0] = value
  const bits = word[0]!
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  // Normal in f16: move the exponent's bias from 127 to 15, then drop 13 bits, ties to even; a carry into the
  // exponent is correct.
  if (magnitude >= 0x38800000)
    return sign | ((magnitude - 0x38000000 + 0x0fff + ((magnitude >>> 13) & 1)) >>> 13)
  // Subnormal: as many units of 2^-24. The multiplication is exact, so one rounding remains.
  const units = Math.abs(real[0]!) * 16777216
  const down = Math.floor(units)
  const rest = units - down
  return sign | (rest > 0.5 || (rest === 0.5 && (down & 1) === 1) ? down + 1 : down)
}

export const fromF16 = (bits: number): number => {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >>> 10) & 0x1f
  const fraction = bits & 0x3ff
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 0x1f) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
