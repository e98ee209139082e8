import type { Plan } from './plan.js'

/** What an allocation is rounded up to. */
export const granule = 512
export const rounded = (bytes: number): number => Math.ceil(bytes / granule) * granule

interface Range {
  offset: number
  size: number
  /** For each lane, the point that a taker must be after; -1: none. */
  readonly release: Float64Array
}

/**
 * The pool of a session: one range of addresses, given out by order alone, as `native/allocator/range_pool.cc` does, byte for byte
 * (spec/decisions.md, 5 and 10).
 * Free ranges are disjoint, in order of offset, all below `peak`; everything from `peak` on was never taken.
 */
export class Pool {
  private ranges: Range[] = []
  peak = 0

  /** `size` bytes for a lane that is after `frontier`: from the shortest usable run of adjacent ranges, else from the end. */
  take(size: number, lane: number, frontier: Float64Array): number {
    const { ranges } = this
    const usable = ({ release }: Range): boolean => {
      for (let m = 0; m < release.length; m++) if (m !== lane && release[m]! > frontier[m]!) return false
      return true
    }
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = ranges.length
    let single = -1
    let singleLength = Number.POSITIVE_INFINITY
    for (let first = 0; first < ranges.length; ) {
      if (!usable(ranges[first]!)) {
        first++
        continue
      }
      let end = ranges[first]!.offset
      let last = first
      for (; last < ranges.length && ranges[last]!.offset === end && usable(ranges[last]!); last++) {
        const { size: whole } = ranges[last]!
        end += whole
        if (whole >= size && whole < singleLength) {
          single = last
          singleLength = whole
        }
      }
      const length = end - ranges[first]!.offset
      if (end === this.peak) tail = first
      if (length >= size && length < bestLength) {
        best = first
        bestLength = length
      }
      first = last
    }
    const from = single >= 0 ? single : best >= 0 ? best : tail
    const offset = from < ranges.length ? ranges[from]!.offset : this.peak
    this.cut(from, size)
    this.peak = Math.max(this.peak, offset + size)
    return offset
  }

  give(offset: number, size: number, release: Float64Array): void {
    const { ranges } = this
    let low = 0
    let high = ranges.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (ranges[middle]!.offset < offset) low = middle + 1
      else high = middle
    }
    const equal = (range: Range): boolean => range.release.every((point, m) => point === release[m])
    const before = ranges[low - 1]
    const after = ranges[low]
    const joinsAfter = after !== undefined && after.offset === offset + size && equal(after)
    if (before !== undefined && before.offset + before.size === offset && equal(before)) {
      before.size += size
      if (joinsAfter) {
        before.size += after.size
        ranges.splice(low, 1)
      }
    } else if (joinsAfter) {
      after.offset = offset
      after.size += size
    } else ranges.splice(low, 0, { offset, size, release })
  }

  /** Every lane is after `all`: points up to it are forgotten, so that neighbours become equal and merge. Changes no answer. */
  settle(all: Float64Array): void {
    const merged: Range[] = []
    for (const range of this.ranges) {
      const release = range.release.map((point, m) => (point <= all[m]! ? -1 : point))
      const before = merged[merged.length - 1]
      if (before !== undefined && before.offset + before.size === range.offset && before.release.every((point, m) => point === release[m]))
        before.size += range.size
      else merged.push({ ...range, release })
    }
    this.ranges = merged
  }

  /** What the coming ticks depend on, with points counted from `base`. */
  key(base: Float64Array): string {
    return this.ranges
      .map(({ offset, size, release }) => `${offset}+${size}@${Array.from(release, (point, m) => (point < 0 ? '' : point - base[m]!))}`)
      .join('|')
  }

  // Takes from the low end of adjacent ranges; what is longer than `size` keeps its release.
  private cut(from: number, size: number): void {
    const { ranges } = this
    let whole = from
    while (whole < ranges.length && size > 0 && ranges[whole]!.size <= size) size -= ranges[whole++]!.size
    const rest = ranges[whole]
    if (rest !== undefined && size > 0) {
      rest.offset += size
      rest.size -= size
    }
    ranges.splice(from, whole - from)
  }
}

export interface PoolPeak {
  /** The furthest byte that each device's pool ever takes. */
  readonly device: readonly number[]
  /** False where the limit on work came before the pool was seen to repeat itself. */
  readonly settled: boolean
}

/** Commands that are replayed at most. */
const maxSteps = 2 ** 26

/**
 * The furthest byte that the session's pool ever takes for this plan, over as many ticks as it takes to repeat itself. The rule is that of
 * the native executor: each run and each wait is a point of its lane; a freed range is released at its home lane's point and at the points
 * of its uses; when tick t is issued, every lane is after all of tick t − inFlight.
 */
export const poolPeakOf = (plan: Plan): PoolPeak => {
  const lanes = plan.lanes.length
  const pools = Array.from({ length: plan.devices }, () => new Pool())
  for (const { space, device, life, alias, bytes } of plan.buffers)
    if (alias === undefined && space === 'device' && (life === 'state' || life === 'param')) pools[device]!.peak += rounded(bytes)
  const none = (): Float64Array => new Float64Array(lanes)
  const frontier = plan.lanes.map(none)
  const ends: Float64Array[] = []
  const marks: [Map<number, Float64Array>, Map<number, Float64Array>] = [new Map(), new Map()]
  const offset = new Float64Array(plan.buffers.length)
  const release: (Float64Array | undefined)[] = new Array(plan.buffers.length)
  const seen = new Set<string>()
  const limit = Math.max(4, Math.floor(maxSteps / Math.max(1, plan.commands.length)))
  const join = (into: Float64Array, from: Float64Array): void => {
    for (let m = 0; m < lanes; m++) if (from[m]! > into[m]!) into[m] = from[m]!
  }
  const answer = (settled: boolean): PoolPeak => ({ device: pools.map(pool => pool.peak), settled })
  for (let tick = 0; tick < limit; tick++) {
    const base = Float64Array.from(frontier, (points, lane) => points[lane]!)
    const done = ends[tick - plan.inFlight]
    if (done !== undefined) {
      for (const points of frontier) join(points, done)
      for (const pool of pools) pool.settle(done)
      // From here on what lanes know of each other is the same in every tick: the rest follows from what lies free.
      const key = pools.map(pool => pool.key(base)).join('/')
      if (seen.has(key)) return answer(true)
      seen.add(key)
    }
    const now = marks[tick & 1]!
    const before = marks[1 - (tick & 1)]!
    for (const command of plan.commands)
      switch (command[0]) {
        case 'alloc': {
          const [, buffer, lane] = command
          const { space, device, bytes } = plan.buffers[buffer]!
          if (space === 'device') offset[buffer] = pools[device]!.take(rounded(bytes), lane, frontier[lane]!)
          break
        }
        case 'free': {
          const [, buffer] = command
          const { space, device, bytes, home } = plan.buffers[buffer]!
          const points = release[buffer] ?? none().fill(-1)
          points[home] = Math.max(points[home]!, frontier[home]![home]!)
          if (space === 'device') pools[device]!.give(offset[buffer]!, rounded(bytes), points)
          release[buffer] = undefined
          break
        }
        case 'use': {
          const [, buffer, lane, event] = command
          release[buffer] ??= none().fill(-1)
          release[buffer][lane] = Math.max(release[buffer][lane]!, now.get(event)?.[lane] ?? -1)
          break
        }
        case 'run':
          frontier[command[2]]![command[2]]!++
          break
        case 'record':
          now.set(command[1], frontier[command[2]]!.slice())
          break
        case 'wait': {
          const [, event, lane, previous] = command
          const mark = (previous === -1 ? before : now).get(event)
          if (mark !== undefined) join(frontier[lane]!, mark)
          frontier[lane]![lane]!++
          break
        }
      }
    ends.push(Float64Array.from(frontier, (points, lane) => points[lane]!))
  }
  return answer(false)
}
