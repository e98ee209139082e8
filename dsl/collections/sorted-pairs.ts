/** A piece of the list: `of` pairs, as first, second, first, second … */
interface Chunk {
  readonly pairs: Float64Array
  of: number
}

const capacity = 256

/**
 * A set of pairs of numbers in order, of the first number and then the second, with a cursor that the
 * searches place. It is cut into chunks of at most 256 pairs, so that a change moves no more than those.
 */
export class SortedPairs {
  private readonly chunks: Chunk[] = []
  /** The first pair of each chunk: a search among chunks reads these alone. */
  private readonly firsts: number[] = []
  private readonly seconds: number[] = []
  /** Chunks that were dropped, to be used again. */
  private readonly spare: Chunk[] = []
  private chunk = 0
  private at = 0

  /** The pair at the cursor. */
  get first(): number {
    return this.chunks[this.chunk]!.pairs[2 * this.at]!
  }

  get second(): number {
    return this.chunks[this.chunk]!.pairs[2 * this.at + 1]!
  }

  /** Places the cursor at the least pair that is not before this one; false: there is none. */
  seek(first: number, second: number): boolean {
    const { chunks, firsts, seconds } = this
    // The last chunk whose first pair is before the pair.
    let low = 0
    let high = chunks.length
    while (low < high) {
      const middle = (low + high) >>> 1
      const other = firsts[middle]!
      if (other < first || (other === first && seconds[middle]! < second)) low = middle + 1
      else high = middle
    }
    this.chunk = Math.max(0, low - 1)
    this.at = 0
    if (low === 0) return chunks.length > 0
    const chunk = chunks[low - 1]!
    low = 1
    high = chunk.of
    while (low < high) {
      const middle = (low + high) >>> 1
      if (isBefore(chunk, middle, first, second)) low = middle + 1
      else high = middle
    }
    this.at = low
    if (low < chunk.of) return true
    if (this.chunk + 1 === chunks.length) return false
    this.chunk++
    this.at = 0
    return true
  }

  /** Places the cursor at the greatest pair that is before this one; false: there is none. */
  seekBefore(first: number, second: number): boolean {
    this.seek(first, second)
    if (this.at > 0) this.at--
    else if (this.chunk > 0) this.at = this.chunks[--this.chunk]!.of - 1
    else return false
    return true
  }

  /** Moves the cursor to the next pair; false: there is none. */
  next(): boolean {
    if (++this.at < this.chunks[this.chunk]!.of) return true
    this.at = 0
    return ++this.chunk < this.chunks.length
  }

  /** Adds a pair that is not there. */
  add(first: number, second: number): void {
    const { chunks } = this
    this.seek(first, second)
    if (chunks.length === 0) this.insert(0, this.emptyChunk())
    // A pair that belongs between two chunks goes to the end of the former.
    else if (this.chunk > 0 && this.at === 0) this.at = chunks[--this.chunk]!.of
    if (chunks[this.chunk]!.of === capacity) this.split()
    const chunk = chunks[this.chunk]!
    const { at } = this
    if (at < chunk.of) chunk.pairs.copyWithin(2 * at + 2, 2 * at, 2 * chunk.of)
    chunk.pairs[2 * at] = first
    chunk.pairs[2 * at + 1] = second
    chunk.of++
    if (at === 0) this.noteFirst(this.chunk)
  }

  /** Removes a pair that is there. */
  remove(first: number, second: number): void {
    const { chunks } = this
    this.seek(first, second)
    const chunk = chunks[this.chunk]!
    chunk.of--
    if (this.at < chunk.of) chunk.pairs.copyWithin(2 * this.at, 2 * this.at + 2, 2 * chunk.of + 2)
    if (chunk.of === 0) {
      this.drop(this.chunk)
      return
    }
    if (this.at === 0) this.noteFirst(this.chunk)
    const behind = chunks[this.chunk + 1]
    if (behind !== undefined && chunk.of + behind.of <= capacity / 2) {
      move(behind, 0, chunk)
      this.drop(this.chunk + 1)
    }
  }

  /** Cuts the chunk of the cursor in two; the cursor stays at its pair. */
  private split(): void {
    const chunk = this.chunks[this.chunk]!
    const half = this.emptyChunk()
    move(chunk, capacity / 2, half)
    this.insert(this.chunk + 1, half)
    if (this.at <= chunk.of) return
    this.at -= chunk.of
    this.chunk++
  }

  private insert(place: number, chunk: Chunk): void {
    this.chunks.splice(place, 0, chunk)
    this.firsts.splice(place, 0, chunk.pairs[0]!)
    this.seconds.splice(place, 0, chunk.pairs[1]!)
  }

  private drop(place: number): void {
    this.spare.push(...this.chunks.splice(place, 1))
    this.firsts.splice(place, 1)
    this.seconds.splice(place, 1)
  }

  private emptyChunk(): Chunk {
    return this.spare.pop() ?? { pairs: new Float64Array(2 * capacity), of: 0 }
  }

  private noteFirst(place: number): void {
    const chunk = this.chunks[place]!
    this.firsts[place] = chunk.pairs[0]!
    this.seconds[place] = chunk.pairs[1]!
  }
}

const isBefore = ({ pairs }: Chunk, at: number, first: number, second: number): boolean => {
  const other = pairs[2 * at]!
  return other < first || (other === first && pairs[2 * at + 1]! < second)
}

/** Moves the pairs of `from` from place `at` on to the end of `to`. */
const move = (from: Chunk, at: number, to: Chunk): void => {
  to.pairs.set(from.pairs.subarray(2 * at, 2 * from.of), 2 * to.of)
  to.of += from.of - at
  from.of = at
}
