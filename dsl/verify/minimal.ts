import { quotedBuffer, quotedLane } from '../ir/names.js'
import { tracesOf } from '../memory/plan-trace.js'
import { poolPeakFrom } from '../memory/pool-peak.js'
import type { AllocationTrace } from '../memory/trace.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import { After } from './after.js'
import { boundsOf, peakFits } from './bound.js'
import { Beside } from './concurrent.js'
import { type Adding, coveredWaits } from './covered.js'
import { Probe, type Sink } from './report.js'
import { Safety } from './safety.js'

/** Plans of at most this many commands have their waits dropped one by one; larger ones get the linear test. */
export const exactCommands = 4096

/** Steps that this takes at most: a plan of a thousand ticks in flight on a thousand lanes would take hours, and somebody may have meant it to. */
const exactSteps = 2 ** 30

const isExact = ({ plan, commands, lanes, op }: CommandTable): boolean => {
  if (commands > exactCommands) return false
  let waits = 0
  for (let c = 0; c < commands; c++) if (op[c] === Op.wait || op[c] === Op.previous) waits++
  return waits * commands * (4 + plan.inFlight) * Math.max(1, lanes / 16) <= exactSteps
}

/**
 * L6: drop any one wait or use and some law breaks; no event is recorded that nobody waits for or uses.
 *
 * Uses are decided exactly at any size: a use serves L4 of its own buffer and nothing else, so it is needed where it alone
 * covers some lane's last access at the free. Waits: dropping one leaves L5 and L7 as they were, and L1 to L4, L9
 * and L10 are replayed without it; and L8, of collectives that are never side by side with it. Where a law is broken already the question has no answer; then the linear test alone is made.
 */
export const checkMinimal = (
  tables: CommandTable,
  clock: Frontiers,
  needed: Uint8Array,
  safe: boolean,
  sink: Sink,
  adding?: Adding,
): void => {
  checkRecords(tables, adding?.all === true ? adding.waited : waitedFor(tables), sink)
  checkUses(tables, needed, sink)
  const covered = adding?.all === true ? undefined : coveredWaits(tables, clock)
  const exact = safe && isExact(tables)
  if (covered === undefined && !exact) return
  const bounds = boundsOf(tables)
  const pool = exact && tables.plan.storage === 'pooled' && poolFits(tables, tracesOf(tables), bounds)
  const probe = new Probe()
  const safety = exact ? new Safety(tables, clock, needed, probe) : undefined
  const after = exact ? After.of(tables, probe) : undefined
  const beside = exact ? Beside.of(tables) : undefined
  const apart = beside?.replay() === undefined ? beside : undefined
  for (let c = 0; c < tables.commands && !sink.full; c++) {
    if (tables.op[c] !== Op.wait && tables.op[c] !== Op.previous) continue
    if (
      covered?.[c] !== 1 &&
      !(safety !== undefined && holdsWithout(tables, c, probe, safety, after, apart, clock, pool, bounds))
    )
      continue
    const event = tables.eventId[tables.subject[c]!]!
    const l = tables.lane[c]!
    sink.add('L6', c, { event, lane: l }, () => {
      const why =
        covered?.[c] === 1
          ? 'what it waits for is already before that lane, or before its other waits'
          : 'every law holds without it'
      return `${quotedLane(tables.plan, l)} need not wait for e${event}: ${why}`
    })
  }
}

// The second half of L9: what the session's pool takes, where that is within the bound to begin with.
const poolFits = (
  tables: CommandTable,
  traces: readonly AllocationTrace[],
  bounds: readonly number[],
): boolean => poolPeakFrom(tables, traces, { enough: bounds }).device.every((bytes, d) => bytes <= bounds[d]!)

const holdsWithout = (
  tables: CommandTable,
  c: number,
  probe: Probe,
  safety: Safety,
  after: After | undefined,
  apart: Beside | undefined,
  clock: Frontiers,
  pool: boolean,
  bounds: readonly number[],
): boolean => {
  probe.full = false
  safety.replay(c)
  if (!probe.full) after?.replay(c)
  if (probe.full || apart?.replay(c) !== undefined) return false
  let known: readonly AllocationTrace[] | undefined
  const traces = (): readonly AllocationTrace[] => {
    if (known === undefined) {
      clock.restart(c)
      known = tracesOf(tables, clock)
    }
    return known
  }
  return (!pool || poolFits(tables, traces(), bounds)) && peakFits(tables, traces, bounds)
}

/** By event, 1 where somebody waits for it. */
const waitedFor = ({ op, subject, commands, events, allocator }: CommandTable): Uint8Array => {
  const waited = allocator.uint8(events)
  for (let c = 0; c < commands; c++) if (op[c] === Op.wait || op[c] === Op.previous) waited[subject[c]!] = 1
  return waited
}

/** No event is recorded that nobody waits for or uses; those that are waited for are marked, and those that are used are marked here. */
const checkRecords = (tables: CommandTable, wanted: Uint8Array, sink: Sink): void => {
  const { recordOf, eventId, lane, uses, useEvent } = tables
  for (let u = 0; u < uses; u++) wanted[useEvent[u]!] = 1
  for (let event = 0; event < tables.events; event++) {
    const record = recordOf[event]!
    if (record < 0 || wanted[event] === 1) continue
    sink.add(
      'L6',
      record,
      { event: eventId[event]!, lane: lane[record]! },
      () => `e${eventId[event]} is recorded, and nobody waits for it or uses it`,
    )
  }
}

/** Uses without which L4 still holds: all but those that alone hold back some free (see Lifetimes). */
const checkUses = (tables: CommandTable, needed: Uint8Array, sink: Sink): void => {
  const { subject, lane, kind, root, useCommand, useEvent } = tables
  for (let u = 0; u < tables.uses && !sink.full; u++) {
    if (needed[u] === 1) continue
    const c = useCommand[u]!
    const b = subject[c]!
    const place = { buffer: tables.named[c]!, lane: lane[c]!, event: tables.eventId[useEvent[u]!]! }
    sink.add('L6', c, place, () => {
      const name = quotedBuffer(tables.plan, tables.named[c]!)
      if (kind[b] !== Kind.tick)
        return `${name} (${tables.plan.buffers[b]!.life}) is never freed, so no use of it is needed`
      if (tables.home[root[b]!] === lane[c])
        return `${quotedLane(tables.plan, lane[c]!)} is the home of ${name}, whose order its block follows anyway`
      return `${name} can be freed without it: its last accesses are already before its home lane, or marked by another use`
    })
  }
}
