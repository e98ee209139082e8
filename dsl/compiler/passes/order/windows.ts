import type { Placed, WindowEdge } from '../../analysis/ir.js'
import { ticksMeet } from '../../analysis/options.js'
import { deferralLevels } from './deferred.js'

/** A deferred operation, and the places in the order of the operations that ask for it. */
interface Streamed {
  readonly operation: number
  /** The earliest place after its own predecessors. */
  readonly least: number
  /**
   * The place of the first operation that must come after it: a reader, a later one by control, or an
   * overwriter.
   */
  readonly first: number
  readonly lastReader: number
  /** The last reader on each lane that reads it. */
  readonly readers: readonly number[]
}

/** Operations to be inserted before places of an order. */
class Places {
  private readonly lists = new Map<number, number[]>()

  put(place: number, operation: number): void {
    const list = this.lists.get(place)
    if (list === undefined) this.lists.set(place, [operation])
    else list.push(operation)
  }

  at(place: number): readonly number[] {
    return this.lists.get(place) ?? none
  }
}

const none: readonly number[] = []

/** The deferred operations of one level, and the order of all lower levels, into which they are inserted. */
class Level {
  /** By operation: its place in the order, -1: none yet. Undefined where only readers decide. */
  private readonly placeOf: Int32Array | undefined
  private readonly least = new Map<number, number>()
  private readonly first = new Map<number, number>()

  constructor(
    private readonly ir: Placed,
    private readonly order: Int32Array,
    levels: Int32Array,
    private readonly members: readonly number[],
  ) {
    const { operations, control } = ir
    if (control === undefined && members.every(i => operations[i]!.kind === 'upload')) return
    const placeOf = new Int32Array(operations.length).fill(-1)
    for (let at = 0; at < order.length; at++) placeOf[order[at]!] = at
    this.placeOf = placeOf
    // The earliest places of operations that are not in the order yet.
    for (let i = 0; i < levels.length; i++)
      if (levels[i]! > 0 && placeOf[i] === -1) {
        let least = 0
        for (const before of operations[i]!.after)
          least = Math.max(
            least,
            placeOf[before] === -1 ? (this.least.get(before) ?? 0) : placeOf[before]! + 1,
          )
        if (least > 0) this.least.set(i, least)
      }
    for (const { later, earlier } of control ?? [])
      if (levels[earlier]! > 0 && placeOf[earlier] === -1 && placeOf[later]! >= 0)
        this.asks(earlier, placeOf[later]!)
  }

  /** The operation at this place must come after operation i. */
  private asks(i: number, at: number): void {
    this.first.set(i, Math.min(at, this.first.get(i) ?? at))
  }

  /** Operations that overwrite what a deferred operation reads come after it. */
  private overwriters(): void {
    if (this.placeOf === undefined) return
    const { start, written, root } = this.ir.accesses
    const readers = new Map<number, number[]>()
    for (const i of this.members)
      for (let a = start[i]!; a < written[i]!; a++) {
        const { life } = this.ir.buffers[root[a]!]!
        if (life === 'param' || life === 'input') continue
        readers.set(root[a]!, [...(readers.get(root[a]!) ?? []), i])
      }
    if (readers.size === 0) return
    const isRead = new Uint8Array(this.ir.buffers.length)
    for (const read of readers.keys()) isRead[read] = 1
    for (let at = 0; at < this.order.length; at++) {
      const i = this.order[at]!
      for (let a = written[i]!; a < start[i + 1]!; a++)
        if (isRead[root[a]!] === 1)
          for (const reader of readers.get(root[a]!)!)
            if (at >= (this.least.get(reader) ?? 0)) this.asks(reader, at)
    }
  }

  streamed(): Streamed[] {
    const { ir, order, members } = this
    const made = new Map<number, { all: number[]; first: number; last: number; lanes: Map<number, number> }>()
    for (const i of members) {
      const { root } = ir.buffers[ir.operations[i]!.writes[0]!]!
      const known = made.get(root)
      // Several operations fill one buffer where a window's values are made in place.
      if (known === undefined) made.set(root, { all: [i], first: order.length, last: -1, lanes: new Map() })
      else known.all.push(i)
    }
    // A flag by buffer first: only few of a million buffers are in the map.
    const isMade = new Uint8Array(ir.buffers.length)
    for (const root of made.keys()) isMade[root] = 1
    const { start, root } = ir.accesses
    const reads = new Uint8Array(ir.operations.length)
    for (let i = 0; i < reads.length; i++)
      for (let a = start[i]!; a < start[i + 1]!; a++) if (isMade[root[a]!] === 1) reads[i] = 1
    for (let at = 0; at < order.length; at++) {
      const i = order[at]!
      if (reads[i] === 0) continue
      for (let a = start[i]!; a < start[i + 1]!; a++) {
        const one = made.get(root[a]!)
        if (one === undefined) continue
        one.first = Math.min(one.first, at)
        one.last = at
        one.lanes.set(ir.laneOf[i]!, i)
      }
    }
    this.overwriters()
    return Array.from(made.values()).flatMap(({ all, first, last, lanes }) => {
      const readers = [...lanes.values()]
      return all.map(operation => ({
        operation,
        least: this.least.get(operation) ?? 0,
        first: Math.min(first, this.first.get(operation) ?? first),
        lastReader: last,
        readers,
      }))
    })
  }
}

/** The order with the deferred operations of one level inserted. */
const inserted = (
  ir: Placed,
  order: Int32Array,
  most: number,
  level: readonly Streamed[],
  windows: WindowEdge[],
): Int32Array => {
  const right = new Places()
  const opening = new Places()
  const single = new Set<number>()
  const groups = new Map<string, Streamed[]>()
  for (const one of level) {
    const { ahead } = ir.operations[one.operation]!
    if (ahead === undefined) {
      right.put(one.first, one.operation)
      single.add(ir.laneOf[one.operation]!)
    } else {
      const key = `${ir.laneOf[one.operation]} ${Math.min(ahead, most)}`
      const group = groups.get(key)
      if (group === undefined) groups.set(key, [one])
      else group.push(one)
    }
  }
  for (const [key, group] of groups) {
    const ahead = Number(key.split(' ')[1])
    const count = group.length
    group.sort((a, b) => a.first - b.first || a.operation - b.operation)
    let earliest = 0
    // A window with a lane of its own opens first, so that its few large buffers lie together. Uploads
    // without a window on the same lane do not queue behind it.
    const into = single.has(ir.laneOf[group[0]!.operation]!) ? right : opening
    group.forEach(({ operation, first, least }, j) => {
      const before = j - ahead - 1
      const held = group[((before % count) + count) % count]!
      const ticks = -Math.floor(before / count)
      if (ticks === 0 && held.lastReader < first) {
        earliest = Math.max(earliest, held.lastReader + 1)
        for (const reader of held.readers) windows.push({ later: operation, earlier: reader, tick: 0 })
      }
      if (ticks > 0 && ticks < (ticksMeet(ir.settings) ? ir.settings.inFlight : 1))
        for (const reader of held.readers) windows.push({ later: operation, earlier: reader, tick: -1 })
      into.put(Math.min(Math.max(earliest, least), first), operation)
    })
  }
  const whole = new Int32Array(order.length + level.length)
  let length = 0
  for (let at = 0; at <= order.length; at++) {
    for (const i of opening.at(at)) whole[length++] = i
    for (const i of right.at(at)) whole[length++] = i
    if (at < order.length) whole[length++] = order[at]!
  }
  return whole
}

/**
 * Inserts the deferred operations into the order of all others. One without `ahead` goes right before the
 * first operation that asks for it. Those of one lane and one `ahead: k` form a window, sorted by who asks
 * first: number j goes as early as it may, right after the last reader of number j − k − 1, and an edge keeps
 * that order; across the end of the tick too, where fewer ticks than `inFlight` lie between. Where that
 * reader itself comes after a reader of number j, the window cannot hold so few: number j goes no later than
 * its first reader needs, without an edge.
 */
export const insertDeferred = (
  ir: Placed,
  eager: Int32Array,
  most: number,
): { readonly order: Int32Array; readonly windows: readonly WindowEdge[] } => {
  const levels = deferralLevels(ir)
  const members: number[][] = []
  for (let i = 0; i < levels.length; i++)
    if (levels[i]! > 0) {
      while (members.length < levels[i]!) members.push([])
      members[levels[i]! - 1]!.push(i)
    }
  const windows: WindowEdge[] = []
  let order = eager
  for (const level of members)
    order = inserted(ir, order, most, new Level(ir, order, levels, level).streamed(), windows)
  return { order, windows }
}
