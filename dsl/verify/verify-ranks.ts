import { commandText } from '../ir/names.js'
import type { Plan, Violation } from '../ir/plan.js'
import { shown } from '../ir/show.js'
import { commandTableOf } from '../order/command-table.js'
import { checkCircles } from './l8-circles.js'
import { checkConcurrent } from './l8-concurrent.js'
import { checkDeadlock } from './l8-deadlock.js'
import { checkExtents } from './l8-extents.js'
import { type Blame, matchesOf, worldOf } from './l8-matching.js'
import { maxViolations } from './report.js'
import { proofOf } from './verify.js'

/**
 * Proves the laws of the plans of several ranks, the n-th that of rank n: of each plan the laws of `verify`,
 * and of all together L8: on every communicator all ranks issue the same collectives in the same order, sends
 * match receives with no buffering, communicators that share two ranks or more never have concurrent calls,
 * and devices that hold one call at a time never stop round a circle of communicators that share one rank
 * each. Each violation names its rank (`rank`). A plan that several ranks share is proved once.
 */
export const verifyRanks = (
  plans: readonly Plan[],
  options: { readonly safety?: boolean } = {},
): readonly Violation[] => {
  const proofs = new Map<Plan, ReturnType<typeof proofOf>>()
  const found: Violation[] = []
  plans.forEach((plan, rank) => {
    if (proofs.has(plan)) return
    const proof = proofOf(plan, options)
    proofs.set(plan, proof)
    for (const violation of proof.violations) found.push(ofRank(violation, rank))
  })
  const judged = plans.flatMap(plan => proofs.get(plan)!.plan ?? [])
  const shared = judged.length === plans.length ? checkRanks(judged, found.length === 0) : []
  return [...found, ...shared].slice(0, maxViolations)
}

const ofRank = (violation: Violation, rank: number): Violation => ({
  ...violation,
  rank,
  message: `${violation.law}: rank ${rank}, ${violation.message.slice(violation.law.length + 2)}`,
})

/** L8 alone. `valid`: each plan by itself obeys every law. */
const checkRanks = (plans: readonly Plan[], valid: boolean): Violation[] => {
  const found: Violation[] = []
  const tables = new Map(plans.map(plan => [plan, commandTableOf(plan)]))
  const ranks = plans.map((plan, rank) => ({ rank, plan, table: tables.get(plan)! }))
  const add = (rank: number, command: number, sentence: () => string) => {
    const where = command < 0 ? 'the plan' : `commands[${command}] (${commandText(plans[rank]!, command)})`
    found.push({ law: 'L8', command, rank, message: shown(`L8: rank ${rank}, ${where}: ${sentence()}`) })
  }
  const world = worldOf(ranks, ({ rank }, command, sentence) => add(rank, command, sentence))
  if (valid && found.length === 0) checkExtents(world, add)
  const blame: Blame = ({ rank: { rank, plan, table }, command }, sentence) => {
    const where = `commands[${command}] (${commandText(plan, command)})`
    const message = shown(`L8: rank ${rank}, ${where}: ${sentence()}`)
    found.push({ law: 'L8', command, lane: table.lane[command]!, rank, message })
  }
  const matches = matchesOf(world, blame)
  if (found.length === 0 && matches !== undefined) {
    checkDeadlock(world, matches, blame)
    if (found.length === 0) checkCircles(world, matches, blame)
  }
  checkConcurrent(world, blame)
  return found
}
