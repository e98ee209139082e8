import type { Fault } from '../../dsl/ir/fault.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeFailure } from '../addon.js'
import type { DeviceError, RunErrorTag } from '../errors.js'

/** What a failure of the addon is called; anything else that was thrown has no code. */
const isFailure = (error: unknown): error is NativeFailure =>
  error instanceof Error && typeof (error as NativeFailure).code === 'string'

const words = (failure: NativeFailure): string =>
  [
    failure.code,
    failure.op === '' ? '' : `in ${failure.op}`,
    failure.detail ? `(${failure.detail.trim()})` : '',
  ]
    .filter(Boolean)
    .join(' ')

const mib = (bytes: number): string =>
  bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${bytes.toLocaleString('en-US')} bytes`

/** A size as messages write it: exact, and readable. */
export const size = (bytes: number): string =>
  bytes >= 2 ** 20 ? `${bytes.toLocaleString('en-US')} bytes (${mib(bytes)})` : mib(bytes)

/** What a failed tick ends its run with. */
export const tickFailure = (
  failure: NativeFailure,
  plan: Plan,
): readonly [Fault<RunErrorTag>, { cause: unknown; code?: string; lane?: string; node?: string }] => {
  const node = failure.node === undefined || failure.node < 0 ? undefined : plan.nodes[failure.node]
  const where = [
    node ? `${node.op} ${node.name}` : undefined,
    failure.lane ? `lane ${failure.lane}` : undefined,
    failure.device && plan.devices > 1 ? failure.device : undefined,
  ]
    .filter(Boolean)
    .join(', ')
  return [
    {
      _tag: 'TickFailed',
      at: node?.at ?? plan.name,
      subject: node?.name ?? plan.name,
      wanted: `a tick without a failure${where === '' ? '' : ` (${where})`}`,
      found: isFailure(failure) ? words(failure) : String((failure as Error).message ?? failure),
      next: 'this session is over and freed; the process lives on: open the plan again',
    },
    {
      cause: failure,
      ...(isFailure(failure) ? { code: failure.code } : {}),
      ...(failure.lane ? { lane: failure.lane } : {}),
      ...(node ? { node: node.name } : {}),
    },
  ]
}

/** What holds the device's memory that a plan asks for, in words. */
export const holdings = (plan: Plan, device = 0): string => {
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

const libraries = /nvrtc|cublas|nccl/i

/** Why a device did not open, or a plan could not be put on it. `device` as the user named it, `index` which one of the plan's it is. */
export const openFailure = (error: unknown, device: string, plan?: Plan, index = 0): DeviceError => {
  if (!isFailure(error)) {
    const message = error instanceof Error ? error.message : String(error)
    const missing = message.includes('not built')
    return {
      _tag: missing ? 'NoAddon' : 'DriverFailed',
      at: device,
      subject: missing ? 'the native addon' : device,
      wanted: 'a device that opens',
      found: message,
      next: missing ? 'run: npm run build' : 'run: npx braid doctor',
      cause: error,
    }
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
      found: words(error),
      next: 'run: npx braid doctor, which says what to install',
    }
  if (error.op.startsWith('prepare'))
    return {
      ...base,
      _tag: 'KernelFailed',
      at: node?.at ?? device,
      subject: node?.name ?? error.op,
      wanted: 'a kernel that can be made ready for this device',
      found: words(error),
      next: 'correct the kernel; the log names its line',
    }
  if (error.code === 'CUDA_ERROR_INVALID_DEVICE')
    return {
      ...base,
      _tag: 'NoDevice',
      wanted: 'a device of this machine',
      found: words(error),
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
      found: words(error),
      next: "use device: 'host', which needs neither, or run: npx braid doctor",
    }
  return {
    ...base,
    _tag: 'DriverFailed',
    at: node?.at ?? device,
    subject: node?.name ?? device,
    wanted: 'a driver call that succeeds',
    found: words(error),
    next: 'run: npx braid doctor',
  }
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
  const known = error.freeBytes !== undefined
  return {
    ...base,
    _tag: 'OutOfMemory',
    wanted: `${pinned ? 'pinned host' : 'device'} memory for ${holds}`,
    found: known ? `${size(freeBytes)} free: ${size(missingBytes)} are missing` : words(error),
    next: pinned
      ? 'compile with fewer inFlight, or smaller inputs'
      : "compile with a smaller ahead or inFlight, with memory: 'small', or give the device more memory",
    wantedBytes,
    freeBytes,
    missingBytes,
    holds,
  }
}
