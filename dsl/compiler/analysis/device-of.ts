import { limits } from '../../ir/limits.js'
import type { Buffer, Operation, Placed } from './ir.js'
import type { Settings } from './options.js'

/** The device that an operation runs on. */
export const deviceOf = ({ device = 0 }: Operation): number => device

/** One more than the highest device number of any lane. */
export const devicesOf = ({ lanes }: Pick<Placed, 'lanes'>): number => {
  let most = 0
  for (let l = 0; l < lanes.length; l++) most = Math.max(most, lanes[l]!.device)
  return most + 1
}

/**
 * The most lanes that each of so many devices may have: by the user's option, and by what a plan may have.
 */
export const mostLanesOf = ({ lanes }: Settings, devices: number): number =>
  Math.min(lanes, Math.floor(limits.lanes / devices))

/** The number of a buffer's memory: its device, or one past all devices for pinned memory. */
export const memoryOf = ({ space, device = 0 }: Buffer, devices: number): number =>
  space === 'pinned' ? devices : device

/** The first device, and all in whose memory buffers lie: each has a lane, though nothing may run there. */
export const devicesWithBuffers = ({ buffers }: Pick<Placed, 'buffers'>): ReadonlySet<number> => {
  const found = new Set([0])
  for (const { space, device = 0 } of buffers) if (space === 'device') found.add(device)
  return found
}

/**
 * The home of a buffer in device memory is a lane of its own device. Where a lane of another device accesses
 * it first, as the copy of a state may, the home is the first lane of its own device that does.
 */
export const homesOf = (
  ir: Pick<Placed, 'operations' | 'buffers' | 'lanes' | 'laneOf'>,
  home: Int32Array,
): Int32Array => {
  const { operations, buffers, lanes, laneOf } = ir
  if (devicesOf(ir) === 1) return home
  const away = (root: number, lane: number): boolean => {
    const { space, device = 0 } = buffers[root]!
    return space === 'device' && lanes[lane]!.device !== device
  }
  const found = new Uint8Array(buffers.length)
  operations.forEach(({ reads, writes }, i) => {
    for (const list of [reads, writes])
      for (const id of list) {
        const { root } = buffers[id]!
        if (found[root] === 1 || away(root, laneOf[i]!)) continue
        if (away(root, home[root]!)) home[root] = laneOf[i]!
        found[root] = 1
      }
  })
  for (let id = 0; id < buffers.length; id++) {
    const { root, device = 0 } = buffers[id]!
    // No lane of its device accesses it: any of them serves.
    if (root === id && away(id, home[id]!))
      home[id] = Math.max(
        0,
        lanes.findIndex(lane => lane.device === device),
      )
    else home[id] = home[root]!
  }
  return home
}

/** The bytes on the device that holds most. */
export const fullest = ({ device }: { readonly device: readonly number[] }): number => Math.max(...device)
