import { badDevice, checkHostOptions, isDeviceName } from '../device/device-options.js'
import { badOption, type Check, check, checkEach, flag, object, whole } from '../device/settings/checks.js'
import type { DeviceError } from '../errors.js'
import type { OpenOptions } from './open.js'

const checks: Readonly<Record<keyof OpenOptions, Check>> = {
  device: check(
    "'auto', 'host' or 'cuda:N', or a list of such as 'cuda:N' for a plan for several devices",
    value =>
      value === 'auto' ||
      isDeviceName(value) ||
      (Array.isArray(value) && value.length > 0 && value.length <= 64 && value.every(isDeviceName)),
  ),
  inFlight: whole('', 1),
  params: object,
  host: object,
  trace: flag,
  poison: flag,
  references: object,
  signal: check('an AbortSignal', value => value instanceof AbortSignal),
  leaseWarningMs: check(
    'milliseconds from 1',
    value => typeof value === 'number' && value >= 1 && value <= 2 ** 31 - 1,
  ),
}

/** What is wrong with the options of `open`, all of it. JavaScript callers can pass anything. */
export const checkOptions = (options: OpenOptions): readonly DeviceError[] => {
  if (!object.holds(options)) return [badOption('options', object.wanted, options)]
  const errors = checkEach(options, checks).map(error =>
    error.at === 'device' ? badDevice(error.wanted, options.device) : error,
  )
  return [...errors, ...checkHostOptions(options.host)]
}
