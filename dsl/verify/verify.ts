import { limits } from '../ir/limits.js'
import type { Law, Plan, Violation } from '../ir/plan.js'
import type { Peak } from '../memory/peak.js'
import { type CommandTable, commandTableOf, maxCells } from '../order/command-table.js'
import { Frontiers } from '../order/frontiers.js'
import { eachBuffer, isUnmade, packedOf } from '../order/packed.js'
import { withScratchArena } from '../order/scratch-arena.js'
import { After } from './after.js'
import { checkBound } from './bound.js'
import { checkBeside, checkCollectives } from './collectives.js'
import { Adding } from './covered.js'
import { fingerprintOfTable } from './fingerprint.js'
import { checkMinimal } from './minimal.js'
import { checkPlaces } from './places.js'
import { checkPrecise, Marks } from './precise.js'
import { checkIds, Report } from './report.js'
import { Safety, type Watch } from './safety.js'
import { Settled } from './settled.js'
import { checkArena } from './storage.js'
import { checkWaits } from './waits.js'

/**
 * Proves the laws of any plan, whoever wrote it: an empty list where every law holds. With `safety`, L5 and L6, which are
 * about quality, are left out.
 *
 * | law | | in |
 * |---|---|---|
 * | L1 | every read is after the write it sees | laws/order.ts |
 * | L2 | every write is after all earlier reads and writes of that buffer, across ticks too | laws/order.ts |
 * | L3 | a tick buffer is allocated once, before its first access, and freed once, after its last; nothing leaks | laws/lifetimes.ts, laws/storage.ts |
 * | L4 | at a free, each foreign lane's last access is marked by a use, or before the event of another use of that buffer, or before some command already issued on the home lane | laws/lifetimes.ts, laws/storage.ts |
 * | L5 | between a lane's last access to a buffer and the record of its use, that lane issues no other run | laws/precise.ts |
 * | L6 | drop any one wait or use and some law breaks; no event is recorded that nobody waits for or uses | laws/minimal.ts |
 * | L7 | every wait's event is recorded earlier in issue order | laws/waits.ts |
 * | L8 | all ranks issue the same collectives in the same order | laws/collectives.ts, and verify-ranks.ts for the plans of several ranks; of a plan that `compile` made, laws/beside.ts too |
 * | L9 | the peak, computed from the plan alone, is at most `bound` | laws/bound.ts |
 * | L10 | each run comes after what its node says that it comes after: its start, or its end | laws/after.ts |
 *
 * Devices, ids and views (laws/places.ts) are told of under the law that they would break. Views are judged by their bytes (laws/cells.ts).
 *
 * *Before* is what `laws/clock.ts` says. The work is linear in commands, lanes and ticks, but for the exact test of L6,
 * which plans of at most `exactCommands` commands get. A `Plan` of the wrong form is the loader's to report (load.ts);
 * here it breaks some law or other, and nothing throws.
 */
export const verify = (plan: Plan, options: { readonly safety?: boolean } = {}): readonly Violation[] =>
  judge(plan, options).violations

/** What was found of a plan, and the fingerprint of the commands that were judged. */
export interface Judgement {
  readonly violations: readonly Violation[]
  readonly fingerprint: number
}

/** As `verify`, for a compiler that asks for the fingerprint too, and may have found the plan's peak already. All but that is proved anew, of the plan as it is, and that all ranks may run it. */
export const verifyCompiled = (plan: Plan, peak: Peak | undefined): Judgement =>
  judge(plan, { peak, marked: true })

interface Proof {
  readonly safety?: boolean
  readonly peak?: Peak | undefined
  readonly marked?: boolean
}

const judge = (plan: Plan, options: Proof): Judgement => {
  if (!hasForm(plan)) return refused('L7', 'it has not the form of a plan; parsePlan says where')
  return withScratchArena(allocator => {
    const lanes = plan.lanes.length
    return lanes * lanes > maxCells
      ? refused('L7', `its ${lanes} lanes are more than can be judged`)
      : prove(commandTableOf(plan, allocator), options)
  })
}

const prove = (tables: CommandTable, options: Proof): Judgement => {
  const { plan, lanes, events } = tables
  if (lanes * events > maxCells)
    return refused('L7', `its ${lanes} lanes and ${events} events are more than can be judged`)
  const report = new Report(plan)
  checkIds(tables, report)
  checkPlaces(tables, report)
  checkWaits(tables, report)
  if (plan.storage === 'planned') checkArena(tables, report)
  const clock = new Frontiers(tables)
  const needed = tables.allocator.uint8(tables.uses)
  const quality = options.safety !== true
  const watch: Watch = {
    marks: quality ? new Marks(tables) : undefined,
    adding: quality ? Adding.of(tables, clock) : undefined,
    settled: options.peak === undefined ? Settled.of(tables, clock) : undefined,
  }
  withScratchArena(() => new Safety(tables, clock, needed, report).replay(-1, watch))
  After.of(tables, report)?.replay()
  checkCollectives(tables, report)
  if (options.marked === true) checkBeside(tables, report)
  withScratchArena(() =>
    checkBound(tables, clock, report.violations.length === 0, report, options.peak, watch.settled),
  )
  if (quality) {
    const safe = report.violations.length === 0
    if (watch.marks?.precise !== true) checkPrecise(tables, report)
    checkMinimal(tables, clock, needed, safe, report, watch.adding)
  }
  return {
    violations: report.violations,
    fingerprint: options.marked === true ? fingerprintOfTable(tables) : Number.NaN,
  }
}

const refused = (law: Law, why: string): Judgement => ({
  violations: [{ law, command: -1, message: `${law}: the plan: ${why}` }],
  fingerprint: Number.NaN,
})

/** As much of the form as the replays rely on; ids may be out of range, and commands be anything (see checkIds). Loops, since `every` skips holes. */
export const hasForm = (plan: Plan): boolean => {
  if (typeof plan !== 'object' || plan === null) return false
  const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null
  const areObjects = (list: unknown): boolean => {
    if (!Array.isArray(list)) return false
    for (const item of list) if (!isObject(item)) return false
    return true
  }
  if (!areObjects(plan.lanes) || !Array.isArray(plan.bound?.device)) return false
  if (packedOf(plan) === undefined && !Array.isArray(plan.commands)) return false
  // Those that are still to be made will be objects.
  if (!isUnmade(plan, 'nodes')) {
    if (!areObjects(plan.nodes)) return false
    for (const { collective } of plan.nodes)
      if (collective !== undefined && !isObject(collective)) return false
  }
  if (!isUnmade(plan, 'buffers') && !areObjects(plan.buffers)) return false
  if (plan.communicators !== undefined) {
    if (!Array.isArray(plan.communicators)) return false
    for (const communicator of plan.communicators) {
      if (!isObject(communicator)) return false
      if (communicator.groups === undefined) continue
      if (!Array.isArray(communicator.groups)) return false
      for (const group of communicator.groups) if (!Array.isArray(group)) return false
    }
  }
  const buffers = eachBuffer(plan)
  for (let b = 0; b < buffers.length; b++) {
    const { bytes, device } = buffers.at(b)!
    if (!Number.isFinite(bytes) || bytes < 0 || !Number.isInteger(device)) return false
  }
  const count = (value: unknown, most: number) =>
    Number.isInteger(value) && (value as number) > 0 && (value as number) <= most
  return count(plan.devices, limits.devices) && count(plan.inFlight, limits.inFlight)
}
