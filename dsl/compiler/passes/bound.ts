import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { withScratchArena } from '../../collections/scratch-arena.js'
import type { BoundKind } from '../../ir/plan.js'
import { countedPeak, peakFrom } from '../../memory/peak.js'
import { tracesOf } from '../../memory/plan-trace.js'
import { type PoolPeak, poolPeakFrom, rounded } from '../../memory/pool-peak.js'
import type { AllocationTrace } from '../../memory/trace.js'
import { type CommandTable, commandTableOf } from '../../order/command-table.js'
import { flatCommandsOf } from '../../order/compiled-plan.js'
import type { FlatCommands } from '../../order/flat-commands.js'
import { exactCommands } from '../../verify/l6-minimal.js'
import type { Bounded, Lifetimes, WindowEdge } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'
import { outlineOf } from './emit.js'
import { lifetimes } from './lifetimes.js'
import { synchronize } from './synchronize.js'

interface Held {
  /** By device. */
  readonly device: readonly number[]
  readonly pinned: number
  readonly kind: BoundKind | undefined
  /** Of the plan. */
  readonly flat: FlatCommands
}

/**
 * Pinned memory that a session takes, in whole granules: one slot for each tick in flight of inputs and
 * outputs, all else once.
 */
const pinnedBy = ({ buffers, settings }: Lifetimes): number =>
  buffers.reduce((sum, { root, space, life, bytes }, id) => {
    if (root !== id || space !== 'pinned') return sum
    return sum + rounded(bytes) * (life === 'input' || life === 'output' ? settings.inFlight : 1)
  }, 0)

/**
 * Free chunks times lanes that are looked at to count bytes. Chunks are taken in part, so of a GPT's sixty
 * kernels the count came back to an earlier state after 54,000 ticks: seconds of each compilation, for a plan
 * whose pool does so in a few ticks.
 */
const countedWork = 2 ** 20

/**
 * Events, and free ranges that are looked at, of one replay of the pool: 2^21, or 128 ticks. Every candidate is
 * replayed, and there are plans of some eighty commands whose ranges recur after 40,000 ticks or more: seconds
 * for one compilation. A plan whose steady state is further away is held to one tick's peak.
 */
const poolWork = (commands: number): number => Math.max(2 ** 21, 128 * commands)

/**
 * The peak of the session's pool. Under `settings.enough` it is not exact for a plan whose first tick (or,
 * with `in: 'any tick'`, any tick) takes more.
 */
const poolOf = (
  { settings: { enough } }: Lifetimes,
  table: CommandTable,
  traces: readonly AllocationTrace[],
): PoolPeak => {
  const work = poolWork(table.commands)
  if (enough === undefined) return poolPeakFrom(table, traces, { work })
  if (enough.in === 'any tick') return poolPeakFrom(table, traces, { enough: enough.bytes, work })
  const one = poolPeakFrom(table, traces, { ticks: 1 })
  const isOver = one.first.some((bytes, memory) => bytes > enough.bytes[memory]!)
  return isOver ? one : poolPeakFrom(table, traces, { work })
}

/**
 * The bytes that each device holds for a plan: what the session's pool takes. How they are kept is the first of
 * these that applies:
 *
 *   absent    a small plan, of which L6 drops the waits one by one, where L9's count of bytes comes to no more.
 *             That count reaches its steady state later than the pool, or not at all
 *   exact     where the pool's steady state is near enough to be replayed
 *   enforced  else: the bytes are those of one tick on an idle device
 */
const heldBy = (ir: Lifetimes): Held =>
  withScratchArena(allocator => {
    const outline = outlineOf(ir)
    const flat = flatCommandsOf(outline)!
    const table = commandTableOf(outline, allocator)
    const isCounted = flat.commands <= exactCommands
    const releases = isCounted ? 'accesses and uses' : 'uses'
    const traces = pass('trace', () => tracesOf(table, { allocator, releases }))(ir)
    const pool = pass('pool', () => poolOf(ir, table, traces))(ir)
    if (!pool.exact)
      return { device: pool.first.slice(0, -1), pinned: pool.first.at(-1)!, kind: 'enforced', flat }
    const { device } = pool
    const enough = [...device, Number.POSITIVE_INFINITY]
    const counted = isCounted
      ? pass('peak', () => countedPeak(table, traces, { work: countedWork, enough }))(ir)
      : undefined
    if (counted?.exact !== true || counted.device.some((bytes, on) => bytes > device[on]!))
      return { device, pinned: pool.pinned, kind: 'exact', flat }
    return { device, pinned: Math.max(pinnedBy(ir), counted.pinned), kind: undefined, flat }
  })

/** Commands that may be replayed in the search for redundant window waits, over all ticks of all replays. */
const maxReplays = 2 ** 24

/** Whether a plan holds no more than `most`, and the commands that were replayed to know. */
const fits = (ir: Lifetimes, most: Held): { readonly fits: boolean; readonly replayed: number } =>
  withScratchArena(allocator => {
    const table = commandTableOf(outlineOf({ ...ir, boundKind: most.kind }, allocator), allocator)
    const traces = tracesOf(table, { allocator })
    const enough = [...most.device, most.pinned]
    const peak = peakFrom(table, () => traces, enough)
    const replayed = (ticks: number): number => (ticks + 2) * table.commands
    const isWithin = peak.device.every((bytes, on) => bytes <= enough[on]!) && peak.pinned <= most.pinned
    if (!isWithin || !peak.exact) return { fits: false, replayed: replayed(peak.ticks) }
    if (most.kind !== undefined) return { fits: true, replayed: replayed(peak.ticks) }
    const pool = poolPeakFrom(table, traces, { enough, work: poolWork(table.commands) })
    if (!pool.exact) return { fits: false, replayed: replayed(peak.ticks + pool.ticks) }
    const fits = pool.device.every((bytes, on) => bytes <= enough[on]!)
    return { fits, replayed: replayed(peak.ticks + pool.ticks) }
  })

const without = (ir: Lifetimes, edge: WindowEdge): Lifetimes => {
  const windows = ir.windows.filter(other => other !== edge)
  const again = pipe(synchronize({ ...ir, windows }), E.chain(lifetimes))
  return E.isRight(again) ? again.right : ir
}

/** Whether the edge became a wait of the plan. Any other edge is dominated, and costs nothing. */
const isWait = (ir: Lifetimes, { later, earlier, tick }: WindowEdge): boolean => {
  for (let w = ir.waitStart[later]!; w < ir.waitStart[later + 1]!; w++)
    if (ir.waitOn[w] === earlier && ir.waitTick[w] === tick) return true
  return false
}

/**
 * Drops window waits without which the plan holds no more, until each one that is left is needed. A plan so
 * large that law L6 does not drop its waits one by one either keeps them all.
 */
const lean = (ir: Lifetimes, most: Held): Lifetimes => {
  if (ir.windows.length === 0 || most.flat.commands > exactCommands) return ir
  let left = maxReplays
  for (let dropped = true; dropped; ) {
    dropped = false
    for (const edge of ir.windows) {
      if (!isWait(ir, edge)) continue
      if (left < 0) return ir
      const candidate = without(ir, edge)
      const found = fits(candidate, most)
      left -= found.replayed
      if (!found.fits) continue
      ir = candidate
      dropped = true
    }
  }
  return ir
}

const bounded = (ir: Lifetimes, { device, pinned, kind, flat }: Held): Bounded => ({
  ...ir,
  bound: { device, pinned },
  boundKind: kind,
  flat,
})

/** As `bound`, with all waits of the windows: for a candidate that need not be chosen. */
export const roughBound = pass('bound', (ir: Lifetimes): Passed<Bounded> => E.right(bounded(ir, heldBy(ir))))

/** What `roughBound` found, with those waits of its windows alone without which the plan would hold more. */
export const withoutRedundantWaits = (ir: Bounded): Bounded => {
  const { bound, boundKind, flat } = ir
  if (flat === undefined) return ir
  const found = lean(ir, { ...bound, kind: boundKind, flat })
  return found === ir ? ir : { ...found, bound, boundKind, flat: undefined }
}

/**
 * After this pass the bound is known in bytes, for each device and for pinned memory, and of the windows only
 * those waits are left without which the plan would hold more.
 */
export const bound = pass(
  'bound',
  (ir: Lifetimes): Passed<Bounded> => E.right(withoutRedundantWaits(bounded(ir, heldBy(ir)))),
)
