import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeFailure } from '../addon.js'
import { AddonError, type DeviceError } from '../errors.js'
import { size } from '../values.js'
import { AllocatorError, poolOfGraphs } from './allocator-error.js'
import { OutOfMemoryError } from './out-of-memory.js'

/** Whether the addon threw it: its failures have the driver's code and call; Node's have a code alone. */
export const isNativeFailure = (error: unknown): error is NativeFailure =>
  error instanceof Error &&
  typeof (error as NativeFailure).code === 'string' &&
  typeof (error as NativeFailure).op === 'string'

/** The code, the call and the detail of a failure. */
export const failureText = (failure: NativeFailure): string =>
  [
    failure.code,
    failure.op === '' ? '' : `in ${failure.op}`,
    failure.detail ? `(${failure.detail.trim()})` : '',
  ]
    .filter(Boolean)
    .join(' ')

/** What a plan needs a device's memory for, in words. */
const holdings = (plan: Plan, device = 0): string => {
  const sum = (life: string): number =>
    plan.buffers.reduce(
      (total, buffer) =>
        buffer.life === life &&
        buffer.space === 'device' &&
        buffer.device === device &&
        buffer.alias === undefined
          ? total + buffer.bytes
          : total,
      0,
    )
  const whole = plan.bound.device[device] ?? 0
  const params = sum('param')
  const state = sum('state')
  const parts = [
    params > 0 ? `${size(params)} of parameters` : '',
    state > 0 ? `${size(state)} of state and workspaces` : '',
    `${size(Math.max(0, whole - params - state))} of values inside ticks`,
  ]
  return `the plan's ${size(whole)}: ${parts.filter(Boolean).join(', ')}`
}

/**
 * Whether memory was wanted from a pool that a graph holds: by a program, whose failure is a status, or by a
 * lane. No other call that allocates meets this status.
 */
const ofHeldPool = (error: unknown): boolean =>
  isNativeFailure(error)
    ? error.code === 'CUDA_ERROR_ILLEGAL_STATE' && error.op === 'memAllocate'
    : error instanceof AllocatorError && error.found === poolOfGraphs.found

const libraries = /nvrtc|cublas|nccl/i

/**
 * Why a device did not open, or a plan could not be put on it. `device` is the name that the user gave,
 * `index` the device's number in the plan.
 */
export const openFailure = (error: unknown, device: string, plan?: Plan, index = 0): DeviceError => {
  if (ofHeldPool(error))
    return { _tag: 'BadOption', at: device, subject: 'options.pool', ...poolOfGraphs, cause: error }
  if (error instanceof AllocatorError) return refused(error, device)
  if (error instanceof AddonError) {
    const { _tag, subject, wanted, found, next } = error
    return { _tag, at: device, subject, wanted, found, next, cause: error }
  }
  if (!isNativeFailure(error))
    return {
      _tag: 'DriverFailed',
      at: device,
      subject: device,
      wanted: 'a device that opens',
      found: error instanceof Error ? error.message : String(error),
      next: 'run: npx braid doctor',
      cause: error,
    }
  const base = { at: device, subject: device, code: error.code, cause: error }
  const node = error.node === undefined || error.node < 0 ? undefined : plan?.nodes[error.node]
  if (error.code === 'CUDA_ERROR_OUT_OF_MEMORY') return outOfMemory(error, base, plan, index)
  if (
    libraries.test(`${error.detail ?? ''} ${error.op}`) &&
    (error.code === 'CUDA_ERROR_FILE_NOT_FOUND' ||
      error.code === 'CUDA_ERROR_SHARED_OBJECT_INIT_FAILED' ||
      error.code === 'CUDA_ERROR_NOT_FOUND' ||
      error.code === 'CUDA_ERROR_NOT_SUPPORTED')
  )
    return {
      ...base,
      _tag: 'MissingLibrary',
      subject: node?.name ?? device,
      wanted: 'the library that this kernel needs',
      found: failureText(error),
      next: 'run: npx braid doctor, which says what to install',
    }
  if (error.op === 'program' && error.code === 'CUDA_ERROR_INVALID_VALUE' && plan !== undefined)
    return {
      ...base,
      _tag: 'BadPlan',
      at: 'plan',
      subject: plan.name,
      wanted: 'a plan that the executor can run',
      found: error.detail ?? failureText(error),
      next: 'compile the graph again, or correct the plan',
    }
  if (error.op.startsWith('prepare'))
    return {
      ...base,
      _tag: 'KernelFailed',
      at: node?.at ?? device,
      subject: node?.name ?? error.op,
      wanted: 'a kernel that can be made ready for this device',
      found: failureText(error),
      next: 'correct the kernel; the log names its line',
    }
  if (error.code === 'CUDA_ERROR_INVALID_DEVICE')
    return {
      ...base,
      _tag: 'NoDevice',
      wanted: 'a device of this machine',
      found: failureText(error),
      next: 'run: npx braid doctor, which lists them',
    }
  if (
    error.code === 'CUDA_ERROR_NO_DEVICE' ||
    error.code === 'CUDA_ERROR_FILE_NOT_FOUND' ||
    error.code === 'CUDA_ERROR_SHARED_OBJECT_INIT_FAILED' ||
    error.code === 'CUDA_ERROR_STUB_LIBRARY' ||
    error.code === 'CUDA_ERROR_SYSTEM_NOT_READY' ||
    error.code === 'CUDA_ERROR_NOT_INITIALIZED'
  )
    return {
      ...base,
      _tag: 'NoDriver',
      wanted: 'a working NVIDIA driver and a GPU',
      found: failureText(error),
      next: "use device: 'host', which needs neither, or run: npx braid doctor",
    }
  return {
    ...base,
    _tag: 'DriverFailed',
    at: node?.at ?? device,
    subject: node?.name ?? device,
    wanted: 'a driver call that succeeds',
    found: failureText(error),
    next: 'run: npx braid doctor',
  }
}

/** A call of the device that was refused while something was being opened. */
const refused = (error: AllocatorError, device: string): DeviceError => {
  const { wanted, found, next } = error
  const code = error.code === undefined ? {} : { code: error.code }
  const base = { at: device, subject: device, wanted, found, next, ...code, cause: error }
  if (!(error instanceof OutOfMemoryError)) return { ...base, _tag: 'DriverFailed', subject: error.at }
  const { wantedBytes, deviceFree, memory } = error
  if (memory === 'pinned') return { ...base, _tag: 'OutOfMemory', wantedBytes }
  const missingBytes = Math.max(0, wantedBytes - deviceFree)
  return { ...base, _tag: 'OutOfMemory', wantedBytes, freeBytes: deviceFree, missingBytes }
}

const outOfMemory = (
  error: NativeFailure,
  base: Pick<DeviceError, 'at' | 'subject'> & { code: string; cause: unknown },
  plan?: Plan,
  index = 0,
): DeviceError => {
  const pinned = /pinned/i.test(error.op)
  const wantedBytes =
    error.wantedBytes ?? (pinned ? (plan?.bound.pinned ?? 0) : (plan?.bound.device[index] ?? 0))
  const freeBytes = error.freeBytes ?? 0
  const missingBytes = Math.max(0, wantedBytes - freeBytes)
  const holds = pinned || !plan ? `${size(wantedBytes)} of pinned host memory` : holdings(plan, index)
  const free = `${size(freeBytes)} free`
  const shortage =
    missingBytes > 0
      ? `${free}: ${size(missingBytes)} are missing`
      : `${free}, but not to be had: ${failureText(error)}`
  return {
    ...base,
    _tag: 'OutOfMemory',
    wanted: `${pinned ? 'pinned host' : 'device'} memory for ${holds}`,
    found: [error.freeBytes === undefined ? failureText(error) : shortage, error.holders ?? '']
      .filter(Boolean)
      .join('; '),
    next: pinned
      ? 'compile with fewer inFlight, or smaller inputs'
      : "compile with a smaller ahead or inFlight, with memory: 'small', or give the device more memory",
    wantedBytes,
    freeBytes,
    missingBytes,
    holds,
  }
}
