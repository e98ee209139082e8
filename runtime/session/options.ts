import {
  badOption,
  checkEach,
  checkHostOptions,
  isBoolean,
  isCount,
  isDeviceName,
  isRecord,
  type OptionCheck,
} from '../device/option-checks.js'
import type { DeviceError } from '../errors.js'
import type { OpenOptions } from './open.js'

const checks: Readonly<Record<keyof OpenOptions, OptionCheck>> = {
  device: [
    "'auto', 'host' or 'cuda:N', or a list of such as 'cuda:N' for a plan for several devices",
    value =>
      value === 'auto' ||
      isDeviceName(value) ||
      (Array.isArray(value) && value.length > 0 && value.length <= 64 && value.every(isDeviceName)),
  ],
  inFlight: isCount,
  params: isRecord,
  host: isRecord,
  trace: isBoolean,
  poison: isBoolean,
  references: isRecord,
  signal: ['an AbortSignal', value => value instanceof AbortSignal],
  leaseWarningMs: [
    'milliseconds from 1',
    value => typeof value === 'number' && value >= 1 && value <= 2 ** 31 - 1,
  ],
}

/** What is wrong with the options of `open`, all of it. JavaScript callers can pass anything. */
export const checkOptions = (options: OpenOptions): readonly DeviceError[] =>
  isRecord[1](options)
    ? [...checkEach(options, checks), ...checkHostOptions(options.host)]
    : [badOption('options', isRecord[0], options)]
