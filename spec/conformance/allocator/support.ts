// What the allocator's suites share: each runs on `host`, jittered and poisoned so that a wrong reuse shows as wrong data, and on `cuda:0`
// where there is one.
import { orThrow } from '../../../dsl/index.js'
import { type Block, Device, type DeviceOptions, type Lane } from '../../../runtime/index.js'

export { hold } from '../../../runtime/allocator/testing.js'
export { pause, present, until } from '../devices.js'

/** Opens, or throws with every fault. */
export const openOn = async (name: string, options: DeviceOptions = {}): Promise<Device> => {
  const shaken = { jitter: 7, jitterMicroseconds: 50, poison: true, ...options.host }
  return orThrow(await Device.open(name, name === 'host' ? { ...options, host: shaken } : options)())
}

/** The words of a block of this lane's device, once the lane has run what it was given. */
export const wordsOf = async (device: Device, block: Block, lane: Lane = device.defaultLane): Promise<Uint32Array> => {
  using pinned = device.pinned(block.bytes, lane)
  lane.copy(pinned, block)
  await lane.synchronize()
  return new Uint32Array(pinned.view().slice(0))
}

export const KiB = 1024
export const MiB = 1024 * KiB

/** What a call throws; fails where it does not. */
export const thrownBy = (call: () => unknown): Error & Record<string, unknown> => {
  try {
    call()
  } catch (error) {
    return error as Error & Record<string, unknown>
  }
  throw new Error('nothing was thrown')
}
