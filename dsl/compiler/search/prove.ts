import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { withScratchArena } from '../../collections/scratch-arena.js'
import type { Plan, Violation } from '../../ir/plan.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { tracesOf } from '../../memory/plan-trace.js'
import { poolPeakFrom } from '../../memory/pool-peak.js'
import { commandTableOf } from '../../order/command-table.js'
import { flatCommandsOf } from '../../order/compiled-plan.js'
import { verify } from '../../verify/verify.js'
import { fail, fault } from '../analysis/faults.js'
import { type Passed, pass } from '../analysis/pass.js'
import { type Provenance, provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { type Draft, emit } from '../passes/emit.js'

/** A plan that is not proved yet. */
interface Unproved extends Pick<Provenance, 'kernels' | 'inits' | 'decisions'> {
  readonly plan: Plan
  /** Absent for a plan of more than `mostCommands`: its draft is freed before the proof. */
  readonly draft?: Draft
}

/** Commands of a plan that may be emitted again without a redundant wait. */
const mostCommands = 2 ** 17

/** The plan of a draft; the draft itself is kept only where the plan is small enough to be emitted again. */
export const emitted = (draft: Draft): Unproved => {
  const plan = emit(draft)
  const { kernels, inits, decisions } = draft
  const isSmall = flatCommandsOf(plan)!.commands <= mostCommands
  return { plan, kernels, inits, decisions, ...(isSmall ? { draft } : {}) }
}

/** The draft without wait number `at` of its list; those below it keep their numbers. */
const withoutWait = (draft: Draft, at: number): Draft => {
  const { issued } = draft
  const waitStart = issued.waitStart.map(start => (start > at ? start - 1 : start))
  const waitOn = issued.waitOn.filter((_, w) => w !== at)
  const waitTick = issued.waitTick.filter((_, w) => w !== at)
  const begins = issued.begins?.filter((_, w) => w !== at)
  const without = { ...issued, waitStart, waitOn, waitTick, ...(begins === undefined ? {} : { begins }) }
  return { ...draft, issued: without, flat: undefined }
}

/** Whether the session's pool stays within a bound of no kind: L6 asks for it, and no other law. */
const poolFits = (plan: Plan): boolean => {
  const { storage, boundKind, bound } = plan
  if (storage === 'planned' || boundKind !== undefined) return true
  return withScratchArena(allocator => {
    const table = commandTableOf(plan, allocator)
    const enough = [...bound.device, bound.pinned]
    const { device, exact } = poolPeakFrom(table, tracesOf(table, { allocator }), { enough })
    return exact && device.every((bytes, on) => bytes <= bound.device[on]!)
  })
}

const isSafe = (plan: Plan): boolean =>
  poolFits(plan) && verify(plan, { everyRank: true, safety: true }).length === 0

/**
 * The draft without the waits that the proof found redundant. Each alone may go, but not always all of them,
 * since the pool then lies otherwise: so the last one is tried first, and each after it without those that
 * went. Undefined where the proof found anything else. Such waits are ones that memory asked for: while
 * lifetimes still followed from the waits, dropping one would have cost a use or a later free, or `bound` had
 * no work left to try it. With the lifetimes fixed, the wait alone can go.
 */
const withoutRedundantWaits = (
  draft: Draft,
  { commands }: Plan,
  violations: readonly Violation[],
): Draft | undefined => {
  const isWait = ({ law, command }: Violation): boolean => law === 'L6' && commands[command]?.[0] === 'wait'
  if (!violations.every(isWait)) return undefined
  const redundant = new Set(violations.map(({ command }) => command))
  // Waits stand in the commands in the order of the draft's list.
  const numbers: number[] = []
  let waits = 0
  for (let c = 0; c < commands.length; c++) {
    if (commands[c]![0] !== 'wait') continue
    if (redundant.has(c)) numbers.push(waits)
    waits++
  }
  let leaner: Draft | undefined
  for (const at of numbers.reverse()) {
    const candidate = withoutWait(leaner ?? draft, at)
    if (isSafe(emit(candidate))) leaner = candidate
  }
  return leaner
}

const proved = (unproved: Unproved, ports: Provenance['ports']): Passed<Plan> => {
  const { plan, draft, kernels, inits, decisions } = unproved
  const violations = verify(plan, { everyRank: true })
  const [violation] = violations
  if (violation === undefined) {
    recordProvenance(plan, { kernels, inits, ports, decisions })
    return E.right(plan)
  }
  // Without these waits others may have become redundant. Each proof has fewer waits than the one before.
  const leaner = draft && withoutRedundantWaits(draft, plan, violations)
  if (leaner !== undefined) return proved(emitted(leaner), ports)
  const { law, command, message } = violation
  const next = 'report this graph; nothing was run'
  return fail(fault('Unverified', `commands[${command}]`, plan.name, `law ${law}`, message, next))
}

/**
 * After this step every law holds for the plan, no wait of it is redundant, and its provenance is recorded.
 * `ports` are the types of inputs, outputs and parameters as the graph has them.
 */
export const prove = (ports: ReadonlyMap<string, TensorSpec>): ((unproved: Unproved) => Passed<Plan>) =>
  pass('verify', (unproved: Unproved) => proved(unproved, ports))

/** The plan with its provenance, its laws not proved yet: for plans of which one is chosen and proved. */
export const unproved =
  (ports: Provenance['ports']) =>
  (made: Unproved): Passed<Plan> => {
    const { plan, kernels, inits, decisions } = made
    const proof = () => prove(ports)(made)
    const compared = { ticks: new Map() }
    recordProvenance(plan, { kernels, inits, ports, decisions, compared, prove: proof })
    return E.right(plan)
  }

/**
 * The plan with its laws proved, if they are not yet; the decisions that were recorded since it was made
 * stay.
 */
export const nowProved = (plan: Plan): Passed<Plan> => {
  const { prove, decisions } = provenanceOf(plan)!
  if (prove === undefined) return E.right(plan)
  return pipe(
    prove(),
    E.map(proved => {
      recordProvenance(proved, { ...provenanceOf(proved)!, decisions })
      return proved
    }),
  )
}
