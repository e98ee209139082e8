import type { Plan, PlanBuffer } from '../plan.js'
import { type Cells, cellsOf } from './cells.js'
import { pairsOf } from './pairs.js'

/** Opcodes of `Tables.op`. `previous` is a wait with distance -1; `broken` names something that the plan does not have. */
export const Op = { alloc: 0, free: 1, run: 2, record: 3, wait: 4, use: 5, previous: 6, broken: 7 } as const

/** Modes of an access. A run that reads and writes one buffer has two accesses. */
export const Mode = { read: 0, write: 1 } as const

/** Codes of `Tables.kind`: what a buffer's life means to a replay. */
export const Kind = { tick: 0, state: 1, param: 2, input: 3, output: 4 } as const
const kinds: Readonly<Record<string, number>> = Kind

/**
 * A plan made flat, so that a replay touches typed arrays only. Views are resolved: every access, alloc, free and use is
 * of a root. A *pair* is a root and a lane that accesses it; a replay keeps one point for each pair, never a matrix of
 * buffers and lanes. Ids that the plan does not have make their command `broken`: it is then left out of every replay.
 */
export interface Tables {
  readonly plan: Plan
  readonly lanes: number
  readonly buffers: number
  readonly events: number
  readonly commands: number
  readonly op: Uint8Array
  /** The command's lane; a free's is the home lane of its buffer. */
  readonly lane: Int32Array
  /** A root for alloc, free and use; a node for run; a dense event for record and wait. */
  readonly subject: Int32Array
  /** The buffer as the command names it, for alloc, free and use: itself, not its root. */
  readonly named: Int32Array
  /** A use's dense event. */
  readonly useEvent: Int32Array
  /** The event as the plan numbers it, by dense event. */
  readonly eventId: Int32Array
  /** Accesses of command c: accessStart[c] up to accessStart[c + 1]; reads first. */
  readonly accessStart: Int32Array
  readonly accessRoot: Int32Array
  readonly accessNamed: Int32Array
  readonly accessMode: Uint8Array
  readonly accessPair: Int32Array
  readonly root: Int32Array
  readonly home: Int32Array
  readonly life: readonly PlanBuffer['life'][]
  readonly bytes: Float64Array
  /** A device's index, or `devices` for pinned memory. */
  readonly memory: Int32Array
  /** The life as a number, see `Kind`. */
  readonly kind: Uint8Array
  /** Byte ranges of roots, and what each run touches of them; see cells.ts. */
  readonly cells: Cells
  /** Pairs of root b: pairStart[b] up to pairStart[b + 1]. */
  readonly pairStart: Int32Array
  readonly pairLane: Int32Array
  /** Commands that use root b: useList[useStart[b]] up to useStart[b + 1], in issue order. */
  readonly useStart: Int32Array
  readonly useList: Int32Array
  /** Of each dense event, its first record in issue order; -1: none. */
  readonly recordOf: Int32Array
  /** How many runs stand before this command on its own lane. */
  readonly runsBefore: Int32Array
}

/** Cells of a replay's largest table, lanes × events: beyond it a plan is refused rather than a machine's memory exhausted. */
export const maxCells = 2 ** 27

const isId = (value: unknown, count: number): value is number =>
  typeof value === 'number' && value >>> 0 === value && value < count

const areIds = (values: unknown, count: number): boolean => {
  if (!Array.isArray(values)) return false
  for (let i = 0; i < values.length; i++) if (!isId(values[i], count)) return false
  return true
}

/** Accesses in order of their commands, as many as there turn out to be. */
class AccessList {
  private named: Int32Array
  private mode: Uint8Array
  length = 0

  constructor(room: number) {
    this.named = new Int32Array(room)
    this.mode = new Uint8Array(room)
  }

  add(ids: readonly number[], mode: number): void {
    if (this.length + ids.length > this.named.length) this.grow(ids.length)
    const { named, mode: modes } = this
    let at = this.length
    for (let i = 0; i < ids.length; i++) {
      named[at] = ids[i]!
      modes[at++] = mode
    }
    this.length = at
  }

  whole(): { readonly accessNamed: Int32Array; readonly accessMode: Uint8Array } {
    return { accessNamed: this.named.slice(0, this.length), accessMode: this.mode.slice(0, this.length) }
  }

  private grow(more: number): void {
    const named = new Int32Array(2 * (this.length + more))
    const mode = new Uint8Array(named.length)
    named.set(this.named)
    mode.set(this.mode)
    this.named = named
    this.mode = mode
  }
}

const isEvent = (value: unknown): value is number => isId(value, 2 ** 31 - 1)

export const tablesOf = (plan: Plan): Tables => {
  const { buffers, commands } = plan
  const lanes = plan.lanes.length
  const count = commands.length
  const root = new Int32Array(buffers.length)
  const home = new Int32Array(buffers.length)
  const kind = new Uint8Array(buffers.length)
  const life: PlanBuffer['life'][] = []
  const bytes = new Float64Array(buffers.length)
  const memory = new Int32Array(buffers.length)
  for (let b = 0; b < buffers.length; b++) {
    const buffer = buffers[b]!
    root[b] = isId(buffer.alias, buffers.length) ? buffer.alias : b
    home[b] = isId(buffer.home, lanes) ? buffer.home : 0
    kind[b] = kinds[buffer.life] ?? Kind.tick
    life.push(buffer.life)
    bytes[b] = buffer.bytes
    memory[b] = buffer.space === 'pinned' ? plan.devices : Math.min(Math.max(0, buffer.device), plan.devices - 1)
  }

  const op = new Uint8Array(count).fill(Op.broken)
  const lane = new Int32Array(count)
  const subject = new Int32Array(count).fill(-1)
  const named = new Int32Array(count).fill(-1)
  const useEvent = new Int32Array(count).fill(-1)
  // Events of most plans are numbered from 0 on: those are looked up by number, others by a map.
  const small = new Int32Array(count).fill(-1)
  const large = new Map<number, number>()
  const eventIds: number[] = []
  const event = (id: number): number => {
    const known = id < count ? small[id]! : (large.get(id) ?? -1)
    if (known >= 0) return known
    if (id < count) small[id] = eventIds.length
    else large.set(id, eventIds.length)
    return eventIds.push(id) - 1
  }

  // One walk over the commands: they are small objects all over memory, and reading them is what a large plan's tables cost.
  const accessStart = new Int32Array(count + 1)
  const accesses = new AccessList(count)

  for (let c = 0; c < count; c++) {
    const command = commands[c]!
    accessStart[c] = accesses.length
    if (!Array.isArray(command)) continue
    switch (command[0]) {
      case 'alloc':
        if (!isId(command[1], buffers.length) || !isId(command[2], lanes)) break
        op[c] = Op.alloc
        named[c] = command[1]
        subject[c] = root[command[1]]!
        lane[c] = command[2]
        break
      case 'free':
        if (!isId(command[1], buffers.length)) break
        op[c] = Op.free
        named[c] = command[1]
        subject[c] = root[command[1]]!
        lane[c] = home[subject[c]!]!
        break
      case 'run': {
        if (!isId(command[1], plan.nodes.length) || !isId(command[2], lanes)) break
        if (!areIds(command[3], buffers.length) || !areIds(command[4], buffers.length)) break
        op[c] = Op.run
        subject[c] = command[1]
        lane[c] = command[2]
        accesses.add(command[3], Mode.read)
        accesses.add(command[4], Mode.write)
        break
      }
      case 'record':
      case 'wait':
        if (!isEvent(command[1]) || !isId(command[2], lanes)) break
        op[c] = command[0] === 'record' ? Op.record : command[3] === -1 ? Op.previous : Op.wait
        subject[c] = event(command[1])
        lane[c] = command[2]
        break
      case 'use':
        if (!isId(command[1], buffers.length) || !isId(command[2], lanes) || !isEvent(command[3])) break
        op[c] = Op.use
        named[c] = command[1]
        subject[c] = root[command[1]]!
        lane[c] = command[2]
        useEvent[c] = event(command[3])
        break
    }
  }
  accessStart[count] = accesses.length
  const { accessNamed, accessMode } = accesses.whole()
  const accessRoot = new Int32Array(accesses.length)
  for (let a = 0; a < accessRoot.length; a++) accessRoot[a] = root[accessNamed[a]!]!

  const runsBefore = new Int32Array(count)
  const runs = new Int32Array(lanes)
  const recordOf = new Int32Array(eventIds.length).fill(-1)
  for (let c = 0; c < count; c++) {
    if (op[c] === Op.broken) continue
    runsBefore[c] = runs[lane[c]!]!
    if (op[c] === Op.run) runs[lane[c]!]!++
    if (op[c] === Op.record && recordOf[subject[c]!] === -1) recordOf[subject[c]!] = c
  }

  const pairs = pairsOf(buffers.length, lanes, lane, accessStart, accessRoot)
  return {
    plan,
    lanes,
    buffers: buffers.length,
    events: eventIds.length,
    commands: count,
    op,
    lane,
    subject,
    named,
    useEvent,
    eventId: Int32Array.from(eventIds),
    accessStart,
    accessRoot,
    accessNamed,
    accessMode,
    root,
    home,
    life,
    bytes,
    memory,
    kind,
    ...pairs,
    cells: cellsOf(plan, root, lanes, lane, { accessStart, accessRoot, accessNamed, accessMode, ...pairs }),
    ...usesOf(buffers.length, count, op, subject),
    recordOf,
    runsBefore,
  }
}

let latest:
  | { readonly plan: WeakRef<Plan>; readonly commands: WeakRef<object>; readonly tables: WeakRef<Tables> }
  | undefined

/** The tables of a plan that nobody changes meanwhile: the pool's peak and that of L9 are asked for one after the other. Not for plans to be proved. */
export const latestTables = (plan: Plan): Tables => {
  const known =
    latest?.plan.deref() === plan && latest.commands.deref() === plan.commands ? latest.tables.deref() : undefined
  if (known !== undefined) return known
  const tables = tablesOf(plan)
  latest = { plan: new WeakRef(plan), commands: new WeakRef(plan.commands), tables: new WeakRef(tables) }
  return tables
}

const usesOf = (buffers: number, commands: number, op: Uint8Array, subject: Int32Array) => {
  const useStart = new Int32Array(buffers + 1)
  for (let c = 0; c < commands; c++) if (op[c] === Op.use) useStart[subject[c]! + 1]!++
  for (let b = 0; b < buffers; b++) useStart[b + 1]! += useStart[b]!
  const fill = useStart.slice()
  const useList = new Int32Array(useStart[buffers]!)
  for (let c = 0; c < commands; c++) if (op[c] === Op.use) useList[fill[subject[c]!]!++] = c
  return { useStart, useList }
}

/** The run or wait that is a lane's point, of the clock's tick or an earlier one: what sentences name. One walk over the plan. */
export const pointAt = (
  { commands, op, lane }: Tables,
  { known, base, lanes, tick }: { known: Int32Array; base: Int32Array; lanes: number; tick: number },
  l: number,
  point: number,
): number => {
  const each = tick > 0 ? base[l]! / tick : known[l * lanes + l]!
  let left = point > base[l]! ? point - base[l]! : point - (Math.ceil(point / each) - 1) * each
  for (let c = 0; c < commands; c++)
    if (lane[c] === l && (op[c] === Op.run || op[c] === Op.wait || op[c] === Op.previous) && --left === 0) return c
  return -1
}
