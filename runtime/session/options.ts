import type { DeviceError } from '../errors.js'
import { describe } from '../values.js'
import type { OpenOptions } from './open.js'

type Check = readonly [wanted: string, holds: (value: unknown) => boolean]

const whole = (least: number) => (value: unknown) => Number.isSafeInteger(value) && (value as number) >= least
const rate = (value: unknown) => typeof value === 'number' && value >= 0 && Number.isFinite(value)
const isDevice = (value: unknown) =>
  typeof value === 'string' && /^(host|host:\d{1,4}|cuda:\d{1,4})$/.test(value)
const boolean: Check = ['true or false', value => typeof value === 'boolean']
const record: Check = [
  'an object',
  value => typeof value === 'object' && value !== null && !Array.isArray(value),
]
const bytesASecond: Check = ['a rate from 0', rate]

const checks: Readonly<Record<keyof OpenOptions, Check>> = {
  device: [
    "'auto', 'host' or 'cuda:N', or a list of such as 'cuda:N' for a plan for several devices",
    value =>
      value === 'auto' ||
      isDevice(value) ||
      (Array.isArray(value) && value.length > 0 && value.length <= 64 && value.every(isDevice)),
  ],
  inFlight: ['a whole number from 1', whole(1)],
  params: record,
  host: record,
  trace: boolean,
  poison: boolean,
  references: record,
  signal: ['an AbortSignal', value => value instanceof AbortSignal],
  leaseWarningMs: [
    'milliseconds from 1',
    value => typeof value === 'number' && value >= 1 && value <= 2 ** 31 - 1,
  ],
}

const isFault = (value: unknown): boolean => {
  const { call, nth, status } = (typeof value === 'object' && value !== null ? value : {}) as {
    call?: unknown
    nth?: unknown
    status?: unknown
  }
  return typeof call === 'string' && whole(1)(nth) && (status === undefined || whole(0)(status))
}

const hostChecks: Readonly<Record<string, Check>> = {
  memory: ['bytes, a whole number from 0', whole(0)],
  copyRate: bytesASecond,
  flopRate: bytesASecond,
  deviceRate: bytesASecond,
  jitter: ['a seed, a whole number from 0', whole(0)],
  jitterMicroseconds: ['microseconds from 0 to 10,000,000', value => rate(value) && (value as number) <= 1e7],
  queueDepth: ['pieces of work, a whole number from 0', whole(0)],
  poison: boolean,
  faults: ['a list of { call, nth, status? }', value => Array.isArray(value) && value.every(isFault)],
}

/** What is wrong with the options of `open`, all of it. JavaScript callers can pass anything. */
export const checkOptions = (options: OpenOptions): readonly DeviceError[] => {
  if (!record[1](options)) return [problem('options', record[0], options)]
  const host = options.host
  return [
    ...checkAll('', options, checks),
    ...(host && record[1](host) ? checkAll('host.', host, hostChecks) : []),
  ]
}

const checkAll = (
  prefix: string,
  given: object,
  table: Readonly<Record<string, Check>>,
): readonly DeviceError[] =>
  Object.entries(given).flatMap(([name, value]) => {
    if (value === undefined) return []
    if (!Object.hasOwn(table, name))
      return [problem(`${prefix}${name}`, `one of the options ${Object.keys(table).join(', ')}`, name)]
    const [wanted, holds] = table[name]!
    return holds(value) ? [] : [problem(`${prefix}${name}`, wanted, value)]
  })

const problem = (name: string, wanted: string, value: unknown): DeviceError => ({
  _tag: name === 'device' && typeof value === 'string' ? 'NoDevice' : 'BadOption',
  at: name,
  subject: name,
  wanted,
  found: describe(value),
  next:
    name === 'device'
      ? 'run: npx braid doctor, which lists the devices'
      : 'correct the option, or leave it out',
})
