import type { Command, Plan, PlanBuffer, PlanNode } from '../ir/plan.js'
import { type FlatCommands, Mode, Op } from './flat-commands.js'

// Millions of commands as lists take most of a plan's memory, and of the time to make it. Who judges a plan reads them flat, as they were made; who asks for the
// lists gets them, and may change them: from then on they are what the plan says.
const unread = new WeakMap<object, FlatCommands>()

/** A list whose items are made when somebody asks for one. An array is such a list. */
export interface Listing<A> {
  readonly length: number
  at(i: number): A | undefined
}

/** What a plan says of its nodes and buffers, as long as nobody has asked for the lists. */
interface Unmade {
  nodes?: Listing<PlanNode>
  buffers?: Listing<PlanBuffer>
}

const unmade = new WeakMap<object, Unmade>()

/** Whether nobody has asked for a list of the plan yet, so that it is still to be made. */
export const isUnmade = (plan: Plan, list: keyof Unmade): boolean => unmade.get(plan)?.[list] !== undefined

/** A plan's nodes one by one: of a large plan whose list nobody has asked for they are made for whoever looks, and let go of. */
export const eachNode = (plan: Plan): Listing<PlanNode> => unmade.get(plan)?.nodes ?? plan.nodes

/** A plan's buffers likewise. */
export const eachBuffer = (plan: Plan): Listing<PlanBuffer> => unmade.get(plan)?.buffers ?? plan.buffers

const made = <A extends object>(listing: Listing<A>): readonly A[] => {
  const list = new Array<A>(listing.length)
  for (let i = 0; i < list.length; i++) list[i] = Object.freeze(listing.at(i)!)
  return Object.freeze(list)
}

/** All items, frozen. */
export const allOf = <A extends object>(listing: Listing<A>): readonly A[] =>
  Array.isArray(listing) && Object.isFrozen(listing) ? listing : made(listing)

/** A plan's commands flat, as long as nobody has had them as lists. */
export const packedOf = (plan: Plan): FlatCommands | undefined => unread.get(plan)

const accessesOf = (
  { accessStart, accessNamed, accessMode }: FlatCommands,
  c: number,
  mode: number,
): number[] => {
  let count = 0
  for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) if (accessMode[a] === mode) count++
  const list = new Array<number>(count)
  for (let a = accessStart[c + 1]! - 1; a >= accessStart[c]!; a--)
    if (accessMode[a] === mode) list[--count] = accessNamed[a]!
  return list
}

/** Commands that are `whole`, as lists. */
export const listed = (walk: FlatCommands): Command[] => {
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

/** Commands from which on a plan's are kept flat until somebody asks for lists, and its nodes and buffers are not made before that either. */
const many = 2 ** 17

/** A plan but for its commands, and with lists that may still be to make. */
export type Outline = Omit<Plan, 'commands' | 'nodes' | 'buffers'> & {
  readonly nodes: Listing<PlanNode>
  readonly buffers: Listing<PlanBuffer>
}

/** A plan of these commands, frozen but for the single commands. */
export const planOf = (outline: Outline, walk: FlatCommands): Plan => {
  const { plan, name, devices, inFlight, storage, bound, arena, lanes, buffers, nodes, ...rest } = outline
  const before = { plan, name, devices, inFlight, storage, bound, ...(arena === undefined ? {} : { arena }) }
  if (walk.commands < many) {
    const lists = {
      lanes,
      buffers: allOf(buffers),
      nodes: allOf(nodes),
      commands: Object.freeze(listed(walk)),
    }
    return Object.freeze({ ...before, ...lists, ...rest })
  }
  let flat: FlatCommands | undefined = walk
  let lists: readonly Command[] = []
  const left: Unmade = { nodes, buffers }
  let [allNodes, allBuffers]: [readonly PlanNode[], readonly PlanBuffer[]] = [[], []]
  const large: Plan = Object.freeze({
    ...before,
    lanes,
    get buffers() {
      if (left.buffers !== undefined) {
        allBuffers = allOf(left.buffers)
        delete left.buffers
      }
      return allBuffers
    },
    get nodes() {
      if (left.nodes !== undefined) {
        allNodes = allOf(left.nodes)
        delete left.nodes
      }
      return allNodes
    },
    get commands() {
      if (flat !== undefined) {
        lists = Object.freeze(listed(flat))
        unread.delete(large)
        flat = undefined
      }
      return lists
    },
    ...rest,
  })
  unread.set(large, walk)
  unmade.set(large, left)
  return large
}
