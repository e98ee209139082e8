import * as E from 'fp-ts/lib/Either.js'
import type { HostOptions, NativeAllocatorOptions } from '../addon.js'
import type { DeviceError } from '../errors.js'
import { checkOptions } from '../session/options.js'
import { describe } from '../values.js'
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

/** What is wrong with what `Device.open` was given, all of it; or its allocator options. */
export const checkDevice = (
  name: unknown,
  given: unknown,
): E.Either<readonly DeviceError[], ResolvedAllocatorOptions> => {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    return E.left([bad('options', `an object of ${names.join(', ')}`, given)])
  const options = given as DeviceOptions
  const faults: DeviceError[] = [
    // Left out, it would be `auto`: here the name is not an option.
    ...(name === undefined ? [bad('name', "'host', 'cuda:N' or 'auto'", name)] : []),
    ...checkOptions({
      device: name as string,
      ...(options.host === undefined ? {} : { host: options.host }),
    }),
  ]
  for (const key of Object.keys(options))
    if (!(names as readonly string[]).includes(key))
      faults.push(bad(key, `one of the options ${names.join(', ')}`, key))
  for (const key of ['environment', 'development'] as const)
    if (options[key] !== undefined && typeof options[key] !== 'boolean')
      faults.push(bad(key, 'true or false', options[key]))
  const conf = options.environment === true ? allocConfFromEnvironment()?.parsed : undefined
  if (conf !== undefined && E.isLeft(conf))
    faults.push(...conf.left.map((fault): DeviceError => ({ ...fault, _tag: 'BadOption' })))
  const allocator = allocatorOptions(
    options.allocator,
    conf !== undefined && E.isRight(conf) ? conf.right.options : {},
  )
  if (E.isLeft(allocator)) faults.push(...allocator.left)
  return faults.length > 0 || E.isLeft(allocator) ? E.left(faults) : allocator
}

const bad = (at: string, wanted: string, value: unknown): DeviceError => ({
  _tag: 'BadOption',
  at,
  subject: at,
  wanted,
  found: describe(value),
  next: 'correct the option, or leave it out',
})

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
