import { quotedBuffer, quotedLane } from '../ir/names.js'
import { tracesOf } from '../memory/plan-trace.js'
import { poolPeakFrom } from '../memory/pool-peak.js'
import type { AllocationTrace } from '../memory/trace.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import type { Replay } from '../order/replay.js'
import { dominatedWaits } from './dominated-waits.js'
import { ConcurrentCalls } from './l8-concurrent.js'
import { boundsOf, peakFits } from './l9-bound.js'
import { After } from './l10-after.js'
import { Probe, type Sink } from './report.js'
import { Safety } from './safety.js'

/**
 * Plans of at most this many commands have their waits dropped one by one; larger ones get the linear test.
 */
export const exactCommands = 4096

/**
 * Steps of the exact test at most: with a thousand ticks in flight on a thousand lanes it would take hours.
 */
const exactSteps = 2 ** 30

/** Steps of the pool's replays without each of the waits, all together. */
const poolSteps = 2 ** 24

const waitsIn = ({ commands, op }: CommandTable): number => {
  let waits = 0
  for (let c = 0; c < commands; c++) if (op[c] === Op.wait || op[c] === Op.previous) waits++
  return waits
}

const isExact = (table: CommandTable): boolean => {
  const { plan, commands, lanes } = table
  if (commands > exactCommands) return false
  return waitsIn(table) * commands * (4 + plan.inFlight) * Math.max(1, lanes / 16) <= exactSteps
}

/**
 * L6: drop any one wait or use and some law breaks; no event is recorded that no command waits for or uses.
 * Uses are decided exactly at any size: a use serves only L4 of its own buffer, so it is needed where it
 * alone marks some lane's last access at the free (`needed`). Waits: dropping one does not affect L5 and L7;
 * the other laws are judged without it. Where a law is broken already only the linear test is made.
 */
export const checkMinimal = (replay: Replay, needed: Uint8Array, safe: boolean, sink: Sink): void => {
  const { table } = replay
  checkRecords(table, sink)
  checkUses(table, needed, sink)
  const dominated = dominatedWaits(replay)
  const without = safe && isExact(table) ? new Without(replay, needed) : undefined
  if (dominated === undefined && without === undefined) return
  for (let c = 0; c < table.commands && !sink.full; c++) {
    if (table.op[c] !== Op.wait && table.op[c] !== Op.previous) continue
    // What is ordered without a wait may still take more of the pool without it: each wait is a point of its
    // lane.
    const isDominated = dominated?.[c] === 1
    if (without === undefined ? !isDominated : !without.holds(c)) continue
    const event = table.eventId[table.subject[c]!]!
    const l = table.lane[c]!
    sink.add('L6', c, { event, lane: l }, () => {
      const why = isDominated
        ? 'what it waits for is already before that lane, or before its other waits'
        : 'every law holds without it'
      return `${quotedLane(table.plan, l)} need not wait for e${event}: ${why}`
    })
  }
}

/** The exact test: every law, of the plan without one wait. */
class Without {
  private readonly probe = new Probe()
  private readonly table: CommandTable
  private readonly safety: Safety
  private readonly after: After | undefined
  private readonly concurrent: ConcurrentCalls | undefined
  private readonly bounds: readonly number[]
  /**
   * Whether the session's pool stays within a bound of no kind, as the second half of L9 demands, where it
   * does so with all waits.
   */
  private readonly pool: boolean
  /** Steps of the pool's replay without one wait, at most. */
  private readonly work: number

  constructor(
    private readonly replay: Replay,
    needed: Uint8Array,
  ) {
    const { table } = replay
    this.table = table
    this.safety = new Safety(replay, needed, this.probe)
    this.after = After.of(table, this.probe)
    const concurrent = ConcurrentCalls.of(table)
    this.concurrent = concurrent?.find() === undefined ? concurrent : undefined
    this.bounds = boundsOf(table)
    const { storage, boundKind } = table.plan
    const counted = storage === 'pooled' && boundKind === undefined
    this.pool = counted && this.poolFits(tracesOf(table), undefined)
    this.work = poolSteps / Math.max(1, waitsIn(table))
  }

  /** Whether every law holds without wait c. */
  holds(c: number): boolean {
    const { table, probe, replay, bounds } = this
    probe.full = false
    this.safety.judge(c)
    if (!probe.full) this.after?.judge(c)
    if (probe.full || this.concurrent?.find(c) !== undefined) return false
    if (table.plan.storage === 'planned') return true
    replay.restart(c)
    const traces = tracesOf(table, { replay })
    return (!this.pool || this.poolFits(traces, this.work)) && peakFits(table, () => traces, bounds)
  }

  /** With limited work: false also where it is not decided, so that the wait is kept. */
  private poolFits(traces: readonly AllocationTrace[], work: number | undefined): boolean {
    const { table, bounds } = this
    const limits = work === undefined ? {} : { work }
    const { device, exact } = poolPeakFrom(table, traces, { enough: bounds, ...limits })
    return (exact || work === undefined) && device.every((bytes, d) => bytes <= bounds[d]!)
  }
}

/** No event is recorded that no command waits for or uses. */
const checkRecords = (table: CommandTable, sink: Sink): void => {
  const { plan, op, subject, commands, events, recordOf, eventId, lane, useEvent, allocator } = table
  const wanted = allocator.uint8(events)
  for (let c = 0; c < commands; c++) if (op[c] === Op.wait || op[c] === Op.previous) wanted[subject[c]!] = 1
  for (let u = 0; u < useEvent.length; u++) wanted[useEvent[u]!] = 1
  for (let event = 0; event < events; event++) {
    const record = recordOf[event]!
    if (record < 0 || wanted[event] === 1) continue
    const l = lane[record]!
    sink.add(
      'L6',
      record,
      { event: eventId[event]!, lane: l },
      () => `${quotedLane(plan, l)} records e${eventId[event]}, and no command waits for it or uses it`,
    )
  }
}

/** Uses without which L4 still holds. */
const checkUses = (table: CommandTable, needed: Uint8Array, sink: Sink): void => {
  const { plan, subject, named, lane, kind, home, root, uses, useCommand, useEvent, eventId } = table
  for (let u = 0; u < uses && !sink.full; u++) {
    if (needed[u] === 1) continue
    const c = useCommand[u]!
    const b = subject[c]!
    const l = lane[c]!
    sink.add('L6', c, { buffer: named[c]!, lane: l, event: eventId[useEvent[u]!]! }, () => {
      const name = quotedBuffer(plan, named[c]!)
      if (kind[b] !== Kind.tick)
        return `${name} (${plan.buffers[b]!.life}) is never freed, so no use of it is needed`
      if (home[root[b]!] === l)
        return `${quotedLane(plan, l)} is the home of ${name}, whose order its block follows anyway`
      return [
        `${name} can be freed without it: its last accesses are already before its home lane, `,
        'or marked by another use',
      ].join('')
    })
  }
}
