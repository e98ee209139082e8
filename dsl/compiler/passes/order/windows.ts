import type { Placed, WindowEdge } from '../../analysis/ir.js'
import { deferralLevels } from './deferred.js'

/** An operation that waits to be asked for, and where in the order of all the rest those stand that ask. */
interface Streamed {
  readonly operation: number
  /** It comes no earlier than all that it comes after itself. */
  readonly least: number
  /** The first of its readers, of those that the user has come after it, and of those that overwrite what it reads. */
  readonly first: number
  readonly lastReader: number
  /** The last reader on each lane that reads it. */
  readonly readers: readonly number[]
}

/** Operations put before places in an order: few, beside all the places there are. */
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

/** The operations of one level, beside an order of all that is issued later than they are asked for. */
class Level {
  /** By operation its place in the order; -1: none yet. Only where something other than a reader decides. */
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
    // Of what is not in the order yet: where that may begin.
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

  private asks(i: number, at: number): void {
    this.first.set(i, Math.min(at, this.first.get(i) ?? at))
  }

  /** What overwrites bytes that one of them reads comes after it. */
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
      // Several fill one buffer where a window takes them in place.
      if (known === undefined) made.set(root, { all: [i], first: order.length, last: -1, lanes: new Map() })
      else known.all.push(i)
    }
    // Of a million buffers few are made so: the others are not looked up.
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

/** The order with the operations of one level put in. */
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
    // A window on a lane of its own opens first, so that its few large buffers lie together; where single ones share the lane,
    // they do not stand in line behind it.
    const into = single.has(ir.laneOf[group[0]!.operation]!) ? right : opening
    group.forEach(({ operation, first, least }, j) => {
      const before = j - ahead - 1
      const held = group[((before % count) + count) % count]!
      const ticks = -Math.floor(before / count)
      if (ticks === 0 && held.lastReader < first) {
        earliest = Math.max(earliest, held.lastReader + 1)
        for (const reader of held.readers) windows.push({ later: operation, earlier: reader, tick: 0 })
      }
      if (ticks > 0 && ticks < ir.settings.inFlight)
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
 * Puts what waits to be asked for into the order of all the rest: uploads, and gathers of parameters. One without `ahead` goes right before the first that asks. Those
 * of one lane and one `ahead: k` form a window, in order of who asks first: number j goes as early as it may, right after the last reader of number
 * j − k − 1, and an edge says so; around the end of the tick too, where fewer ticks than `inFlight` lie between. Where that reader itself
 * comes after a reader of number j, the window cannot hold so few: there it opens no later than j's first reader needs, without an edge.
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
