import * as E from 'fp-ts/lib/Either.js'
import { withScratchArena } from '../collections/scratch-arena.js'
import { limits } from '../ir/limits.js'
import { parsePlan } from '../ir/load.js'
import type { Law, Plan, Violation } from '../ir/plan.js'
import type { PlanFault } from '../ir/reader.js'
import { shown } from '../ir/show.js'
import { type CommandTable, commandTableOf, mostNumbers } from '../order/command-table.js'
import { eachBuffer, flatCommandsOf } from '../order/compiled-plan.js'
import { Replay } from '../order/replay.js'
import { formViolations } from './form.js'
import { checkBytes } from './l1-l2-bytes.js'
import { checkArena } from './l3-l4-arena.js'
import { checkPrecise } from './l5-precise.js'
import { checkMinimal } from './l6-minimal.js'
import { checkWaits } from './l7-waits.js'
import { checkCollectives } from './l8-collectives.js'
import { checkBound } from './l9-bound.js'
import { After } from './l10-after.js'
import { checkGraphs } from './l11-graphs.js'
import { checkPlaces } from './places.js'
import { checkIds, Report } from './report.js'
import { Safety } from './safety.js'

/*
 * The laws of a plan, each in one or more files of its number. One replay of at most two ticks judges L1 to
 * L4 (safety.ts). Invalid commands, ids, devices and views (report.ts, places.ts) are reported under the law
 * that they would break.
 *
 * | law | |
 * |---|---|
 * | L1  | every read is after the write it sees, and nothing reads bytes that a kernel left unwritten |
 * | L2  | every write is after all earlier reads and writes of those bytes, across ticks too; a run writes over
 *         bytes that it reads only where its kernel reads them first |
 * | L3  | a tick buffer is allocated once, before its first access, and freed once, after its last |
 * | L4  | at a free, each foreign lane's last access is marked by a use, or before the event of another use
 *         of that buffer, or before some command already issued on the home lane |
 * | L5  | between a lane's last access to a buffer and the record of its use, that lane issues no other run |
 * | L6  | drop any one wait or use and some law breaks; every event that is recorded is waited for or used |
 * | L7  | every wait's event is recorded earlier in issue order |
 * | L8  | all ranks issue the same collectives in the same order (verifyRanks, for plans of several ranks) |
 * | L9  | the peak, computed from the plan alone, is at most `bound`; `boundKind` says of which ticks |
 * | L10 | each run comes after what its node says that it comes after: its start, or its end |
 * | L11 | the edges of a graph imply the order of its nodes, and are the fewest that do |
 *
 * order/frontiers.ts defines *before*. The work is linear in commands, lanes and ticks, except for the exact
 * test of L6, which plans of at most `exactCommands` commands get.
 */

export interface VerifyOptions {
  /** Leaves out L5 and L6, which concern quality. */
  readonly safety?: boolean
  /**
   * All ranks run this one plan. L8 then also demands that collectives of conflicting communicators are
   * ordered.
   */
  readonly everyRank?: boolean
}

/**
 * Proves the laws of any plan, whatever its origin: the list of violations, empty where every law holds. A
 * plan object made by hand is judged as `parsePlan` reads it, and has no violations only where `parsePlan`
 * finds no fault. A value that is not a plan breaks some law; nothing throws.
 */
export const verify = (plan: Plan, options: VerifyOptions = {}): readonly Violation[] =>
  proofOf(plan, options).violations

/** The plan that was judged, undefined for a value without a plan's form; and its violations. */
export const proofOf = (
  plan: Plan,
  options: VerifyOptions = {},
): { readonly plan?: Plan; readonly violations: readonly Violation[] } => {
  // Nothing of a compiled plan can be changed.
  const isCompiled = flatCommandsOf(plan) !== undefined && isJudgeable(plan)
  const loaded = isCompiled ? E.right(plan) : parsePlan(plan)
  if (E.isRight(loaded)) return { plan: loaded.right, violations: verifyLoaded(loaded.right, options) }
  const [{ at, wanted, found }] = loaded.left as [PlanFault]
  if (!isJudgeable(plan))
    return { violations: refused(`it is no plan: ${at}: wanted ${wanted}, found ${found}`) }
  const broken = verifyLoaded(plan, options)
  return { plan, violations: broken.length > 0 ? broken : formViolations(plan, loaded.left) }
}

/** The laws of a plan that the loader has read, or that has enough of a plan's form. */
export const verifyLoaded = (plan: Plan, options: VerifyOptions = {}): readonly Violation[] =>
  withScratchArena(allocator => {
    const lanes = plan.lanes.length
    if (lanes * lanes > mostNumbers) return refused(`its ${lanes} lanes are more than can be judged`)
    const table = commandTableOf(plan, allocator)
    if (lanes * table.events > mostNumbers)
      return refused(`its ${lanes} lanes and ${table.events} events are more than can be judged`)
    return judge(table, options)
  })

const judge = (table: CommandTable, { safety = false, everyRank = false }: VerifyOptions) => {
  const report = new Report(table.plan)
  // 1. Commands, buffers, lanes and nodes are valid, and L7: the replays rely on nothing more.
  checkIds(table, report)
  checkPlaces(table, report)
  checkWaits(table, report)
  checkBytes(table, report)
  // 2. Order and lifetimes: L1 to L4. `needed`: by use, whether it alone holds back some free.
  const needed = table.allocator.uint8(table.uses)
  const replay = new Replay(table)
  if (table.plan.storage === 'planned') checkArena(table, report)
  withScratchArena(() => new Safety(replay, needed, report).judge())
  // 3. Orders without data: L10 and L8.
  After.of(table, report)?.judge()
  checkCollectives(table, everyRank, report)
  // Executable graphs: L11.
  checkGraphs(table, safety, report)
  // 4. Memory: L9.
  if (report.full) replay.restart()
  withScratchArena(() => checkBound(replay, report))
  // 5. Quality: L5 and L6.
  if (!safety) {
    const safe = report.violations.length === 0
    checkPrecise(table, report)
    checkMinimal(replay, needed, safe, report)
  }
  return report.violations
}

const refused = (why: string): readonly Violation[] => {
  const law: Law = 'L7'
  return [{ law, command: -1, message: shown(`${law}: the plan: ${why}`) }]
}

/**
 * Whether a value has enough of a plan's form for the replays, whatever its origin: ids may be out of range,
 * and commands may be anything (see checkIds). Loops, since `every` skips holes.
 */
const hasForm = (plan: Plan): boolean => {
  if (!isObject(plan)) return false
  // The lists of a compiled plan are not read here, since reading would make them.
  if (flatCommandsOf(plan) === undefined && !hasLists(plan)) return false
  if (!Array.isArray(plan.bound?.device)) return false
  const buffers = eachBuffer(plan)
  for (let b = 0; b < buffers.length; b++) {
    const { bytes, device } = buffers.at(b)!
    if (!Number.isFinite(bytes) || bytes < 0 || !Number.isInteger(device)) return false
  }
  const isCount = (value: unknown, most: number) =>
    Number.isInteger(value) && (value as number) > 0 && (value as number) <= most
  return (
    isCount(plan.devices, limits.devices) &&
    isCount(plan.inFlight, limits.inFlight) &&
    isCount(plan.arenas ?? 1, limits.inFlight)
  )
}

const isJudgeable = (plan: Plan): boolean => {
  try {
    return hasForm(plan)
  } catch {
    return false // a getter or proxy of the caller threw
  }
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null

const areObjects = (list: unknown): boolean => {
  if (!Array.isArray(list)) return false
  for (const item of list) if (!isObject(item)) return false
  return true
}

const hasLists = ({ lanes, buffers, nodes, commands, communicators, graphs }: Plan): boolean => {
  if (!areObjects(lanes) || !areObjects(buffers) || !areObjects(nodes) || !Array.isArray(commands))
    return false
  for (const { collective } of nodes) if (collective !== undefined && !isObject(collective)) return false
  if (graphs !== undefined && !(areObjects(graphs) && graphs.every(({ edges }) => Array.isArray(edges))))
    return false
  if (communicators === undefined) return true
  if (!areObjects(communicators)) return false
  for (const { groups } of communicators) {
    if (groups === undefined) continue
    if (!Array.isArray(groups)) return false
    for (const group of groups) if (!Array.isArray(group)) return false
  }
  return true
}
