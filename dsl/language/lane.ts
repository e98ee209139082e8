import type { LaneSpec } from '../ir/graph.js'
import { limits } from '../ir/limits.js'

/** A logical stream, made by `lane`. Two lanes of one name are the same lane. */
export interface Lane extends LaneSpec {
  readonly name: string
  readonly priority: 'low' | 'normal' | 'high'
  /** Which of the plan's devices it is on; absent: 0. */
  readonly device?: number
}

export interface LaneOptions {
  readonly priority?: 'low' | 'normal' | 'high'
  /**
   * Which of the plan's devices the lane is on, from 0: `open` says which of the machine's devices these are.
   */
  readonly device?: number
}

const priorities: readonly unknown[] = ['low', 'normal', 'high']

/**
 * A logical stream by name. Lanes are cheap: several may fold into one CUDA stream. `priority` is `normal`
 * and `device` 0 unless given.
 */
export const lane = (name: string, options?: LaneOptions): Lane => {
  // An option that there is not stays in the lane, which is then none: its first use reports it.
  const { priority = 'normal', device, ...others } = options ?? {}
  return Object.freeze({ name, priority, ...(device === undefined ? {} : { device }), ...others })
}

/** A device of the plan, for `on`, `upload` and `download`: whichever of its lanes the compiler chooses. */
export const device = (index: number): Lane => Object.freeze({ name: '', priority: 'normal', device: index })

const isDevice = (index: unknown): boolean =>
  Number.isInteger(index) && (index as number) >= 0 && (index as number) < limits.devices

/** Whether a value is a valid lane or device, made by `lane` and `device` or by hand. */
export const isLane = (value: unknown): value is Lane => {
  if (typeof value !== 'object' || value === null) return false
  const { name, priority, device, ...others } = value as Partial<Lane>
  if (Object.keys(others).length > 0) return false
  if (typeof name !== 'string' || !priorities.includes(priority)) return false
  return device === undefined ? name.length > 0 : isDevice(device)
}
