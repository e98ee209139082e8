import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { rounded } from '../../memory/range-pool.js'
import { homesOf } from '../analysis/device-of.js'
import type { Arena, Bounded, Lifetimes, Ordered, Synchronized } from '../analysis/ir.js'
import { type LiveRanges, liveRangesOf, mostLive, someOf } from '../analysis/live-ranges.js'
import type { Passed } from '../analysis/pass.js'
import { packedBySize } from './arena/by-size.js'
import { packedByTime } from './arena/by-time.js'
import { aligned, ReuseOrder, returnEdges, reuseEdges } from './arena/reuse-order.js'
import { synchronize } from './synchronize.js'

/** By buffer, its home: the lane that accesses it first, whose device it is on. */
const homesByFirstAccess = (ir: Ordered): Int32Array => {
  const { operations, buffers, laneOf } = ir
  const home = new Int32Array(buffers.length).fill(-1)
  operations.forEach(({ reads, writes }, i) => {
    for (const list of [writes, reads])
      for (const id of list) if (home[buffers[id]!.root] === -1) home[buffers[id]!.root] = laneOf[i]!
  })
  return homesOf(
    ir,
    home.map((_, id) => Math.max(0, home[buffers[id]!.root]!)),
  )
}

const endOf = (offset: Float64Array, sizes: Float64Array, base: number): number =>
  offset.reduce((far, at, k) => Math.max(far, at + sizes[k]!), base)

/**
 * Up to so many ranges, several arenas are tried; for more ranges one, the largest range first, or else by
 * time.
 */
const few = 4096
/** Further arenas that are tried, fewer of them the more ranges there are. */
const rounds = 32

/**
 * The smallest of the arenas tried: by time; by size with the largest range first, then with the earliest,
 * then with those first that lay at the top.
 */
const tried = (
  ranges: LiveRanges,
  sizes: Float64Array,
  ir: Synchronized,
  base: number,
  most: number,
): Float64Array => {
  const reuse = new ReuseOrder(ir, ranges)
  const inTime = Int32Array.from(sizes.keys())
  const bySize = inTime.slice().sort((a, b) => sizes[b]! - sizes[a]! || a - b)
  const pack = (order: Int32Array) => packedBySize(ranges, sizes, order, reuse, base, most)
  const byTime = () => packedByTime(ranges, sizes, reuse, base, most)
  if (sizes.length > few) return pack(bySize) ?? byTime()
  const end = (offset: Float64Array): number => endOf(offset, sizes, base)
  const least = mostLive(ranges, sizes, base)
  let best = byTime()
  const better = (offset: Float64Array | undefined): boolean => {
    if (offset === undefined || end(offset) >= end(best)) return false
    best = offset
    return true
  }
  for (const order of [bySize, inTime]) if (end(best) > least) better(pack(order))
  // Ranges that came to lie at the top are placed earlier the next time. An order that comes again finds what
  // it found.
  let order = bySize
  const known = new Set<string>()
  for (let left = Math.min(rounds, few / sizes.length); left > 0 && end(best) > least; left--) {
    const key = order.join(' ')
    if (known.has(key)) break
    known.add(key)
    const offset = pack(order)
    if (offset === undefined) break
    better(offset)
    const top = end(offset)
    const isTop = (k: number): boolean => offset[k]! + sizes[k]! === top
    order = Int32Array.from([...order.filter(isTop), ...order.filter(k => !isTop(k))])
  }
  return best
}

/**
 * An arena without any more waits, if that fits in `most`; else with waits where it would reach beyond
 * `most`; else with all waits that issue order allows. Where nothing fits, the smallest of these, and of
 * equals the one with fewer waits.
 */
const smallest = (
  ranges: LiveRanges,
  sizes: Float64Array,
  ir: Synchronized,
  base: number,
  most: number,
): Float64Array => {
  let best: Float64Array | undefined
  for (const limit of new Set([Number.POSITIVE_INFINITY, most, 0])) {
    const found = tried(ranges, sizes, ir, base, limit)
    if (best === undefined || endOf(found, sizes, base) < endOf(best, sizes, base)) best = found
    if (endOf(best, sizes, base) <= most) break
  }
  return best!
}

/**
 * Of each device: buffers that live on across ticks lie at the bottom, in order of id; above them the live
 * ranges share bytes. `held`: the bytes of its arenas, which share the bottom.
 */
const placesOf = (
  ir: Synchronized,
  ranges: LiveRanges,
  home: Int32Array,
): Arena & { readonly members: Int32Array[]; readonly held: number[] } => {
  const { buffers, lanes, settings } = ir
  const most = typeof settings.memory === 'number' ? settings.memory : Number.POSITIVE_INFINITY
  const devices = lanes.reduce((most, { device }) => Math.max(most, device + 1), 1)
  const slots = slotsOf(ir, devices)
  const offset = new Float64Array(buffers.length).fill(-1)
  const bytes = new Array<number>(devices).fill(0)
  const shared = new Array<number>(devices).fill(0)
  const members: Int32Array[] = []
  const inArena = (id: number, device: number): boolean =>
    buffers[id]!.root === id && buffers[id]!.space === 'device' && (lanes[home[id]!]?.device ?? 0) === device
  for (let device = 0; device < devices; device++) {
    let end = 0
    buffers.forEach(({ life, bytes }, id) => {
      if ((life !== 'state' && life !== 'param') || !inArena(id, device)) return
      offset[id] = end
      end += aligned(bytes)
    })
    shared[device] = end
    const own = Int32Array.from(ranges.buffer.keys()).filter(k => inArena(ranges.buffer[k]!, device))
    const sizes = Float64Array.from(own, k => aligned(buffers[ranges.buffer[k]!]!.bytes))
    const within = end + (most - slots[device]! - end) / settings.arenas
    const places = smallest(someOf(ranges, own), sizes, ir, end, Math.max(0, within))
    places.forEach((at, i) => {
      offset[ranges.buffer[own[i]!]!] = at
      end = Math.max(end, at + sizes[i]!)
    })
    bytes[device] = end
    members.push(own)
  }
  // A buffer without accesses has a place all the same, above the others.
  buffers.forEach(({ life, root, space }, id) => {
    if (root !== id || space !== 'device' || life === 'input' || life === 'output' || offset[id]! >= 0) return
    offset[id] = bytes[0]!
    bytes[0]! += aligned(buffers[id]!.bytes)
  })
  const held = bytes.map((end, device) => end + (settings.arenas - 1) * (end - shared[device]!))
  return { offset, bytes, members, held }
}

/**
 * Bytes of pinned memory: slots of inputs and outputs, and all other pinned buffers, which share no bytes.
 */
const pinnedOf = ({ buffers, settings }: Ordered): number =>
  buffers.reduce((sum, { root, space, life, bytes }, id) => {
    if (root !== id || space !== 'pinned') return sum
    const slots = life === 'input' || life === 'output'
    return sum + rounded(bytes) * (slots ? settings.inFlight : life === 'tick' ? settings.arenas : 1)
  }, 0)

/**
 * Bytes of device memory beside the arenas: the slots of outputs that stay on a device, in whole granules.
 */
const slotsOf = ({ buffers, settings }: Ordered, devices: number): number[] => {
  const slots = new Array<number>(devices).fill(0)
  buffers.forEach(({ root, space, life, bytes, device = 0 }, id) => {
    if (root === id && space === 'device' && life === 'output')
      slots[device]! += rounded(bytes) * settings.inFlight
  })
  return slots
}

const boundedBy =
  (home: Int32Array, { offset, bytes, held }: Arena & { readonly held: readonly number[] }) =>
  (ir: Synchronized): Bounded => {
    const none = new Int32Array(ir.buffers.length).fill(-1)
    const lives: Lifetimes = {
      ...ir,
      home,
      first: none,
      last: none,
      useStart: new Int32Array(ir.operations.length + 1),
      useBuffer: new Int32Array(0),
      elidedUses: 0,
      arena: { offset, bytes },
    }
    const slots = slotsOf(ir, bytes.length)
    const device = held.map((own, d) => (slots[d]! === 0 ? own : rounded(own) + slots[d]!))
    return { ...lives, bound: { device, pinned: pinnedOf(ir) }, boundKind: undefined, flat: undefined }
  }

/**
 * Planned storage: stands in for synchronize, lifetimes and bound. After this pass every buffer has a place
 * in its device's arena, whose size is the bound, and the only waits are those that data and these places
 * need.
 *
 * Waits that data, windows and each buffer's own return need come first, and give every operation its clock.
 * Two buffers share bytes where by these clocks the last accesses of one are before the first access of the
 * other, and the last accesses of the other before the one comes again in the next tick. Where an arena would
 * grow beyond `memory: BYTES` issue order alone decides: there lanes are made to wait.
 */
export const arena = (ordered: Ordered): Passed<Bounded> => {
  const ranges = liveRangesOf(ordered)
  const home = homesByFirstAccess(ordered)
  const isPinned = (k: number): boolean => ordered.buffers[ranges.buffer[k]!]!.space === 'pinned'
  const windows = [...ordered.windows, ...returnEdges(ordered, ranges, () => true)]
  return pipe(
    synchronize({ ...ordered, windows }),
    E.map(ir => placesOf(ir, ranges, home)),
    E.chain(places => {
      const reuse = reuseEdges(ordered, ranges, places)
      const returns = returnEdges(ordered, ranges, isPinned)
      return pipe(
        synchronize({ ...ordered, windows: [...returns, ...reuse] }),
        E.map(boundedBy(home, places)),
      )
    }),
  )
}
