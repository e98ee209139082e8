import type { LiveRanges } from '../../analysis/live-ranges.js'
import type { ReuseOrder } from './reuse-order.js'

/** Bytes that no range has at the present operation. */
interface Vacant {
  offset: number
  size: number
  /** By lane, how many of its operations must be done before the bytes may be taken. */
  end: Int32Array
  /**
   * By lane, how many of its operations are done before the first range that had the bytes comes again, a
   * tick later.
   */
  again: Int32Array
}

/** Beyond so many vacant stretches, neighbours become one, as late as the later of them. */
const maxVacant = 512

// Not `dsl/memory`'s range pool, although both take the best fit. There a free range has one release point a
// lane, and a tick's frees are taken in the next one; here places are the same in every tick, so a vacant
// stretch has two: its last owner's end in this tick, and its first owner's return in the next.

/**
 * Best fit in order of first access: as the tick goes by, each range takes the shortest vacant stretch, or
 * else run of stretches, that it may follow in, and leaves one after its last access. The work is linear in
 * ranges, lanes and `maxVacant`, so the largest graphs get this.
 *
 * Where the arena would grow beyond `most`, a range takes vacant bytes even where it does not follow: waits
 * then order it.
 */
export const packedByTime = (
  { first, last }: LiveRanges,
  sizes: Float64Array,
  reuse: ReuseOrder,
  base: number,
  most: number,
): Float64Array => {
  const { lanes } = reuse
  const offset = new Float64Array(sizes.length)
  const left: Int32Array[] = new Array(sizes.length)
  const vacant: Vacant[] = []
  const known = new Int32Array(lanes)
  const done = new Int32Array(lanes)
  let top = base

  const follows = ({ end, again }: Vacant): boolean => {
    for (let m = 0; m < lanes; m++) if (end[m]! > known[m]! || done[m]! > again[m]!) return false
    return true
  }
  /**
   * The offset to take, and the index of the vacant stretch there. A stretch that ends at the top may grow.
   */
  const find = (
    size: number,
    usable: (range: Vacant) => boolean,
  ): { readonly at: number; readonly start: number } => {
    let single = -1
    let run = -1
    let runLength = Number.POSITIVE_INFINITY
    let tail = vacant.length
    for (let i = 0; i < vacant.length; ) {
      if (!usable(vacant[i]!)) {
        i++
        continue
      }
      const from = i
      let end = vacant[i]!.offset
      for (; i < vacant.length && vacant[i]!.offset === end && (i === from || usable(vacant[i]!)); i++) {
        const own = vacant[i]!.size
        end += own
        if (own >= size && (single < 0 || own < vacant[single]!.size)) single = i
      }
      const length = end - vacant[from]!.offset
      if (length >= size && length < runLength) {
        run = from
        runLength = length
      }
      if (end === top) tail = from
    }
    const at = single >= 0 ? single : run >= 0 ? run : tail
    return { at, start: at < vacant.length ? vacant[at]!.offset : top }
  }
  const take = (k: number): void => {
    const size = sizes[k]!
    reuse.before(first[k]!, known)
    reuse.end(k, done)
    let { at, start } = find(size, follows)
    if (start + size > Math.max(most, top)) {
      const anywhere = find(size, () => true)
      if (anywhere.start < start) ({ at, start } = anywhere)
    }
    const end = start + size
    // The first range that had these bytes in the tick comes again first: all that follow it are after it
    // already.
    const again = new Int32Array(lanes)
    if (end > top) reuse.beforeInLastTick(first[k]!, again)
    else again.fill(2 ** 31 - 1)
    let through = at
    for (; through < vacant.length && vacant[through]!.offset < end; through++) {
      const range = vacant[through]!
      for (let m = 0; m < lanes; m++) if (range.again[m]! < again[m]!) again[m] = range.again[m]!
      if (range.offset + range.size <= end) continue
      range.size -= end - range.offset
      range.offset = end
      break
    }
    vacant.splice(at, through - at)
    left[k] = again
    offset[k] = start
    top = Math.max(top, end)
  }
  const leave = (k: number): void => {
    const end = new Int32Array(lanes)
    reuse.end(k, end)
    let low = 0
    for (let high = vacant.length; low < high; ) {
      const middle = (low + high) >> 1
      if (vacant[middle]!.offset < offset[k]!) low = middle + 1
      else high = middle
    }
    vacant.splice(low, 0, { offset: offset[k]!, size: sizes[k]!, end, again: left[k]! })
    if (vacant.length > maxVacant) coarsen(vacant, lanes)
  }

  const ends = Array.from(last.keys()).sort((a, b) => last[a]! - last[b]! || a - b)
  let next = 0
  for (let k = 0; k < first.length; k++) {
    // A range has its bytes until its last access has been issued.
    while (next < ends.length && last[ends[next]!]! < first[k]!) leave(ends[next++]!)
    take(k)
  }
  return offset
}

/** Every other stretch becomes one with its neighbour, where the two touch. */
const coarsen = (vacant: Vacant[], lanes: number): void => {
  let length = 0
  for (let i = 0; i < vacant.length; i++) {
    const range = vacant[i]!
    const other = vacant[i + 1]
    vacant[length++] = range
    if (other === undefined || range.offset + range.size !== other.offset) continue
    range.size += other.size
    for (let m = 0; m < lanes; m++) {
      range.end[m] = Math.max(range.end[m]!, other.end[m]!)
      range.again[m] = Math.min(range.again[m]!, other.again[m]!)
    }
    i++
  }
  vacant.length = length
}
