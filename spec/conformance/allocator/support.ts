// What the allocator's suites share: each runs on `host`, jittered and poisoned so that a wrong reuse shows as wrong data, and on `cuda:0`
// where there is one.
import { orThrow } from '../../../dsl/index.js'
import { type Block, Device, type DeviceOptions, type Lane } from '../../../runtime/index.js'

export { hold } from '../../../runtime/device/testing.js'
export { pause, present, until } from '../devices.js'

export const KiB = 1024
export const MiB = 1024 * KiB

// CUDA loads the kernels of its own fills and copies when they are first used, and may wait for the whole context to do so: for ever, where
// a lane is held back. So they are used once before any lane is.
process.env['CUDA_MODULE_LOADING'] ??= 'EAGER'
// A GPU's streams share eight queues unless more are asked for, and what stands behind a held lane in its queue waits with it.
process.env['CUDA_DEVICE_MAX_CONNECTIONS'] ??= '32'
let warm = false

const warmUp = async (name: string): Promise<void> => {
  if (warm || name === 'host') return
  warm = true
  await using device = orThrow(await Device.open(name)())
  const lane = device.defaultLane
  using pinned = device.pinned(4 * MiB)
  using blocks = device.arena(8 * MiB)
  for (const bytes of [4, 512, 4 * KiB, 64 * KiB, 4 * MiB]) {
    lane.fill32(blocks.at(0, bytes), 1)
    lane.copy(blocks.at(4 * MiB, bytes), blocks.at(0, bytes))
    lane.copy(pinned, blocks.at(0, bytes))
    lane.copy(blocks.at(0, bytes), pinned)
  }
  await lane.synchronize()
}

/** Opens, or throws with every fault. */
export const openOn = async (name: string, options: DeviceOptions = {}): Promise<Device> => {
  await warmUp(name)
  const shaken = { jitter: 7, jitterMicroseconds: 50, poison: true, ...options.host }
  return orThrow(await Device.open(name, name === 'host' ? { ...options, host: shaken } : options)())
}

/** The words of a block of this lane's device, once the lane has run what it was given. */
export const wordsOf = async (
  device: Device,
  block: Block,
  lane: Lane = device.defaultLane,
): Promise<Uint32Array> => {
  using pinned = device.pinned(block.bytes, lane)
  lane.copy(pinned, block)
  await lane.synchronize()
  return new Uint32Array(pinned.view().slice(0))
}

/** What a call throws; fails where it does not. */
export const thrownBy = (call: () => unknown): Error & Record<string, unknown> => {
  try {
    call()
  } catch (error) {
    return error as Error & Record<string, unknown>
  }
  throw new Error('nothing was thrown')
}
