/**
 * Sets of small numbers that find their least in constant time: a bit a number, and above every 32 words a
 * bit a word that says whether it is not 0.
 */
export class BitSets {
  private readonly words: Int32Array
  /** Where each level of a set starts; the last entry is the length of a set, in words. */
  private readonly level: number[] = [0]

  constructor(sets: number, capacity: number) {
    let words = capacity
    do {
      words = Math.max(1, (words + 31) >>> 5)
      this.level.push(this.level[this.level.length - 1]! + words)
    } while (words > 1)
    this.words = new Int32Array(sets * this.level[this.level.length - 1]!)
  }

  add(set: number, value: number): void {
    const { words, level } = this
    const first = set * level[level.length - 1]!
    for (let k = 0; k < level.length - 1; k++) {
      const at = first + level[k]! + (value >>> 5)
      const before = words[at]!
      words[at] = before | (1 << (value & 31))
      if (before !== 0) return
      value >>>= 5
    }
  }

  remove(set: number, value: number): void {
    const { words, level } = this
    const first = set * level[level.length - 1]!
    for (let k = 0; k < level.length - 1; k++) {
      const at = first + level[k]! + (value >>> 5)
      const bit = 1 << (value & 31)
      const before = words[at]!
      if ((before & bit) === 0) return
      words[at] = before & ~bit
      if (before !== bit) return
      value >>>= 5
    }
  }

  /** -1: the set is empty. */
  least(set: number): number {
    const { words, level } = this
    const first = set * level[level.length - 1]!
    let at = 0
    for (let k = level.length - 2; k >= 0; k--) {
      const word = words[first + level[k]! + at]!
      if (word === 0) return -1
      at = (at << 5) | (31 - Math.clz32(word & -word))
    }
    return at
  }

  clear(set: number): void {
    const size = this.level[this.level.length - 1]!
    this.words.fill(0, set * size, (set + 1) * size)
  }
}
