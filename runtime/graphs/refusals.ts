// Calls that the driver refuses because of what it was given: errors of the program, not of the device.
import type { NativeFailure } from '../addon.js'
import { AllocatorError, badUse, forbiddenByCapture } from '../device/allocator-error.js'
import type { Core } from '../device/core.js'

const unjoined = 'CUDA_ERROR_STREAM_CAPTURE_UNJOINED'
const forbidden = 'CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED'
const invalidated = 'CUDA_ERROR_STREAM_CAPTURE_INVALIDATED'

/** The driver's names for what a call cannot be given, or not at this time. The device is as it was. */
const ofTheCall = new Set([
  'CUDA_ERROR_INVALID_VALUE',
  'CUDA_ERROR_ILLEGAL_STATE',
  'CUDA_ERROR_NOT_SUPPORTED',
  'CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE',
  'CUDA_ERROR_STREAM_CAPTURE_MERGE',
  'CUDA_ERROR_STREAM_CAPTURE_UNMATCHED',
  'CUDA_ERROR_STREAM_CAPTURE_ISOLATION',
  'CUDA_ERROR_STREAM_CAPTURE_IMPLICIT',
  'CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD',
  unjoined,
  invalidated,
])

/** The device has no memory for a graph. */
export const noMemory = (at: string, subject: string, found: string, cause?: unknown): AllocatorError =>
  new AllocatorError(
    {
      _tag: 'OutOfMemory',
      at,
      subject,
      wanted: 'memory of the device for a graph, and for what its nodes allocate',
      found,
      next: 'free blocks and await device.emptyCache(), dispose of other graphs, or call device.trimGraphMemory()',
    },
    { code: 'CUDA_ERROR_OUT_OF_MEMORY', ...(cause === undefined ? {} : { cause }) },
  )

const refusal = (error: unknown, at: string, subject: string): AllocatorError | undefined => {
  const { code, message } = error as Partial<NativeFailure> & Error
  if (code === 'NO_FUNCTION')
    return badUse(
      at,
      'callback',
      'a library that can be loaded, and a function that it has',
      message,
      'give library as a path or a name that the loader finds, and symbol as the function is exported',
    )
  if (code === unjoined)
    return badUse(
      at,
      'builder',
      'a capture all of whose lanes are joined, with nothing given to them afterwards',
      'work of a lane that is not joined',
      'call GraphBuilder.join(builder, fork), or let the lane be waited for, before builder.end()',
    )
  if (code === invalidated)
    return badUse(
      at,
      'capture',
      'one that is valid',
      'one that a call which cannot be captured has made invalid',
      'build the graph anew without that call',
    )
  if (code === 'CUDA_ERROR_OUT_OF_MEMORY') return noMemory(at, subject, message, error)
  if (code === forbidden) return forbiddenByCapture(at, subject, error)
  if (code === undefined || !ofTheCall.has(code)) return undefined
  return new AllocatorError(
    {
      _tag: 'BadArgument',
      at,
      subject,
      wanted: 'a call that the driver takes',
      found: message,
      next: 'correct the call; the device is as it was',
    },
    { cause: error, code },
  )
}

/**
 * Runs a call of the addon, and translates what it throws. `why`: the reason in our words, asked for once the
 * driver has refused the call for what it was given.
 */
export const triedOn = <T>(
  core: Core,
  at: string,
  subject: string,
  call: () => T,
  why?: () => Error | undefined,
): T => {
  try {
    return call()
  } catch (error) {
    const refused = core.closed ? undefined : refusal(error, at, subject)
    throw (refused && reasonOf(why)) ?? refused ?? core.translated(error, at, subject)
  }
}

/** The reason, where the driver answers what it depends on. */
const reasonOf = (why: (() => Error | undefined) | undefined): Error | undefined => {
  try {
    return why?.()
  } catch {
    return undefined
  }
}
