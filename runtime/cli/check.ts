import { lastValueFrom, map, toArray } from 'rxjs'
import { distance, type HostArray, type Meaning, type Program } from '../../dsl/index.js'
import { meaningWithStates, numbers } from '../../dsl/internal.js'
import type { Fault } from '../../dsl/ir/fault.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Progress } from './progress.js'

export interface CheckResult {
  /** Output values compared: ticks times outputs. */
  readonly outputs: number
  /** States compared after the last tick. */
  readonly states: number
  /**
   * The largest difference of an element from what `interpret` yields, relative to the largest magnitude of
   * its tensor; 0 only where all are equal.
   */
  readonly maxRelativeError: number
  /** What rounding allows there, relative to the same; of the value that comes closest to it. */
  readonly tolerance: number
  /** The outputs and states in which rounding may be as large as all that they hold: any value passes. */
  readonly undecided: readonly string[]
  readonly ok: boolean
  /** Why the check fails: nothing compared, fewer ticks than were fed, or the value furthest off. */
  readonly faults: readonly Fault[]
}

export type Values = Readonly<Record<string, HostArray>>

/** By input, the values that were fed, in order: with as many values a tick as the input's rate. */
export type Fed = ReadonlyMap<string, readonly HostArray[]>

/** How a run went that is compared. */
export interface Ran {
  /** The ticks that a run of a graph without inputs was to have, and the most of any other. */
  readonly ticks?: number | undefined
  /** Whether it was ended before its feeds were: then fewer ticks are compared than were fed. */
  readonly interrupted?: boolean
  /** The states after the last tick. */
  readonly states?: Values
  readonly progress?: Progress
}

interface Compared {
  readonly name: string
  readonly kind: 'output' | 'state'
  readonly tick: number
  readonly relativeError: number
  readonly tolerance: number
  /** The difference, in parts of what is allowed. */
  readonly share: number
  readonly ok: boolean
  readonly decided: boolean
}

/** The ticks that the run was to have: those for which all feeds gave their values. */
const ticksFed = (plan: Plan, fed: Fed, { ticks = Number.POSITIVE_INFINITY }: Ran): number =>
  inputsOf(plan).reduce(
    (least, { name, rate = 1 }) => Math.min(least, Math.floor((fed.get(name)?.length ?? 0) / rate)),
    ticks,
  )

const inputsOf = (plan: Plan) =>
  plan.buffers.filter(({ life, alias }) => life === 'input' && alias === undefined)

/**
 * Compares the outputs of a run, tick by tick, and its states at the end with those of `interpret` on the
 * captured inputs. Whatever of the two has an output or a tick that the other lacks, or nothing to compare,
 * fails.
 */
export const check = async (
  program: Program,
  plan: Plan,
  fed: Fed,
  got: readonly Values[],
  ran: Ran = {},
): Promise<CheckResult> => {
  const wanted = ran.interrupted === true ? got.length : ticksFed(plan, fed, ran)
  const ticks = Number.isFinite(wanted) ? Math.max(wanted, got.length) : got.length
  const feeds = Object.fromEntries(
    inputsOf(plan).map(({ name, rate = 1 }) => [name, (fed.get(name) ?? []).slice(0, ticks * rate)]),
  )
  const { dims } = program.options ?? {}
  const options = {
    ticks,
    ...(program.params ? { params: program.params } : {}),
    ...(dims ? { dims } : {}),
  }
  const typeOf = new Map(
    plan.buffers
      .filter(({ life }) => life === 'output' || life === 'state')
      .map(({ name, life, dtype }) => [`${life} ${name}`, dtype ?? 'u8']),
  )
  const compare = (kind: Compared['kind'], tick: number, found: Values, meant: Meaning): Compared[] =>
    [...new Set([...Object.keys(meant.values), ...Object.keys(found)])].map(name => {
      const [value, wanted] = [found[name], meant.values[name]]
      if (value === undefined || wanted === undefined) return missing(kind, name, tick)
      const dtype = typeOf.get(`${kind} ${name}`) ?? 'u8'
      const allowed = meant.allowed[name] ?? 0
      const { difference, scale, wrong } = distance(numbers(value, dtype), numbers(wanted, dtype), allowed)
      const relativeError = relative(difference, scale)
      const share = difference === 0 ? 0 : relative(difference, allowed)
      const judged = { ok: wrong === undefined, decided: allowed === 0 || allowed < scale }
      return { kind, name, tick, relativeError, tolerance: relative(allowed, scale), share, ...judged }
    })
  const interpreting = (tick: number) => `checking: interpreting tick ${tick + 1} of ${ticks}`
  ran.progress?.phase(interpreting(0))
  const interpreted = meaningWithStates(
    program.graph,
    options,
  )(feeds as never).pipe(
    map((meaning, tick) => {
      if (tick + 1 < ticks) ran.progress?.step(interpreting(tick + 1))
      return meaning
    }),
    toArray(),
  )
  const meant = await lastValueFrom(interpreted)
  const ticksCompared = Array.from({ length: Math.max(meant.length, got.length) }, (_, tick) =>
    compare('output', tick, got[tick] ?? {}, meant[tick] ?? nothing),
  )
  // The states of both are those after the last tick only where both had the same ticks.
  const isSame = meant.length === got.length && got.length > 0
  const states = isSame && ran.states !== undefined ? ran.states : {}
  const after = Object.keys(states).length > 0 ? meant.at(-1)!.states() : nothing
  const known = Object.entries(states).filter(([name]) => Object.hasOwn(after.values, name))
  const values = Object.fromEntries(known.map(([name]) => [name, after.values[name]!]))
  const statesCompared = compare('state', got.length - 1, Object.fromEntries(known), { ...after, values })
  return judge(plan, [...ticksCompared.flat(), ...statesCompared], got.length, wanted)
}

const nothing: Meaning = { values: {}, allowed: {} }

const judge = (plan: Plan, compared: readonly Compared[], ticks: number, wanted: number): CheckResult => {
  const [first] = compared
  const worst = first && compared.reduce((worst, one) => (one.share > worst.share ? one : worst), first)
  const decided = new Set(compared.filter(one => one.decided).map(one => one.name))
  const undecided = new Set(compared.map(one => one.name).filter(name => !decided.has(name)))
  const fail = (subject: string, wanted: string, found: string, next: string): Fault => ({
    _tag: 'CheckFailed',
    at: plan.name,
    subject,
    wanted,
    found,
    next,
  })
  const faults: Fault[] = []
  if (first === undefined)
    faults.push(
      fail(
        plan.name,
        'an output of a tick to compare with interpret',
        ticks === 0 ? 'no tick: a feed ended before its first value' : 'none',
        'give each input a feed with the values of a tick at least',
      ),
    )
  else if (ticks < wanted)
    faults.push(
      fail(
        plan.name,
        `the outputs of ${wanted} ticks, as many as were fed`,
        `those of ${ticks}`,
        'report it with the program: every tick that a run begins yields its outputs before the run completes',
      ),
    )
  if (worst !== undefined && !compared.every(one => one.ok)) faults.push(valueFault(fail, worst))
  return {
    outputs: compared.filter(({ kind }) => kind === 'output').length,
    states: compared.filter(({ kind }) => kind === 'state').length,
    maxRelativeError: compared.reduce((most, { relativeError }) => Math.max(most, relativeError), 0),
    tolerance: worst?.tolerance ?? 0,
    undecided: [...undecided],
    ok: faults.length === 0,
    faults,
  }
}

const valueFault = (
  fail: (subject: string, wanted: string, found: string, next: string) => Fault,
  { name, kind, tick, tolerance, relativeError }: Compared,
): Fault =>
  fail(
    name,
    `what interpret yields, within a relative error of ${tolerance}`,
    (Number.isFinite(relativeError)
      ? `a relative error of ${relativeError.toExponential(2)}`
      : 'a value that is missing, of another length, or not finite where the other one is') +
      (kind === 'state' ? ` in the state after tick ${tick}` : ` in tick ${tick}`),
    'run it with --device host and, in code, { poison: true }, ' +
      'to distinguish a wrong reference from a wrong plan',
  )

const missing = (kind: Compared['kind'], name: string, tick: number): Compared => ({
  kind,
  name,
  tick,
  relativeError: Number.POSITIVE_INFINITY,
  tolerance: 0,
  share: Number.POSITIVE_INFINITY,
  ok: false,
  decided: true,
})

const relative = (of: number, scale: number): number =>
  of === 0 ? 0 : of / Math.max(scale, Number.MIN_VALUE)
