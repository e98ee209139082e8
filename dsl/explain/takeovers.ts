import { bufferName, laneName, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { type CommandTable, commandTableOf, Op } from '../order/command-table.js'
import { IntervalMap } from '../order/interval-map.js'
import { LastAccesses } from '../order/last-accesses.js'
import { Replay } from '../order/replay.js'
import { heap } from '../order/scratch-arena.js'
import { listed } from './names.js'

/** Planned storage: some bytes of `buffer` were another's just before. */
export interface Takeover {
  readonly buffer: string
  readonly offset: number
  readonly bytes: number
  /** Whose they were, in this tick or in the one before. */
  readonly from: string
  readonly ticksAgo: 0 | 1
  /** The last operations that touched them then. */
  readonly after: string
  /** Why those are over. */
  readonly because: string
}

/** Whose bytes each buffer of an arena takes over, in a tick that has one before it, and what orders the two; nothing with pooled storage. */
export const takeoversOf = (plan: Plan): readonly Takeover[] => {
  if (plan.storage !== 'planned') return []
  const tables = commandTableOf(plan)
  const found: Takeover[] = []
  for (let device = 0; device < plan.devices; device++) replay(tables, device, found)
  return found
}

const replay = (tables: CommandTable, device: number, found: Takeover[]): void => {
  const { plan, lanes } = tables
  const tenants = plan.buffers.flatMap(({ space, device: own, life, offset }, b) =>
    tables.root[b] === b && space === 'device' && own === device && life === 'tick' && offset !== undefined
      ? [b]
      : [],
  )
  const ends = (b: number): readonly number[] => [
    plan.buffers[b]!.offset!,
    plan.buffers[b]!.offset! + plan.buffers[b]!.bytes,
  ]
  const cuts = Float64Array.from(new Set(tenants.flatMap(ends))).sort()
  const index = new Map(Array.from(cuts, (cut, i) => [cut, i]))
  const intervals = new IntervalMap(cuts.length)
  const isTenant = new Uint8Array(plan.buffers.length)
  for (const b of tenants) isTenant[b] = 1
  const clock = new Replay(tables)
  const claimed = new Int32Array(plan.buffers.length).fill(-1)
  const last = new LastAccesses(heap, tables.buffers, tables.accesses)
  // The wait that told lane l the latest of lane m, and in which tick; -1: the host did.
  const via = new Int32Array(lanes * lanes).fill(-1)
  const viaTick = new Int32Array(lanes * lanes)
  const latest = new Int32Array(lanes).fill(-1)
  const marked = new Int32Array(tables.events).fill(-1)

  const learn = (l: number, wait: number, step: () => void): void => {
    const before = clock.known.slice(l * lanes, (l + 1) * lanes)
    step()
    for (let m = 0; m < lanes; m++) {
      if (clock.known[l * lanes + m]! <= before[m]!) continue
      via[l * lanes + m] = wait
      viaTick[l * lanes + m] = clock.tick
    }
  }
  const node = (c: number): string => nodeName(plan, tables.subject[c]!)
  const told = (l: number, m: number): string => {
    if (l === m) return `${laneName(plan, l)} does them in order`
    const wait = via[l * lanes + m]!
    if (wait < 0) return `the host begins a tick when the one ${plan.inFlight} before it has ended`
    const run = marked[tables.subject[wait]!]!
    const ago = tables.op[wait] === Op.previous ? ' of the tick before' : ''
    const verb = viaTick[l * lanes + m] === clock.tick ? 'waits for' : 'has waited, a tick ago, for'
    return `${laneName(plan, l)} ${verb} ${run < 0 ? 'another lane' : node(run)}${ago}`
  }
  const takes = (b: number, l: number, previous: number): void => {
    const touched = Array.from({ length: lanes }, (_, m) => m).filter(m => last.of(previous, m) > 0)
    found.push({
      buffer: bufferName(plan, b),
      offset: plan.buffers[b]!.offset!,
      bytes: plan.buffers[b]!.bytes,
      from: bufferName(plan, previous),
      ticksAgo: claimed[previous] === clock.tick ? 0 : 1,
      after: listed(touched.map(m => node(clock.commandAt(m, last.of(previous, m))))),
      because: [...new Set(touched.map(m => told(l, m)))].join('; '),
    })
  }
  for (let tick = 0; tick < 2; tick++) {
    const before = clock.known.slice()
    clock.begin()
    clock.known.forEach((point, at) => {
      if (point > before[at]!) via[at] = -1
    })
    for (let c = 0; c < tables.commands; c++) {
      const l = tables.lane[c]!
      const code = tables.op[c]
      if (code === Op.wait || code === Op.previous) learn(l, c, () => clock.step(c))
      else if (code !== Op.run) {
        if (code === Op.record) marked[tables.subject[c]!] = latest[l]!
        clock.step(c)
      } else {
        for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) {
          const b = tables.accessRoot[a]!
          if (isTenant[b] === 0 || claimed[b] === tick) continue
          const [from, to] = ends(b)
          intervals.claim(index.get(from!)!, index.get(to!)!, b, previous => {
            if (tick > 0 && previous !== b) takes(b, l, previous)
          })
          claimed[b] = tick
        }
        clock.step(c)
        latest[l] = c
        for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++)
          last.put(tables.accessRoot[a]!, l, clock.known[l * lanes + l]!)
      }
    }
  }
}
