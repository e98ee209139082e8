/** The last values of a series, for medians and percentiles. Constant memory, constant time to add. */
export class Recent {
  readonly #values: Float64Array
  #count = 0

  constructor(size = 1024) {
    this.#values = new Float64Array(size)
  }

  add(value: number): void {
    this.#values[this.#count++ % this.#values.length] = value
  }

  /** Sorted, smallest first. */
  sorted(): Float64Array {
    return this.#values.slice(0, Math.min(this.#count, this.#values.length)).sort()
  }

  /** median, p90 and max; all 0 while there is nothing. */
  summary(): Summary {
    return summarize(this.sorted())
  }
}

export interface Summary {
  readonly median: number
  readonly p90: number
  readonly max: number
}

export const summarize = (sorted: Float64Array): Summary => {
  const at = (part: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? at(0.5) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
  return { median, p90: at(0.9), max: sorted[sorted.length - 1] ?? 0 }
}
