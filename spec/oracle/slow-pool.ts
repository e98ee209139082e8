// The rule of the session's pool (docs/internals/decisions/sessions.md, 5 and 10), written out word by word,
// however slow. It shares no code with the pool in dsl/memory: tests compare that pool, and what `poolPeakOf`
// finds, with it.
import type { Plan } from '../../dsl/ir/plan.js'

type Points = readonly number[]

export interface Free {
  readonly at: number
  readonly size: number
  readonly release: Points
}

const unit = 512
const roundedUp = (bytes: number): number => (bytes === 0 ? unit : Math.ceil(bytes / unit) * unit)
const join = (a: Points, b: Points): Points => a.map((point, m) => Math.max(point, b[m]!))
const equal = (a: Points, b: Points): boolean => a.every((point, m) => point === b[m])

/** Neighbours of equal release are one range. */
const merged = (ranges: readonly Free[]): Free[] => {
  const out: Free[] = []
  for (const range of [...ranges].sort((a, b) => a.at - b.at)) {
    const last = out[out.length - 1]
    if (last !== undefined && last.at + last.size === range.at && equal(last.release, range.release))
      out[out.length - 1] = { ...last, size: last.size + range.size }
    else out.push(range)
  }
  return out
}

/** One range of addresses, given out by order alone. */
export class SlowPool {
  /** Free ranges in order of address. */
  ranges: readonly Free[] = []

  constructor(public peak: number) {}

  take(size: number, lane: number, frontier: Points): number {
    const usable = this.ranges.filter(({ release }) =>
      release.every((point, m) => m === lane || point <= frontier[m]!),
    )
    const runs: Free[][] = []
    for (const range of usable) {
      const run = runs[runs.length - 1]
      const last = run?.[run.length - 1]
      if (last !== undefined && last.at + last.size === range.at) run!.push(range)
      else runs.push([range])
    }
    const length = (run: readonly Free[]): number => run.reduce((sum, range) => sum + range.size, 0)
    const shortest = (from: readonly (readonly Free[])[]): readonly Free[] | undefined =>
      [...from]
        .filter(run => length(run) >= size)
        .sort((a, b) => length(a) - length(b) || a[0]!.at - b[0]!.at)[0]
    const tail = runs.find(run => run[run.length - 1]!.at + run[run.length - 1]!.size === this.peak) ?? []
    const from = shortest(usable.map(range => [range])) ?? shortest(runs) ?? tail
    const at = from[0]?.at ?? this.peak
    this.ranges = this.ranges.flatMap(range => {
      if (!from.includes(range) || range.at >= at + size) return [range]
      const left = range.at + range.size - (at + size)
      return left > 0 ? [{ ...range, at: at + size, size: left }] : []
    })
    this.peak = Math.max(this.peak, at + size)
    return at
  }

  give(at: number, size: number, release: Points): void {
    this.ranges = merged([...this.ranges, { at, size, release }])
  }

  /** Points up to `done` count for nothing any more. */
  retire(done: Points): void {
    this.ranges = merged(
      this.ranges.map(range => ({
        ...range,
        release: range.release.map((point, m) => (point <= done[m]! ? 0 : point)),
      })),
    )
  }
}

/** A tick of one memory. */
export interface PoolTick {
  /** The furthest byte that was ever taken. */
  readonly peak: number
  /** The alloc command that took it; -1: none did. */
  readonly reachedAt: number
  /** What was free when it began, with points counted from there. */
  readonly start: string
}

/** After each tick, the furthest byte of device 0 that was ever taken. */
export const slowPoolPeaks = (plan: Plan, ticks: number): number[] =>
  slowPoolTicks(plan, ticks, 0).map(({ peak }) => peak)

/** Ticks of one memory: a device's, or pinned. */
export const slowPoolTicks = (plan: Plan, ticks: number, memory: number): PoolTick[] => {
  const { lanes, buffers, commands, inFlight } = plan
  const none = lanes.map(() => 0)
  const frontier: Points[] = lanes.map(() => none)
  const ends: Points[] = []
  const played: PoolTick[] = []
  const isHere = ({ space, device }: Plan['buffers'][number]): boolean =>
    space === 'pinned' ? memory === plan.devices : device === memory
  let base = 0
  for (const buffer of buffers) {
    if (buffer.alias !== undefined || buffer.life === 'tick' || !isHere(buffer)) continue
    const slots = buffer.life === 'input' || buffer.life === 'output' ? inFlight : 1
    base += roundedUp(buffer.bytes) * slots
  }
  const pool = new SlowPool(base)
  let before = new Map<number, Points>()
  const offset = new Map<number, number>()
  let reachedAt = -1

  for (let tick = 0; tick < ticks; tick++) {
    const done = ends[tick - inFlight]
    if (done !== undefined) {
      lanes.forEach((_, l) => {
        frontier[l] = join(frontier[l]!, done)
      })
      pool.retire(done)
    }
    const begun = frontier.map((points, l) => points[l]!)
    const start = JSON.stringify(
      pool.ranges.map(({ at, size, release }) => [
        ...[at, size],
        ...release.map((point, m) => (point === 0 ? null : point - begun[m]!)),
      ]),
    )
    const marks = new Map<number, Points>()
    const lane = new Map<number, number>()
    const uses = new Map<number, Points>()
    const step = (l: number): void => {
      frontier[l] = frontier[l]!.with(l, frontier[l]![l]! + 1)
    }
    commands.forEach((command, c) => {
      if (command[0] === 'run') step(command[2])
      else if (command[0] === 'record') {
        marks.set(command[1], frontier[command[2]]!)
        lane.set(command[1], command[2])
      } else if (command[0] === 'wait') {
        const mark = (command[3] === -1 ? before : marks).get(command[1])
        if (mark !== undefined) frontier[command[2]] = join(frontier[command[2]]!, mark)
        step(command[2])
      } else {
        const { home, bytes } = buffers[command[1]]!
        if (!isHere(buffers[command[1]]!)) return
        if (command[0] === 'alloc') {
          const before = pool.peak
          offset.set(command[1], pool.take(roundedUp(bytes), command[2], frontier[command[2]]!))
          if (pool.peak > before) reachedAt = c
        } else if (command[0] === 'use') {
          const point = marks.get(command[3])![lane.get(command[3])!]!
          const others = uses.get(command[1]) ?? none
          uses.set(command[1], others.with(command[2], Math.max(others[command[2]]!, point)))
        } else {
          const release = (uses.get(command[1]) ?? none).with(home, frontier[home]![home]!)
          pool.give(offset.get(command[1])!, roundedUp(bytes), release)
        }
      }
    })
    before = marks
    ends.push(frontier.map((points, l) => points[l]!))
    played.push({ peak: pool.peak, reachedAt, start })
  }
  return played
}
