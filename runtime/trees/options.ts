import type { HostOptions } from '../addon.js'
import { Device } from '../device/device.js'
import { badDevice, checkHostOptions, isDeviceName } from '../device/device-options.js'
import { MemPool } from '../device/mem-pool.js'
import { badOption, type Check, check, checkEach, flag, object, whole } from '../device/settings/checks.js'
import type { DeviceError } from '../errors.js'
import { common } from '../session/common-options.js'
import type { ParamSources } from '../session/params.js'
import type { References } from '../session/references.js'
import { SharedParams } from '../session/shared-params.js'

export interface TreeOptions {
  /** `auto`, the default: cuda:0 if it opens, else host; a device's name; or a Device that is open. */
  readonly device?: 'auto' | (string & {}) | Device
  /** The pool of that Device that the arena comes from. */
  readonly pool?: MemPool
  /** Settings of the host device, where it is opened by its name. */
  readonly host?: HostOptions
  /** The values of the plans' parameters, by name: one for all plans that have a parameter of that name. */
  readonly params?: ParamSources
  /** Launches that are given to the device at once; default 2. */
  readonly inFlight?: number
  /**
   * Bytes of host memory that launches which wait for their turn may take, with the values that they were given;
   * default 64 MiB. A launch beyond is refused, and `tree.room()` says when there is room.
   */
  readonly waiting?: number
  /**
   * Layouts of one plan, above which a value is moved to where a layout has it instead; default 8. Where
   * values are kept there may be more: (`variants` + 1) · (k + 1), of a plan that finds k older values of its
   * own kept.
   */
  readonly variants?: number
  /** Bytes of the arena, where launches that were not laid out ahead need more than those that were. */
  readonly arena?: number
  /**
   * Bytes beside the arena above which executables that were not launched for long are closed; default: none.
   * What the driver takes for an executable graph is estimated.
   */
  readonly executables?: number
  /**
   * Fills what a launch writes with garbage before it, so that a value that is read too late becomes visible.
   */
  readonly poison?: boolean
  /** The meaning of users' kernels on the host device, for plans that this process did not compile. */
  readonly references?: References
}

const checks: Readonly<Record<keyof TreeOptions, Check>> = {
  device: check(
    "'auto', 'host', 'cuda:N' or a Device",
    value => value === 'auto' || isDeviceName(value) || Device.is(value),
  ),
  pool: common.pool,
  host: object,
  params: object,
  inFlight: whole('', 1),
  waiting: whole('bytes, ', 0),
  variants: whole('', 1),
  arena: whole('bytes, ', 0),
  executables: whole('bytes, ', 0),
  poison: flag,
  references: common.references,
}

/** Every error of the options of `planTree`. JavaScript callers can pass any value. */
export const checkTreeOptions = (options: TreeOptions): readonly DeviceError[] => {
  if (!object.holds(options)) return [badOption('options', object.wanted, options)]
  const wrong = checkEach(options, checks).map(error =>
    error.at === 'device' ? badDevice(error.wanted, options.device) : error,
  )
  const pool =
    options.pool !== undefined && !Device.is(options.device)
      ? [badOption('device', 'the Device that the pool is of', options.device)]
      : []
  const params = SharedParams.is(options.params) ? [ofSessions] : []
  return [...wrong, ...pool, ...params, ...closedChoices(options), ...checkHostOptions(options.host)]
}

const ofSessions: DeviceError = {
  ...badOption('params', 'the values of the parameters, by name', undefined),
  found: 'parameters that sessions share: their writes are ordered with the ticks of sessions alone',
  next: 'give the values themselves: the plans of a tree share each parameter',
}

const closedChoices = ({ device, pool }: TreeOptions): readonly DeviceError[] => {
  const closed = (at: string, wanted: string, next: string): DeviceError => ({
    ...badOption(at, wanted, undefined),
    found: 'one that is closed',
    next,
  })
  return [
    ...(Device.is(device) && device.closed
      ? [closed('device', 'a Device that is open', 'open a Device again')]
      : []),
    ...(MemPool.is(pool) && pool.disposed
      ? [closed('pool', 'a pool that is open', 'make another: device.pool()')]
      : []),
  ]
}
