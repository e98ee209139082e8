import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import type { Plan, Violation } from '../../ir/plan.js'
import type { TensorSpec } from '../../ir/tensor.js'
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

/** Waits that are dropped from one plan at most; the plan is proved anew after each. */
const mostRedundantWaits = 32

/**
 * The draft without the first wait that the proof found redundant; undefined where the proof found anything
 * else. Such a wait is one that memory asked for: while lifetimes still followed from the waits, dropping it
 * would have cost a use or a later free. With the lifetimes fixed, the wait alone can go.
 */
const withoutRedundantWait = (
  draft: Draft,
  { commands }: Plan,
  violations: readonly Violation[],
): Draft | undefined => {
  const [first] = violations
  const isWait = ({ law, command }: Violation): boolean => law === 'L6' && commands[command]?.[0] === 'wait'
  if (first === undefined || !violations.every(isWait)) return undefined
  const { issued } = draft
  // Waits stand in the commands in the order of the draft's list.
  let at = 0
  for (let c = 0; c < first.command; c++) if (commands[c]![0] === 'wait') at++
  const waitStart = issued.waitStart.map(start => (start > at ? start - 1 : start))
  const waitOn = issued.waitOn.filter((_, w) => w !== at)
  const waitTick = issued.waitTick.filter((_, w) => w !== at)
  const begins = issued.begins?.filter((_, w) => w !== at)
  const without = { ...issued, waitStart, waitOn, waitTick, ...(begins === undefined ? {} : { begins }) }
  return { ...draft, issued: without, flat: undefined }
}

const proved = (unproved: Unproved, ports: Provenance['ports'], left: number): Passed<Plan> => {
  const { plan, draft, kernels, inits, decisions } = unproved
  const violations = verify(plan, { everyRank: true })
  const [violation] = violations
  if (violation === undefined) {
    recordProvenance(plan, { kernels, inits, ports, decisions })
    return E.right(plan)
  }
  const leaner = draft && left > 0 ? withoutRedundantWait(draft, plan, violations) : undefined
  if (leaner !== undefined) return proved(emitted(leaner), ports, left - 1)
  const { law, command, message } = violation
  const next = 'report this graph; nothing was run'
  return fail(fault('Unverified', `commands[${command}]`, plan.name, `law ${law}`, message, next))
}

/**
 * After this step every law holds for the plan, no wait of it is redundant, and its provenance is recorded.
 * `ports` are the types of inputs, outputs and parameters as the graph has them.
 */
export const prove = (ports: ReadonlyMap<string, TensorSpec>): ((unproved: Unproved) => Passed<Plan>) =>
  pass('verify', (unproved: Unproved) => proved(unproved, ports, mostRedundantWaits))

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
