import { accessesOf } from './accesses.js'
import type { Placed, WindowEdge } from './ir.js'

/** An upload that nothing holds back, and where in the order of all the rest its readers stand. */
interface Streamed {
  readonly operation: number
  readonly firstReader: number
  readonly lastReader: number
  /** The last reader on each lane that reads it. */
  readonly readers: readonly number[]
}

/** Uploads that nothing holds back: they are issued where a reader or a window asks for them, not when they could be. */
export const isLazy = (ir: Placed, i: number): boolean =>
  ir.operations[i]!.kind === 'upload' && ir.operations[i]!.after.length === 0

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

const streamed = (ir: Placed, eager: Int32Array): Streamed[] => {
  const uploads = new Map<number, { all: number[]; first: number; last: number; lanes: Map<number, number> }>()
  for (let i = 0; i < ir.operations.length; i++)
    if (isLazy(ir, i)) {
      const { root } = ir.buffers[ir.operations[i]!.writes[0]!]!
      const known = uploads.get(root)
      // Several fill one buffer where a window takes them in place.
      if (known === undefined) uploads.set(root, { all: [i], first: eager.length, last: -1, lanes: new Map() })
      else known.all.push(i)
    }
  if (uploads.size === 0) return []
  // Of a million buffers few are an upload's: the others are not looked up.
  const isUploaded = new Uint8Array(ir.buffers.length)
  for (const root of uploads.keys()) isUploaded[root] = 1
  const { start, root } = accessesOf(ir)
  const reads = new Uint8Array(ir.operations.length)
  for (let i = 0; i < reads.length; i++)
    for (let a = start[i]!; a < start[i + 1]!; a++) if (isUploaded[root[a]!] === 1) reads[i] = 1
  for (let at = 0; at < eager.length; at++) {
    const i = eager[at]!
    if (reads[i] === 0) continue
    for (let a = start[i]!; a < start[i + 1]!; a++) {
      const upload = uploads.get(root[a]!)
      if (upload === undefined) continue
      upload.first = Math.min(upload.first, at)
      upload.last = at
      upload.lanes.set(ir.laneOf[i]!, i)
    }
  }
  return Array.from(uploads.values()).flatMap(({ all, first, last, lanes }) => {
    const readers = [...lanes.values()]
    return all.map(operation => ({ operation, firstReader: first, lastReader: last, readers }))
  })
}

/**
 * Puts uploads into the order of all the rest. One without `ahead` goes right before its first reader. Those of one lane and one
 * `ahead: k` form a window, in order of their first reader: number j goes as early as it may, right after the last reader of number
 * j − k − 1, and an edge says so; around the end of the tick too, where fewer ticks than `inFlight` lie between. Where that reader itself
 * comes after a reader of number j, the window cannot hold so few: there it opens no later than j's first reader needs, without an edge.
 */
export const windowed = (
  ir: Placed,
  eager: Int32Array,
  most: number,
): { readonly order: Int32Array; readonly windows: readonly WindowEdge[] } => {
  const inserted = new Places()
  const opening = new Places()
  const single = new Set<number>()
  const groups = new Map<string, Streamed[]>()
  const windows: WindowEdge[] = []
  for (const upload of streamed(ir, eager)) {
    const { ahead } = ir.operations[upload.operation]!
    if (ahead === undefined) {
      inserted.put(upload.firstReader, upload.operation)
      single.add(ir.laneOf[upload.operation]!)
    } else {
      const key = `${ir.laneOf[upload.operation]} ${Math.min(ahead, most)}`
      const group = groups.get(key)
      if (group === undefined) groups.set(key, [upload])
      else group.push(upload)
    }
  }
  for (const [key, group] of groups) {
    const ahead = Number(key.split(' ')[1])
    const count = group.length
    group.sort((a, b) => a.firstReader - b.firstReader || a.operation - b.operation)
    let earliest = 0
    // A window on a lane of its own opens first, so that its few large buffers lie together; where single uploads share the lane,
    // they do not stand in line behind it.
    const into = single.has(ir.laneOf[group[0]!.operation]!) ? inserted : opening
    group.forEach(({ operation, firstReader }, j) => {
      const before = j - ahead - 1
      const held = group[((before % count) + count) % count]!
      const ticks = -Math.floor(before / count)
      if (ticks === 0 && held.lastReader < firstReader) {
        earliest = Math.max(earliest, held.lastReader + 1)
        for (const reader of held.readers) windows.push({ later: operation, earlier: reader, tick: 0 })
      }
      if (ticks > 0 && ticks < ir.settings.inFlight)
        for (const reader of held.readers) windows.push({ later: operation, earlier: reader, tick: -1 })
      into.put(Math.min(earliest, firstReader), operation)
    })
  }
  const order = new Int32Array(ir.operations.length)
  let length = 0
  for (let at = 0; at <= eager.length; at++) {
    for (const i of opening.at(at)) order[length++] = i
    for (const i of inserted.at(at)) order[length++] = i
    if (at < eager.length) order[length++] = eager[at]!
  }
  return { order, windows }
}
