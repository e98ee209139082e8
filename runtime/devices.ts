import type { HostOptions } from './native.js'
import { type NativeDevice, type NativeDeviceInfo, native } from './native.js'

/** How `open` and the command line name a device. */
export type DeviceName = 'host' | `cuda:${number}`

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
  device: info.kind === 'host' ? 'host' : `cuda:${info.ordinal}`,
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

/** Opens a device by name. `auto` is cuda:0 if that opens, else host. Throws what the addon throws. */
export const openDevice = (name: string, host: HostOptions): NativeDevice => {
  const addon = native()
  if (name === 'host') return addon.openHost(host)
  if (name !== 'auto') return addon.openCuda(Number(name.slice('cuda:'.length)))
  try {
    return addon.openCuda(0)
  } catch {
    return addon.openHost(host)
  }
}
