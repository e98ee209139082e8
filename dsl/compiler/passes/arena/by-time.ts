import type { Succession, Tenants } from './tenants.js'

/** Bytes that nobody holds now. */
interface Vacant {
  offset: number
  size: number
  /** How many operations of each lane must be done before these bytes are anybody's. */
  end: Int32Array
  /** How many operations of each lane are done before the first tenant that they had comes again, a tick later. */
  again: Int32Array
}

/** Vacant ranges that are looked at for one tenant, at most: beyond it neighbours become one, as late as the later of them. */
const maxVacant = 512

/**
 * Best fit in order of first access: as the tick goes by, each tenant takes the shortest vacant range, or else run of them, that it may follow in,
 * and leaves one when it is through. The work is linear in tenants, lanes and `maxVacant`, so this is what the largest graphs get.
 *
 * Where the arena would grow beyond `most`, a tenant takes what is vacant whether it follows or not: waits then order it.
 */
export const replayed = (
  { first, last }: Tenants,
  sizes: Float64Array,
  succession: Succession,
  base: number,
  most: number,
): Float64Array => {
  const { lanes } = succession
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
  /** Where to go, and the vacant range that is there. What touches the top may grow. */
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
    succession.before(first[k]!, known)
    succession.end(k, done)
    let { at, start } = find(size, follows)
    if (start + size > Math.max(most, top)) {
      const anywhere = find(size, () => true)
      if (anywhere.start < start) ({ at, start } = anywhere)
    }
    const end = start + size
    // Who had these bytes first in the tick is who comes again first: all that follow are after it already.
    const again = new Int32Array(lanes)
    if (end > top) succession.beforeInLast(first[k]!, again)
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
    succession.end(k, end)
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
    // Who is through with its last access at an operation still holds its bytes during it.
    while (next < ends.length && last[ends[next]!]! < first[k]!) leave(ends[next++]!)
    take(k)
  }
  return offset
}

/** Every other range becomes one with its neighbour, where the two touch. */
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
