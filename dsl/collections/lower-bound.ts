/** How many of some sorted numbers are less than `value`. */
export const lowerBound = (sorted: ArrayLike<number>, value: number, length = sorted.length): number => {
  let low = 0
  for (let high = length; low < high; ) {
    const middle = (low + high) >> 1
    if (sorted[middle]! < value) low = middle + 1
    else high = middle
  }
  return low
}
