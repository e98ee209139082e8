// For tests only, not public: ways to make pending work visible.
import { coreOfDevice, type Device } from './device.js'
import type { Lane } from './lane.js'
import { laneAccess } from './lane-access.js'

export { copyUnseen } from './lane.js'

/** The bytes outside V8's heap that were reported to V8, by all modules together. */
export const externalBytes = (device: Device): number => coreOfDevice(device).native.externalBytes()

/**
 * Blocks the lane until the gate is opened or the device is closed. On cuda a blocked lane also blocks host
 * callbacks of other lanes (other gates), and every driver call that waits for the whole context.
 */
export const hold = (device: Device, lane: Lane): { open(): void } & Disposable => {
  const core = coreOfDevice(device)
  const gate = core.native.hold(laneAccess.idFor(lane, core, 'hold'))
  const open = (): void => {
    if (!core.closed) core.native.openGate(gate)
  }
  return { open, [Symbol.dispose]: open }
}
