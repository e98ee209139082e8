import { limits } from '../../dsl/ir/limits.js'
import type { HostOptions } from '../addon.js'
import { Device } from '../device/device.js'
import { badDevice, checkHostOptions, isDeviceName } from '../device/device-options.js'
import type { DeviceName } from '../device/devices.js'
import type { MemPool } from '../device/mem-pool.js'
import { badOption, type Check, check, checkEach, flag, object, whole } from '../device/settings/checks.js'
import type { DeviceError } from '../errors.js'
import { common } from './common-options.js'
import { fileChecks } from './file-options.js'
import type { References } from './references.js'
import type { GivenParams } from './shared-params.js'
import type { StateSources } from './state.js'

/** A device's name, or a device that is open. */
export type DeviceChoice = 'auto' | DeviceName | (string & {}) | Device

export interface OpenOptions {
  /**
   * `auto`, the default: cuda:0 if it opens, else host. For a plan of several devices a list, `['cuda:0',
   * 'cuda:1']`, of which the first is the plan's device 0; or `auto` for the first CUDA devices, or `host`
   * for as many host devices as the plan has. A name joins the `Device` of that name that is open in this
   * process; a `Device` itself is taken as it is, and stays open when the session closes.
   */
  readonly device?: DeviceChoice | readonly DeviceChoice[]
  /**
   * The pool of the (first) device that the session's device memory comes from. Alone, it also says which
   * device: its own.
   */
  readonly pool?: MemPool
  /** Fewer ticks at once than the plan has slots for. */
  readonly inFlight?: number
  /**
   * The values of the graph's parameters: by name; or a file that has each under its name,
   * `safetensors(path)`; or those that sessions share, from `params(device, …)`.
   */
  readonly params?: GivenParams
  /**
   * Values of states before the first tick, by name; or a file of all of them: `safetensors(path)`, as
   * `session.state.save(path)` wrote it. States without one begin as the graph says.
   */
  readonly state?: StateSources
  /** Settings of the host device: its memory, rates, jitter, faults. */
  readonly host?: HostOptions
  /** Times every run command, for `session.trace()`. */
  readonly trace?: boolean
  /** Fills memory with garbage when it is allocated, so that a premature read becomes visible. */
  readonly poison?: boolean
  /**
   * The meaning of a user's kernels, by kernel name, for the host device: for plans that this process did not
   * compile.
   */
  readonly references?: References
  readonly signal?: AbortSignal
  /**
   * Is called some times a second while `open` prepares kernels, which on CUDA compiles and chooses them: not
   * at all where that is done sooner. What it throws is uncaught.
   */
  readonly onProgress?: (progress: OpenProgress) => void
  /** Milliseconds that a run waits for its leases before a warning; default 5,000. */
  readonly leaseWarningMs?: number
}

/** How far `open` has come. */
export interface OpenProgress {
  /** Operations of the plan whose kernels are prepared. */
  readonly prepared: number
  /** All operations of the plan. */
  readonly operations: number
}

const isChoice = (value: unknown): boolean => isDeviceName(value) || Device.is(value)

const checks: Readonly<Record<keyof OpenOptions, Check>> = {
  device: check(
    "'auto', 'host', 'cuda:N' or a Device, or a list of such as 'cuda:N' for a plan for several devices",
    value =>
      value === 'auto' ||
      isChoice(value) ||
      (Array.isArray(value) && value.length > 0 && value.length <= limits.devices && value.every(isChoice)),
  ),
  pool: common.pool,
  inFlight: whole('', 1),
  ...fileChecks,
  host: object,
  trace: flag,
  poison: flag,
  references: common.references,
  signal: common.signal,
  onProgress: check('a function', value => typeof value === 'function'),
  leaseWarningMs: check(
    'milliseconds from 1',
    value => typeof value === 'number' && value >= 1 && value <= 2 ** 31 - 1,
  ),
}

/** Every error of the options of `open`. JavaScript callers can pass any value. */
export const checkOptions = (options: OpenOptions): readonly DeviceError[] => {
  if (!object.holds(options)) return [badOption('options', object.wanted, options)]
  const errors = checkEach(options, checks).map(error =>
    error.at === 'device' ? badDevice(error.wanted, options.device) : error,
  )
  return [...errors, ...checkHostOptions(options.host)]
}
