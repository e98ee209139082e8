import type { Plan } from '../ir/plan.js'
import { type ByteIntervals, byteIntervalsOf } from './byte-intervals.js'
import { type FlatCommands, Op, walk } from './flat-commands.js'
import type { Frontiers } from './frontiers.js'
import { eachBuffer, eachNode, packedOf } from './packed.js'
import { type ArrayAllocator, heap } from './scratch-arena.js'

export { Mode, Op } from './flat-commands.js'

/** Codes of `CommandTable.kind`: what a buffer's life means to a replay. */
export const Kind = { tick: 0, state: 1, param: 2, input: 3, output: 4 } as const
const kinds: Readonly<Record<string, number>> = Kind

/**
 * A plan made flat, so that a replay touches typed arrays only. Views are resolved: every access, alloc, free and use is of a root.
 * In a plan without views buffers are their own roots: the same arrays.
 */
export interface CommandTable extends FlatCommands {
  readonly plan: Plan
  readonly lanes: number
  readonly buffers: number
  /** A root for alloc, free and use; a node for run; a dense event for record and wait. */
  readonly subject: Int32Array
  readonly accessRoot: Int32Array
  readonly root: Int32Array
  readonly home: Int32Array
  readonly bytes: Float64Array
  /** A device's index, or `devices` for pinned memory. */
  readonly memory: Int32Array
  /** The life as a number, see `Kind`. */
  readonly kind: Uint8Array
  /** Whether some node says that it comes after another one, and whether some is a collective. */
  readonly ordered: boolean
  readonly shared: boolean
  /** Byte ranges of roots, and what each run touches of them; see cells.ts. */
  readonly cells: ByteIntervals
  /** Where replays of these tables have their own from. */
  readonly allocator: ArrayAllocator
}

/** ByteIntervals of a replay's largest table, lanes × events: beyond it a plan is refused rather than a machine's memory exhausted. */
export const maxCells = 2 ** 27

const isId = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

export const commandTableOf = (plan: Plan, allocator: ArrayAllocator = heap): CommandTable => {
  const buffers = eachBuffer(plan)
  const lanes = plan.lanes.length
  const root = allocator.int32(buffers.length)
  const home = allocator.int32(buffers.length)
  const kind = allocator.uint8(buffers.length)
  const bytes = allocator.float64(buffers.length)
  const memory = allocator.int32(buffers.length)
  let views = false
  for (let b = 0; b < buffers.length; b++) {
    const buffer = buffers.at(b)!
    const { alias } = buffer
    root[b] = isId(alias, buffers.length) ? alias : b
    if (root[b] !== b) views = true
    home[b] = isId(buffer.home, lanes) ? buffer.home : 0
    kind[b] = buffer.life === 'tick' ? Kind.tick : (kinds[buffer.life] ?? Kind.tick)
    bytes[b] = buffer.bytes
    memory[b] =
      buffer.space === 'pinned' ? plan.devices : Math.min(Math.max(0, buffer.device), plan.devices - 1)
  }
  const walked = walk(plan, root, home, allocator)
  const { op, named, commands, accesses, accessStart, accessNamed, accessMode } = walked
  const subject = views ? allocator.int32(commands) : named
  const accessRoot = views ? allocator.int32(accesses) : accessNamed
  if (views) {
    for (let c = 0; c < commands; c++) {
      const code = op[c]
      const owned = code === Op.alloc || code === Op.free || code === Op.use
      subject[c] = owned ? root[named[c]!]! : named[c]!
    }
    for (let a = 0; a < accesses; a++) accessRoot[a] = root[accessNamed[a]!]!
  }
  const nodes = eachNode(plan)
  let ordered = false
  let shared = false
  for (let n = 0; n < nodes.length; n++) {
    const { after, collective } = nodes.at(n)!
    if (after !== undefined) ordered = true
    if (collective !== undefined) shared = true
  }
  const cells = byteIntervalsOf(
    plan,
    root,
    { accesses, accessStart, accessNamed, accessMode, accessRoot },
    allocator,
  )
  // One by one: V8 gives objects that are spread from others so large a class of their own each time, and code that it has made for one is of no use to the next.
  return {
    commands,
    op,
    lane: walked.lane,
    named,
    events: walked.events,
    eventId: walked.eventId,
    recordOf: walked.recordOf,
    uses: walked.uses,
    useCommand: walked.useCommand,
    useEvent: walked.useEvent,
    accesses,
    accessStart,
    accessNamed,
    accessMode,
    carries: walked.carries,
    recordsFirst: walked.recordsFirst,
    whole: walked.whole,
    plan,
    lanes,
    buffers: buffers.length,
    subject,
    accessRoot,
    root,
    home,
    bytes,
    memory,
    kind,
    ordered,
    shared,
    cells,
    allocator,
  }
}

let latest:
  | {
      readonly plan: WeakRef<Plan>
      readonly commands: WeakRef<object>
      readonly tables: WeakRef<CommandTable>
    }
  | undefined

/** The tables of a plan that nobody changes meanwhile: the pool's peak and that of L9 are asked for one after the other. Not for plans to be proved. */
export const latestCommandTable = (plan: Plan): CommandTable => {
  const commands = packedOf(plan) ?? plan.commands
  const known =
    latest?.plan.deref() === plan && latest.commands.deref() === commands ? latest.tables.deref() : undefined
  if (known !== undefined) return known
  const tables = commandTableOf(plan)
  latest = { plan: new WeakRef(plan), commands: new WeakRef(commands), tables: new WeakRef(tables) }
  return tables
}

/** The event of the use that command c is; -1: it is none. */
export const eventOfUse = ({ useCommand, useEvent, uses }: CommandTable, c: number): number => {
  let low = 0
  for (let high = uses; low < high; ) {
    const middle = (low + high) >> 1
    if (useCommand[middle]! < c) low = middle + 1
    else high = middle
  }
  return useCommand[low] === c ? useEvent[low]! : -1
}

/** The run or wait that is a lane's point, of the clock's tick or an earlier one: what sentences name. One walk over the plan. */
export const pointAt = (
  { commands, op, lane }: CommandTable,
  { known, base, lanes, tick }: Frontiers,
  l: number,
  point: number,
): number => {
  const each = tick > 0 ? base[l]! / tick : known[l * lanes + l]!
  let left = point > base[l]! ? point - base[l]! : point - (Math.ceil(point / each) - 1) * each
  for (let c = 0; c < commands; c++)
    if (lane[c] === l && (op[c] === Op.run || op[c] === Op.wait || op[c] === Op.previous) && --left === 0)
      return c
  return -1
}
