/** The top byte of a hash of the index. */
export const hashed = (index: number): number => {
  let h = Math.imul(index, 0x9e3779b1)
  h ^= h >>> 15
  h = Math.imul(h, 0x85ebca77)
  h ^= h >>> 13
  return h >>> 24
}

/**
 * A typed array of bf16 bits: (2k − 255) / 256 · scale, k the top byte of a hash of the index. `scale` is a
 * power of two, so each is exact.
 */
export const bf16Values = (count: number, seed: number, scale: number): Uint16Array => {
  const table = new Uint16Array(256)
  const real = new Float32Array(1)
  const bits = new Uint32Array(real.buffer)
  for (let k = 0; k < 256; k++) {
    real[0] = ((2 * k - 255) / 256) * scale
    table[k] = bits[0]! >>> 16
  }
  const values = new Uint16Array(count)
  for (let i = 0; i < count; i++) values[i] = table[hashed(i + seed)]!
  return values
}

/** A filler of bytes with `base` turned by `shift` elements: a layer's weights for the price of a copy. */
export const turned = (base: Uint16Array, shift: number) => {
  const bytes = new Uint8Array(base.buffer, base.byteOffset, base.byteLength)
  const start = (shift * 2) % bytes.length
  return (into: Uint8Array): void => {
    into.set(bytes.subarray(start))
    into.set(bytes.subarray(0, start), bytes.length - start)
  }
}

export const bf16ToNumber = (bits: number): number => {
  const word = new Uint32Array([bits << 16])
  return new Float32Array(word.buffer)[0]!
}

/**
 * The largest difference relative to the largest value; infinite where lengths differ or something is not
 * finite.
 */
export const difference = (a: Uint16Array, b: Uint16Array): number => {
  let most = a.length === b.length && a.length > 0 ? 0 : Number.POSITIVE_INFINITY
  let scale = 0
  for (let i = 0; i < a.length; i++) {
    const gap = Math.abs(bf16ToNumber(a[i]!) - bf16ToNumber(b[i]!))
    if (!(gap <= most)) most = Number.isNaN(gap) ? Number.POSITIVE_INFINITY : gap
    scale = Math.max(scale, Math.abs(bf16ToNumber(b[i]!)))
  }
  return scale > 0 ? most / scale : Number.POSITIVE_INFINITY
}
