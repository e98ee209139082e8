// The devices of a session: names, open devices, and the pool that says both a device and where on it.
import { coreOfDevice, Device } from '../device/device.js'
import {
  devicesProblem,
  openDevices,
  type SessionDevice,
  sessionNamed,
  sessionOn,
} from '../device/devices.js'
import { sessionPool } from '../device/mem-pool.js'
import type { DeviceError } from '../errors.js'
import type { DeviceChoice, OpenOptions } from './options.js'
import { SharedParams } from './shared-params.js'

type Choice = Pick<OpenOptions, 'device' | 'pool' | 'host'>

/** Shared parameters alone say which device: theirs. */
export const chosen = (options: OpenOptions): Choice => {
  const { device, pool, host, params } = options
  const own = device === undefined && pool === undefined && SharedParams.is(params)
  return {
    ...(own ? { device: params.device } : device === undefined ? {} : { device }),
    ...(pool === undefined ? {} : { pool }),
    ...(host === undefined ? {} : { host }),
  }
}

/** A choice as a name: one device, with its number. */
export const choiceName = (choice: DeviceChoice): string =>
  choice instanceof Device ? (choice.name === 'host' ? 'host:0' : choice.name) : choice

/** The names that the caller wants; a pool alone means the pool's device. */
const wantedNames = ({ device, pool }: Choice): string | readonly string[] => {
  if (device === undefined) return pool === undefined ? 'auto' : [numbered(sessionPool(pool).core.name)]
  if (device instanceof Device) return [choiceName(device)]
  return typeof device === 'string' ? device : device.map(choiceName)
}

const numbered = (name: string): string => (name === 'host' ? 'host:0' : name)

const badChoice = (at: string, wanted: string, found: string, next: string): DeviceError => ({
  _tag: 'BadOption',
  at,
  subject: at,
  wanted,
  found,
  next,
})

/** The errors of the devices and the pool, which are of the right types. */
export const choiceErrors = (
  choice: Choice,
  devices: number,
  tooFew: (problem: readonly string[]) => DeviceError,
): readonly DeviceError[] => {
  const { device, pool } = choice
  const given = device === undefined ? [] : Array.isArray(device) ? device : [device as DeviceChoice]
  const closed = given.filter(each => each instanceof Device && each.closed)
  if (closed.length > 0)
    return [badChoice('device', 'a Device that is open', 'one that is closed', 'open a Device again')]
  if (pool?.disposed === true)
    return [badChoice('pool', 'a pool that is open', 'one that is closed', 'make another: device.pool()')]
  const problem = devicesProblem(wantedNames(choice), devices)
  if (problem !== undefined) return [tooFew(problem)]
  return pool === undefined ? [] : poolErrors(pool, given[0])
}

const poolErrors = (
  pool: NonNullable<OpenOptions['pool']>,
  first: DeviceChoice | undefined,
): readonly DeviceError[] => {
  const { core, scripted } = sessionPool(pool)
  if (scripted)
    return [
      badChoice(
        'pool',
        "a pool whose memory is the driver's or a library's",
        "one whose memory is JavaScript's: a session takes and gives memory on other threads",
        "leave the pool's allocator out, or name a library's functions",
      ),
    ]
  const same =
    first === undefined ||
    (first instanceof Device ? coreOfDevice(first).same(core) : numbered(first) === numbered(core.name))
  if (same || first === 'auto') return []
  return [
    badChoice(
      'pool',
      `a pool of ${choiceName(first)}`,
      `one of another device, ${core.name}`,
      'make the pool with the pool() of that device, or leave device out',
    ),
  ]
}

/** Opens what `choiceErrors` accepts. Throws the addon's failure, with nothing left open. */
export const openChoice = (
  choice: Choice,
  count: number,
  opening: (name: string) => void,
): readonly SessionDevice[] => {
  const { device, pool, host = {} } = choice
  const given = device === undefined ? [] : Array.isArray(device) ? device : [device as DeviceChoice]
  if (pool === undefined && given.every(each => typeof each === 'string'))
    return openDevices(wantedNames(choice), count, host, opening)
  const opened: SessionDevice[] = []
  try {
    for (let i = 0; i < count; i++) {
      const each = given[i]
      const name = each === undefined || each === 'auto' ? `host:${i}` : choiceName(each)
      if (i === 0 && pool !== undefined) {
        const { core, handle } = sessionPool(pool)
        opening(core.name)
        opened.push(sessionOn(core, handle))
      } else if (each instanceof Device) {
        opening(each.name)
        opened.push(sessionOn(coreOfDevice(each)))
      } else {
        opening(name)
        opened.push(sessionNamed(name, host))
      }
    }
    return opened
  } catch (error) {
    for (const each of opened) void each.close().catch(() => undefined)
    throw error
  }
}
