import * as E from 'fp-ts/lib/Either.js'
import type { TaskEither } from 'fp-ts/lib/TaskEither.js'
import type { Ports } from '../../dsl/index.js'
import { provenanceOf } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { type NativeDevice, type NativeFailure, type NativeProgram, native } from '../addon.js'
import { coreOfDevice } from '../device/device.js'
import { nativeName, type SessionDevice, summaryOf } from '../device/devices.js'
import { openFailure } from '../device/open-failure.js'
import { type DeviceError, together } from '../errors.js'
import { checkedPlan, unrunnable } from './check-plan.js'
import { choiceErrors, choiceName, chosen, openChoice } from './devices.js'
import { Engine } from './engine.js'
import { flatten } from './flatten.js'
import { cancelled, tooFewDevices, tooManyInFlight, unreadable } from './messages.js'
import { checkOptions, type DeviceChoice, type OpenOptions } from './options.js'
import { checkParams, deviceParams, loadParams, type ParamSources } from './params.js'
import type { Written } from './ports.js'
import { referencesFor } from './references.js'
import { makeSession, type Session } from './session.js'
import { deviceOf, ParamFailure, SharedParams, sourcesOf, withBlocks } from './shared-params.js'
import { checkState, loadStates } from './state.js'

/**
 * Opens a plan on a device: checks its arguments, builds the kernels, reserves the memory, fills the
 * parameters. A plan that this process did not compile is first parsed and checked against the laws about
 * safety. After an error nothing stays open.
 */
export const open =
  <I extends Ports, O extends Ports>(
    plan: Plan<I, O>,
    options: OpenOptions = {},
  ): TaskEither<DeviceError, Session<I, O>> =>
  async () => {
    const checked = checkAll(plan, options)
    return E.isLeft(checked) ? checked : opened<I, O>(checked.right, options)
  }

/** The plan to run, or every error of the plan and of the options. */
const checkAll = (plan: Plan, options: OpenOptions): E.Either<DeviceError, Plan> => {
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
const errorsTogether = (plan: Plan, options: OpenOptions): readonly DeviceError[] => {
  const { inFlight = plan.inFlight } = options
  const params = sourcesIn(options)
  return [
    ...unrunnable(plan),
    ...choiceErrors(chosen(options), plan.devices, problem => tooFewDevices(plan, problem)),
    ...(inFlight <= plan.inFlight ? [] : [tooManyInFlight(plan, inFlight)]),
    ...checkParams(plan, params, writtenIn(plan)),
    ...checkState(plan, options.state),
  ]
}

const opened = async <I extends Ports, O extends Ports>(
  plan: Plan,
  options: OpenOptions,
): Promise<E.Either<DeviceError, Session<I, O>>> => {
  const { signal } = options
  const { device: wanted = 'auto' } = chosen(options)
  let devices: readonly SessionDevice[] = []
  let opening = (Array.isArray(wanted) ? wanted : [wanted as DeviceChoice]).map(choiceName).join(', ')
  let program: NativeProgram | undefined
  let sharedBuffers: ReadonlySet<number> = new Set()
  const fail = async (error: DeviceError): Promise<E.Either<DeviceError, never>> => {
    // The first error is reported. Freeing after it may fail as well.
    await program?.close().catch(() => undefined)
    for (const device of devices) await device.close().catch(() => undefined)
    return E.left(error)
  }
  try {
    signal?.throwIfAborted()
    devices = openChoice(chosen(options), plan.devices, name => {
      opening = wanted === name.split(':')[0] ? wanted : name
    })
    const [device, ...peers] = devices.map(each => each.native) as [NativeDevice, ...NativeDevice[]]
    const flat = flatten(plan)
    const onHost = device.info.kind === 'host'
    const references = onHost ? referencesFor(plan, flat, options.references ?? {}) : { byKernel: {} }
    if ('errors' in references) return await fail(together(references.errors))
    const failure = await withShared(plan, options, devices, async shared => {
      sharedBuffers = new Set(shared.map(([id]) => id))
      program = await device.program(flat.spec, {
        ...(peers.length > 0 ? { peers } : {}),
        ...(options.trace ? { trace: true } : {}),
        ...(options.poison ? { poison: true } : {}),
        ...(shared.length > 0 ? { shared } : {}),
        ...(onHost ? { references: references.byKernel } : {}),
      })
      return (
        (await loadParams(plan, program, sourcesIn(options), sharedBuffers, signal)) ??
        (await loadStates(plan, program, options.state, signal))
      )
    })
    if (failure) return await fail(failure)
    signal?.throwIfAborted()
  } catch (error) {
    if (signal?.aborted && error === signal.reason) return fail(cancelled(error))
    if (error instanceof ParamFailure) return fail(error.failure)
    const failed = (error as Partial<NativeFailure>).device
    const found = Math.max(
      0,
      devices.findIndex(({ native: { info } }) => nativeName(info) === failed),
    )
    const device = devices[found]
    const named =
      device && (wanted === 'auto' || devices.length > 1) ? summaryOf(device.native.info).device : opening
    return fail(openFailure(error, named, plan, found))
  }
  const engine = new Engine({
    plan,
    devices,
    program: program!,
    inFlight: options.inFlight ?? plan.inFlight,
    detach: buffer => native().detach(buffer),
    written: writtenIn(plan),
  })
  const parts = {
    plan,
    devices: devices.map(({ native: { info } }) => summaryOf(info)),
    engine,
    traced: options.trace === true,
    leaseWarningMs: options.leaseWarningMs ?? 5000,
    shared: sharedBuffers,
  }
  return E.right(makeSession<I, O>(parts))
}

const sourcesIn = ({ params = {} }: OpenOptions): ParamSources =>
  SharedParams.is(params) ? sourcesOf(params) : params

/** Runs the body with the parameters that are on the session's devices already: buffers and their blocks. */
const withShared = async <A>(
  plan: Plan,
  { params }: OpenOptions,
  devices: readonly SessionDevice[],
  body: (shared: readonly (readonly [buffer: number, block: number])[]) => Promise<A>,
): Promise<A> => {
  if (!SharedParams.is(params)) return body([])
  const { memoryId } = coreOfDevice(deviceOf(params)).native
  const wanted = deviceParams(plan, device => devices[device]!.share.memoryId === memoryId)
  return withBlocks(
    params,
    wanted.map(({ spec }) => spec),
    blocks => body(wanted.flatMap(({ spec, ids }) => ids.map(id => [id, blocks.get(spec.name)!] as const))),
  )
}

const writtenIn =
  (plan: Plan): Written =>
  (kind, name) =>
    provenanceOf(plan)?.ports.get(`${kind} ${name}`)
