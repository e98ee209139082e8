// Going over to another plan: what passes over, and why a plan cannot follow another.
import * as E from 'fp-ts/lib/Either.js'
import type { NonEmptyArray } from 'fp-ts/lib/NonEmptyArray.js'
import { render } from '../../dsl/ir/messages.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import { showSpec } from '../../dsl/ir/tensor.js'
import { badOption, type Check, checkEach, object, oneOf } from '../device/settings/checks.js'
import type { DeviceError } from '../errors.js'
import { common } from './common-options.js'
import { fileChecks, isFile, type Opened, sourcesFrom, type WithOpenFiles } from './file-options.js'
import { cannotFollow, otherDevices } from './messages.js'
import { type ParamSources, paramsByName } from './params.js'
import { type Port, portsOf, specOf } from './ports.js'
import type { References } from './references.js'
import { type GivenParams, pathIn, pathOf, SharedParams, sourcesIn, sourcesOf } from './shared-params.js'
import type { StateSources } from './state.js'

export interface SwapOptions {
  /**
   * `state`, the default: every state of the plan that runs passes over to the state of the same name and
   * type, and the plan that follows must have it. `nothing`: all states begin as the plan that follows says.
   */
  readonly keep?: 'state' | 'nothing'
  /**
   * Parameters that do not pass over, as in `open`. All others pass over from the plan that runs,
   * with what was written to them; those that it does not have come from the `params` of `open`.
   */
  readonly params?: GivenParams
  /** Values of states that do not pass over, as in `open`. */
  readonly state?: StateSources
  /** As in `open`, of which those are the default. */
  readonly references?: References
  /** Gives up while the plan is being opened: the one that runs goes on. */
  readonly signal?: AbortSignal
}

/** A swap that was refused: nothing has changed, and the plan that runs goes on. */
export class SwapError extends Error {
  constructor(readonly errors: Readonly<NonEmptyArray<DeviceError>>) {
    super(errors.map(render).join('\n'), { cause: errors[0].cause })
    this.name = 'SwapError'
  }
}

const checks: Readonly<Record<keyof SwapOptions, Check>> = {
  keep: oneOf(['state', 'nothing']),
  ...fileChecks,
  references: common.references,
  signal: common.signal,
}

export const checkSwapOptions = (options: SwapOptions): readonly DeviceError[] =>
  object.holds(options) ? checkEach(options, checks) : [badOption('options', object.wanted, options)]

/** The parameters of a plan that follows another. */
export interface FollowingParams {
  readonly sources: ParamSources
  /** Those of the sources that sessions share, and which of them. */
  readonly shared: SharedParams | undefined
  readonly isShared: (name: string) => boolean
  /** Given for this plan: these do not pass over. */
  readonly given: ReadonlySet<string>
  /** The file that all of the sources are of. */
  readonly path: string | undefined
}

/** `opened`: what the session was opened with. */
export const followingParams = (
  given: Opened<GivenParams> | undefined,
  opened: Opened<GivenParams> | undefined,
): FollowingParams => {
  if (SharedParams.is(given)) {
    const sources = sourcesOf(given)
    const names = new Set(Object.keys(sources))
    return { sources, shared: given, isShared: () => true, given: names, path: pathOf(given) }
  }
  const own = sourcesFrom(given ?? {})
  const shared = SharedParams.is(opened) ? opened : undefined
  return {
    sources: { ...sourcesIn(opened), ...own },
    shared,
    isShared: name => !Object.hasOwn(own, name),
    given: new Set(Object.keys(own)),
    path: given === undefined ? pathIn(opened) : undefined,
  }
}

/** What passes over: buffers of the plan that follows, with their buffers in the plan that ran. */
export type Passing = ReadonlyMap<number, number>

/**
 * What passes over from one plan to another; or every reason why the other cannot follow.
 */
export const passing = (
  from: Plan,
  to: Plan,
  options: Pick<WithOpenFiles<SwapOptions>, 'keep' | 'state'>,
  params: FollowingParams,
): E.Either<Readonly<NonEmptyArray<DeviceError>>, Passing> => {
  const { keep = 'state' } = options
  const states = keep === 'state' ? passingStates(from, to, options.state) : { errors: [], pairs: [] }
  const errors = [
    ...(to.devices === from.devices ? [] : [otherDevices(to, from.devices)]),
    ...portErrors(from, to, 'input'),
    ...portErrors(from, to, 'output'),
    ...states.errors,
  ]
  const [first, ...others] = errors
  if (first !== undefined) return E.left([first, ...others])
  return E.right(new Map([...states.pairs, ...passingParams(from, to, params)]))
}

/** A state by its name; states that share a name, by their order as well. */
const statesOf = (plan: Plan): ReadonlyMap<string, PlanBuffer> => {
  const found = new Map<string, PlanBuffer>()
  for (const buffer of plan.buffers) {
    if (buffer.life !== 'state' || buffer.alias !== undefined || buffer.init === undefined) continue
    let key = buffer.name
    for (let i = 1; found.has(key); i++) key = `${buffer.name} (${i})`
    found.set(key, buffer)
  }
  return found
}

const alike = (a: PlanBuffer, b: PlanBuffer): boolean =>
  a.space === b.space &&
  (a.space === 'pinned' || a.device === b.device) &&
  showSpec(specOf(a)) === showSpec(specOf(b))

const placed = (buffer: PlanBuffer): string =>
  `${showSpec(specOf(buffer))} ${buffer.space === 'pinned' ? 'in pinned memory' : `on device ${buffer.device}`}`

interface Pairs {
  readonly errors: readonly DeviceError[]
  readonly pairs: readonly (readonly [to: number, from: number])[]
}

const passingStates = (from: Plan, to: Plan, given: Opened<StateSources> | undefined): Pairs => {
  // A file of states has all of them.
  if (given !== undefined && isFile(given)) return { errors: [], pairs: [] }
  const following = statesOf(to)
  const errors: DeviceError[] = []
  const pairs: (readonly [number, number])[] = []
  for (const [name, own] of statesOf(from)) {
    if (given !== undefined && Object.hasOwn(given, own.name)) continue
    const other = following.get(name)
    if (other !== undefined && alike(own, other)) pairs.push([other.id, own.id])
    else
      errors.push(
        cannotFollow(
          `state.${name}`,
          name,
          `the state ${name} of the plan that runs, ${placed(own)}`,
          other === undefined ? `no state of that name in "${to.name}"` : placed(other),
          "keep the name and the type of a state; or { keep: 'nothing' }, which begins with first values",
        ),
      )
  }
  return { errors, pairs }
}

/** A parameter passes over where all of its buffers do. */
const passingParams = (from: Plan, to: Plan, { given }: FollowingParams): Pairs['pairs'] => {
  const before = new Map(paramsByName(from).map(all => [all[0].name, all]))
  return paramsByName(to).flatMap(all => {
    const { name } = all[0]
    if (given.has(name)) return []
    const partners = all.map(own => before.get(name)?.find(other => alike(own, other)))
    return partners.every(each => each !== undefined) ? all.map((own, i) => [own.id, partners[i]!.id]) : []
  })
}

const portText = ({ spec, rate, device }: Port): string =>
  `${showSpec(spec)}${rate === 1 ? '' : `, ${rate} a tick`}` +
  (device === undefined ? '' : `, left on device ${device}`)

/** The same inputs; at least the same outputs. */
const portErrors = (from: Plan, to: Plan, life: 'input' | 'output'): readonly DeviceError[] => {
  const byName = (plan: Plan) => new Map(portsOf(plan, life).map(port => [port.spec.name, port] as const))
  const [running, following] = [byName(from), byName(to)]
  const next =
    life === 'input'
      ? 'keep the inputs, or open another session: its run has feeds of its own'
      : 'keep the outputs, or open another session: the run that goes on promises these'
  const missing = [...running].flatMap(([name, port]) => {
    const other = following.get(name)
    if (other !== undefined && portText(other) === portText(port)) return []
    const found = other === undefined ? `no ${life} of that name in "${to.name}"` : portText(other)
    return [cannotFollow(`${life}.${name}`, name, `the ${life} ${name}: ${portText(port)}`, found, next)]
  })
  const extra = life === 'input' ? [...following.keys()].filter(name => !running.has(name)) : []
  return [
    ...missing,
    ...extra.map(name =>
      cannotFollow(
        `input.${name}`,
        name,
        `the inputs of the plan that runs: ${[...running.keys()].join(', ') || 'none'}`,
        `the input ${name} as well`,
        next,
      ),
    ),
  ]
}

/** The buffers that pass over, as the addon takes them; not those that both plans share. */
export const taken = (pairs: Passing, shared: ReadonlySet<number>): Uint32Array =>
  Uint32Array.from([...pairs].filter(([to]) => !shared.has(to)).flatMap(([to, from]) => [from, to]))
