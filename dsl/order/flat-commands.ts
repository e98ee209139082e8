import type { Plan } from '../ir/plan.js'
import { packedOf } from './packed.js'
import type { ArrayAllocator } from './scratch-arena.js'
import { isWellFormed } from './well-formed.js'

/** Opcodes of `CommandTable.op`. `previous` is a wait with distance -1; `broken` names something that the plan does not have. */
export const Op = { alloc: 0, free: 1, run: 2, record: 3, wait: 4, use: 5, previous: 6, broken: 7 } as const

/** Modes of an access. A run that reads and writes one buffer has two accesses. */
export const Mode = { read: 0, write: 1 } as const

/** The commands of a plan, flat. Ids that the plan does not have make their command `broken`: it is then left out of every replay. */
export interface FlatCommands {
  readonly commands: number
  readonly op: Uint8Array
  /** The command's lane; a free's is the home lane of its buffer. */
  readonly lane: Uint16Array
  /** The buffer as the command names it, for alloc, free and use; a node for run; a dense event for record and wait. */
  readonly named: Int32Array
  readonly events: number
  /** The event as the plan numbers it, by dense event; they are numbered as they are first named. */
  readonly eventId: Int32Array
  /** Of each dense event, its first record in issue order; -1: none. */
  readonly recordOf: Int32Array
  /** Uses in issue order, numbered from 0: their commands, and their dense events. */
  readonly uses: number
  readonly useCommand: Int32Array
  readonly useEvent: Int32Array
  /** Accesses of command c: accessStart[c] up to accessStart[c + 1]; reads first. */
  readonly accesses: number
  readonly accessStart: Int32Array
  readonly accessNamed: Int32Array
  readonly accessMode: Uint8Array
  /** Whether some wait is for the tick before. */
  readonly carries: boolean
  /** Whether each event is recorded once at most, and before every wait for it. */
  readonly recordsFirst: boolean
  /** Whether no command is broken or says more than the format has: then all that commands say is in these tables. */
  readonly whole: boolean
}

const isId = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

const mostEvents = 2 ** 31 - 1

/** As many of anything as most plans have. ArrayAllocator that is never written costs nothing the first time, and is zeroed like any other the next. */
const some = (commands: number): number => 64 + (commands >>> 2)

const grown = (allocator: ArrayAllocator, array: Int32Array, least: number): Int32Array => {
  const more = allocator.int32(Math.max(2 * array.length, least))
  more.set(array)
  return more
}

/** Dense numbers of events. Those of most plans are numbered from 0 on and are looked up by number, others by a map. */
class Events {
  private small: Int32Array
  private readonly large = new Map<number, number>()
  ids: Int32Array
  /** 1 + the command that records it first; 0: none. */
  recorded: Int32Array
  count = 0

  constructor(
    private readonly allocator: ArrayAllocator,
    private readonly commands: number,
  ) {
    this.small = allocator.int32(some(commands))
    this.ids = allocator.int32(some(commands))
    this.recorded = allocator.int32(some(commands))
  }

  of(id: number): number {
    const isSmall = id < this.commands
    if (isSmall && id >= this.small.length) this.small = grown(this.allocator, this.small, id + 1)
    const known = isSmall ? this.small[id]! : (this.large.get(id) ?? 0)
    if (known > 0) return known - 1
    const event = this.count++
    if (event === this.ids.length) {
      this.ids = grown(this.allocator, this.ids, 0)
      this.recorded = grown(this.allocator, this.recorded, 0)
    }
    this.ids[event] = id
    if (isSmall) this.small[id] = event + 1
    else this.large.set(id, event + 1)
    return event
  }
}

/** Accesses in order of their commands, as many as there turn out to be. */
class Accesses {
  named: Int32Array
  mode: Uint8Array
  length = 0

  constructor(
    private readonly allocator: ArrayAllocator,
    capacity: number,
  ) {
    this.named = allocator.unset32(capacity)
    this.mode = allocator.unset8(capacity)
  }

  /** Both lists of a run, or nothing where one of them is no list of ids. */
  add(reads: unknown, writes: unknown, buffers: number): boolean {
    if (!Array.isArray(reads) || !Array.isArray(writes)) return false
    const { length } = this
    const end = length + reads.length + writes.length
    if (end > this.named.length) this.grow(end)
    const { named, mode } = this
    let at = length
    for (let i = 0; i < reads.length; i++) {
      const id: unknown = reads[i]
      if (!isId(id, buffers)) return false
      mode[at] = Mode.read
      named[at++] = id
    }
    for (let i = 0; i < writes.length; i++) {
      const id: unknown = writes[i]
      if (!isId(id, buffers)) return false
      mode[at] = Mode.write
      named[at++] = id
    }
    this.length = at
    return true
  }

  private grow(least: number): void {
    const { named, mode } = this
    this.named = this.allocator.unset32(2 * least)
    this.mode = this.allocator.unset8(2 * least)
    this.named.set(named)
    this.mode.set(mode)
  }
}

/**
 * A plan's commands flat: as they are kept where they are and say what their lists would, else by one walk over them. They are small objects all over memory, and reading them is what a large plan's
 * tables cost.
 */
export const walk = (
  plan: Plan,
  root: Int32Array,
  home: Int32Array,
  allocator: ArrayAllocator,
): FlatCommands => {
  const packed = packedOf(plan)
  return packed !== undefined && isWellFormed(packed, plan, root, home)
    ? packed
    : walked(plan, root, home, allocator)
}

const walked = (plan: Plan, root: Int32Array, home: Int32Array, allocator: ArrayAllocator): FlatCommands => {
  const { commands } = plan
  const buffers = plan.buffers.length
  const nodes = plan.nodes.length
  const lanes = plan.lanes.length
  const count = commands.length
  const op = allocator.uint8(count)
  const lane = allocator.uint16(count)
  const named = allocator.int32(count)
  let useCommand = allocator.int32(some(count))
  let useEvent = allocator.int32(some(count))
  const accessStart = allocator.int32(count + 1)
  const accesses = new Accesses(allocator, count)
  const events = new Events(allocator, count)
  let uses = 0
  let carries = false
  let recordsFirst = true
  let whole = true

  for (let c = 0; c < count; c++) {
    const command = commands[c]!
    accessStart[c] = accesses.length
    let code: number = Op.broken
    let words = 3
    if (Array.isArray(command)) {
      const id: unknown = command[1]
      const l: unknown = command[2]
      switch (command[0]) {
        case 'run':
          if (!isId(id, nodes) || !isId(l, lanes) || !accesses.add(command[3], command[4], buffers)) break
          code = Op.run
          words = 5
          lane[c] = l
          named[c] = id
          break
        case 'free':
          if (!isId(id, buffers)) break
          code = Op.free
          words = 2
          lane[c] = home[root[id]!]!
          named[c] = id
          break
        case 'alloc':
          if (!isId(id, buffers) || !isId(l, lanes)) break
          code = Op.alloc
          lane[c] = l
          named[c] = id
          break
        case 'record': {
          if (!isId(id, mostEvents) || !isId(l, lanes)) break
          code = Op.record
          const event = events.of(id)
          lane[c] = l
          named[c] = event
          if (events.recorded[event] === 0) events.recorded[event] = c + 1
          else recordsFirst = false
          break
        }
        case 'wait': {
          // A distance that is neither none nor -1 is nobody's: it must not pass for the order that a wait of this tick gives.
          const tick: unknown = command[3]
          if (!isId(id, mostEvents) || !isId(l, lanes) || (tick !== undefined && tick !== -1)) break
          code = tick === -1 ? Op.previous : Op.wait
          if (code === Op.previous) {
            carries = true
            words = 4
          }
          const event = events.of(id)
          lane[c] = l
          named[c] = event
          if (events.recorded[event] === 0) recordsFirst = false
          break
        }
        case 'use': {
          const event: unknown = command[3]
          if (!isId(id, buffers) || !isId(l, lanes) || !isId(event, mostEvents)) break
          code = Op.use
          words = 4
          lane[c] = l
          named[c] = id
          if (uses === useCommand.length) {
            useCommand = grown(allocator, useCommand, 0)
            useEvent = grown(allocator, useEvent, 0)
          }
          useCommand[uses] = c
          useEvent[uses++] = events.of(event)
          break
        }
      }
      if (code === Op.broken || command.length !== words) whole = false
    } else whole = false
    op[c] = code
    if (code === Op.broken) named[c] = -1
  }
  accessStart[count] = accesses.length
  const recordOf = events.recorded.subarray(0, events.count)
  for (let event = 0; event < events.count; event++) recordOf[event]!--
  return {
    commands: count,
    op,
    lane,
    named,
    events: events.count,
    eventId: events.ids.subarray(0, events.count),
    recordOf,
    uses,
    useCommand: useCommand.subarray(0, uses),
    useEvent: useEvent.subarray(0, uses),
    accesses: accesses.length,
    accessStart,
    accessNamed: accesses.named.subarray(0, accesses.length),
    accessMode: accesses.mode.subarray(0, accesses.length),
    carries,
    recordsFirst,
    whole,
  }
}
