import {
  type HostOptions,
  type NativeCachingDevice,
  type NativeDevice,
  type NativeDeviceInfo,
  native,
} from '../addon.js'
import { Core } from './core.js'
import { defaultOptions, openShare, settingsOf } from './share.js'

/** A device's name, as `open` and the command line take it. */
export type DeviceName = 'host' | `host:${number}` | `cuda:${number}`

export interface DeviceSummary {
  readonly device: DeviceName
  readonly kind: 'host' | 'cuda'
  /** The product's name: "NVIDIA H200", "host (2 cores)". */
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

/**
 * The devices of this machine: `host` first, then each CUDA device of the driver. Throws an AddonError where
 * there is no addon.
 */
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

/** The name of an opened device in failures of the addon. */
export const nativeName = ({ kind, ordinal }: NativeDeviceInfo): string => `${kind}:${ordinal}`

/** The names of the first `count` devices of a kind. */
const firstOf = (kind: 'host' | 'cuda', count: number): readonly string[] =>
  Array.from({ length: count }, (_, ordinal) => `${kind}:${ordinal}`)

/** The names of `count` devices, or fewer, that the caller wants; undefined for `auto`. */
const namesOf = (wanted: string | readonly string[], count: number): readonly string[] | undefined => {
  if (wanted === 'auto') return undefined
  // A process can have any number of host devices.
  if (wanted === 'host') return firstOf('host', count)
  return typeof wanted === 'string'
    ? [wanted]
    : wanted.map((name, i) => (name === 'host' ? `host:${i}` : name)).slice(0, count)
}

/** Why the caller's names are not `count` devices of one kind; undefined where they are. */
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

/** A device that a session runs on. */
export interface SessionDevice {
  readonly native: NativeDevice
  /** The share of the device's memory. */
  readonly share: NativeCachingDevice
  /** What handles of its memory refer to. */
  core(): Core
  /** Lets go of the share, where the session opened it. */
  close(): Promise<void>
}

/** On the memory of an open Device, which is not the session's to close. */
export const sessionOn = (core: Core, pool = 0): SessionDevice => {
  const device = core.native.sessions(pool)
  return { native: device, share: core.native, core: () => core, close: async () => device.close() }
}

/** On a share of its own of the device of this name. */
export const sessionNamed = (name: string, host: HostOptions): SessionDevice => {
  const share = openShare(name, host)
  const device = share.sessions(0)
  let core: Core | undefined
  return {
    native: device,
    share,
    core: () => {
      core ??= new Core(summaryOf(share.info).device, share, settingsOf(share, defaultOptions), false)
      return core
    },
    close: async () => {
      device.close()
      if (core !== undefined) core.closed = true
      await share.close()
    },
  }
}

/**
 * Opens `count` devices by names that `devicesProblem` accepts. `auto` opens the first CUDA devices if cuda:0
 * opens, else host devices. Calls `opening` with each name before it opens that device. Throws the addon's
 * failure, with no device left open.
 */
export const openDevices = (
  wanted: string | readonly string[],
  count: number,
  host: HostOptions,
  opening: (name: string) => void,
): readonly SessionDevice[] => {
  const opened: SessionDevice[] = []
  const openAll = (names: readonly string[]): readonly SessionDevice[] => {
    for (const name of names.slice(opened.length)) {
      opening(name)
      opened.push(sessionNamed(name, host))
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
    for (const device of opened) void device.close().catch(() => undefined)
    throw error
  }
}
