// Pooling by its definition, one element of the result at a time. Shares no code with dsl/language/operators/pool.ts.
import { type Convolution, placesOf } from './conv.js'

/** By element of the result: the elements of x that the kernel meets, and how many elements it has. */
export const windows = (
  { batch, channels, size, kernel, stride, pad, ...rest }: Omit<Convolution, 'groups' | 'filters'>,
  x: ArrayLike<number>,
): readonly (readonly number[])[] => {
  const places = placesOf({ batch, channels, size, kernel, stride, pad, ...rest, groups: 1, filters: 1 })
  const result: number[][] = []
  const count = places.reduce((n, each) => n * each, batch * channels)
  for (let element = 0; element < count; element++) {
    let left = element
    const at = [...places]
      .reverse()
      .map(each => {
        const place = left % each
        left = Math.floor(left / each)
        return place
      })
      .reverse()
    let met: readonly number[] = [left]
    size.forEach((n, d) => {
      met = met.flatMap(base =>
        Array.from({ length: kernel[d]! }, (_, i) => at[d]! * stride[d]! + i - pad[d]![0])
          .filter(i => i >= 0 && i < n)
          .map(i => base * n + i),
      )
    })
    result.push(met.map(i => x[i]!))
  }
  return result
}
