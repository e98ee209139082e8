import { type ArrayAllocator, heap } from '../collections/scratch-arena.js'
import type { Plan, PlanBuffer } from '../ir/plan.js'
import { type ByteIntervals, byteIntervalsOf } from './byte-intervals.js'
import { eachBuffer, eachNode, flatCommandsOf } from './compiled-plan.js'
import { areWellFormed, type FlatCommands, flatCommandsFrom, Op } from './flat-commands.js'

export { Mode, Op } from './flat-commands.js'

/** Codes of `CommandTable.kind`: a buffer's life, as replays distinguish it. */
export const Kind = { tick: 0, state: 1, param: 2, input: 3, output: 4 } as const
const kinds: Readonly<Record<string, number>> = Kind

/**
 * A plan in flat arrays, so that a replay reads numbers only. Views are resolved: every access, alloc, free
 * and use is of a root. Events are dense: numbered from 0 on, as they are first named.
 */
export interface CommandTable extends FlatCommands {
  readonly plan: Plan
  readonly lanes: number
  /** A root for alloc, free and use; a node for run; a dense event for record and wait. */
  readonly subject: Int32Array
  readonly accessRoot: Int32Array
  readonly buffers: number
  readonly root: Int32Array
  readonly home: Int32Array
  readonly bytes: Float64Array
  /** A device's index, or `devices` for pinned memory. */
  readonly memory: Int32Array
  /** The life as a number, see `Kind`. */
  readonly kind: Uint8Array
  readonly events: number
  /** By dense event, its number in the plan; and its first record in issue order, -1: none. */
  readonly eventId: Int32Array
  readonly recordOf: Int32Array
  /** Uses in issue order, numbered from 0: their commands, and their dense events. */
  readonly uses: number
  readonly useCommand: Int32Array
  readonly useEvent: Int32Array
  /** Whether some wait is for the tick before. */
  readonly carries: boolean
  /** Whether some node says that it comes after another one, and whether some node is a collective. */
  readonly ordered: boolean
  readonly shared: boolean
  /** The accesses of runs, by bytes. */
  readonly intervals: ByteIntervals
  /** The allocator of this table's arrays, and of its replays. */
  readonly allocator: ArrayAllocator
}

/**
 * Numbers in a replay's largest table, lanes × events. A plan beyond it is rejected, rather than exhaust the
 * machine's memory.
 */
export const mostNumbers = 2 ** 27

const isId = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

/**
 * The table of any plan, whatever its origin: commands that name ids that the plan does not have are
 * `broken`.
 */
export const commandTableOf = (plan: Plan, allocator: ArrayAllocator = heap): CommandTable => {
  const places = placesOf(plan, allocator)
  const { root, home, views } = places
  const nodes = eachNode(plan)
  const lanes = plan.lanes.length
  const has = { lanes, nodes: nodes.length, buffers: root.length }
  const known = flatCommandsOf(plan)
  const flat =
    known !== undefined && areWellFormed(known, has, root, home)
      ? known
      : flatCommandsFrom(plan, root, home, allocator)
  const { accesses, accessNamed } = flat
  const accessRoot = views ? allocator.int32(accesses) : accessNamed
  if (views) for (let a = 0; a < accesses; a++) accessRoot[a] = root[accessNamed[a]!]!
  let ordered = false
  let shared = false
  for (let n = 0; n < nodes.length; n++) {
    const { after, collective } = nodes.at(n)!
    if (after !== undefined) ordered = true
    if (collective !== undefined) shared = true
  }
  const intervals = byteIntervalsOf(plan, root, { ...flat, accessRoot }, allocator)
  const subjects = subjectsOf(flat, root, allocator)
  return { plan, lanes, ...flat, ...places, accessRoot, ...subjects, ordered, shared, intervals, allocator }
}

/** The number of a buffer's memory: its device's index, or `devices` for pinned memory. */
export const memoryOf = ({ devices }: Plan, { space, device }: PlanBuffer): number =>
  space === 'pinned' ? devices : Math.min(Math.max(0, device), devices - 1)

const placesOf = (plan: Plan, allocator: ArrayAllocator) => {
  const list = eachBuffer(plan)
  const buffers = list.length
  const lanes = plan.lanes.length
  const root = allocator.int32(buffers)
  const home = allocator.int32(buffers)
  const kind = allocator.uint8(buffers)
  const bytes = allocator.float64(buffers)
  const memory = allocator.int32(buffers)
  let views = false
  for (let b = 0; b < buffers; b++) {
    const buffer = list.at(b)!
    const { alias } = buffer
    root[b] = isId(alias, buffers) ? alias : b
    if (root[b] !== b) views = true
    home[b] = isId(buffer.home, lanes) ? buffer.home : 0
    kind[b] = kinds[buffer.life] ?? Kind.tick
    bytes[b] = buffer.bytes
    memory[b] = memoryOf(plan, buffer)
  }
  return { buffers, root, home, kind, bytes, memory, views }
}

/** The subject of each command, with dense events. */
const subjectsOf = (flat: FlatCommands, root: Int32Array, allocator: ArrayAllocator) => {
  const { commands, op, named } = flat
  const uses = flat.useEventId.length
  const subject = allocator.int32(commands)
  const useCommand = allocator.int32(uses)
  const useEvent = allocator.int32(uses)
  const dense = new DenseNumbers(allocator, commands)
  let next = 0
  let carries = false
  for (let c = 0; c < commands; c++) {
    const id = named[c]!
    switch (op[c]) {
      case Op.record:
      case Op.wait:
        subject[c] = dense.of(id)
        break
      case Op.previous:
        carries = true
        subject[c] = dense.of(id)
        break
      case Op.use:
        useCommand[next] = c
        useEvent[next] = dense.of(flat.useEventId[next]!)
        next++
        subject[c] = root[id]!
        break
      case Op.alloc:
      case Op.free:
        subject[c] = root[id]!
        break
      default:
        subject[c] = id
    }
  }
  const events = dense.count
  const eventId = dense.ids.subarray(0, events)
  const recordOf = allocator.int32(events).fill(-1)
  for (let c = commands - 1; c >= 0; c--) if (op[c] === Op.record) recordOf[subject[c]!] = c
  return { subject, uses, useCommand, useEvent, carries, events, eventId, recordOf }
}

/**
 * Numbers from 0 on for ids in the order in which they are first asked for. Ids of most plans are small and
 * are looked up in an array, others in a map.
 */
class DenseNumbers {
  ids: Int32Array
  count = 0
  /** By small id, 1 + its number; 0: none. */
  private small: Int32Array
  private readonly large = new Map<number, number>()

  constructor(
    private readonly allocator: ArrayAllocator,
    private readonly mostSmall: number,
  ) {
    const some = 64 + (mostSmall >>> 2)
    this.small = allocator.int32(some)
    this.ids = allocator.int32(some)
  }

  of(id: number): number {
    const isSmall = id < this.mostSmall
    if (isSmall && id >= this.small.length) this.small = this.grown(this.small, id + 1)
    const known = isSmall ? this.small[id]! : (this.large.get(id) ?? 0)
    if (known > 0) return known - 1
    const number = this.count++
    if (number === this.ids.length) this.ids = this.grown(this.ids, 0)
    this.ids[number] = id
    if (isSmall) this.small[id] = number + 1
    else this.large.set(id, number + 1)
    return number
  }

  private grown(array: Int32Array, least: number): Int32Array {
    const longer = this.allocator.int32(Math.max(2 * array.length, least))
    longer.set(array)
    return longer
  }
}
