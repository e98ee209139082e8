// For tests alone, and no part of the public surface: what makes outstanding work visible.
import type { Device } from './device.js'
import { coreOfDevice } from './device.js'
import { type Lane, laneFor } from './lane.js'

/** Bytes outside its heap that V8 has been told of, by everybody. */
export const externalBytes = (device: Device): number => coreOfDevice(device).native.externalBytes()

/**
 * Holds the lane back where it is until the gate is opened, or the device is closed. On cuda a held lane holds back what other lanes call on
 * the host (other gates), and any driver call that waits for the whole context.
 */
export const hold = (device: Device, lane: Lane): { open(): void } & Disposable => {
  const core = coreOfDevice(device)
  const gate = core.native.hold(laneFor(lane, core, 'hold'))
  const open = (): void => {
    if (!core.closed) core.native.openGate(gate)
  }
  return { open, [Symbol.dispose]: open }
}
