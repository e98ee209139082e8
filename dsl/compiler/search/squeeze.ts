import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import type { Plan } from '../../ir/plan.js'
import { rounded } from '../../memory/pool-peak.js'
import type { Lifetimes, WindowEdge } from '../analysis/ir.js'
import { outlineOf } from '../passes/emit.js'
import { lifetimes } from '../passes/lifetimes.js'
import { synchronize } from '../passes/synchronize.js'

/** An operation in a tick, after which a lane is done with a range; -1: the lane never touched it. */
interface Mark {
  readonly point: number
  /** What its lane was after by then: what a wait for it brings along. */
  readonly known: Float64Array
  readonly node: number
  readonly tick: number
}

interface Range {
  offset: number
  size: number
  /** By lane. */
  readonly marks: readonly (Mark | undefined)[]
}

/** Rounds of adding waits and looking again, and ticks of each look: a plan that needs more is not squeezed. */
const maxRounds = 32
const maxTicks = 6
/** Commands beyond which a plan is not squeezed: each round replays all of them. */
const maxCommands = 20_000

/**
 * The session's pool of one device once more, remembering who released what, and never growing beyond `most` bytes: the first allocation that would need
 * to is answered with the waits that let it take the bytes which were released the longest ago instead.
 */
class Ledger {
  private ranges: Range[] = []
  private end: number

  constructor(
    base: number,
    private readonly most: number,
  ) {
    this.end = base
  }

  /** The address, or undefined where no usable range is long enough below `most`. */
  take(size: number, usable: (range: Range) => boolean): number | undefined {
    const from = this.single(size, usable) ?? this.run(size, usable)
    const offset = from < this.ranges.length ? this.ranges[from]!.offset : this.end
    if (offset + size > this.most) return undefined
    this.cut(from, size)
    this.end = Math.max(this.end, offset + size)
    return offset
  }

  give(offset: number, size: number, marks: readonly (Mark | undefined)[]): void {
    const at = this.ranges.findIndex(range => range.offset > offset)
    this.ranges.splice(at === -1 ? this.ranges.length : at, 0, { offset, size, marks })
  }

  /** Of all stretches of free bytes that would do, the one whose last user came the longest ago. */
  oldest(size: number, age: (mark: Mark) => number): readonly Range[] {
    let best: readonly Range[] = []
    let bestAge = Number.POSITIVE_INFINITY
    for (let first = 0; first < this.ranges.length; first++) {
      const stretch: Range[] = []
      let end = this.ranges[first]!.offset
      let latest = 0
      for (
        let i = first;
        i < this.ranges.length && this.ranges[i]!.offset === end && end - this.ranges[first]!.offset < size;
        i++
      ) {
        stretch.push(this.ranges[i]!)
        end += this.ranges[i]!.size
        for (const mark of this.ranges[i]!.marks) if (mark !== undefined) latest = Math.max(latest, age(mark))
      }
      const { offset } = this.ranges[first]!
      const room = end === this.end ? this.most - offset : end - offset
      if (room < size || latest >= bestAge) continue
      best = stretch
      bestAge = latest
    }
    return best
  }

  private single(size: number, usable: (range: Range) => boolean): number | undefined {
    let best: number | undefined
    this.ranges.forEach((range, i) => {
      if (range.size >= size && (best === undefined || range.size < this.ranges[best]!.size) && usable(range))
        best = i
    })
    return best
  }

  private run(size: number, usable: (range: Range) => boolean): number {
    const { ranges } = this
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = ranges.length
    for (let first = 0; first < ranges.length; first++) {
      if (!usable(ranges[first]!)) continue
      const start = first
      let end = ranges[first]!.offset + ranges[first]!.size
      while (first + 1 < ranges.length && ranges[first + 1]!.offset === end && usable(ranges[first + 1]!))
        end += ranges[++first]!.size
      const length = end - ranges[start]!.offset
      if (end === this.end) tail = start
      if (length >= size && length < bestLength) {
        best = start
        bestLength = length
      }
    }
    return best >= 0 ? best : tail
  }

  private cut(from: number, size: number): void {
    let whole = from
    while (whole < this.ranges.length && size > 0 && this.ranges[whole]!.size <= size)
      size -= this.ranges[whole++]!.size
    const rest = this.ranges[whole]
    if (rest !== undefined && size > 0) {
      rest.offset += size
      rest.size -= size
    }
    this.ranges.splice(from, whole - from)
  }
}

const baseOf = ({ buffers }: Plan, on: number): number =>
  buffers.reduce((sum, { alias, space, life, bytes, device }) => {
    const lasting = alias === undefined && space === 'device' && (life === 'state' || life === 'param')
    return lasting && device === on ? sum + rounded(bytes) : sum
  }, 0)

/** The node of the run that each command comes before on its lane: what an alloc there is for. */
const nextNodes = ({ commands }: Plan): Int32Array => {
  const next = new Int32Array(commands.length).fill(-1)
  let node = -1
  for (let at = commands.length - 1; at >= 0; at--) {
    const command = commands[at]!
    if (command[0] === 'run') node = command[1]
    next[at] = node
  }
  return next
}

/**
 * The waits that the allocations of the first tick with any beyond `most` bytes need to stay below, each found with those before it in place; none where nothing is
 * short, or where the first cannot be helped.
 */
const shortage = (plan: Plan, most: number): readonly WindowEdge[] => {
  const edges: WindowEdge[] = []
  const { commands, buffers, lanes, inFlight } = plan
  const ledgers = Array.from({ length: plan.devices }, (_, device) => new Ledger(baseOf(plan, device), most))
  const next = nextNodes(plan)
  const zeros = (): Float64Array => new Float64Array(lanes.length)
  const frontier = lanes.map(zeros)
  const ends: Float64Array[] = []
  const marks: [Map<number, Float64Array>, Map<number, Float64Array>] = [new Map(), new Map()]
  const offset = new Float64Array(buffers.length)
  const pending: (Mark | undefined)[][] = buffers.map(() => [])
  const ran: (Mark | undefined)[] = lanes.map(() => undefined)
  const join = (into: Float64Array, from: Float64Array): void => {
    for (let m = 0; m < into.length; m++) into[m] = Math.max(into[m]!, from[m]!)
  }
  for (let tick = 0; tick < maxTicks + inFlight; tick++) {
    const done = ends[tick - inFlight]
    if (done !== undefined) for (const points of frontier) join(points, done)
    const now = marks[tick & 1]!
    const before = marks[1 - (tick & 1)]!
    for (let at = 0; at < commands.length; at++) {
      const command = commands[at]!
      switch (command[0]) {
        case 'alloc': {
          const [, buffer, lane] = command
          if (buffers[buffer]!.space !== 'device') break
          const known = frontier[lane]!
          const ledger = ledgers[buffers[buffer]!.device]!
          const unseen = (mark: Mark | undefined, m: number): boolean =>
            mark !== undefined && m !== lane && mark.point > known[m]!
          const size = rounded(buffers[buffer]!.bytes)
          const usable = (range: Range): boolean => !range.marks.some(unseen)
          let found = ledger.take(size, usable)
          if (found === undefined) {
            const stretch = ledger.oldest(size, mark => mark.tick * commands.length + mark.node)
            for (const range of stretch)
              for (const mark of range.marks.filter(unseen)) {
                edges.push(edgeOf(next[at]!, mark!, tick))
                join(known, mark!.known)
              }
            if (stretch.length > 0) found = ledger.take(size, usable)
            if (found === undefined) return edges
          }
          offset[buffer] = found
          break
        }
        case 'free': {
          const [, buffer] = command
          const { space, device, home, bytes } = buffers[buffer]!
          const released = pending[buffer]!
          released[home] = ran[home]
          pending[buffer] = []
          if (space === 'device') ledgers[device]!.give(offset[buffer]!, rounded(bytes), released)
          break
        }
        case 'use':
          pending[command[1]]![command[2]] = ran[command[2]]
          break
        case 'run': {
          const [, node, lane] = command
          const point = ++frontier[lane]![lane]!
          ran[lane] = { node, tick, point, known: frontier[lane]!.slice() }
          break
        }
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
    }
    // Whatever comes later sees another pool once these waits are in the plan.
    if (edges.length > 0) return edges
    ends.push(Float64Array.from(frontier, (points, lane) => points[lane]!))
  }
  return edges
}

const edgeOf = (later: number, { node, tick }: Mark, now: number): WindowEdge => ({
  later,
  earlier: node,
  tick: tick === now ? 0 : -1,
})

/** Those that are not there already, once each. */
const fresh = (edges: readonly WindowEdge[], there: readonly WindowEdge[]): WindowEdge[] => {
  const keyOf = ({ later, earlier, tick }: WindowEdge): string => `${later} ${earlier} ${tick}`
  const known = new Set(there.map(keyOf))
  return edges.filter(edge => {
    const key = keyOf(edge)
    return known.has(key) ? false : known.add(key)
  })
}

/**
 * Makes lanes wait for the last users of freed bytes where an allocation would otherwise grow the pool beyond `most`: order is given
 * up for memory, a tick's waits at a time, first where they are needed first. What comes back may still be too large: `bound` says.
 */
export const squeeze = (ir: Lifetimes, most: number): Lifetimes => {
  for (let round = 0; round < maxRounds; round++) {
    const plan = outlineOf(ir)
    if (plan.commands.length > maxCommands) return ir
    const edges = fresh(shortage(plan, most), ir.windows)
    if (edges.length === 0) return ir
    const again = pipe(synchronize({ ...ir, windows: [...ir.windows, ...edges] }), E.chain(lifetimes))
    if (E.isLeft(again)) return ir
    ir = again.right
  }
  return ir
}
