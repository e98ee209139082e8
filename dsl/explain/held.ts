// Over 150 lines as one thing: every byte of one peak, told apart; what lives on, what is in use, what is freed and not yet anybody's.

import { bufferName, laneName, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { peakOf } from '../memory/peak.js'
import { growthOf } from '../memory/reuse.js'
import { latestTurnovers, memoryOf, type Turnover, When } from '../memory/turnover.js'
import { type CommandTable, latestCommandTable } from '../order/command-table.js'
import { accessesOf, stillToCome } from './accesses.js'
import { arenaParts } from './arena.js'
import { listed } from './names.js'

/**
 * Why some bytes are in memory at the peak. `lasting`: they live on across ticks. `slots`: inputs and outputs, one for each tick in flight. `used`:
 * an operation that is still to be issued touches them. `kept`: none does, but they are freed only later (a window's memory is its own). `waiting`:
 * freed, but the lane that asks is not known to be after all who touched them. `free`: nobody's at that moment. `rest`: not told apart.
 */
export type Why = 'lasting' | 'slots' | 'used' | 'kept' | 'waiting' | 'free' | 'rest'

export interface HeldPart {
  /** -1 where the bytes are no buffer's. */
  readonly buffer: number
  readonly name: string
  readonly bytes: number
  readonly why: Why
  readonly because: string
}

/** What one memory holds at its peak, by law L9: `parts` come to `bytes` exactly. */
export interface Held {
  readonly space: 'device' | 'pinned'
  readonly device: number
  readonly bytes: number
  /** The command at which the peak is reached; -1: no command is needed for it. */
  readonly command: number
  readonly parts: readonly HeldPart[]
}

/** What each free after command `at` leaves its bytes to: the next allocation of its buffer's home, if there is one in the tick. By buffer. */
const successors = (plan: Plan, at: number): ReadonlyMap<number, string | undefined> => {
  const next: (string | undefined)[] = plan.lanes.map(() => undefined)
  const found = new Map<number, string | undefined>()
  for (let c = plan.commands.length - 1; c > at; c--) {
    const command = plan.commands[c]!
    if (command[0] === 'alloc') next[command[2]] = bufferName(plan, command[1])
    else if (command[0] === 'free') found.set(command[1], next[plan.buffers[command[1]]!.home])
  }
  return found
}

const lastingParts = (plan: Plan, tables: CommandTable, memory: number): HeldPart[] =>
  plan.buffers.flatMap((buffer, b): HeldPart[] => {
    const planned = plan.storage === 'planned'
    const slots = buffer.life === 'input' || buffer.life === 'output'
    if (tables.root[b] !== b || memoryOf(plan, b) !== memory) return []
    if (buffer.life === 'tick' && !(planned && buffer.space === 'pinned')) return []
    if (planned && buffer.space === 'device' && !slots) return []
    const name = bufferName(plan, b)
    if (slots) {
      const because = `${plan.inFlight} slots of ${buffer.bytes} bytes: one for each tick in flight`
      return [{ buffer: b, name, bytes: buffer.bytes * plan.inFlight, why: 'slots', because }]
    }
    const because =
      buffer.life === 'tick' ? 'pinned, with a place of its own' : `a ${buffer.life}, kept from tick to tick`
    return [{ buffer: b, name, bytes: buffer.bytes, why: 'lasting', because }]
  })

/** What is open at event `until` of tick `tick`, by root. */
const openAt = ({ event, when, buffer }: Turnover, tick: number, until: number): Set<number> => {
  const open = new Set<number>()
  // All ticks but the first are alike: what the last but one leaves is what any leaves.
  for (const t of new Set([0, Math.min(1, tick), tick]))
    for (let e = 0; e < event.length && (t < tick || e <= until); e++) {
      if (when[e] === (t === 0 ? When.laterTicks : When.firstTick)) continue
      if (event[e]! >= 0) open.add(buffer[e]!)
      else open.delete(buffer[e]!)
    }
  return open
}

/** What is allocated once event `event` of tick `tick` has been issued: what is still to be touched, and what is kept though it is not. */
const openParts = (
  plan: Plan,
  tables: CommandTable,
  turnover: Turnover,
  accesses: readonly (readonly number[])[],
  { tick, event }: { readonly tick: number; readonly event: number },
): HeldPart[] => {
  const at = turnover.command[event]!
  const leaves = successors(plan, at)
  return Array.from(openAt(turnover, tick, event), (b): HeldPart => {
    const coming = stillToCome(plan, tables, b, accesses[b]!, at)
    const next = leaves.get(b)
    const kept = !leaves.has(b)
      ? 'never freed'
      : next === undefined
        ? 'all who touch it are issued; it is kept to the end of the tick, for the next one'
        : `all who touch it are issued; it is kept until ${next} takes its place`
    return {
      buffer: b,
      name: bufferName(plan, b),
      bytes: plan.buffers[b]!.bytes,
      why: coming === '' ? 'kept' : 'used',
      because: coming === '' ? kept : coming,
    }
  })
}

const pooledParts = (
  plan: Plan,
  tables: CommandTable,
  turnover: Turnover,
  fixed: number,
  bytes: number,
): HeldPart[] => {
  const parts: HeldPart[] = []
  const accesses = accessesOf(tables)
  const { lanes, inFlight, frees, length, allocLane, frontier, releaseStart, releaseLane, releasePoint } =
    turnover
  growthOf(turnover, fixed, {
    ticks: Number.POSITIVE_INFINITY,
    work: Number.POSITIVE_INFINITY,
    enough: bytes - 1,
    stopped: ({ tick, event, left }) => {
      const a = turnover.event[event]!
      const taker = allocLane[a]!
      parts.push(...openParts(plan, tables, turnover, accesses, { tick, event }))
      const freeOf = new Int32Array(frees)
      turnover.event.forEach((e, i) => {
        if (e < 0) freeOf[-1 - e] = turnover.buffer[i]!
      })
      for (let age = Math.min(tick, inFlight - 1); age >= 0; age--)
        for (let f = 0; f < frees; f++) {
          const bytes = left[((tick - age) % inFlight) * frees + f]!
          if (bytes === 0) continue
          const b = freeOf[f]!
          const lasts: number[] = []
          for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++) {
            const m = releaseLane[r]!
            if (m === taker || releasePoint[r]! <= frontier[a * lanes + m]! + age * length[m]!) continue
            const last = accesses[b]!.findLast(c => tables.lane[c] === m)
            if (last !== undefined) lasts.push(last)
          }
          const unseen = lasts
            .sort((one, other) => one - other)
            .map(c => `${nodeName(plan, tables.subject[c]!)} on ${laneName(plan, tables.lane[c]!)}`)
          const when = age === 0 ? '' : age === 1 ? ' a tick ago' : ` ${age} ticks ago`
          const because = `freed${when}, but ${laneName(plan, taker)} is not known to be after ${listed(unseen)}`
          parts.push({ buffer: b, name: bufferName(plan, b), bytes, why: 'waiting', because })
        }
    },
  })
  return parts
}

/** Of a peak that is proved, but was not replayed: what is allocated where that is most. What is freed by then is not told apart. */
const provedParts = (plan: Plan, tables: CommandTable, turnover: Turnover): HeldPart[] => {
  const { event, when, allocBytes, freeBytes, leaked } = turnover
  let now = leaked
  let most = -1
  let at = -1
  for (let e = 0; e < event.length; e++) {
    if (when[e] === When.firstTick) continue
    now += event[e]! >= 0 ? allocBytes[event[e]!]! : -freeBytes[-1 - event[e]!]!
    if (now <= most) continue
    most = now
    at = e
  }
  return at < 0 ? [] : openParts(plan, tables, turnover, accessesOf(tables), { tick: 1, event: at })
}

const order: readonly Why[] = ['lasting', 'slots', 'used', 'kept', 'waiting', 'free', 'rest']

/** What each memory of a plan holds at its peak: devices in order, then pinned; one that holds nothing is left out. */
export const heldAtPeak = (plan: Plan): readonly Held[] => {
  const tables = latestCommandTable(plan)
  const peak = peakOf(plan)
  const planned = plan.storage === 'planned'
  return [...peak.device, peak.pinned].flatMap((bytes, memory): Held[] => {
    if (bytes === 0) return []
    const lasting = lastingParts(plan, tables, memory)
    const fixed = lasting.reduce((sum, part) => sum + part.bytes, 0)
    const command = peak.reachedAt[memory]!
    const arena = planned && memory < plan.devices ? arenaParts(plan, tables, memory) : undefined
    const turnover = planned || bytes === fixed ? undefined : latestTurnovers(tables).accesses[memory]!
    const turned =
      turnover === undefined
        ? []
        : peak.exact
          ? pooledParts(plan, tables, turnover, fixed, bytes)
          : provedParts(plan, tables, turnover)
    const parts = [...lasting, ...(arena?.parts ?? []), ...turned]
    const rest = bytes - parts.reduce((sum, part) => sum + part.bytes, 0)
    if (rest > 0)
      parts.push({
        buffer: -1,
        name: '',
        bytes: rest,
        why: 'rest',
        because: 'freed, as far as is proved, and not told apart: the plan settles too slowly to be replayed',
      })
    parts.sort(
      (a, b) => order.indexOf(a.why) - order.indexOf(b.why) || b.bytes - a.bytes || a.buffer - b.buffer,
    )
    const device = memory < plan.devices ? memory : 0
    return [
      {
        space: memory < plan.devices ? 'device' : 'pinned',
        device,
        bytes,
        command: arena?.command ?? command,
        parts,
      },
    ]
  })
}
