import type { Command } from '../ir/plan.js'
import { type CommandTable, Op } from '../order/command-table.js'

const letters: Readonly<Record<Command[0], number>> = {
  alloc: 1,
  free: 2,
  run: 3,
  record: 4,
  wait: 5,
  use: 6,
}

/** Two sums of 32 bits, each of which takes up every word in order. */
class Sums {
  private a: number
  private b = 0x811c9dc5 | 0

  constructor(commands: number) {
    this.a = commands
  }

  take(word: number): void {
    this.a = (Math.imul(this.a ^ word, 0x01000193) + 1) | 0
    this.b = Math.imul(this.b ^ (this.b >>> 15) ^ word, 0x2c1b3c6d)
  }

  get value(): number {
    return (this.a >>> 0) * 2 ** 21 + ((this.b >>> 0) & 0x1fffff)
  }
}

// Ids are whole and not negative: anything else is none.
const wordOf = (given: unknown): number => (((given as number) | 0) === given ? given : -1)

/**
 * A number that changes when any command does. It keeps a list of millions from being frozen one by one; it is no defence against somebody who computes collisions.
 */
export const fingerprintOf = (commands: readonly Command[]): number => {
  const sums = new Sums(commands.length)
  for (const command of commands) {
    sums.take(wordOf(letters[command[0]] + 8 * command.length))
    for (let i = 1; i < command.length; i++) {
      const item: unknown = command[i]
      if (Array.isArray(item)) {
        sums.take(item.length)
        for (let at = 0; at < item.length; at++) sums.take(wordOf(item[at]))
      } else sums.take(wordOf(item))
    }
  }
  return sums.value
}

/** The fingerprint of the commands that tables were made of, which say all of them where they are whole. */
export const fingerprintOfTable = (tables: CommandTable): number => {
  if (!tables.whole) return fingerprintOf(tables.plan.commands)
  const { commands, op, lane, named, eventId, useEvent, accessStart, accessNamed, accessMode } = tables
  const sums = new Sums(commands)
  let uses = 0
  for (let c = 0; c < commands; c++) {
    const id = named[c]!
    switch (op[c]) {
      case Op.run: {
        const end = accessStart[c + 1]!
        let writes = accessStart[c]!
        while (writes < end && accessMode[writes] === 0) writes++
        sums.take(letters.run + 8 * 5)
        sums.take(id)
        sums.take(lane[c]!)
        sums.take(writes - accessStart[c]!)
        for (let a = accessStart[c]!; a < writes; a++) sums.take(accessNamed[a]!)
        sums.take(end - writes)
        for (let a = writes; a < end; a++) sums.take(accessNamed[a]!)
        break
      }
      case Op.free:
        sums.take(letters.free + 8 * 2)
        sums.take(id)
        break
      case Op.alloc:
        sums.take(letters.alloc + 8 * 3)
        sums.take(id)
        sums.take(lane[c]!)
        break
      case Op.use:
        sums.take(letters.use + 8 * 4)
        sums.take(id)
        sums.take(lane[c]!)
        sums.take(eventId[useEvent[uses++]!]!)
        break
      case Op.record:
        sums.take(letters.record + 8 * 3)
        sums.take(eventId[id]!)
        sums.take(lane[c]!)
        break
      default:
        sums.take(letters.wait + 8 * (op[c] === Op.previous ? 4 : 3))
        sums.take(eventId[id]!)
        sums.take(lane[c]!)
        if (op[c] === Op.previous) sums.take(-1)
    }
  }
  return sums.value
}
