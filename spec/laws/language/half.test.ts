import { describe, expect, it } from 'vitest'
import { fromBf16, fromF16, toBf16, toF16 } from '../../../dsl/language/half.js'

const float = (bits: number): number => new Float32Array(new Uint32Array([bits >>> 0]).buffer)[0]!
const sign = (bits: number): number => (bits & 0x8000 ? -1 : 1)

// Written from the definition of each format, not from the code: fraction bits, exponent bits, bias.
const decode = (bits: number, fractionBits: number, exponentBits: number): number => {
  const scale = 2 ** fractionBits
  const top = 2 ** exponentBits - 1
  const bias = 2 ** (exponentBits - 1) - 1
  const fraction = bits % scale
  const exponent = Math.floor((bits % 0x8000) / scale)
  if (exponent === top) return fraction === 0 ? sign(bits) * Number.POSITIVE_INFINITY : Number.NaN
  const significand = exponent === 0 ? fraction / scale : 1 + fraction / scale
  return sign(bits) * significand * 2 ** (Math.max(exponent, 1) - bias)
}

const formats = [
  { name: 'f16', to: toF16, from: fromF16, fractionBits: 10, exponentBits: 5, infinity: 0x7c00 },
  { name: 'bf16', to: toBf16, from: fromBf16, fractionBits: 7, exponentBits: 8, infinity: 0x7f80 },
] as const

describe.each(formats)('$name', ({ to, from, fractionBits, exponentBits, infinity }) => {
  it('reads all 65,536 values as the format defines them, and writes them back', () => {
    for (let bits = 0; bits < 65536; bits++) {
      const value = from(bits)
      const wanted = decode(bits, fractionBits, exponentBits)
      if (!Object.is(value, wanted)) expect([bits, value]).toEqual([bits, wanted])
      if (Number.isNaN(wanted)) {
        if (!Number.isNaN(from(to(value)))) expect(from(to(value))).toBeNaN()
      } else if (to(value) !== bits) expect([value, to(value)]).toEqual([value, bits])
    }
  })

  it('rounds to the nearest, and ties to even, between all neighbours', () => {
    const wrong: unknown[] = []
    for (let low = 0; low < infinity; low++) {
      const high = low + 1
      // Beyond the largest value the next one would be where the exponent goes on: half the way there rounds
      // to infinity.
      const above = high === infinity ? 2 * from(low) - from(low - 1) : from(high)
      const middle = (from(low) + above) / 2
      const even = low % 2 === 0 ? low : high
      // The neighbours of the middle in f32, which has more bits than either format.
      const word = new Uint32Array(new Float32Array([middle]).buffer)[0]!
      const cases = [
        [middle, even],
        [float(word - 1), low],
        [float(word + 1), high],
      ] as const
      for (const [value, bits] of cases) {
        if (to(value) !== bits) wrong.push([value, to(value), bits])
        if (to(-value) !== (bits | 0x8000)) wrong.push([-value, to(-value), bits | 0x8000])
      }
    }
    expect(wrong).toEqual([])
  })

  it('keeps the sign of zero, infinities, and that a NaN is one', () => {
    expect(to(0)).toBe(0)
    expect(to(-0)).toBe(0x8000)
    expect(to(Number.POSITIVE_INFINITY)).toBe(infinity)
    expect(to(Number.NEGATIVE_INFINITY)).toBe(infinity | 0x8000)
    expect(to(3.4e38)).toBe(infinity)
    expect(from(to(Number.NaN))).toBeNaN()
    expect(from(to(float(0x7f800001)))).toBeNaN()
  })
})
