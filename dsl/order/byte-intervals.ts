import { lowerBound } from '../collections/lower-bound.js'
import type { ArrayAllocator } from '../collections/scratch-arena.js'
import type { Plan } from '../ir/plan.js'
import { eachBuffer } from './compiled-plan.js'
import { type FlatCommands, Mode } from './flat-commands.js'

/**
 * The accesses of runs, by bytes. A root whose views are accessed is cut at their first and last bytes into
 * *intervals*, in order of their bytes, so that two accesses share bytes exactly where they access a common
 * interval; any other root is one interval. An access of several intervals counts once for each. In a plan
 * without views intervals are buffers: the arrays are those of the command table.
 */
export interface ByteIntervals {
  readonly count: number
  /** Intervals of root b: first[b] up to first[b + 1]. */
  readonly first: Int32Array
  /** Accesses of command c: start[c] up to start[c + 1]; reads first. */
  readonly accesses: number
  readonly start: Int32Array
  readonly interval: Int32Array
  readonly root: Int32Array
  /** The buffer as the command names it. */
  readonly named: Int32Array
  readonly mode: Uint8Array
  /** A view of a part of its root that is written, where views are judged as the whole; -1: none. */
  readonly inexact: number
}

type Accesses = Pick<FlatCommands, 'accesses' | 'accessStart' | 'accessNamed' | 'accessMode'> & {
  readonly accessRoot: Int32Array
}

/**
 * A view is treated as its whole root where there would be more accesses of intervals than `factor` times
 * those of commands, plus `more`. Order is then judged too strictly, never too loosely. The bytes that a
 * view's write has written are then not known, so such a write is reported (`inexact`).
 */
const most = { factor: 8, more: 2 ** 22 }

export const byteIntervalsOf = (
  plan: Plan,
  root: Int32Array,
  commands: Accesses,
  allocator: ArrayAllocator,
): ByteIntervals => {
  const { accesses, accessStart, accessRoot, accessNamed, accessMode } = commands
  const buffers = eachBuffer(plan)
  const cuts = cutsOf(plan, root, accessNamed)
  const first = allocator.int32(root.length + 1)
  const whole = (inexact: number): ByteIntervals => {
    for (let b = 0; b <= root.length; b++) first[b] = b
    const count = root.length
    const accessed = { accesses, start: accessStart, interval: accessRoot, root: accessRoot }
    return { count, first, ...accessed, named: accessNamed, mode: accessMode, inexact }
  }
  if (cuts === undefined) return whole(-1)

  for (let b = 0; b < root.length; b++) first[b + 1] = first[b]! + (cuts.get(b)?.length ?? 1)
  /** Intervals of each buffer; a view's are those of its own bytes. */
  const from = allocator.int32(root.length)
  const to = allocator.int32(root.length)
  for (let b = 0; b < root.length; b++) {
    const r = root[b]!
    const own = cuts.get(r)
    from[b] = first[r]!
    to[b] = first[r + 1]!
    if (b === r || own === undefined) continue
    const { aliasOffset = 0, bytes } = buffers.at(b)!
    from[b] = first[r]! + Math.min(lowerBound(own, aliasOffset), own.length - 1)
    to[b] = Math.max(from[b]! + 1, first[r]! + lowerBound(own, aliasOffset + bytes))
  }
  let total = 0
  for (let a = 0; a < accesses; a++) total += to[accessNamed[a]!]! - from[accessNamed[a]!]!
  if (total > most.factor * accesses + most.more) {
    const isPart = (b: number): boolean => buffers.at(b)!.bytes < buffers.at(root[b]!)!.bytes
    return whole(accessNamed.find((b, a) => accessMode[a] === Mode.write && isPart(b)) ?? -1)
  }

  const start = allocator.int32(accessStart.length)
  const interval = allocator.int32(total)
  const roots = allocator.int32(total)
  const named = allocator.int32(total)
  const mode = allocator.uint8(total)
  let next = 0
  for (let c = 0; c + 1 < accessStart.length; c++) {
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const b = accessNamed[a]!
      for (let at = from[b]!; at < to[b]!; at++) {
        interval[next] = at
        roots[next] = accessRoot[a]!
        named[next] = b
        mode[next++] = accessMode[a]!
      }
    }
    start[c + 1] = next
  }
  const count = first[root.length]!
  return { count, first, accesses: total, start, interval, root: roots, named, mode, inexact: -1 }
}

/**
 * By root with an accessed view: where its intervals begin, 0 first; undefined: there is no such root. A view
 * that leaves its root is cut off at the root's end.
 */
const cutsOf = (
  plan: Plan,
  root: Int32Array,
  accessNamed: Int32Array,
): Map<number, Float64Array> | undefined => {
  if (root.every((r, b) => r === b)) return undefined
  const buffers = eachBuffer(plan)
  const accessed = new Uint8Array(root.length)
  for (let a = 0; a < accessNamed.length; a++) accessed[accessNamed[a]!] = 1
  const ends = new Map<number, number[]>()
  for (let b = 0; b < root.length; b++) {
    const r = root[b]!
    if (r === b || accessed[b] === 0) continue
    const { aliasOffset = 0, bytes } = buffers.at(b)!
    const list = ends.get(r) ?? []
    if (list.length === 0) ends.set(r, list)
    list.push(aliasOffset, aliasOffset + bytes)
  }
  if (ends.size === 0) return undefined
  const cuts = new Map<number, Float64Array>()
  for (const [r, list] of ends) {
    const { bytes } = buffers.at(r)!
    const inside = new Set(list.filter(at => at > 0 && at < bytes))
    cuts.set(r, Float64Array.from([0, ...inside]).sort())
  }
  return cuts
}
