import { Mode, Op, type Walk } from './laws/walk.js'
import type { Command, Plan } from './plan.js'

// Millions of commands as lists take most of a plan's memory, and of the time to make it. Who judges a plan reads them flat, as they were made; who asks for the
// lists gets them, and may change them: from then on they are what the plan says.
const unread = new WeakMap<object, Walk>()

/** A plan's commands flat, as long as nobody has had them as lists. */
export const packedOf = (plan: Plan): Walk | undefined => unread.get(plan)

const accessesOf = ({ accessStart, accessNamed, accessMode }: Walk, c: number, mode: number): number[] => {
  let count = 0
  for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) if (accessMode[a] === mode) count++
  const list = new Array<number>(count)
  for (let a = accessStart[c + 1]! - 1; a >= accessStart[c]!; a--)
    if (accessMode[a] === mode) list[--count] = accessNamed[a]!
  return list
}

/** Commands that are `whole`, as lists. */
export const listed = (walk: Walk): Command[] => {
  const { commands, op, lane, named, eventId, useEvent } = walk
  // As long as it will be, at once: grown by pushes, a list of millions is copied again and again.
  const lists = new Array<Command>(commands)
  let uses = 0
  for (let c = 0; c < commands; c++) {
    const id = named[c]!
    const on = lane[c]!
    switch (op[c]) {
      case Op.alloc:
        lists[c] = ['alloc', id, on]
        break
      case Op.free:
        lists[c] = ['free', id]
        break
      case Op.run:
        lists[c] = ['run', id, on, accessesOf(walk, c, Mode.read), accessesOf(walk, c, Mode.write)]
        break
      case Op.record:
        lists[c] = ['record', eventId[id]!, on]
        break
      case Op.wait:
        lists[c] = ['wait', eventId[id]!, on]
        break
      case Op.previous:
        lists[c] = ['wait', eventId[id]!, on, -1]
        break
      default:
        lists[c] = ['use', id, on, eventId[useEvent[uses++]!]!]
    }
  }
  return lists
}

/** Commands from which on a plan's are kept flat until somebody asks for lists. */
const many = 2 ** 17

/** A plan of these commands, frozen but for the single commands. */
export const planOf = (parts: Omit<Plan, 'commands'>, walk: Walk): Plan => {
  const { plan, name, devices, inFlight, storage, bound, arena, lanes, buffers, nodes, ...rest } = parts
  const before = { plan, name, devices, inFlight, storage, bound, ...(arena === undefined ? {} : { arena }) }
  if (walk.commands < many)
    return Object.freeze({ ...before, lanes, buffers, nodes, commands: Object.freeze(listed(walk)), ...rest })
  let flat: Walk | undefined = walk
  let lists: readonly Command[] = []
  const made: Plan = Object.freeze({
    ...before,
    lanes,
    buffers,
    nodes,
    get commands() {
      if (flat !== undefined) {
        lists = Object.freeze(listed(flat))
        unread.delete(made)
        flat = undefined
      }
      return lists
    },
    ...rest,
  })
  unread.set(made, walk)
  return made
}
