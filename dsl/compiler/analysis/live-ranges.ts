import { rounded } from '../../memory/range-pool.js'
import type { Ordered } from './ir.js'

/**
 * Live ranges of the tick's buffers, in order of their first access. Only roots have one: accesses of a view
 * are its root's. Pinned buffers are among them.
 */
export interface LiveRanges {
  readonly buffer: Int32Array
  /** The operations that access it first, and last in issue order. */
  readonly first: Int32Array
  readonly last: Int32Array
  /** The last access of each lane that accesses range k: operations `lastOn[start[k] .. start[k + 1]]`. */
  readonly start: Int32Array
  readonly lastOn: Int32Array
}

type Accessed = Pick<Ordered, 'accesses' | 'buffers' | 'laneOf'>

export const liveRangesOf = ({ accesses, buffers, laneOf }: Accessed): LiveRanges => {
  const first = new Int32Array(buffers.length).fill(-1)
  const last = new Int32Array(buffers.length).fill(-1)
  /**
   * By root, a list of the last access of each lane: its head, and by entry the next one, the lane and the
   * operation.
   */
  const head = new Int32Array(buffers.length).fill(-1)
  const next: number[] = []
  const lane: number[] = []
  const on: number[] = []
  const found: number[] = []
  const access = (a: number, i: number): void => {
    const root = accesses.root[a]!
    if (buffers[root]!.life !== 'tick') return
    if (first[root] === -1) {
      first[root] = i
      found.push(root)
    }
    last[root] = i
    let at = head[root]!
    while (at >= 0 && lane[at] !== laneOf[i]) at = next[at]!
    if (at >= 0) on[at] = i
    else {
      next.push(head[root]!)
      lane.push(laneOf[i]!)
      head[root] = on.push(i) - 1
    }
  }
  for (let i = 0; i < laneOf.length; i++) {
    for (let a = accesses.written[i]!; a < accesses.start[i + 1]!; a++) access(a, i)
    for (let a = accesses.start[i]!; a < accesses.written[i]!; a++) access(a, i)
  }
  const start = new Int32Array(found.length + 1)
  const lastOn = new Int32Array(on.length)
  let length = 0
  found.forEach((root, k) => {
    for (let at = head[root]!; at >= 0; at = next[at]!) lastOn[length++] = on[at]!
    start[k + 1] = length
  })
  return {
    buffer: Int32Array.from(found),
    first: Int32Array.from(found, root => first[root]!),
    last: Int32Array.from(found, root => last[root]!),
    start,
    lastOn,
  }
}

/** Some of the ranges, numbered anew in the same order. */
export const someOf = (ranges: LiveRanges, members: Int32Array): LiveRanges => {
  const { buffer, first, last, start, lastOn } = ranges
  if (members.length === buffer.length) return ranges
  const begin = new Int32Array(members.length + 1)
  const on: number[] = []
  members.forEach((k, i) => {
    for (let a = start[k]!; a < start[k + 1]!; a++) on.push(lastOn[a]!)
    begin[i + 1] = on.length
  })
  return {
    buffer: members.map(k => buffer[k]!),
    first: members.map(k => first[k]!),
    last: members.map(k => last[k]!),
    start: begin,
    lastOn: Int32Array.from(on),
  }
}

/**
 * The most bytes that are live at once, in issue order, above `base` bytes that always are. No memory can be
 * smaller.
 */
export const mostLive = (
  { first, last }: Pick<LiveRanges, 'first' | 'last'>,
  sizes: Float64Array,
  base: number,
): number => {
  const change = new Float64Array(last.reduce((most, at) => Math.max(most, at + 2), 0))
  sizes.forEach((bytes, k) => {
    change[first[k]!]! += bytes
    change[last[k]! + 1]! -= bytes
  })
  let most = base
  change.reduce((now, by) => {
    most = Math.max(most, now + by)
    return now + by
  }, base)
  return most
}

/**
 * Bytes of device memory that are live at once at most, on the device where that is most. A plan of this
 * issue order cannot hold less, whatever its lanes and waits.
 */
export const liveBytesOf = (ir: Accessed): number => {
  const { buffers } = ir
  const ranges = liveRangesOf(ir)
  const devices = buffers.reduce((most, { device = 0 }) => Math.max(most, device), 0) + 1
  const least = Array.from({ length: devices }, (_, on) => {
    const isHere = (id: number): boolean =>
      buffers[id]!.space === 'device' && (buffers[id]!.device ?? 0) === on
    const base = buffers.reduce((sum, { life, root, bytes }, id) => {
      const lasts = root === id && (life === 'state' || life === 'param') && isHere(id)
      return lasts ? sum + rounded(bytes) : sum
    }, 0)
    const own = someOf(
      ranges,
      Int32Array.from(ranges.buffer.keys()).filter(k => isHere(ranges.buffer[k]!)),
    )
    return mostLive(
      own,
      Float64Array.from(own.buffer, id => rounded(buffers[id]!.bytes)),
      base,
    )
  })
  return Math.max(...least)
}
