import { BraidError } from '../ir/braid-error.js'
import type { Where } from '../ir/graph.js'
import type { Plan } from '../ir/plan.js'
import { show } from '../ir/show.js'
import type { HostArrayOf, Ports } from './tensor.js'
import { here } from './where.js'

/** An output that stays until a plan is launched; at most `count` of its values exist at a time. */
export interface Until<N extends string = string> {
  readonly lives: 'until'
  readonly plan: N
  readonly count: number
}
/** An output of which the newest `count` values exist. */
export interface Ring {
  readonly lives: 'ring'
  readonly count: number
}
/** An output whose value is copied out of the arena by each launch, and is the caller's from then on. */
export interface Owned {
  readonly lives: 'owned'
}
/** An output that stays until a later launch writes over it. */
export interface Borrowed {
  readonly lives: 'run'
}
/** How long an output stays on the device. */
export type Keep<N extends string = string> = Until<N> | Ring | Owned | Borrowed

const isCount = (count: unknown): boolean =>
  Number.isSafeInteger(count) && (count as number) >= 1 && (count as number) <= 64

/** A tree is data, with no graph to collect its errors: what is wrong with it is thrown where it is made. */
const wrong = (at: Where, subject: string, wanted: string, found: unknown, next: string): BraidError =>
  new BraidError([{ _tag: 'BadArgument', at: String(at), subject, wanted, found: show(found), next }])

const counted = (at: Where, call: string, count: unknown, form: string): number => {
  if (isCount(count)) return count as number
  throw wrong(at, `${call}: count`, 'a whole number of values, 1 to 64', count, `write ${form}`)
}

/** Keeps an output until that plan is launched: what a backward pass needs of the forward pass, say. */
export const until = <const N extends string>(plan: N, count = 1): Until<N> => {
  if (typeof plan !== 'string')
    throw wrong(here(until), 'until: plan', 'the name of a plan', plan, "write until('backward')")
  const form = `until('${plan}', 2)`
  return Object.freeze({ lives: 'until', plan, count: counted(here(until), 'until', count, form) })
}
/** Keeps the newest `count` values of an output. */
export const ring = (count: number): Ring =>
  Object.freeze({ lives: 'ring', count: counted(here(ring), 'ring', count, 'ring(2)') })
/** Copies an output out of the arena, into memory of its own. */
export const owned: Owned = Object.freeze({ lives: 'owned' })
/** Leaves an output on the device until a later launch writes over it. */
export const borrowed: Borrowed = Object.freeze({ lives: 'run' })

type AnyPlan = Plan<Ports, Ports>

/** Plans under one name, each for values of other shapes. */
export interface ByShape<P extends AnyPlan = AnyPlan> {
  readonly shapes: Readonly<Record<string, P>>
}

/**
 * One plan for each of some shapes, by a key of the caller's: `byShape({ 1: one, 8: eight })`. In a tree they
 * have one name, and a launch takes the one whose inputs have the sizes of what it is given. Where another plan
 * of the tree has shapes too, only plans of one key follow each other.
 */
export const byShape = <const P extends AnyPlan>(shapes: Readonly<Record<string, P>>): ByShape<P> => {
  if (!isObject(shapes) || Object.keys(shapes).length === 0)
    throw wrong(
      here(byShape),
      'byShape',
      'plans by key, at least one',
      shapes,
      'write byShape({ 1: one, 8: eight })',
    )
  return Object.freeze({ shapes: Object.freeze({ ...shapes }) })
}

export type Plans = Readonly<Record<string, AnyPlan | ByShape>>
type InputsOf<P> = P extends ByShape<infer Q> ? InputsOf<Q> : P extends Plan<infer I, infer _O> ? I : never
type OutputsOf<P> = P extends ByShape<infer Q> ? OutputsOf<Q> : P extends Plan<infer _I, infer O> ? O : never

/**
 * Plans that share one arena, and the order in which the host may launch them. An output stays on the device,
 * and is the input of that name of the plan after it, where some plan that may come next has an input of that
 * name and type. All other inputs come from the host, and all other outputs go there.
 */
export interface Tree<
  P extends Plans,
  T,
  K,
  S extends readonly (keyof P & string)[] = readonly (keyof P & string)[],
> {
  readonly plans: P
  /** The plans that a run may begin with. */
  readonly start: S
  /** By plan: those that may come right after it. */
  readonly then: T
  /** By plan and output: how long it stays. */
  readonly keep: K
}

/** A tree of any plans. */
export interface AnyTree {
  readonly plans: Plans
  readonly start: readonly string[]
  readonly then: object
  readonly keep: object
}

export type KeepsOf<P extends Plans> = {
  readonly [K in keyof P]?: { readonly [O in keyof OutputsOf<P[K]>]?: Keep<keyof P & string> }
}
export type ThenOf<P extends Plans> = { readonly [K in keyof P]?: readonly (keyof P & string)[] }

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isKeep = (how: unknown): boolean => {
  if (!isObject(how)) return false
  const { lives, plan, count } = how
  if (lives === 'until') return typeof plan === 'string' && isCount(count)
  return lives === 'ring' ? isCount(count) : lives === 'owned' || lives === 'run'
}

/** What of a tree has another form than its type says. */
export interface TreeFormFault {
  readonly at: string
  readonly wanted: string
  readonly found: unknown
}

const areNames = (value: unknown): boolean =>
  Array.isArray(value) && value.every(name => typeof name === 'string')

const formFault = (is: boolean, at: string, wanted: string, found: unknown): readonly TreeFormFault[] =>
  is ? [] : [{ at, wanted, found }]

/** The first part of a tree, or of the argument of `tree`, that has another form than its type says. */
export const treeFormFault = (spec: unknown): TreeFormFault | undefined => {
  if (!isObject(spec)) return { at: '', wanted: 'an object with plans and start', found: spec }
  const { plans, start, then, keep } = spec
  const all = [
    ...formFault(isObject(plans), 'plans', 'an object of compiled plans by name', plans),
    ...(isObject(plans) ? Object.entries(plans) : []).flatMap(([name, plan]) =>
      isObject(plan) && 'shapes' in plan
        ? formFault(
            isObject(plan['shapes']) && Object.keys(plan['shapes']).length > 0,
            `plans.${name}.shapes`,
            'plans by key, at least one',
            plan['shapes'],
          )
        : [],
    ),
    ...formFault(areNames(start), 'start', 'a list of names of plans', start),
    ...formFault(isObject(then), 'then', 'an object: by plan, a list of names of plans', then),
    ...(isObject(then) ? Object.entries(then) : []).flatMap(([name, next]) =>
      formFault(next === undefined || areNames(next), `then.${name}`, 'a list of names of plans', next),
    ),
    ...formFault(isObject(keep), 'keep', 'an object: by plan and output, how long it stays', keep),
    ...(isObject(keep) ? Object.entries(keep) : []).flatMap(([name, outputs]) =>
      formFault(outputs === undefined || isObject(outputs), `keep.${name}`, 'an object by output', outputs),
    ),
  ]
  const kept = Object.entries(isObject(keep) ? keep : {}).flatMap(([name, outputs]) =>
    Object.entries(isObject(outputs) ? outputs : {}).flatMap(([output, how]) =>
      formFault(
        how === undefined || isKeep(how),
        `keep.${name}.${output}`,
        'until(plan), ring(count) of 1 to 64 values, owned or borrowed',
        how,
      ),
    ),
  )
  return [...all, ...kept][0]
}

/** Throws where the argument of `tree` has another form than its type says. */
const checkForm = (at: Where, spec: unknown): void => {
  const whole = isObject(spec) ? { then: {}, keep: {}, ...defined(spec) } : spec
  const fault = treeFormFault(whole)
  if (fault === undefined) return
  const part = fault.at === '' ? 'its argument' : fault.at
  throw wrong(at, `tree: ${part}`, fault.wanted, fault.found, 'write tree({ plans, start, then, keep })')
}

const defined = (spec: Readonly<Record<string, unknown>>): object =>
  Object.fromEntries(Object.entries(spec).filter(([, value]) => value !== undefined))

/**
 * Describes a tree of plans, each compiled with `storage: 'planned'`:
 *
 *     tree({
 *       plans: { prompt, step, stop },
 *       start: ['prompt'],
 *       then: { prompt: ['step'], step: ['step', 'stop'] },
 *     })
 *
 * Pure: nothing is opened. A description of another form is a `BraidError` at once; whether the plans fit is
 * checked by `planTree`.
 */
export const tree = <
  const P extends Plans,
  const T extends ThenOf<P> = Record<never, never>,
  const K extends KeepsOf<P> = Record<never, never>,
  const S extends readonly (keyof P & string)[] = readonly (keyof P & string)[],
>(spec: {
  readonly plans: P
  readonly start: S
  readonly then?: T
  readonly keep?: K
}): Tree<P, T, K, S> => {
  checkForm(here(tree), spec)
  return Object.freeze({ ...spec, then: spec.then ?? ({} as T), keep: spec.keep ?? ({} as K) })
}

// ---- what is alive where ----------------------------------------------------------------------------------

export type PlanName<R> = keyof PlansIn<R> & string
type PlansIn<R> = R extends { readonly plans: infer P extends Plans } ? P : never
type StartIn<R> = R extends { readonly start: readonly (infer N)[] } ? N : never
type ThenIn<R> = R extends { readonly then: infer T } ? T : never
type KeepIn<R> = R extends { readonly keep: infer K } ? K : never
type In<R, N extends PlanName<R>> = InputsOf<PlansIn<R>[N]>
type Out<R, N extends PlanName<R>> = OutputsOf<PlansIn<R>[N]>

/** The plans that may come right after a plan. */
export type NextOf<R, N extends PlanName<R>> = N extends keyof ThenIn<R>
  ? ThenIn<R>[N] extends readonly (infer M)[]
    ? M & PlanName<R>
    : never
  : never

/** Names of the outputs of a plan that are inputs of some plan after it. */
type Carried<R, N extends PlanName<R>> = {
  [M in NextOf<R, N>]: keyof In<R, M>
}[NextOf<R, N>] &
  keyof Out<R, N>

/** Names of the outputs of a plan that stay on the device. */
export type StayingOf<R, N extends PlanName<R>> =
  | Carried<R, N>
  | (N extends keyof KeepIn<R> ? keyof KeepIn<R>[N] & keyof Out<R, N> : never)

/** The plans that may come right before a plan. */
type BeforeOf<R, N extends PlanName<R>> = {
  [M in PlanName<R>]: N extends NextOf<R, M> ? M : never
}[PlanName<R>]

/** Names of the inputs of a plan whose values may outlive the launch after the one that made them. */
type LastingOf<R, N extends PlanName<R>> = {
  [M in PlanName<R>]: M extends keyof KeepIn<R>
    ? {
        [O in keyof KeepIn<R>[M]]: KeepIn<R>[M][O] extends Until | Ring ? O : never
      }[keyof KeepIn<R>[M]] &
        keyof Out<R, M>
    : never
}[PlanName<R>] &
  keyof In<R, N>

/** Names of the inputs of a plan that may lie in the arena, whatever came before. */
export type GivenOf<R, N extends PlanName<R>> =
  | LastingOf<R, N>
  | { [M in BeforeOf<R, N>]: keyof In<R, N> & keyof Out<R, M> }[BeforeOf<R, N>]

/**
 * Names of the inputs of a plan that lie in the arena right after one of the plans M, whichever of them it
 * is.
 */
export type GivenAfter<R, N extends PlanName<R>, M extends PlanName<R>> =
  | LastingOf<R, N>
  | ([M] extends [never]
      ? never
      : Exclude<keyof In<R, N>, { [P in M]: Exclude<keyof In<R, N>, keyof Out<R, P>> }[M]>)

/**
 * Names of the inputs of a plan that lie in the arena wherever it may come: none, where a run may begin with
 * it.
 */
export type GivenAlways<R, N extends PlanName<R>> = [N & StartIn<R>] extends [never]
  ? GivenAfter<R, N, BeforeOf<R, N>>
  : LastingOf<R, N>

/**
 * The values that a launch takes: one for each input but those of G, which lie in the arena. For one that
 * lies there, or may, a handle or a value can be given all the same.
 */
export type TreeFeeds<R, N extends PlanName<R>, H, G = GivenOf<R, N>> = {
  readonly [I in Exclude<keyof In<R, N>, G>]: HostArrayOf<In<R, N>[I]> | (I extends GivenOf<R, N> ? H : never)
} & {
  readonly [I in G & keyof In<R, N>]?: HostArrayOf<In<R, N>[I]> | H
}

/** The outputs of a plan that go to the host. */
export type TreeValues<R, N extends PlanName<R>> = {
  readonly [O in Exclude<keyof Out<R, N>, StayingOf<R, N>>]: HostArrayOf<Out<R, N>[O]>
}
/** The host value of an output that stays. */
export type StayingValue<R, N extends PlanName<R>, O extends StayingOf<R, N>> = HostArrayOf<Out<R, N>[O]>
/** Names of the outputs of a plan that each launch copies out of the arena. */
export type OwnedOf<R, N extends PlanName<R>> = N extends keyof KeepIn<R>
  ? { [O in keyof KeepIn<R>[N]]: KeepIn<R>[N][O] extends Owned ? O : never }[keyof KeepIn<R>[N]] &
      StayingOf<R, N>
  : never
