import type { Command } from './plan.js'

const letters: Readonly<Record<Command[0], number>> = { alloc: 1, free: 2, run: 3, record: 4, wait: 5, use: 6 }

/**
 * A number that changes when any command does: two sums of 32 bits, each of which takes up every word in order. It keeps a list of millions from being frozen one by
 * one; it is no defence against somebody who computes collisions.
 */
export const fingerprintOf = (commands: readonly Command[]): number => {
  let a = commands.length
  let b = 0x811c9dc5
  const take = (given: unknown): void => {
    // Ids are whole and not negative: anything else is none.
    const word = ((given as number) | 0) === given ? given : -1
    a = (Math.imul(a ^ word, 0x01000193) + 1) | 0
    b = Math.imul(b ^ (b >>> 15) ^ word, 0x2c1b3c6d)
  }
  for (const command of commands) {
    take(letters[command[0]] + 8 * command.length)
    for (let i = 1; i < command.length; i++) {
      const item: unknown = command[i]
      if (Array.isArray(item)) {
        take(item.length)
        for (let at = 0; at < item.length; at++) take(item[at])
      } else take(item)
    }
  }
  return (a >>> 0) * 2 ** 21 + ((b >>> 0) & 0x1fffff)
}
