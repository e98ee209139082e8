import { commandText } from '../ir/names.js'
import type { Plan, Violation } from '../ir/plan.js'
import { commandTableOf } from '../order/command-table.js'
import { checkDeadlock } from './deadlock.js'
import { type Blame, meetingsOf } from './matching.js'
import { checkOverlap } from './overlap.js'
import { worldOf } from './ranks.js'
import { maxViolations } from './report.js'
import { hasForm, verify } from './verify.js'

/**
 * Proves the laws of the plans of several ranks, the n-th that of rank n: of each what `verify` proves, and of all together L8: on every communicator all ranks issue
 * the same collectives in the same order, sends match receives with nothing buffered, and communicators that share two ranks or more are never side by side. Each
 * violation says whose it is (`rank`). Plans that are one object are proved once.
 */
export const verifyRanks = (
  plans: readonly Plan[],
  options: { readonly safety?: boolean } = {},
): readonly Violation[] => {
  const found: Violation[] = []
  plans.forEach((plan, rank) => {
    if (plans.indexOf(plan) < rank) return
    for (const violation of verify(plan, options)) found.push(ofRank(violation, rank))
  })
  if (plans.every(hasForm)) found.push(...checkRanks(plans))
  return found.slice(0, maxViolations)
}

const ofRank = (violation: Violation, rank: number): Violation => ({
  ...violation,
  rank,
  message: `${violation.law}: rank ${rank}, ${violation.message.slice(violation.law.length + 2)}`,
})

/** L8 alone. */
const checkRanks = (plans: readonly Plan[]): Violation[] => {
  const found: Violation[] = []
  const tables = new Map(plans.map(plan => [plan, commandTableOf(plan)]))
  const ranks = plans.map((plan, rank) => ({ rank, plan, tables: tables.get(plan)! }))
  const world = worldOf(ranks, ({ rank, plan }, command, said) => {
    const where = command < 0 ? 'the plan' : `commands[${command}] (${commandText(plan, command)})`
    found.push({ law: 'L8', command, rank, message: `L8: rank ${rank}, ${where}: ${said()}` })
  })
  const blame: Blame = ({ rank: { rank, plan, tables }, command }, said) => {
    const where = `commands[${command}] (${commandText(plan, command)})`
    const message = `L8: rank ${rank}, ${where}: ${said()}`
    found.push({ law: 'L8', command, lane: tables.lane[command]!, rank, message })
  }
  const meetings = meetingsOf(world, blame)
  if (found.length === 0 && meetings !== undefined) checkDeadlock(world, meetings, blame)
  checkOverlap(world, blame)
  return found
}
