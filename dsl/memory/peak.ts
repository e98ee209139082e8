import type { Plan } from '../ir/plan.js'
import { type CommandTable, Kind, latestCommandTable } from '../order/command-table.js'
import { type Growth, growthOf } from './reuse.js'
import { latestTurnovers, type Turnovers } from './turnover.js'

/** Bytes that a plan holds at most, by law L9: from the order of its commands alone, so the same in every run. */
export interface Peak {
  readonly device: readonly number[]
  readonly pinned: number
  /** Ticks after which it had settled: from then on every tick takes what the ticks before left. */
  readonly ticks: number
  /** Whether no tick takes more: that is so, but where the replay stopped beyond a bound that was asked for. */
  readonly settled: boolean
  /** Whether `device` and `pinned` are the peak itself. Where the work limit came first they are what no tick takes more than (see `unavailable`). */
  readonly exact: boolean
  /** The alloc that first took each memory to its peak: a device, or pinned last; -1: what lives on across ticks is all there is. */
  readonly reachedAt: readonly number[]
}

/** Commands that are replayed at most until a peak settles. */
const maxPeakSteps = 2 ** 26

/** Chunks of free memory times lanes that are looked at: a large plan settles within a few ticks, or in more than are worth waiting for. */
const workFor = (commands: number): number => (commands < 2 ** 17 ? 2 ** 26 : 2 ** 24)

/**
 * The peak of a plan, counted in issue order over as many ticks as it takes to settle: `param` and `state` once, `input` and
 * `output` `inFlight` times; views count in their root. Sizes are the buffers' own, before any rounding by the allocator.
 */
export const peakOf = (plan: Plan): Peak => {
  const tables = latestCommandTable(plan)
  return replayPeak(tables, () => latestTurnovers(tables))
}

/**
 * As `peakOf`, of turnovers that may leave out a command; planned storage asks for none. Where all that is asked is whether the peak is within a bound, `enough`
 * is that bound, by memory: the replay stops when that is known.
 */
export const replayPeak = (
  tables: CommandTable,
  turnovers: () => Turnovers,
  enough?: readonly number[],
): Peak => {
  const fixed = lasting(tables)
  if (tables.plan.storage === 'pooled') return peakOver(turnovers(), fixed, tables.commands, enough)
  return peakFrom(
    fixed.map(bytes => ({ bytes, ticks: 1, exact: true, reachedAt: -1 })),
    enough,
  )
}

/** As `replayPeak`, above what lives on in each memory, of a plan of so many commands with pooled storage. */
export const peakOver = (
  { accesses }: Turnovers,
  fixed: readonly number[],
  commands: number,
  enough?: readonly number[],
): Peak => {
  const ticks = Math.max(4, Math.floor(maxPeakSteps / Math.max(1, commands)))
  const grown = accesses.map((turnover, memory) =>
    growthOf(turnover, fixed[memory]!, { ticks, work: workFor(commands), enough: enough?.[memory] }),
  )
  return peakFrom(grown, enough)
}

const peakFrom = (grown: readonly Growth[], enough: readonly number[] | undefined): Peak => ({
  device: grown.slice(0, -1).map(({ bytes }) => bytes),
  pinned: grown[grown.length - 1]!.bytes,
  ticks: grown.reduce((most, { ticks }) => Math.max(most, ticks), 0),
  settled: grown.every(({ bytes }, memory) => !(bytes > (enough?.[memory] ?? Number.POSITIVE_INFINITY))),
  exact: grown.every(({ exact }) => exact),
  reachedAt: grown.map(({ reachedAt }) => reachedAt),
})

/** What each memory holds whatever the commands do: with planned storage, all of it. */
const lasting = (tables: CommandTable): number[] => {
  const { plan } = tables
  const planned = plan.storage === 'planned'
  const held = Array.from({ length: plan.devices + 1 }, (_, memory) =>
    planned ? (plan.arena?.[memory] ?? 0) : 0,
  )
  const { root, kind, memory, bytes } = tables
  for (let b = 0; b < tables.buffers; b++) {
    if (root[b] !== b) continue
    const slots = kind[b] === Kind.input || kind[b] === Kind.output
    const pinned = memory[b] === plan.devices
    if (kind[b] === Kind.tick && !(planned && pinned)) continue
    if (planned && !pinned && !slots) continue
    held[memory[b]!]! += slots ? bytes[b]! * plan.inFlight : bytes[b]!
  }
  return held
}
