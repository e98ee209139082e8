import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { peakOf } from '../../memory/peak.js'
import { homesOf } from '../analysis/device-of.js'
import type { Arena, Bounded, Lifetimes, Ordered, Synchronized } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { packed } from './arena/by-size.js'
import { replayed } from './arena/by-time.js'
import { returnEdges, reuseEdges } from './arena/reuse.js'
import { aligned, only, Succession, type Tenants, tenantsOf } from './arena/tenants.js'
import { outlineOf } from './emit.js'
import { synchronize } from './synchronize.js'

/** The lane that touches each buffer first: what a plan calls its home, and whose device it is on. */
const ownersOf = (ir: Ordered): Int32Array => {
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

/** The most bytes in use at once, in issue order: no arena is smaller. */
const leastOf = ({ first, last }: Tenants, sizes: Float64Array, base: number): number => {
  const operations = last.reduce((most, at) => Math.max(most, at + 1), 0)
  const taken = new Float64Array(operations)
  const left = new Float64Array(operations)
  sizes.forEach((bytes, k) => {
    taken[first[k]!]! += bytes
    left[last[k]!]! += bytes
  })
  let now = base
  let most = base
  for (let i = 0; i < operations; i++) {
    now += taken[i]!
    most = Math.max(most, now)
    now -= left[i]!
  }
  return most
}

const endOf = (offset: Float64Array, sizes: Float64Array, base: number): number =>
  offset.reduce((far, at, k) => Math.max(far, at + sizes[k]!), base)

/** Tenants up to which three arenas are tried; of more, one: the largest tenant first, or else as time goes by. */
const few = 4096
/** Further arenas that are tried of the fewest tenants. */
const rounds = 32

/** The smallest of the arenas tried: as time goes by, the largest tenant first, the earliest first, and then those first that lay at the top. */
const tried = (
  tenants: Tenants,
  sizes: Float64Array,
  ir: Synchronized,
  base: number,
  most: number,
): Float64Array => {
  const succession = new Succession(ir, tenants)
  const inTime = Int32Array.from(sizes.keys())
  const bySize = inTime.slice().sort((a, b) => sizes[b]! - sizes[a]! || a - b)
  const pack = (order: Int32Array) => packed(tenants, sizes, order, succession, base, most)
  const replay = () => replayed(tenants, sizes, succession, base, most)
  if (sizes.length > few) return pack(bySize) ?? replay()
  const end = (offset: Float64Array): number => endOf(offset, sizes, base)
  const least = leastOf(tenants, sizes, base)
  let best = replay()
  const better = (offset: Float64Array | undefined): boolean => {
    if (offset === undefined || end(offset) >= end(best)) return false
    best = offset
    return true
  }
  for (const order of [bySize, inTime]) if (end(best) > least) better(pack(order))
  // Who came to lie at the top comes earlier the next time.
  let order = bySize
  for (let left = Math.min(rounds, few / sizes.length); left > 0 && end(best) > least; left--) {
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
 * Without a wait more, if that fits; else with some, where it would reach beyond `most`; else with all that issue order allows. Where nothing fits it
 * is the smallest of these, and of equals the one with fewer waits.
 */
const smallest = (
  tenants: Tenants,
  sizes: Float64Array,
  ir: Synchronized,
  base: number,
  most: number,
): Float64Array => {
  let best: Float64Array | undefined
  for (const limit of new Set([Number.POSITIVE_INFINITY, most, 0])) {
    const found = tried(tenants, sizes, ir, base, limit)
    if (best === undefined || endOf(found, sizes, base) < endOf(best, sizes, base)) best = found
    if (endOf(best, sizes, base) <= most) break
  }
  return best!
}

/** Of one device: what lives on across ticks lies at the bottom, in order of id; above it the tenants share bytes. */
const placesOf = (
  ir: Synchronized,
  tenants: Tenants,
  home: Int32Array,
): Arena & { readonly members: Int32Array[] } => {
  const { buffers, lanes, settings } = ir
  const most =
    settings.memory === 'small'
      ? 0
      : typeof settings.memory === 'number'
        ? settings.memory
        : Number.POSITIVE_INFINITY
  const devices = lanes.reduce((most, { device }) => Math.max(most, device + 1), 1)
  const offset = new Float64Array(buffers.length).fill(-1)
  const bytes = new Array<number>(devices).fill(0)
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
    const own = Int32Array.from(tenants.buffer.keys()).filter(k => inArena(tenants.buffer[k]!, device))
    const sizes = Float64Array.from(own, k => aligned(buffers[tenants.buffer[k]!]!.bytes))
    const places = smallest(only(tenants, own), sizes, ir, end, most)
    places.forEach((at, i) => {
      offset[tenants.buffer[own[i]!]!] = at
      end = Math.max(end, at + sizes[i]!)
    })
    bytes[device] = end
    members.push(own)
  }
  // What nobody touches has a place all the same, above the others.
  buffers.forEach(({ life, root, space }, id) => {
    if (root !== id || space !== 'device' || life === 'input' || life === 'output' || offset[id]! >= 0) return
    offset[id] = bytes[0]!
    bytes[0]! += aligned(buffers[id]!.bytes)
  })
  return { offset, bytes, members }
}

/** Slots of inputs and outputs, and all else that is pinned: each has bytes of its own. */
const pinnedOf = ({ buffers, settings }: Ordered): number =>
  buffers.reduce((sum, { root, space, life, bytes }, id) => {
    if (root !== id || space !== 'pinned') return sum
    return sum + aligned(bytes) * (life === 'input' || life === 'output' ? settings.inFlight : 1)
  }, 0)

const boundedBy =
  (home: Int32Array, { offset, bytes }: Arena) =>
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
    const outline = outlineOf(lives)
    return { ...lives, peak: peakOf(outline), bound: { device: bytes, pinned: pinnedOf(ir) } }
  }

/**
 * With planned storage: after this pass every buffer has its place in its device's arena, whose size is the bound, and lanes wait for what data and
 * those places ask, no more. Two buffers share bytes only where, by the clocks that data, windows and each buffer's own return leave, the one's last
 * accesses are before the other's first, and the other's before the one comes again in the next tick.
 *
 * Under `memory: BYTES`, where an arena would grow beyond them, and with `small`, where that takes fewer bytes, the issue order alone decides who
 * may share: there the lanes are made to wait.
 */
export const arena = (ordered: Ordered): Passed<Bounded> => {
  const tenants = tenantsOf(ordered)
  const home = ownersOf(ordered)
  const isPinned = (k: number): boolean => ordered.buffers[tenants.buffer[k]!]!.space === 'pinned'
  const windows = [...ordered.windows, ...returnEdges(ordered, tenants, () => true)]
  return pipe(
    synchronize({ ...ordered, windows }),
    E.map(ir => placesOf(ir, tenants, home)),
    E.chain(places => {
      const reuse = reuseEdges(ordered, tenants, places)
      const returns = returnEdges(ordered, tenants, isPinned)
      return pipe(
        synchronize({ ...ordered, windows: [...returns, ...reuse] }),
        E.map(boundedBy(home, places)),
      )
    }),
  )
}
