// Pooling by its definition, one element of the result at a time. Shares no code with
// dsl/language/operators/pool.ts.
import { type Convolution, placesOf } from './conv.js'

/** By element of the result: the elements of x that the kernel meets, and how many elements it has. */
export const windows = (
  { batch, channels, size, kernel, stride, pad, last, ...rest }: Omit<Convolution, 'groups' | 'filters'>,
  x: ArrayLike<number>,
): readonly (readonly number[])[] => {
  const places = placesOf({
    batch,
    channels,
    size,
    kernel,
    stride,
    pad,
    last,
    ...rest,
    groups: 1,
    filters: 1,
  })
  const result: number[][] = []
  const each = places.reduce((n, size) => n * size, 1)
  const inputs = size.reduce((n, size) => n * size, 1)
  const count = each * batch * channels
  // Where the channels are last, the elements of an image are `channels` apart.
  const at = (plane: number, place: number, places: number): number =>
    last
      ? (Math.floor(plane / channels) * places + place) * channels + (plane % channels)
      : plane * places + place
  for (let element = 0; element < count; element++) {
    let left = element
    const corner = [...places]
      .reverse()
      .map(each => {
        const place = left % each
        left = Math.floor(left / each)
        return place
      })
      .reverse()
    const plane = left
    let met: readonly number[] = [0]
    size.forEach((n, d) => {
      met = met.flatMap(base =>
        Array.from({ length: kernel[d]! }, (_, i) => corner[d]! * stride[d]! + i - pad[d]![0])
          .filter(i => i >= 0 && i < n)
          .map(i => base * n + i),
      )
    })
    result[at(plane, element % each, each)] = met.map(i => x[at(plane, i, inputs)]!)
  }
  return result
}
