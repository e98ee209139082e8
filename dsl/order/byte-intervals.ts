import type { Plan } from '../ir/plan.js'
import { type FlatCommands, Mode } from './flat-commands.js'
import { eachBuffer } from './packed.js'
import type { ArrayAllocator } from './scratch-arena.js'

/**
 * Byte ranges. A root whose views are accessed is cut at their first and last bytes into *cells*, in order of their bytes, so that two accesses share bytes
 * exactly where they touch a cell together; any other root is one cell. A *touch* is one access of one cell. In a plan without views cells are
 * buffers and touches are accesses: the same arrays.
 */
export interface ByteIntervals {
  readonly count: number
  readonly touches: number
  /** ByteIntervals of root b: first[b] up to first[b + 1]. */
  readonly first: Int32Array
  /** Touches of command c: start[c] up to start[c + 1]; reads first. */
  readonly start: Int32Array
  readonly cell: Int32Array
  readonly root: Int32Array
  /** The buffer as the command names it. */
  readonly named: Int32Array
  readonly mode: Uint8Array
  /** A view of a part of its root that is written where views count as the whole; -1: none. */
  readonly blurred: number
}

type Accesses = Pick<FlatCommands, 'accesses' | 'accessStart' | 'accessNamed' | 'accessMode'> & {
  readonly accessRoot: Int32Array
}

/**
 * Touches for each access, and beside them, beyond which views are judged as the whole of their roots. Of order that rejects more, never less; but what was written through
 * a view of a part is then not known, so no such write passes (`blurred`).
 */
const most = { each: 8, beside: 2 ** 22 }

export const byteIntervalsOf = (
  plan: Plan,
  root: Int32Array,
  listed: Accesses,
  allocator: ArrayAllocator,
): ByteIntervals => {
  const { accessStart, accessRoot, accessNamed, accessMode } = listed
  const buffers = root.length
  const said = eachBuffer(plan)
  const cuts = cutsOf(plan, root, accessNamed)
  const first = allocator.int32(buffers + 1)
  const whole = (blurred: number): ByteIntervals => {
    for (let b = 0; b <= buffers; b++) first[b] = b
    return {
      count: buffers,
      touches: listed.accesses,
      first,
      start: accessStart,
      cell: accessRoot,
      root: accessRoot,
      named: accessNamed,
      mode: accessMode,
      blurred,
    }
  }
  if (cuts === undefined) return whole(-1)

  for (let b = 0; b < buffers; b++) first[b + 1] = first[b]! + (cuts.get(b)?.length ?? 1)
  /** ByteIntervals of each buffer, a view's those of its own bytes. */
  const from = allocator.int32(buffers)
  const to = allocator.int32(buffers)
  for (let b = 0; b < buffers; b++) {
    const r = root[b]!
    const own = cuts.get(r)
    from[b] = first[r]!
    to[b] = first[r + 1]!
    if (b === r || own === undefined) continue
    const { aliasOffset = 0, bytes } = said.at(b)!
    from[b] = first[r]! + Math.min(below(own, aliasOffset), own.length - 1)
    to[b] = Math.max(from[b]! + 1, first[r]! + below(own, aliasOffset + bytes))
  }
  let touches = 0
  for (let a = 0; a < listed.accesses; a++) touches += to[accessNamed[a]!]! - from[accessNamed[a]!]!
  if (touches > most.each * listed.accesses + most.beside) {
    const isPart = (b: number): boolean => said.at(b)!.bytes < said.at(root[b]!)!.bytes
    return whole(accessNamed.find((b, a) => accessMode[a] === Mode.write && isPart(b)) ?? -1)
  }

  const start = allocator.int32(accessStart.length)
  const cell = allocator.int32(touches)
  const touched = allocator.int32(touches)
  const named = allocator.int32(touches)
  const mode = allocator.uint8(touches)
  let next = 0
  for (let c = 0; c + 1 < accessStart.length; c++) {
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const b = accessNamed[a]!
      for (let at = from[b]!; at < to[b]!; at++) {
        cell[next] = at
        touched[next] = accessRoot[a]!
        named[next] = b
        mode[next++] = accessMode[a]!
      }
    }
    start[c + 1] = next
  }
  return { count: first[buffers]!, touches, first, start, cell, root: touched, named, mode, blurred: -1 }
}

/** Where the cells of each root with an accessed view begin, 0 first; undefined: no plan of views. A view that leaves its root is cut off at its end. */
const cutsOf = (
  plan: Plan,
  root: Int32Array,
  accessNamed: Int32Array,
): Map<number, Float64Array> | undefined => {
  const said = eachBuffer(plan)
  let views = 0
  for (let b = 0; b < root.length; b++) if (root[b] !== b) views++
  if (views === 0) return undefined
  const accessed = new Uint8Array(root.length)
  for (let a = 0; a < accessNamed.length; a++) accessed[accessNamed[a]!] = 1
  const ends = new Map<number, number[]>()
  for (let b = 0; b < root.length; b++) {
    const r = root[b]!
    if (r === b || accessed[b] === 0) continue
    const { aliasOffset = 0, bytes } = said.at(b)!
    const list = ends.get(r) ?? []
    if (list.length === 0) ends.set(r, list)
    list.push(aliasOffset, aliasOffset + bytes)
  }
  if (ends.size === 0) return undefined
  const cuts = new Map<number, Float64Array>()
  for (const [r, list] of ends) {
    const { bytes } = said.at(r)!
    const inside = new Set(list.filter(at => at > 0 && at < bytes))
    cuts.set(r, Float64Array.from([0, ...inside]).sort())
  }
  return cuts
}

/** How many of some sorted numbers are less. */
const below = (sorted: Float64Array, value: number): number => {
  let low = 0
  for (let high = sorted.length; low < high; ) {
    const middle = (low + high) >> 1
    if (sorted[middle]! < value) low = middle + 1
    else high = middle
  }
  return low
}
