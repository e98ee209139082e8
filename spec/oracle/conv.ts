// A convolution by its definition, one element of the result at a time, of any number of spatial dimensions.
// Shares no code with dsl/language/operators/conv.ts.

export interface Convolution {
  readonly batch: number
  readonly groups: number
  /** Of x and of the result, in each group. */
  readonly channels: number
  readonly filters: number
  readonly size: readonly number[]
  readonly kernel: readonly number[]
  readonly stride: readonly number[]
  readonly dilation: readonly number[]
  /** Zeros before and after each dimension. */
  readonly pad: readonly (readonly [number, number])[]
  /**
   * Whether the channels are the last dimension of x, of the weight and of the result, and not the second.
   */
  readonly last: boolean
}

/** Every index of a box, the last dimension fastest. */
const box = (sizes: readonly number[]): readonly (readonly number[])[] =>
  sizes.reduce<readonly (readonly number[])[]>(
    (all, size) => all.flatMap(index => Array.from({ length: size }, (_, i) => [...index, i])),
    [[]],
  )

const flat = (index: readonly number[], sizes: readonly number[]): number =>
  index.reduce((at, i, d) => at * sizes[d]! + i, 0)

/** Places are counted one by one: as long as the last element of the kernel is inside of the padded input. */
export const placesOf = ({ size, kernel, stride, dilation, pad }: Convolution): readonly number[] =>
  size.map((n, d) => {
    const padded = pad[d]![0] + n + pad[d]![1]
    let places = 0
    while (places * stride[d]! + (kernel[d]! - 1) * dilation[d]! < padded) places++
    return places
  })

/** By element of the result: the sum, and the sum of the magnitudes of its terms. */
export const convolved = (
  one: Convolution,
  x: ArrayLike<number>,
  w: ArrayLike<number>,
): { readonly sums: readonly number[]; readonly magnitudes: readonly number[] } => {
  const { batch, groups, channels, filters, size, kernel, stride, dilation, pad, last } = one
  const sums: number[] = []
  const magnitudes: number[] = []
  const at = (outer: number, channel: number, of: number, place: number, places: number): number =>
    last ? (outer * places + place) * of + channel : (outer * of + channel) * places + place
  const taps = box(kernel)
  const [inputs, outputs] = [box(size).length, box(placesOf(one))]
  // For each place, the elements of a channel of x that its kernel meets, by element of the kernel.
  const met = outputs.map(place =>
    taps.map(tap => {
      const from = place.map((o, d) => o * stride[d]! + tap[d]! * dilation[d]! - pad[d]![0])
      return from.some((i, d) => i < 0 || i >= size[d]!) ? -1 : flat(from, size)
    }),
  )
  for (let image = 0; image < batch; image++)
    for (let group = 0; group < groups; group++)
      for (let filter = 0; filter < filters; filter++)
        for (const [place, from] of met.entries()) {
          let sum = 0
          let magnitude = 0
          for (let channel = 0; channel < channels; channel++)
            for (let tap = 0; tap < taps.length; tap++) {
              const element = from[tap]!
              if (element < 0) continue
              const value = x[at(image, group * channels + channel, groups * channels, element, inputs)]!
              const weight = w[at(group * filters + filter, channel, channels, tap, taps.length)]!
              sum += value * weight
              magnitude += Math.abs(value * weight)
            }
          const to = at(image, group * filters + filter, groups * filters, place, met.length)
          sums[to] = sum
          magnitudes[to] = magnitude
        }
  return { sums, magnitudes }
}
