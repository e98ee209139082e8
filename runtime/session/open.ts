import * as E from 'fp-ts/lib/Either.js'
import type { Ports } from '../../dsl/index.js'
import { provenanceOf } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeDevice, NativeFailure, NativeProgram } from '../addon.js'
import { coreOfDevice } from '../device/device.js'
import { nativeName, type SessionDevice, summaryOf } from '../device/devices.js'
import { warnOfKeptFiles } from '../device/kept-files.js'
import { openFailure } from '../device/open-failure.js'
import { type DeviceError, together } from '../errors.js'
import { type AwaitableTask, task } from '../task.js'
import { checkedPlan, unrunnable } from './check-plan.js'
import { choiceErrors, choiceName, chosen, openChoice } from './devices.js'
import { Engine } from './engine.js'
import { type WithOpenFiles, withFiles } from './file-options.js'
import { flatten } from './flatten.js'
import { cancelled, disposedParams, tooFewDevices, tooManyInFlight, unreadable } from './messages.js'
import { OpenPlan } from './open-plan.js'
import { checkOptions, type DeviceChoice, type OpenOptions } from './options.js'
import { checkParams, deviceParams, loadParams, type ParamSources } from './params.js'
import type { Written } from './ports.js'
import { reporting } from './progress.js'
import { referencesFor } from './references.js'
import { type Following, makeSession, type Session } from './session.js'
import {
  deviceOf,
  OpeningFailed,
  pathIn,
  SharedParams,
  share,
  sourcesIn,
  withBlocks,
} from './shared-params.js'
import { checkState, loadStates } from './state.js'
import {
  checkSwapOptions,
  type FollowingParams,
  followingParams,
  type Passing,
  passing,
  type SwapOptions,
  taken,
} from './swap.js'

/**
 * Opens a plan on a device: checks its arguments, builds the kernels, reserves the memory, fills the
 * parameters. A plan that this process did not compile is first parsed and checked against the laws about
 * safety. After an error nothing stays open.
 */
export const open = <I extends Ports, O extends Ports>(
  plan: Plan<I, O>,
  options: OpenOptions = {},
): AwaitableTask<DeviceError, Session<I, O>> =>
  task(() =>
    withFiles(options, ['params', 'state'], signalOf(options), async given => {
      const checked = checkAll(plan, given)
      return E.isLeft(checked) ? checked : opened<I, O>(checked.right, given, options)
    }),
  )

/** Whether the options are what they should be is seen when the plan is opened. */
const signalOf = (options: OpenOptions): AbortSignal | undefined => {
  try {
    const given: unknown = (options as OpenOptions | null)?.signal
    return given instanceof AbortSignal ? given : undefined
  } catch {
    return undefined
  }
}

/** The plan to run, or every error of the plan and of the options. */
const checkAll = (plan: Plan, options: WithOpenFiles<OpenOptions>): E.Either<DeviceError, Plan> => {
  try {
    const wrong = checkOptions(options)
    const checked = checkedPlan(plan)
    const errors =
      wrong.length === 0 && E.isRight(checked)
        ? errorsTogether(checked.right, options)
        : [...wrong, ...(E.isLeft(checked) ? checked.left : [])]
    const [first, ...others] = errors
    return E.isRight(checked) && !first ? checked : E.left(together([first!, ...others]))
  } catch (cause) {
    // A getter or proxy of the caller threw.
    return E.left(unreadable(cause))
  }
}

/** The errors of a verified plan with valid options. */
const errorsTogether = (plan: Plan, options: WithOpenFiles<OpenOptions>): readonly DeviceError[] => {
  const { inFlight = plan.inFlight } = options
  const params = sourcesIn(options.params)
  return [
    ...unrunnable(plan),
    ...choiceErrors(chosen(options), plan.devices, problem => tooFewDevices(plan, problem)),
    ...(inFlight <= plan.inFlight ? [] : [tooManyInFlight(plan, inFlight)]),
    ...checkParams(plan, params, writtenIn(plan), new Set(), pathIn(options.params)),
    ...checkState(plan, options.state),
  ]
}

/** `given`: the options as they were given, by which a plan that follows opens a file again. */
const opened = async <I extends Ports, O extends Ports>(
  plan: Plan,
  options: WithOpenFiles<OpenOptions>,
  given: OpenOptions,
): Promise<E.Either<DeviceError, Session<I, O>>> => {
  const { signal } = options
  const { device: wanted = 'auto' } = chosen(options)
  let opening = (Array.isArray(wanted) ? wanted : [wanted as DeviceChoice]).map(choiceName).join(', ')
  let devices: readonly SessionDevice[]
  try {
    signal?.throwIfAborted()
    devices = openChoice(chosen(options), plan.devices, name => {
      opening = wanted === name.split(':')[0] ? wanted : name
    })
  } catch (error) {
    return E.left(whyNotOpened(error, plan, [], () => opening, signal))
  }
  const made = await openPlan(plan, devices, options, {
    shared: SharedParams.is(options.params) ? options.params : undefined,
    isShared: () => true,
    sources: sourcesIn(options.params),
    elsewhere: new Set(),
    named: device => (wanted === 'auto' || devices.length > 1 ? ownName(device) : opening),
  })
  if (E.isLeft(made)) {
    // The first error is reported. Freeing after it may fail as well.
    for (const device of devices) await device.close().catch(() => undefined)
    return made
  }
  const parts = {
    devices: devices.map(({ native: { info } }) => summaryOf(info)),
    engine: new Engine(made.right, devices),
    traced: options.trace === true,
    leaseWarningMs: options.leaseWarningMs ?? 5000,
    following: following(devices, given),
  }
  return E.right(makeSession<I, O>(parts))
}

/** Opens plans that follow the one that runs, on the session's devices. */
const following =
  (devices: readonly SessionDevice[], given: OpenOptions): Following =>
  (plan, before, options, signal) =>
    withFiles(options, ['params', 'state'], signal, own =>
      withFiles(given, ['params'], signal, opened =>
        openFollowing(plan, before, own, opened, devices, signal),
      ),
    )

const openFollowing = async (
  given: Plan,
  before: OpenPlan,
  options: WithOpenFiles<SwapOptions>,
  opened: WithOpenFiles<OpenOptions>,
  devices: readonly SessionDevice[],
  signal: AbortSignal,
): ReturnType<Following> => {
  const checked = checkFollowing(given, before.plan, options, opened)
  if (E.isLeft(checked)) return checked
  const { plan, pairs, params } = checked.right
  const merged = {
    ...opened,
    state: options.state,
    signal,
    references: { ...opened.references, ...options.references },
  }
  const made = await openPlan(plan, devices, merged as WithOpenFiles<OpenOptions>, {
    shared: params.shared,
    isShared: params.isShared,
    sources: params.sources,
    elsewhere: new Set(pairs.keys()),
    named: ownName,
    inputs: before.inputs.map(({ spec }) => spec.name),
  })
  return E.isLeft(made) ? made : E.right({ plan: made.right, taken: taken(pairs, made.right.shared) })
}

/** The plan that follows and what passes over to it, or every error of it and of the options. */
const checkFollowing = (
  given: Plan,
  before: Plan,
  options: WithOpenFiles<SwapOptions>,
  opened: WithOpenFiles<OpenOptions>,
): E.Either<DeviceError, { plan: Plan; pairs: Passing; params: FollowingParams }> => {
  try {
    const [wrong, ...others] = checkSwapOptions(options)
    if (wrong !== undefined) return E.left(together([wrong, ...others]))
    const checked = checkedPlan(given)
    if (E.isLeft(checked)) return E.left(together(checked.left as [DeviceError, ...DeviceError[]]))
    const plan = checked.right
    const params = followingParams(options.params, opened.params)
    const pairs = passing(before, plan, options, params)
    const [first, ...rest] = [
      ...unrunnable(plan),
      ...(E.isLeft(pairs) ? pairs.left : []),
      ...checkParams(
        plan,
        params.sources,
        writtenIn(plan),
        E.isLeft(pairs) ? new Set() : new Set(pairs.right.keys()),
        params.path,
      ),
      ...checkState(plan, options.state),
    ]
    if (E.isLeft(pairs) || first !== undefined) return E.left(together([first!, ...rest]))
    return E.right({ plan, pairs: pairs.right, params })
  } catch (cause) {
    return E.left(unreadable(cause))
  }
}

/** How a plan that is checked is opened on devices that are open. */
interface Opening {
  readonly shared: SharedParams | undefined
  readonly isShared: (name: string) => boolean
  readonly sources: ParamSources
  /** Buffers whose first values come from elsewhere. */
  readonly elsewhere: ReadonlySet<number>
  /** What errors call a device. */
  readonly named: (device: SessionDevice) => string
  /** The order of the inputs. */
  readonly inputs?: readonly string[]
}

/**
 * Makes the program of a plan, and fills its parameters and states. After an error nothing of it stays open.
 */
const openPlan = async (
  plan: Plan,
  devices: readonly SessionDevice[],
  options: WithOpenFiles<OpenOptions>,
  opening: Opening,
): Promise<E.Either<DeviceError, OpenPlan>> => {
  const { signal } = options
  let program: NativeProgram | undefined
  let sharedBuffers: ReadonlySet<number> = new Set()
  const sharing = opening.shared && share(opening.shared, opening.isShared)
  const fail = async (error: DeviceError): Promise<E.Either<DeviceError, never>> => {
    sharing?.end()
    await program?.close().catch(() => undefined)
    return E.left(error)
  }
  try {
    signal?.throwIfAborted()
    const [device, ...peers] = devices.map(each => each.native) as [NativeDevice, ...NativeDevice[]]
    const flat = flatten(plan)
    const onHost = device.info.kind === 'host'
    const references = onHost ? referencesFor(plan, flat, options.references ?? {}) : { byKernel: {} }
    if ('errors' in references) return await fail(together(references.errors))
    const failure = await withShared(plan, opening, devices, signal, async shared => {
      sharedBuffers = new Set(shared.map(([id]) => id))
      const prepared = new Int32Array(2)
      const compiling = device.program(flat.spec, {
        prepared,
        ...(peers.length > 0 ? { peers } : {}),
        ...(options.trace ? { trace: true } : {}),
        ...(options.poison ? { poison: true } : {}),
        ...(shared.length > 0 ? { shared } : {}),
        ...(onHost ? { references: references.byKernel } : {}),
      })
      program = await reporting(compiling, prepared, options.onProgress)
      warnOfKeptFiles()
      const filled = new Set([...sharedBuffers, ...opening.elsewhere])
      return (
        (await loadParams(plan, program, opening.sources, filled, signal)) ??
        (await loadStates(plan, program, options.state, opening.elsewhere, signal))
      )
    })
    if (failure) return await fail(failure)
    signal?.throwIfAborted()
  } catch (error) {
    return fail(whyNotOpened(error, plan, devices, opening.named, signal))
  }
  return E.right(
    new OpenPlan({
      plan,
      devices,
      program: program!,
      inFlight: Math.min(options.inFlight ?? plan.inFlight, plan.inFlight),
      written: writtenIn(plan),
      shared: sharedBuffers,
      ...(sharing ? { sharing } : {}),
      ...(opening.inputs ? { inputs: opening.inputs } : {}),
    }),
  )
}

const ownName = (device: SessionDevice): string => summaryOf(device.native.info).device

const whyNotOpened = (
  error: unknown,
  plan: Plan,
  devices: readonly SessionDevice[],
  named: (device: SessionDevice) => string,
  signal: AbortSignal | undefined,
): DeviceError => {
  if (signal?.aborted && error === signal.reason) return cancelled(error)
  if (error instanceof OpeningFailed) return error.failure
  const failed = (error as Partial<NativeFailure>).device
  const found = Math.max(
    0,
    devices.findIndex(({ native: { info } }) => nativeName(info) === failed),
  )
  return openFailure(error, named(devices[found]!), plan, found)
}

/** Runs the body with the parameters that are on the session's devices already: buffers and their blocks. */
const withShared = async <A>(
  plan: Plan,
  { shared: params, isShared }: Opening,
  devices: readonly SessionDevice[],
  signal: AbortSignal | undefined,
  body: (shared: readonly (readonly [buffer: number, block: number])[]) => Promise<A>,
): Promise<A> => {
  if (params === undefined) return body([])
  const read = deviceParams(plan, () => true).filter(({ spec }) => isShared(spec.name))
  if (read.length === 0) return body([])
  if (params.disposed) throw new OpeningFailed(disposedParams(read.map(({ spec }) => spec.name)))
  const { memoryId } = coreOfDevice(deviceOf(params)).native
  const onDevice = deviceParams(plan, device => devices[device]!.share.memoryId === memoryId)
  const wanted = onDevice.filter(({ spec }) => isShared(spec.name))
  return withBlocks(
    params,
    wanted.map(({ spec }) => spec),
    blocks => body(wanted.flatMap(({ spec, ids }) => ids.map(id => [id, blocks.get(spec.name)!] as const))),
    signal,
  )
}

const writtenIn =
  (plan: Plan): Written =>
  (kind, name) =>
    provenanceOf(plan)?.ports.get(`${kind} ${name}`)
