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

/** Layouts that are tried at most, and pairs of buffers that they look at together. */
const mostTried = 260
const mostPairs = 2 ** 22
/** Layouts that are tried from one order, each with the buffers first that were at the top of the one before. */
const rounds = 4

/**
 * Lays out one launch. Its outputs lie at the bottom of the arena, since they stay there when the rest has
 * gone; `order` says which of them come first. Everything else goes into gaps between the buffers that it may
 * not share bytes with.
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

/**
 * Places the buffers that have no place yet, in the lowest of the layouts that are tried: the largest buffers
 * first, then those first that are in the way of the most bytes, give or take half of these at random.
 */
const fillIn = (body: Body, offsets: number[], fixed: readonly ByteRange[]): void => {
  const { sizes } = body
  const all = [...offsets.keys()]
  const left = all.filter(at => offsets[at] === -1)
  const placed = all.filter(at => offsets[at] !== -1)
  const base = Math.max(endOf(fixed), endOf(placed.map(at => rangeAt(offsets[at]!, sizes[at]!))))
  const bySize = all.sort((a, b) => sizes[b]! - sizes[a]! || a - b)
  const tries = Math.min(mostTried, Math.floor(mostPairs / Math.max(1, all.length ** 2)))
  const { together, beside } = tries > 1 ? crowdsOf(body, left, bySize) : { together: 0, beside: [] }
  const least = Math.max(base, together + fixed.reduce((sum, { from, to }) => sum + to - from, 0))
  const random = randomFrom(1)
  let best: readonly number[] | undefined
  let bestEnd = Number.POSITIVE_INFINITY
  let order: readonly number[] = bySize.filter(at => offsets[at] === -1)
  let gap = shortestGap
  for (let tried = 0; bestEnd > least && tried < Math.max(1, tries); tried++) {
    if (tried > 0 && tried % rounds === 0) {
      const weight = new Map(left.map((at, i) => [at, beside[i]! * (0.5 + random())]))
      order = [...left].sort((a, b) => weight.get(b)! - weight.get(a)!)
      gap = gap === shortestGap ? lowestGap : shortestGap
    }
    const found = packed(body, offsets, placed, fixed, order, gap)
    const ends = found.map((from, at) => (from === -1 ? 0 : from + rounded(sizes[at]!)))
    const end = ends.reduce((far, to) => Math.max(far, to), base)
    if (end < bestEnd) {
      best = found
      bestEnd = end
    }
    order = [...order.filter(at => ends[at] === end), ...order.filter(at => ends[at] !== end)]
  }
  best?.forEach((from, at) => {
    offsets[at] = from
  })
}

/**
 * `beside`: for each buffer, its bytes and those of all buffers that may share no byte with it. `together`:
 * the most bytes found of buffers no two of which may share bytes; every layout needs at least that many.
 */
const crowdsOf = ({ sizes, mayShare }: Body, of: readonly number[], bySize: readonly number[]) => {
  let together = 0
  const beside = of.map(at => {
    const others = bySize.filter(other => other !== at && !mayShare(at, other))
    const apart = [at]
    for (const other of others) if (apart.every(one => !mayShare(one, other))) apart.push(other)
    together = Math.max(together, bytesOf(sizes, apart))
    return bytesOf(sizes, [at, ...others])
  })
  return { together, beside }
}

const bytesOf = (sizes: readonly number[], of: readonly number[]): number =>
  of.reduce((sum, at) => sum + rounded(sizes[at]!), 0)

/** Numbers from 0 up to, but not including, 1: the same in every process, so that a tree has one layout. */
const randomFrom = (seed: number) => (): number => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed / 2 ** 32
}

const packed = (
  { sizes, mayShare }: Body,
  given: readonly number[],
  placed: readonly number[],
  fixed: readonly ByteRange[],
  order: readonly number[],
  gap: typeof lowestGap,
): readonly number[] => {
  const offsets = [...given]
  const done = [...placed]
  for (const at of order) {
    const near = done.filter(other => !mayShare(at, other))
    const taken = merged([...fixed, ...near.map(other => rangeAt(offsets[other]!, sizes[other]!))])
    offsets[at] = gap(taken, rounded(sizes[at]!))
    done.push(at)
  }
  return offsets
}
