import { IntervalMap } from '../../collections/interval-map.js'
import { heap } from '../../collections/scratch-arena.js'
import { bufferName, joinNames, laneName, nodeName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { type CommandTable, commandTableOf, Op } from '../../order/command-table.js'
import { LastAccesses } from '../../order/last-accesses.js'
import { HappensBefore } from './happens-before.js'

/** Planned storage: `buffer` reuses bytes that were last of the buffer `from`. */
export interface MemoryReuse {
  readonly buffer: string
  readonly offset: number
  readonly bytes: number
  /** The earlier buffer: of this tick, or of the previous one. */
  readonly from: string
  readonly ticksAgo: 0 | 1
  /** The last operations that accessed it. */
  readonly after: string
  /** Why those operations happen before the reuse. */
  readonly because: string
}

/**
 * Every memory reuse among the buffers of the arenas, with what orders the two buffers, found in the second
 * tick of a replay. Empty with pooled storage.
 */
export const memoryReuseOf = (plan: Plan): readonly MemoryReuse[] => {
  if (plan.storage !== 'planned') return []
  const tables = commandTableOf(plan)
  const found: MemoryReuse[] = []
  for (let device = 0; device < plan.devices; device++) replay(tables, device, found)
  return found
}

/** Buffers of a device's arena that live for a part of a tick. */
const arenaBuffers = ({ plan, root }: CommandTable, device: number): readonly number[] =>
  plan.buffers.flatMap(({ space, device: own, life, offset }, b) =>
    root[b] === b && space === 'device' && own === device && life === 'tick' && offset !== undefined
      ? [b]
      : [],
  )

const replay = (tables: CommandTable, device: number, found: MemoryReuse[]): void => {
  const { plan } = tables
  const buffers = arenaBuffers(tables, device)
  const ends = (b: number): readonly number[] => [
    plan.buffers[b]!.offset!,
    plan.buffers[b]!.offset! + plan.buffers[b]!.bytes,
  ]
  const cuts = Float64Array.from(new Set(buffers.flatMap(ends))).sort()
  const index = new Map(Array.from(cuts, (cut, i) => [cut, i]))
  const owners = new IntervalMap(cuts.length)
  const isInArena = new Uint8Array(plan.buffers.length)
  for (const b of buffers) isInArena[b] = 1
  const order = new HappensBefore(tables)
  const { lanes } = order
  const claimed = new Int32Array(plan.buffers.length).fill(-1)
  const last = new LastAccesses(heap, tables.buffers, tables.accesses)
  const latest = new Int32Array(lanes).fill(-1)
  const recordedAfter = new Int32Array(tables.events).fill(-1)

  const node = (c: number): string => nodeName(plan, tables.subject[c]!)
  /** Why the next command of lane l happens after the last access of lane m. */
  const because = (l: number, m: number): string => {
    if (l === m) return `${laneName(plan, l % tables.lanes)} does them in order`
    const { wait, tick } = order.causeOf(l, m)
    if (wait < 0) return `the host begins a tick when the one ${plan.inFlight} before it has ended`
    const run = recordedAfter[tables.subject[wait]!]!
    const ago = tables.op[wait] === Op.previous ? ' of the tick before' : ''
    const verb = tick === order.tick ? 'waits for' : 'has waited, a tick ago, for'
    return `${laneName(plan, l % tables.lanes)} ${verb} ${run < 0 ? 'another lane' : node(run)}${ago}`
  }
  const reuse = (b: number, l: number, previous: number): void => {
    const touched = Array.from({ length: lanes }, (_, m) => m).filter(m => last.of(previous, m) > 0)
    found.push({
      buffer: bufferName(plan, b),
      offset: plan.buffers[b]!.offset!,
      bytes: plan.buffers[b]!.bytes,
      from: bufferName(plan, previous),
      ticksAgo: claimed[previous] === order.tick ? 0 : 1,
      after: joinNames(touched.map(m => node(order.commandAt(m, last.of(previous, m))))),
      because: [...new Set(touched.map(m => because(l, m)))].join('; '),
    })
  }
  const claim = (c: number): void => {
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) {
      const b = tables.accessRoot[a]!
      if (isInArena[b] === 0 || claimed[b] === order.tick) continue
      const [from, to] = ends(b)
      owners.claim(index.get(from!)!, index.get(to!)!, b, previous => {
        if (order.tick > 0 && previous !== b) reuse(b, order.laneOf(c), previous)
      })
      claimed[b] = order.tick
    }
  }
  for (let tick = 0; tick < 2; tick++) {
    order.begin()
    // In an arena of its own a tick's bytes have had no owner before it that it comes after on the device.
    if ((plan.arenas ?? 1) > 1) {
      owners.restart()
      last.restart()
    }
    for (let c = 0; c < tables.commands; c++) {
      const l = order.laneOf(c)
      if (tables.op[c] === Op.record) recordedAfter[tables.subject[c]!] = latest[l]!
      if (tables.op[c] === Op.run) claim(c)
      order.step(c)
      if (tables.op[c] !== Op.run) continue
      latest[l] = c
      for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++)
        last.put(tables.accessRoot[a]!, l, order.now(l))
    }
  }
}
