/**
 * A set of integers below `size` that finds neighbours: a tree of bit sets, 32 wide. Every call is
 * log32(size) steps.
 */
class IndexSet {
  private readonly levels: Uint32Array[] = []

  constructor(size: number) {
    let words = Math.max(1, size)
    do {
      words = Math.ceil(words / 32)
      this.levels.push(new Uint32Array(words))
    } while (words > 1)
  }

  add(index: number): void {
    for (const level of this.levels) {
      level[index >>> 5]! |= 1 << (index & 31)
      index >>>= 5
    }
  }

  delete(index: number): void {
    for (const level of this.levels) {
      const left = (level[index >>> 5]! &= ~(1 << (index & 31)))
      if (left !== 0) return
      index >>>= 5
    }
  }

  /** The greatest member that is <= index; -1: none. */
  atMost(index: number): number {
    for (let depth = 0; depth < this.levels.length; depth++) {
      const bits = this.levels[depth]![index >>> 5]! & (0xffffffff >>> (31 - (index & 31)))
      if (bits !== 0) {
        let found = ((index >>> 5) << 5) | (31 - Math.clz32(bits))
        while (depth-- > 0) found = (found << 5) | (31 - Math.clz32(this.levels[depth]![found]!))
        return found
      }
      index = (index >>> 5) - 1
      if (index < 0) return -1
    }
    return -1
  }
}

/**
 * The owners of an arena's bytes. The arena is cut at every buffer's first and last byte beforehand; a claim
 * then takes a range of cuts and reports each owner that it displaces. Intervals that a claim covers wholly
 * vanish, so a run of claims costs amortised constant steps each, however many small buffers lie under a
 * large one.
 */
export class IntervalMap {
  private readonly starts: IndexSet
  private readonly owner: Int32Array

  constructor(private readonly cuts: number) {
    this.starts = new IndexSet(cuts + 1)
    this.owner = new Int32Array(cuts + 1).fill(-1)
    this.starts.add(0)
  }

  /** Removes every owner. */
  restart(): void {
    this.claim(0, this.cuts, -1, () => {})
  }

  /** Gives [from, to) to `owner`; calls `displaced` with each owner it had, -1 apart. */
  claim(from: number, to: number, owner: number, displaced: (previous: number) => void): void {
    if (from >= to) return
    this.cut(from)
    if (to < this.cuts) this.cut(to)
    for (let at = this.starts.atMost(to - 1); at >= from; at = at === 0 ? -1 : this.starts.atMost(at - 1)) {
      if (this.owner[at] !== -1) displaced(this.owner[at]!)
      if (at !== from) this.starts.delete(at)
    }
    this.owner[from] = owner
  }

  private cut(index: number): void {
    const start = this.starts.atMost(index)
    if (start === index) return
    this.starts.add(index)
    this.owner[index] = this.owner[start]!
  }
}
