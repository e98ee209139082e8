import type { ArrayAllocator } from '../collections/scratch-arena.js'
import type { Command, Plan } from '../ir/plan.js'

/**
 * Operation codes. `previous` is a wait for the previous tick; `broken` is an invalid command, or one that
 * names an id that the plan does not have.
 */
export const Op = { alloc: 0, free: 1, run: 2, record: 3, wait: 4, use: 5, previous: 6, broken: 7 } as const

/** Modes of an access. A run that reads and writes one buffer has two accesses. */
export const Mode = { read: 0, write: 1 } as const

/**
 * Commands in flat arrays, in issue order. Millions of commands as lists take most of a plan's memory, and
 * most of the time to read it.
 */
export interface FlatCommands {
  readonly commands: number
  readonly op: Uint8Array
  /** The command's lane; a free's is the home of its buffer. */
  readonly lane: Uint16Array
  /**
   * The first id of the command: a buffer, a node of a run, an event of a record or wait; -1 of a broken
   * command.
   */
  readonly named: Int32Array
  /** The event of each use, in issue order. */
  readonly useEventId: Int32Array
  /** Accesses of command c: accessStart[c] up to accessStart[c + 1]; reads first. */
  readonly accesses: number
  readonly accessStart: Int32Array
  readonly accessNamed: Int32Array
  readonly accessMode: Uint8Array
}

const isId = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

/** Events are numbered below this. */
const mostEvents = 2 ** 31 - 1

/** Accesses while they are read, as many as there turn out to be. */
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

  /**
   * Adds both lists of a run. Returns false, and adds nothing, where one of them is not a list of buffers.
   */
  add(reads: unknown, writes: unknown, buffers: number): boolean {
    if (!Array.isArray(reads) || !Array.isArray(writes)) return false
    const { length } = this
    if (!this.addAll(reads, Mode.read, buffers) || !this.addAll(writes, Mode.write, buffers)) {
      this.length = length
      return false
    }
    return true
  }

  private addAll(ids: readonly unknown[], mode: number, buffers: number): boolean {
    if (this.length + ids.length > this.named.length) this.grow(ids.length)
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]
      if (!isId(id, buffers)) return false
      this.mode[this.length] = mode
      this.named[this.length++] = id
    }
    return true
  }

  private grow(more: number): void {
    const { named, mode, length } = this
    this.named = this.allocator.unset32(2 * (length + more))
    this.mode = this.allocator.unset8(2 * (length + more))
    this.named.set(named)
    this.mode.set(mode)
  }
}

/** The commands of a plan, from its lists. A list may hold anything: an invalid command becomes `broken`. */
export const flatCommandsFrom = (
  plan: Plan,
  root: Int32Array,
  home: Int32Array,
  allocator: ArrayAllocator,
): FlatCommands => {
  const { commands } = plan
  const buffers = plan.buffers.length
  const nodes = plan.nodes.length
  const lanes = plan.lanes.length
  const count = commands.length
  const op = allocator.uint8(count)
  const lane = allocator.uint16(count)
  const named = allocator.int32(count)
  const accessStart = allocator.int32(count + 1)
  const accesses = new Accesses(allocator, count)
  const useEventId: number[] = []

  const codeOf = (command: readonly unknown[], c: number): number => {
    // By index: destructuring an array runs its iterator, once for each of millions.
    const id = command[1]
    const l = command[2]
    const third = command[3]
    switch (command[0]) {
      case 'run':
        return isId(id, nodes) && isId(l, lanes) && accesses.add(third, command[4], buffers)
          ? Op.run
          : Op.broken
      case 'free':
        if (isId(id, buffers)) lane[c] = home[root[id]!]!
        return isId(id, buffers) ? Op.free : Op.broken
      case 'alloc':
        return isId(id, buffers) && isId(l, lanes) ? Op.alloc : Op.broken
      case 'record':
        return isId(id, mostEvents) && isId(l, lanes) ? Op.record : Op.broken
      case 'wait':
        // A distance other than -1 must not count as the order of a wait of this tick.
        if (!isId(id, mostEvents) || !isId(l, lanes) || (third !== undefined && third !== -1))
          return Op.broken
        return third === -1 ? Op.previous : Op.wait
      case 'use':
        if (!isId(id, buffers) || !isId(l, lanes) || !isId(third, mostEvents)) return Op.broken
        useEventId.push(third)
        return Op.use
      default:
        return Op.broken
    }
  }
  for (let c = 0; c < count; c++) {
    const command: unknown = commands[c]
    accessStart[c] = accesses.length
    const code = Array.isArray(command) ? codeOf(command, c) : Op.broken
    op[c] = code
    named[c] = code === Op.broken ? -1 : (command as Command)[1]
    if (code !== Op.broken && code !== Op.free) lane[c] = (command as Command)[2] as number
  }
  accessStart[count] = accesses.length
  return {
    commands: count,
    op,
    lane,
    named,
    useEventId: Int32Array.from(useEventId),
    accesses: accesses.length,
    accessStart,
    accessNamed: accesses.named.subarray(0, accesses.length),
    accessMode: accesses.mode.subarray(0, accesses.length),
  }
}

/**
 * Whether flat commands name only ids that the plan has, in the form that `flatCommandsFrom` gives them: a
 * proof does not trust their origin.
 */
export const areWellFormed = (
  flat: FlatCommands,
  has: { readonly lanes: number; readonly nodes: number; readonly buffers: number },
  root: Int32Array,
  home: Int32Array,
): boolean => {
  const { commands, op, lane, named, useEventId, accesses, accessStart, accessNamed, accessMode } = flat
  if (op.length !== commands || lane.length !== commands || named.length !== commands) return false
  if (
    accessStart.length !== commands + 1 ||
    accessNamed.length !== accesses ||
    accessMode.length !== accesses
  )
    return false
  /** By code, the number of ids that its commands may name; events have no list. */
  const counts: (number | undefined)[] = []
  counts[Op.run] = has.nodes
  for (const code of [Op.alloc, Op.free, Op.use]) counts[code] = has.buffers
  let uses = 0
  let before = 0
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const id = named[c]!
    const from = accessStart[c]!
    const end = accessStart[c + 1]!
    if (from !== before || end < from || end > accesses || (end > from && code !== Op.run)) return false
    before = end
    if (id < 0 || lane[c]! >= has.lanes) return false
    if (code >= Op.broken || id >= (counts[code] ?? mostEvents)) return false
    if (code === Op.free && lane[c] !== home[root[id]!]) return false
    if (code === Op.use && !(useEventId[uses++]! >= 0)) return false
    for (let a = from; a < end; a++) {
      if (!(accessNamed[a]! >= 0 && accessNamed[a]! < has.buffers)) return false
      if (accessMode[a]! > Mode.write || (a > from && accessMode[a]! < accessMode[a - 1]!)) return false
    }
  }
  return uses === useEventId.length && before === accesses
}

/** Well-formed flat commands as lists. */
export const commandLists = (flat: FlatCommands): Command[] => {
  const { commands, op, lane, named, useEventId } = flat
  // Made at full length, since a growing list of millions is copied repeatedly.
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
        lists[c] = ['run', id, on, accessesOf(flat, c, Mode.read), accessesOf(flat, c, Mode.write)]
        break
      case Op.record:
        lists[c] = ['record', id, on]
        break
      case Op.wait:
        lists[c] = ['wait', id, on]
        break
      case Op.previous:
        lists[c] = ['wait', id, on, -1]
        break
      default:
        lists[c] = ['use', id, on, useEventId[uses++]!]
    }
  }
  return lists
}

const accessesOf = (
  { accessStart, accessNamed, accessMode }: FlatCommands,
  c: number,
  mode: number,
): number[] => {
  const list: number[] = []
  for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++)
    if (accessMode[a] === mode) list.push(accessNamed[a]!)
  return list
}
