import * as E from 'fp-ts/lib/Either.js'
import type { TaskEither } from 'fp-ts/lib/TaskEither.js'
import { isProved, type Ports, verify } from '../../dsl/index.js'
import { granule, poolPeakOf, provenanceOf } from '../../dsl/internal.js'
import { parsePlan } from '../../dsl/ir/load.js'
import type { Plan } from '../../dsl/ir/plan.js'
import {
  type HostOptions,
  type NativeDevice,
  type NativeFailure,
  type NativeProgram,
  native,
} from '../addon.js'
import { type DeviceName, devicesProblem, nativeName, openDevices, summaryOf } from '../device/devices.js'
import { openFailure } from '../device/open-failure.js'
import { type DeviceError, together } from '../errors.js'
import { thrown } from '../values.js'
import { Engine } from './engine.js'
import { checkOptions } from './options.js'
import { checkParams, load, type ParamSources } from './params.js'
import type { Written } from './ports.js'
import { flatten } from './program.js'
import { type References, referencesFor } from './references.js'
import { runnable } from './runnable.js'
import { makeSession, type Session } from './session.js'

export interface OpenOptions {
  /**
   * `auto`, the default: cuda:0 if it opens, else host. Of a plan for several devices a list: `['cuda:0', 'cuda:1']`, where the plan's device 0 is the first; `auto`
   * are the first CUDA devices, and `host` as many host devices as it takes.
   */
  readonly device?: 'auto' | DeviceName | (string & {}) | readonly (DeviceName | (string & {}))[]
  /** Fewer ticks at once than the plan has slots for. */
  readonly inFlight?: number
  /** The values of the graph's parameters, by name. */
  readonly params?: ParamSources
  /** What the host device is made to do: its memory, rates, jitter, faults. */
  readonly host?: HostOptions
  /** Times every run command, for `session.trace()`. */
  readonly trace?: boolean
  /** Fills memory with garbage when it is given out, so that a read too early shows. */
  readonly poison?: boolean
  /** What a user's kernels mean on `host`, by kernel name: for plans that this process did not compile. */
  readonly references?: References
  readonly signal?: AbortSignal
  /** After how long a run that waits for its leases is warned of; default 5,000. */
  readonly leaseWarningMs?: number
}

/**
 * Opens a plan on a device: checks what was given, makes the kernels ready, takes the memory, fills the parameters. A plan that this
 * process did not compile is parsed and held to the laws about safety first. Nothing stays open when it ends with an error.
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

const checkAll = (plan: Plan, options: OpenOptions): E.Either<DeviceError, Plan> => {
  try {
    const wrong = checkOptions(options)
    const sound = soundPlan(plan)
    const problems =
      wrong.length === 0 && E.isRight(sound)
        ? [
            ...runnable(sound.right),
            ...enough(sound.right, options),
            ...checkInFlight(sound.right, options),
            ...checkParams(sound.right, options.params ?? {}, writtenIn(sound.right)),
          ]
        : [...wrong, ...(E.isLeft(sound) ? sound.left : [])]
    const [first, ...others] = problems
    return E.isRight(sound) && !first ? sound : E.left(together([first!, ...others]))
  } catch (cause) {
    // A getter of the caller's, or a proxy.
    return E.left({
      _tag: 'BadOption',
      at: 'options',
      subject: 'options',
      wanted: 'a plan and options that can be read',
      found: `what throws when it is read: ${thrown(cause)}`,
      next: 'pass plain objects; its error is the cause',
      cause,
    })
  }
}

const opened = async <I extends Ports, O extends Ports>(
  plan: Plan,
  options: OpenOptions,
): Promise<E.Either<DeviceError, Session<I, O>>> => {
  const { device: wanted = 'auto', params = {}, signal } = options
  let devices: readonly NativeDevice[] = []
  let opening = typeof wanted === 'string' ? wanted : wanted.join(', ')
  let program: NativeProgram | undefined
  const fail = async (error: DeviceError): Promise<E.Either<DeviceError, never>> => {
    // What went wrong first is what is told; freeing what was opened may then fail as well.
    await program?.close().catch(() => undefined)
    for (const device of devices)
      try {
        device.close()
      } catch {
        // As above.
      }
    return E.left(error)
  }
  try {
    signal?.throwIfAborted()
    devices = openDevices(wanted, plan.devices, options.host ?? {}, name => {
      opening = wanted === name.split(':')[0] ? wanted : name
    })
    const [device, ...peers] = devices as readonly [NativeDevice, ...NativeDevice[]]
    const flat = flatten(plan)
    const onHost = device.info.kind === 'host'
    const references = onHost ? referencesFor(plan, flat, options.references ?? {}) : { byKernel: {} }
    if ('errors' in references) return await fail(together(references.errors))
    program = await device.program(flat.spec, {
      ...(peers.length > 0 ? { peers } : {}),
      ...(options.trace ? { trace: true } : {}),
      ...(options.poison ? { poison: true } : {}),
      ...(onHost ? { references: references.byKernel } : {}),
    })
    const failure = await load(plan, program, params, signal)
    if (failure) return await fail(failure)
    signal?.throwIfAborted()
  } catch (error) {
    if (signal?.aborted && error === signal.reason) return fail(cancelled(error))
    const failed = (error as Partial<NativeFailure>).device
    const found = Math.max(
      0,
      devices.findIndex(({ info }) => nativeName(info) === failed),
    )
    const device = devices[found]
    const named =
      device && (wanted === 'auto' || devices.length > 1) ? summaryOf(device.info).device : opening
    return fail(openFailure(error, named, plan, found))
  }
  const warn = (message: string): void => process.emitWarning(message, { type: 'BraidWarning' })
  const engine = new Engine({
    plan,
    devices,
    program,
    inFlight: options.inFlight ?? plan.inFlight,
    detach: buffer => native().detach(buffer),
    written: writtenIn(plan),
    warn,
  })
  const parts = {
    plan,
    devices: devices.map(({ info }) => summaryOf(info)),
    engine,
    traced: options.trace === true,
    leaseWarningMs: options.leaseWarningMs ?? 5000,
  }
  return E.right(makeSession<I, O>(parts))
}

const writtenIn =
  (plan: Plan): Written =>
  (kind, name) =>
    provenanceOf(plan)?.ports.get(`${kind} ${name}`)

const cancelled = (cause: unknown): DeviceError => ({
  _tag: 'Cancelled',
  at: 'signal',
  subject: 'open',
  wanted: 'time to open',
  found: 'an aborted signal',
  next: 'open again without aborting',
  cause,
})

const checkInFlight = (plan: Plan, { inFlight }: OpenOptions): readonly DeviceError[] =>
  inFlight === undefined || inFlight <= plan.inFlight
    ? []
    : [
        {
          _tag: 'BadOption',
          at: 'inFlight',
          subject: 'inFlight',
          wanted: `at most ${plan.inFlight}, the slots that the plan was compiled with`,
          found: String(inFlight),
          next: `compile(graph, { inFlight: ${inFlight} })`,
        },
      ]

// What JavaScript callers pass most easily in a plan's stead.
const notYetPlan = (given: unknown): DeviceError | undefined => {
  if (typeof given !== 'object' || given === null) return undefined
  const base = { _tag: 'BadPlan', at: 'plan', subject: 'plan', wanted: 'a plan' } as const
  if ('_tag' in given && (given._tag === 'Right' || given._tag === 'Left'))
    return {
      ...base,
      found: 'an Either, as compile yields it',
      next: 'unwrap it: open(orThrow(compile(graph)))',
    }
  if ('ir' in given || ('nodes' in given && 'problems' in given))
    return { ...base, found: 'a graph', next: 'compile it first: open(orThrow(compile(graph)))' }
  return undefined
}

// A plan of this process was verified when it was made. Anything else may be anything, so what goes on is what the parser built of it.
const soundPlan = (plan: Plan): E.Either<readonly DeviceError[], Plan> => {
  if (isProved(plan)) return E.right(plan)
  const mistaken = notYetPlan(plan)
  if (mistaken) return E.left([mistaken])
  const parsed = parsePlan(plan)
  if (E.isLeft(parsed))
    return E.left(parsed.left.map((fault): DeviceError => ({ ...fault, _tag: 'BadPlan' })))
  const violations = verify(parsed.right, { safety: true })
  const [worst] = violations
  if (!worst) return E.fromPredicate(fitsPool, tooSmall)(parsed.right)
  const sentences = violations.slice(0, 3).map(({ law, message }) => `${law}: ${message}`)
  if (violations.length > 3) sentences.push(`and ${violations.length - 3} more`)
  return E.left([
    {
      _tag: 'BadPlan',
      at: worst.command >= 0 ? `commands[${worst.command}]` : 'plan',
      subject: parsed.right.name,
      wanted: 'a plan that obeys the laws about safety',
      found: sentences.join('; '),
      next: 'run: npx braid verify PLAN.json --safety, which lists all of them',
      violations,
    },
  ])
}

// Law L9 counts bytes as they are, taken in part from wherever they lie free; a session's pool gives out whole granules in one piece. So a
// plan by hand may obey every law and promise less than its pool would take, and end in the middle of a tick.
const fitsPool = (plan: Plan): boolean => plan.storage !== 'pooled' || tooSmall(plan).length === 0

const tooSmall = (plan: Plan): readonly DeviceError[] => {
  const { device } = poolPeakOf(plan)
  return device.flatMap((needed, index) =>
    needed <= (plan.bound.device[index] ?? 0)
      ? []
      : [
          {
            _tag: 'BadPlan',
            at: `bound.device[${index}]`,
            subject: plan.name,
            wanted: `at least ${needed} bytes, which the session's pool takes: whole granules of ${granule} bytes, each buffer in one piece`,
            found: `${plan.bound.device[index] ?? 0} bytes`,
            next: `raise bound.device to [${device.join(', ')}] in the plan, or compile the graph again`,
          },
        ],
  )
}

const enough = (plan: Plan, { device = 'auto' }: OpenOptions): readonly DeviceError[] => {
  const problem = devicesProblem(device, plan.devices)
  if (problem === undefined) return []
  const [wanted, found, next] = problem
  return [{ _tag: 'NoDevice', at: 'device', subject: plan.name, wanted, found, next }]
}
