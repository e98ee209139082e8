import * as E from 'fp-ts/lib/Either.js'
import type { HostOptions, NativeAllocatorOptions } from '../addon.js'
import type { DeviceError } from '../errors.js'
import {
  badOption,
  bytes,
  type Check,
  check,
  checkEach,
  flag,
  object,
  rate,
  whole,
} from './settings/checks.js'
import { allocConfFromEnvironment } from './settings/conf.js'
import { type AllocatorOptions, allocatorOptions, type ResolvedAllocatorOptions } from './settings/options.js'

export interface DeviceOptions {
  readonly allocator?: AllocatorOptions
  /**
   * Reads the settings that PyTorch would read (`PYTORCH_CUDA_ALLOC_CONF`, then `PYTORCH_HIP_ALLOC_CONF`,
   * then `PYTORCH_ALLOC_CONF`) for options that `allocator` leaves out. Default false: a variable for another
   * program changes nothing here.
   */
  readonly environment?: boolean
  /** The host device's memory, rates, jitter and faults. */
  readonly host?: HostOptions
  /**
   * Keeps the place of each allocation, and frees blocks that were lost, with a warning. Costs microseconds
   * an allocation. Default false.
   */
  readonly development?: boolean
}

const delay = check(
  'microseconds from 0 to 10,000,000',
  value => rate.holds(value) && (value as number) <= 10_000_000,
)

const isFault = (value: unknown): boolean => {
  const { call, nth, status, delayMicroseconds } = (
    typeof value === 'object' && value !== null ? value : {}
  ) as Readonly<Record<string, unknown>>
  const holds = (least: number, number: unknown) =>
    Number.isSafeInteger(number) && (number as number) >= least
  return (
    typeof call === 'string' &&
    holds(1, nth) &&
    (status === undefined || holds(0, status)) &&
    (delayMicroseconds === undefined || (delay.holds(delayMicroseconds) && call === 'run'))
  )
}

const hostChecks: Readonly<Record<string, Check>> = {
  memory: bytes(0),
  copyRate: rate,
  flopRate: rate,
  deviceRate: rate,
  jitter: whole('a seed, ', 0),
  jitterMicroseconds: delay,
  queueDepth: whole('pieces of work, ', 0),
  poison: flag,
  faults: check(
    "a list of { call, nth, status? } or { call: 'run', nth, delayMicroseconds }",
    value => Array.isArray(value) && value.every(isFault),
  ),
}

/** The errors in the options of the host device. */
export const checkHostOptions = (host: unknown): readonly DeviceError[] =>
  host === undefined || !object.holds(host) ? [] : checkEach(host, hostChecks, 'host.')

export const isDeviceName = (value: unknown): boolean =>
  typeof value === 'string' && /^(host|host:\d{1,4}|cuda:\d{1,4})$/.test(value)

/** The error for an option `device` that names no device. */
export const badDevice = (wanted: string, value: unknown): DeviceError => ({
  ...badOption('device', wanted, value),
  _tag: typeof value === 'string' ? 'NoDevice' : 'BadOption',
  next: 'run: npx braid doctor, which lists the devices',
})

// `allocatorOptions` checks the option `allocator`.
const checks: Readonly<Record<keyof DeviceOptions, Check>> = {
  allocator: check('options of the allocator', () => true),
  environment: flag,
  host: object,
  development: flag,
}

/** The errors in what `Device.open` was given, all of them; or the options of its allocators. */
export const checkDevice = (
  name: unknown,
  given: unknown,
): E.Either<readonly DeviceError[], ResolvedAllocatorOptions> => {
  const wantedName = "'host', 'cuda:N' or 'auto'"
  if (!object.holds(given))
    return E.left([badOption('options', `an object of ${Object.keys(checks).join(', ')}`, given)])
  const options = given as DeviceOptions
  const errors: DeviceError[] = []
  if (name === undefined) errors.push(badOption('name', wantedName, name))
  else if (name !== 'auto' && !isDeviceName(name)) errors.push(badDevice(wantedName, name))
  errors.push(...checkHostOptions(options.host), ...checkEach(options, checks))
  const conf = options.environment === true ? allocConfFromEnvironment()?.parsed : undefined
  if (conf !== undefined && E.isLeft(conf))
    errors.push(...conf.left.map((fault): DeviceError => ({ ...fault, _tag: 'BadOption' })))
  const allocator = allocatorOptions(
    options.allocator,
    conf !== undefined && E.isRight(conf) ? conf.right.options : {},
  )
  if (E.isLeft(allocator)) errors.push(...allocator.left)
  return errors.length > 0 || E.isLeft(allocator) ? E.left(errors) : allocator
}

/** The options as the addon takes them, for each of a device's two allocators. */
export const nativeOptions = (
  options: ResolvedAllocatorOptions,
): readonly [device: NativeAllocatorOptions, pinned: NativeAllocatorOptions] => {
  const { pinned, ...device } = options
  const none = Number.POSITIVE_INFINITY
  return [
    { ...device, roundUpTo: 0, reserveFirst: 0 },
    {
      ...device,
      ...pinned,
      // The host itself reads and writes pinned memory, so uses must have completed: being ordered before a
      // lane's point is not enough.
      policy: 'poll',
      fraction: 1,
      expandable: false,
      maxSplit: none,
      collectAbove: 0,
      refuseEarly: false,
      divisions: [],
    },
  ]
}
