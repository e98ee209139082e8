import type { Plan, PlanBuffer } from '../ir/plan.js'
import { eachBuffer } from '../order/compiled-plan.js'

/** Arenas of ticks in flight begin at multiples of this, as places in an arena do. */
const alignment = 512

type Arenas = Pick<Plan, 'arena' | 'arenas'>

const isOwn = ({ space, device, life, alias, offset, bytes }: PlanBuffer, on: number): boolean =>
  space === 'device' &&
  device === on &&
  life === 'tick' &&
  alias === undefined &&
  offset !== undefined &&
  bytes > 0

/**
 * The first byte of a device's arena that each tick in flight has for itself, where it has several: that of
 * the lowest `tick` buffer. Below it lies what all ticks share. The arena's end where no `tick` buffer lies
 * in it.
 */
export const ownBytesFrom = (plan: Plan, device: number): number => {
  const buffers = eachBuffer(plan)
  let from = plan.arena?.[device] ?? 0
  for (let b = 0; b < buffers.length; b++) {
    const buffer = buffers.at(b)!
    if (isOwn(buffer, device)) from = Math.min(from, buffer.offset!)
  }
  return from
}

/** Bytes of a device's arena with those that further ticks in flight have for themselves, from `from` on. */
export const arenaBytes = ({ arena, arenas = 1 }: Arenas, device: number, from: number): number => {
  const one = arena?.[device] ?? 0
  return one + (arenas - 1) * Math.ceil((one - from) / alignment) * alignment
}
