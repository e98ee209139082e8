import type { Fault } from '../../dsl/ir/fault.js'
import { FaultError } from '../../dsl/ir/fault-error.js'
import { render } from '../../dsl/ir/messages.js'
import { describe } from '../values.js'

export type AllocatorErrorTag =
  | 'BadArgument' // an argument that the call does not take
  | 'WrongDevice' // a handle of another device
  | 'Reentrant' // a call of a device that waits for its caller: a pool's function, or a kernel's reference
  | 'WouldDeadlock' // a call that would wait for the device, while the device waits for JavaScript
  | 'SourceFailed' // a pool's own allocator threw, or returned no address; `cause` is the error that it threw
  | 'OutOfMemory'
  | 'TooManyLanes' // a device orders the work of 256 lanes at most
  | 'DriverFailed'

/**
 * The error that a call of a device, lane, block, event or pool throws. Its fields are those of every fault
 * of Braid; `at` is the call: `lane.malloc`.
 */
export class AllocatorError extends FaultError<AllocatorErrorTag> {
  /** The driver's own name of the failure, such as `CUDA_ERROR_ILLEGAL_ADDRESS`. */
  readonly code?: string

  constructor(fault: Fault<AllocatorErrorTag>, more: { cause?: unknown; code?: string } = {}) {
    super(render(fault), fault, 'cause' in more ? { cause: more.cause } : undefined)
    this.name = 'AllocatorError'
    if (more.code !== undefined) this.code = more.code
  }
}

/** An argument that the call does not take. */
export const badArgument = (
  at: string,
  subject: string,
  wanted: string,
  value: unknown,
  next: string,
): AllocatorError =>
  new AllocatorError({ _tag: 'BadArgument', at, subject, wanted, found: describe(value), next })

/** An argument that the call does not take; `found` describes it in words. */
export const badUse = (
  at: string,
  subject: string,
  wanted: string,
  found: string,
  next: string,
): AllocatorError => new AllocatorError({ _tag: 'BadArgument', at, subject, wanted, found, next })

/** Options that a call takes, if they are an object. */
export const optionsFor = <T extends object>(options: T, at: string): T => {
  if (typeof options === 'object' && options !== null) return options
  throw badArgument(at, 'options', 'an object of options, or nothing', options, 'leave them out')
}

/** What is wrong with a pool that a graph holds, and serves captures alone. */
export const poolOfGraphs = {
  wanted: 'a pool whose memory no graph uses',
  found: 'one that captures have taken memory from: a launch of their graphs writes to it',
  next: 'dispose of these graphs first, or allocate from another pool',
} as const

/** A call that the mode of a capture forbids. The driver has made that capture invalid. */
export const forbiddenByCapture = (at: string, subject: string, cause?: unknown): AllocatorError =>
  new AllocatorError(
    {
      _tag: 'BadArgument',
      at,
      subject,
      wanted: 'a call that the captures under way allow',
      found:
        "one that takes memory from the driver or gives it back, which the modes 'global' and 'thread-local' " +
        'forbid: the capture is invalid now',
      next: "allocate before builder.begin(), or begin('relaxed'), and capture anew: builder.end() throws now",
    },
    { code: 'CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED', ...(cause === undefined ? {} : { cause }) },
  )

/** A handle that belongs to another device than `device`. */
export const wrongDevice = (at: string, subject: string, device: string): AllocatorError =>
  new AllocatorError({
    _tag: 'WrongDevice',
    at,
    subject,
    wanted: `${subject} of this device, ${device}`,
    found: 'one of another Device object',
    next: 'a device that is opened twice is two devices: use the handles of one',
  })

/** The value, if it is a whole number in the range; else throws. */
export const wholeNumber = (
  at: string,
  subject: string,
  value: unknown,
  least = 1,
  most = Number.MAX_SAFE_INTEGER,
): number => {
  if (Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most)
    return value as number
  const range =
    most === Number.MAX_SAFE_INTEGER
      ? `a whole number from ${least}`
      : `a whole number from ${least} to ${most}`
  throw badArgument(at, subject, range, value, `give ${subject} as ${range}`)
}
