import type { Fault } from '../dsl/ir/fault.js'
import { FaultError } from '../dsl/ir/fault-error.js'
import { render } from '../dsl/ir/messages.js'
import type { Violation } from '../dsl/ir/plan.js'

export type DeviceErrorTag =
  | 'NoAddon' // there is no native addon for this machine, or it does not load
  | 'NoDriver' // the NVIDIA driver is missing, or does not start
  | 'NoDevice' // no device of that name
  | 'MissingLibrary' // NVRTC, cuBLASLt: the plan needs a library that is not installed
  | 'OutOfMemory'
  | 'KernelFailed' // a kernel could not be made ready: NVRTC's log, no image for this GPU …
  | 'DriverFailed' // any other failure of the driver
  | 'BadPlan' // a plan from elsewhere that is malformed, breaks a law about safety, or cannot be run
  | 'MissingParam'
  | 'WrongParam' // wrong type or size, unknown name, or its source threw
  | 'MissingState' // a file of states without one of them, or a plan from a file that is given first values
  | 'WrongState' // wrong type or size, unknown name, or its source threw
  | 'MissingReference' // a user's kernel on `host`, of a plan that was read from a file
  | 'CannotFollow' // a plan that cannot go on where another one runs: other inputs, outputs, states or devices
  | 'BadOption'
  | 'Cancelled' // the signal was aborted

/** The first error of `open`; `others` holds the rest. */
export interface DeviceError extends Fault<DeviceErrorTag> {
  /** The driver's own name of the failure, such as `CUDA_ERROR_OUT_OF_MEMORY`. */
  readonly code?: string
  /** OutOfMemory: bytes requested, bytes available, the difference, and the purpose of the memory. */
  readonly wantedBytes?: number
  readonly freeBytes?: number
  readonly missingBytes?: number
  readonly holds?: string
  /** BadPlan: the laws that are broken. */
  readonly violations?: readonly Violation[]
  readonly others?: readonly DeviceError[]
  /** What a parameter's source threw, or the signal's reason. */
  readonly cause?: unknown
}

export type RunErrorTag =
  | 'WrongFeeds' // names that are not the graph's inputs, or a value that is no feed
  | 'WrongValue' // a value of another type or length than its input
  | 'FeedFailed' // the feed's source threw or rejected; `cause` holds what it threw
  | 'FeedFull' // a push on a `fail` feed while every slot was taken
  | 'TickFailed' // the device failed; the session is over
  | 'AlreadyRunning'
  | 'SessionFailed' // an earlier run met a failure of the device
  | 'UnknownName' // no state or parameter of this name
  | 'WrongWrite' // a value of another type or length than its state or parameter, or its source threw
  | 'CopyFailed' // the device failed in a copy between two ticks; after a write the session is over
  | 'BadOption'

/** The Observable's `error`: an Error whose fields are the same data as every other fault of Braid. */
export class RunError extends FaultError<RunErrorTag> {
  /** The driver's own name of the failure, the lane and the node it met, where a device failed. */
  readonly code?: string
  readonly lane?: string
  readonly node?: string

  constructor(
    fault: Fault<RunErrorTag>,
    more: { cause?: unknown; code?: string; lane?: string; node?: string } = {},
  ) {
    super(render(fault), fault, more.cause === undefined ? undefined : { cause: more.cause })
    this.name = 'RunError'
    if (more.code !== undefined) this.code = more.code
    if (more.lane !== undefined) this.lane = more.lane
    if (more.node !== undefined) this.node = more.node
  }
}

/** There is no native addon for this machine, or it does not load. */
export class AddonError extends FaultError<'NoAddon'> {
  constructor(fault: Omit<Fault<'NoAddon'>, '_tag' | 'subject'>, cause?: unknown) {
    const whole = { _tag: 'NoAddon', subject: 'the native addon', ...fault } as const
    super(render(whole), whole, cause === undefined ? undefined : { cause })
    this.name = 'AddonError'
  }
}

/** Use of a handle that was closed. Thrown, since a correct program never does this. */
export class DisposedError extends Error {
  readonly _tag = 'Disposed'
  constructor(
    readonly subject: string,
    readonly next: string,
  ) {
    super(`${subject} is closed: ${next}`)
    this.name = 'DisposedError'
  }
}

/** All errors of one opening: the first, and its others. */
export const errorsOf = (error: DeviceError): readonly DeviceError[] => [error, ...(error.others ?? [])]

/** Several errors as one value. */
export const together = (errors: readonly [DeviceError, ...DeviceError[]]): DeviceError => {
  const [first, ...others] = errors
  return others.length === 0 ? first : { ...first, others }
}
