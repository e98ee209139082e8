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

const sameRelease = (a: Float64Array, b: Float64Array): boolean => {
  for (let m = 0; m < a.length; m++) if (a[m] !== b[m]) return false
  return true
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
    let single = -1
    let singleLength = Number.POSITIVE_INFINITY
    for (let i = 0; i < ranges.length && singleLength !== size; i++) {
      const { size: length } = ranges[i]!
      if (length < size || length >= singleLength || !usable(ranges[i]!)) continue
      single = i
      singleLength = length
    }
    const from = single >= 0 ? single : this.run(size, usable)
    const offset = from < ranges.length ? ranges[from]!.offset : this.peak
    this.cut(from, size)
    this.peak = Math.max(this.peak, offset + size)
    return offset
  }

  // The first range of the shortest usable run that is long enough; else of the one that touches the untouched end, if any.
  private run(size: number, usable: (range: Range) => boolean): number {
    const { ranges } = this
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = ranges.length
    for (let first = 0; first < ranges.length; ) {
      if (!usable(ranges[first]!)) {
        first++
        continue
      }
      let end = ranges[first]!.offset + ranges[first]!.size
      let last = first + 1
      while (last < ranges.length && ranges[last]!.offset === end && usable(ranges[last]!)) end += ranges[last++]!.size
      const length = end - ranges[first]!.offset
      if (end === this.peak) tail = first
      if (length >= size && length < bestLength) {
        best = first
        bestLength = length
      }
      first = last
    }
    return best >= 0 ? best : tail
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
    const equal = (range: Range): boolean => sameRelease(range.release, release)
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
      if (before !== undefined && before.offset + before.size === range.offset && sameRelease(before.release, release))
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

/** Commands that are replayed at most; and after how many without growth the peak is taken as it is, if that comes first. */
const maxSteps = 2 ** 26
const quietSteps = 2 ** 18

const Code = { alloc: 0, free: 1, run: 2, record: 3, wait: 4, previous: 5, use: 6 } as const

/** Four words a command: code, buffer or event, lane, event of a use. Pinned memory is left out: it is not this pool's. */
const flat = (plan: Plan): Int32Array => {
  const words = new Int32Array(plan.commands.length * 4)
  let at = 0
  const put = (code: number, subject: number, lane: number, event = 0): void => {
    words[at] = code
    words[at + 1] = subject
    words[at + 2] = lane
    words[at + 3] = event
    at += 4
  }
  const onDevice = (buffer: number): boolean => plan.buffers[buffer]!.space === 'device'
  for (const command of plan.commands)
    if (command[0] === 'alloc') onDevice(command[1]) && put(Code.alloc, command[1], command[2])
    else if (command[0] === 'free') onDevice(command[1]) && put(Code.free, command[1], plan.buffers[command[1]]!.home)
    else if (command[0] === 'use') onDevice(command[1]) && put(Code.use, command[1], command[2], command[3])
    else if (command[0] === 'run') put(Code.run, command[1], command[2])
    else if (command[0] === 'record') put(Code.record, command[1], command[2])
    else put(command[3] === -1 ? Code.previous : Code.wait, command[1], command[2])
  return words.subarray(0, at)
}

/**
 * The furthest byte that the session's pool ever takes for this plan. The rule is that of the native executor: each run and each wait is a
 * point of its lane; a freed range is released at its home lane's point and at the points of its uses; when tick t is issued, every lane
 * is after all of tick t − inFlight. Ticks are replayed until what lies free repeats itself, or, in a large plan, until the peak has
 * rested for a while: the session holds no more than the bound in any case, and would make a lane wait rather than take more.
 */
export const poolPeakOf = (plan: Plan): PoolPeak => {
  const lanes = plan.lanes.length
  const pools = Array.from({ length: plan.devices }, () => new Pool())
  for (const { space, device, life, alias, bytes } of plan.buffers)
    if (alias === undefined && space === 'device' && (life === 'state' || life === 'param')) pools[device]!.peak += rounded(bytes)
  const words = flat(plan)
  let events = 0
  for (let at = 0; at < words.length; at += 4) if (words[at]! >= Code.record && words[at]! <= Code.previous) events = Math.max(events, words[at + 1]! + 1)
  const frontier = plan.lanes.map(() => new Float64Array(lanes))
  const marks = [new Float64Array(events * lanes), new Float64Array(events * lanes)] as const
  const ends: Float64Array[] = []
  const offset = new Float64Array(plan.buffers.length)
  const bytes = Float64Array.from(plan.buffers, buffer => rounded(buffer.bytes))
  const release: (Float64Array | undefined)[] = new Array(plan.buffers.length)
  const seen = new Set<string>()
  const present = (): Float64Array => Float64Array.from(frontier, (points, lane) => points[lane]!)
  const held = (): number => pools.reduce((sum, pool) => sum + pool.peak, 0)
  const answer = (settled: boolean): PoolPeak => ({ device: pools.map(pool => pool.peak), settled })
  let grewAt = 0
  for (let tick = 0; tick * words.length <= 4 * maxSteps || tick < 4; tick++) {
    const done = ends[tick - plan.inFlight]
    if (done !== undefined) {
      for (const points of frontier) for (let m = 0; m < lanes; m++) points[m] = Math.max(points[m]!, done[m]!)
      for (const pool of pools) pool.settle(done)
      // From here on what lanes know of each other is the same in every tick: the rest follows from what lies free.
      const base = present()
      const key = pools.map(pool => pool.key(base)).join('/')
      const rested = tick - grewAt
      if (seen.has(key) || (rested > plan.inFlight + 1 && rested * words.length > 4 * quietSteps)) return answer(true)
      seen.add(key)
    }
    const before = held()
    const now = marks[tick & 1]!
    const last = marks[1 - (tick & 1)]!
    for (let at = 0; at < words.length; at += 4) {
      const subject = words[at + 1]!
      const lane = words[at + 2]!
      const points = frontier[lane]!
      switch (words[at]) {
        case Code.alloc:
          offset[subject] = pools[plan.buffers[subject]!.device]!.take(bytes[subject]!, lane, points)
          break
        case Code.free: {
          const until = release[subject] ?? new Float64Array(lanes).fill(-1)
          until[lane] = Math.max(until[lane]!, points[lane]!)
          pools[plan.buffers[subject]!.device]!.give(offset[subject]!, bytes[subject]!, until)
          release[subject] = undefined
          break
        }
        case Code.run:
          points[lane]!++
          break
        case Code.record:
          now.set(points, subject * lanes)
          break
        case Code.use: {
          release[subject] ??= new Float64Array(lanes).fill(-1)
          release[subject][lane] = Math.max(release[subject][lane]!, now[words[at + 3]! * lanes + lane] ?? -1)
          break
        }
        default: {
          // In the first tick there is no tick before, and its marks are all 0: the wait is a point and nothing else.
          const mark = words[at] === Code.previous ? last : now
          for (let m = 0; m < lanes; m++) if (mark[subject * lanes + m]! > points[m]!) points[m] = mark[subject * lanes + m]!
          points[lane]!++
        }
      }
    }
    if (held() > before) grewAt = tick
    ends.push(present())
  }
  return answer(false)
}
