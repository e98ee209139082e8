import type { DeviceError } from '../errors.js'
import { describe } from '../values.js'

/** What an option may be, in words, and whether a value is that. */
export type OptionCheck = readonly [wanted: string, holds: (value: unknown) => boolean]

const whole = (least: number) => (value: unknown) => Number.isSafeInteger(value) && (value as number) >= least
const rate = (value: unknown) => typeof value === 'number' && value >= 0 && Number.isFinite(value)

export const isBoolean: OptionCheck = ['true or false', value => typeof value === 'boolean']
export const isCount: OptionCheck = ['a whole number from 1', whole(1)]
export const isRecord: OptionCheck = [
  'an object',
  value => typeof value === 'object' && value !== null && !Array.isArray(value),
]

export const isDeviceName = (value: unknown): boolean =>
  typeof value === 'string' && /^(host|host:\d{1,4}|cuda:\d{1,4})$/.test(value)

const isFault = (value: unknown): boolean => {
  const { call, nth, status } = (typeof value === 'object' && value !== null ? value : {}) as {
    call?: unknown
    nth?: unknown
    status?: unknown
  }
  return typeof call === 'string' && whole(1)(nth) && (status === undefined || whole(0)(status))
}

const isRate: OptionCheck = ['a rate from 0', rate]

const hostChecks: Readonly<Record<string, OptionCheck>> = {
  memory: ['bytes, a whole number from 0', whole(0)],
  copyRate: isRate,
  flopRate: isRate,
  deviceRate: isRate,
  jitter: ['a seed, a whole number from 0', whole(0)],
  jitterMicroseconds: ['microseconds from 0 to 10,000,000', value => rate(value) && (value as number) <= 1e7],
  queueDepth: ['pieces of work, a whole number from 0', whole(0)],
  poison: isBoolean,
  faults: ['a list of { call, nth, status? }', value => Array.isArray(value) && value.every(isFault)],
}

/** An error for each option that the table does not name, and for each value that its check refuses. */
export const checkEach = (
  given: object,
  table: Readonly<Record<string, OptionCheck>>,
  prefix = '',
): readonly DeviceError[] =>
  Object.entries(given).flatMap(([name, value]) => {
    if (value === undefined) return []
    if (!Object.hasOwn(table, name))
      return [badOption(`${prefix}${name}`, `one of the options ${Object.keys(table).join(', ')}`, name)]
    const [wanted, holds] = table[name]!
    return holds(value) ? [] : [badOption(`${prefix}${name}`, wanted, value)]
  })

/** The errors in the options of the host device. */
export const checkHostOptions = (host: unknown): readonly DeviceError[] =>
  isRecord[1](host) ? checkEach(host as object, hostChecks, 'host.') : []

export const badOption = (name: string, wanted: string, value: unknown): DeviceError => {
  const unknownDevice = name === 'device' && typeof value === 'string'
  return {
    _tag: unknownDevice ? 'NoDevice' : 'BadOption',
    at: name,
    subject: name,
    wanted,
    found: describe(value),
    next:
      name === 'device'
        ? 'run: npx braid doctor, which lists the devices'
        : 'correct the option, or leave it out',
  }
}
