import { rounded } from '../memory/range-pool.js'
import { type ByteRange, lowestGap, merged, shortestGap } from './byte-ranges.js'

/**
 * What one launch of a plan needs of an arena. Values that come or go by name are its *inputs* and *outputs*;
 * all its other buffers there begin and end within the launch. Sizes are in bytes.
 */
export interface Body {
  readonly name: string
  /** Values that lie in the arena when the launch begins, and during all of it. */
  readonly inputs: ReadonlyMap<string, number>
  /** The other buffers, numbered from 0 on. */
  readonly sizes: readonly number[]
  /** Which of these buffers hold its outputs: from their first write to the end of the launch, and beyond. */
  readonly outputs: ReadonlyMap<string, number>
  /**
   * Whether two of these buffers may have the same bytes: every access of one is before those of the other.
   */
  mayShare(a: number, b: number): boolean
}

/**
 * The entry contract of a node: what lies where when it is launched. It is to a node what the register
 * convention is to a basic block.
 */
export interface Contract {
  /** Where its inputs lie; those that are not here come from the host, and the layout gives them a place. */
  readonly inputs: ReadonlyMap<string, number>
  /** Bytes of other values that outlive the launch. */
  readonly kept: readonly ByteRange[]
  /**
   * Bytes of values that end here, but not with every plan that could be launched instead. No output lies
   * over them, so that outputs of such plans get the same places.
   */
  readonly elsewhere: readonly ByteRange[]
}

/** Where everything of one node lies. */
export interface Layout {
  readonly inputs: ReadonlyMap<string, number>
  readonly outputs: ReadonlyMap<string, number>
  /** By buffer of the body. */
  readonly offsets: readonly number[]
  /** The end of the highest byte that is in use during the launch: its inputs and what is kept included. */
  readonly top: number
  /** The bytes that the launch writes. */
  readonly clobbers: readonly ByteRange[]
}

const rangeAt = (from: number, bytes: number): ByteRange => ({ from, to: from + rounded(bytes) })

/** Layouts that are tried at most, each with the buffers first that were at the top of the one before. */
const rounds = 16
/** Above so many buffers a single layout is tried. */
const few = 2048

/**
 * Lays out one launch. Its outputs lie at the bottom of the arena, since they stay there when the rest has
 * gone; `order` says which of them come first. Everything else goes, the largest first, into the shortest gap
 * between the buffers that it may not share bytes with.
 */
export const layOut = (body: Body, contract: Contract, order: readonly string[]): Layout => {
  const given = [...contract.inputs].map(([role, from]) => rangeAt(from, body.inputs.get(role)!))
  const fixed = [...given, ...contract.kept]
  const inputs = new Map(contract.inputs)
  const outputs = new Map<string, number>()
  const offsets = new Array<number>(body.sizes.length).fill(-1)
  let taken = merged([...fixed, ...contract.elsewhere])
  const put = (bytes: number): number => {
    const from = lowestGap(taken, rounded(bytes))
    taken = merged([...taken, rangeAt(from, bytes)])
    return from
  }
  for (const [role, bytes] of body.inputs) {
    if (inputs.has(role)) continue
    const from = put(bytes)
    inputs.set(role, from)
    fixed.push(rangeAt(from, bytes))
  }
  for (const role of order) {
    const at = body.outputs.get(role)!
    offsets[at] = put(body.sizes[at]!)
    outputs.set(role, offsets[at])
  }
  fillIn(body, offsets, merged(fixed))
  const own = offsets.map((from, at) => rangeAt(from, body.sizes[at]!))
  const staged = [...inputs].flatMap(([role, from]) =>
    contract.inputs.has(role) ? [] : [rangeAt(from, body.inputs.get(role)!)],
  )
  const clobbers = merged([...own, ...staged])
  return { inputs, outputs, offsets, top: endOf([...own, ...fixed]), clobbers }
}

const endOf = (ranges: readonly ByteRange[]): number => ranges.reduce((end, { to }) => Math.max(end, to), 0)

/** Places the buffers that have no place yet, in the lowest of the layouts that are tried. */
const fillIn = (body: Body, offsets: number[], fixed: readonly ByteRange[]): void => {
  const left = [...offsets.keys()].filter(at => offsets[at] === -1)
  const placed = [...offsets.keys()].filter(at => offsets[at] !== -1)
  const base = Math.max(endOf(fixed), endOf(placed.map(at => rangeAt(offsets[at]!, body.sizes[at]!))))
  let order = left.sort((a, b) => body.sizes[b]! - body.sizes[a]! || a - b)
  let best: readonly number[] | undefined
  let bestEnd = Number.POSITIVE_INFINITY
  for (let round = 0; round < (left.length > few ? 1 : rounds); round++) {
    const tried = packed(body, offsets, placed, fixed, order)
    const ends = tried.map((from, at) => (from === -1 ? 0 : from + rounded(body.sizes[at]!)))
    const end = ends.reduce((far, to) => Math.max(far, to), base)
    if (end < bestEnd) {
      best = tried
      bestEnd = end
    }
    // Nothing can be lower than what has its place already.
    if (end === base) break
    order = [...order.filter(at => ends[at] === end), ...order.filter(at => ends[at] !== end)]
  }
  best?.forEach((from, at) => {
    offsets[at] = from
  })
}

const packed = (
  { sizes, mayShare }: Body,
  given: readonly number[],
  placed: readonly number[],
  fixed: readonly ByteRange[],
  order: readonly number[],
): readonly number[] => {
  const offsets = [...given]
  const done = [...placed]
  for (const at of order) {
    const near = done.filter(other => !mayShare(at, other))
    const taken = merged([...fixed, ...near.map(other => rangeAt(offsets[other]!, sizes[other]!))])
    offsets[at] = shortestGap(taken, rounded(sizes[at]!))
    done.push(at)
  }
  return offsets
}
