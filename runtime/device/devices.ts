import type { HostOptions } from '../addon.js'
import { type NativeDevice, type NativeDeviceInfo, native } from '../addon.js'

/** How `open` and the command line name a device. */
export type DeviceName = 'host' | `host:${number}` | `cuda:${number}`

export interface DeviceSummary {
  readonly device: DeviceName
  readonly kind: 'host' | 'cuda'
  /** As its maker calls it: "NVIDIA H200", "host (2 cores)". */
  readonly name: string
  /** Bytes. */
  readonly totalBytes: number
  readonly freeBytes: number
  /** "9.0" on cuda; "" on host. */
  readonly computeCapability: string
  readonly multiprocessors: number
  /** 13000 for CUDA 13.0; 0 on host. */
  readonly driverVersion: number
}

export const summaryOf = (info: NativeDeviceInfo): DeviceSummary => ({
  device:
    info.kind === 'host' ? (info.ordinal === 0 ? 'host' : `host:${info.ordinal}`) : `cuda:${info.ordinal}`,
  kind: info.kind,
  name: info.name,
  totalBytes: info.totalBytes,
  freeBytes: info.freeBytes,
  computeCapability: info.computeCapability,
  multiprocessors: info.multiprocessors,
  driverVersion: info.driverVersion,
})

/** The devices of this machine: `host` first, then each CUDA device that the driver shows. Throws if the addon is not built. */
export const devices = (): readonly DeviceSummary[] => {
  const found = native().probe().devices.map(summaryOf)
  return found.some(({ kind }) => kind === 'host') ? found : [hostSummary(), ...found]
}

const hostSummary = (): DeviceSummary => {
  const host = native().openHost({})
  try {
    return summaryOf(host.info)
  } finally {
    host.close()
  }
}

/** How an opened device is called in a failure of the addon. */
export const nativeName = ({ kind, ordinal }: NativeDeviceInfo): string => `${kind}:${ordinal}`

/** Opens a device by name. Throws what the addon throws. */
const openDevice = (name: string, host: HostOptions): NativeDevice => {
  const addon = native()
  const [kind, ordinal = '0'] = name.split(':')
  if (kind !== 'host') return addon.openCuda(Number(ordinal))
  return addon.openHost(ordinal === '0' ? host : { ...host, ordinal: Number(ordinal) })
}

/** The first so many of a kind. */
const firstOf = (kind: 'host' | 'cuda', count: number): readonly string[] =>
  Array.from({ length: count }, (_, ordinal) => `${kind}:${ordinal}`)

/** Names of so many devices, or fewer, as somebody asked for them; undefined for what `auto` finds. */
const namesOf = (wanted: string | readonly string[], count: number): readonly string[] | undefined => {
  if (wanted === 'auto') return undefined
  // There are as many host devices as anybody asks for.
  if (wanted === 'host') return firstOf('host', count)
  return typeof wanted === 'string'
    ? [wanted]
    : wanted.map((name, i) => (name === 'host' ? `host:${i}` : name)).slice(0, count)
}

/** Why a list of names is not so many devices of one kind, in words: wanted, found, what to do. */
export const devicesProblem = (
  wanted: string | readonly string[],
  count: number,
): readonly [wanted: string, found: string, next: string] | undefined => {
  const names = namesOf(wanted, count) ?? []
  const kinds = [...new Set(names.map(name => name.split(':')[0]!))]
  const list = (kind: string): string =>
    `device: [${firstOf(kind as 'cuda', count)
      .map(name => `'${name}'`)
      .join(', ')}]`
  if (kinds.length > 1) return ['devices of one kind', names.join(', '), list('cuda')]
  if (wanted === 'auto' || names.length === count) return undefined
  const found = `${names.length === 1 ? 'one' : names.length}: ${names.join(', ')}`
  return [
    `${count} devices, as the plan is made for`,
    found,
    `${list(kinds[0] ?? 'cuda')}, or device: 'host'`,
  ]
}

/**
 * Opens so many devices by their names (`devicesProblem` has passed them). `auto` is the first CUDA devices if cuda:0 opens, else host devices. Throws what the addon
 * throws, with nothing left open; `opening` is told each name before.
 */
export const openDevices = (
  wanted: string | readonly string[],
  count: number,
  host: HostOptions,
  opening: (name: string) => void,
): readonly NativeDevice[] => {
  const opened: NativeDevice[] = []
  const openAll = (names: readonly string[]): readonly NativeDevice[] => {
    for (const name of names.slice(opened.length)) {
      opening(name)
      opened.push(openDevice(name, host))
    }
    return opened
  }
  try {
    const names = namesOf(wanted, count)
    if (names !== undefined) return openAll(names)
    try {
      openAll(firstOf('cuda', 1))
    } catch {
      return openAll(firstOf('host', count))
    }
    return openAll(firstOf('cuda', count))
  } catch (error) {
    for (const device of opened) device.close()
    throw error
  }
}
