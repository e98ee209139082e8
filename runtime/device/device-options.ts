import * as E from 'fp-ts/lib/Either.js'
import type { HostOptions, NativeAllocatorOptions } from '../addon.js'
import type { DeviceError } from '../errors.js'
import { badOption, checkHostOptions, isBoolean, isDeviceName, isRecord } from './option-checks.js'
import { allocConfFromEnvironment } from './settings/conf.js'
import { type AllocatorOptions, allocatorOptions, type ResolvedAllocatorOptions } from './settings/options.js'

export interface DeviceOptions {
  readonly allocator?: AllocatorOptions
  /**
   * Settings that PyTorch would read (`PYTORCH_CUDA_ALLOC_CONF`, then `PYTORCH_HIP_ALLOC_CONF`, then `PYTORCH_ALLOC_CONF`) count too, where
   * `allocator` does not say otherwise. Default false: a variable that was meant for another program changes nothing here.
   */
  readonly environment?: boolean
  /** What the host device is made to do: its memory, rates, jitter, faults. */
  readonly host?: HostOptions
  /** Keeps where each block was allocated, tells of blocks that are lost, and frees them. Costs microseconds an allocation. Default false. */
  readonly development?: boolean
}

const names = ['allocator', 'environment', 'host', 'development'] as const

const isName = (name: unknown): boolean => name === 'auto' || isDeviceName(name)

/** The errors in what `Device.open` was given, all of them; or the options of its allocators. */
export const checkDevice = (
  name: unknown,
  given: unknown,
): E.Either<readonly DeviceError[], ResolvedAllocatorOptions> => {
  if (!isRecord[1](given)) return E.left([badOption('options', `an object of ${names.join(', ')}`, given)])
  const options = given as DeviceOptions
  const wantedName = "'host', 'cuda:N' or 'auto'"
  const errors: DeviceError[] = []
  if (name === undefined) errors.push(badOption('name', wantedName, name))
  else if (!isName(name)) errors.push(badOption('device', wantedName, name))
  if (options.host !== undefined && !isRecord[1](options.host))
    errors.push(badOption('host', isRecord[0], options.host))
  errors.push(...checkHostOptions(options.host))
  for (const key of Object.keys(options))
    if (!(names as readonly string[]).includes(key))
      errors.push(badOption(key, `one of the options ${names.join(', ')}`, key))
  for (const key of ['environment', 'development'] as const)
    if (options[key] !== undefined && !isBoolean[1](options[key]))
      errors.push(badOption(key, isBoolean[0], options[key]))
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

/** For the two allocators of a device. */
export const nativeOptions = (
  options: ResolvedAllocatorOptions,
): readonly [device: NativeAllocatorOptions, pinned: NativeAllocatorOptions] => {
  const { pinned, ...device } = options
  const none = Number.POSITIVE_INFINITY
  return [
    { ...device, roundUpTo: 0, cacheUpTo: none, reserveFirst: 0 },
    {
      ...device,
      ...pinned,
      // The host reads and writes it with no lane in between, so what is ordered before some lane is not enough: it must have completed.
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
