import { type CommandTable, Kind } from '../order/command-table.js'

/**
 * How many places a buffer has in its memory for as long as the plan is open. 0: none, since it is a view, or
 * lies in the pool or in an arena.
 */
export const lastingPlaces = ({ plan, root, kind, memory }: CommandTable, b: number): number => {
  if (root[b] !== b) return 0
  if (kind[b] === Kind.input || kind[b] === Kind.output) return plan.inFlight
  const isTick = kind[b] === Kind.tick
  if (plan.storage !== 'planned') return isTick ? 0 : 1
  if (memory[b] !== plan.devices) return 0
  return isTick ? (plan.arenas ?? 1) : 1
}

/** By memory (devices, then pinned), the bytes of all such places; a buffer's own bytes go through `round`. */
export const lastingBytes = (table: CommandTable, round = (bytes: number): number => bytes): number[] => {
  const { plan, buffers, memory, bytes } = table
  const held = new Array<number>(plan.devices + 1).fill(0)
  for (let b = 0; b < buffers; b++) {
    const places = lastingPlaces(table, b)
    if (places > 0) held[memory[b]!]! += round(bytes[b]!) * places
  }
  return held
}
