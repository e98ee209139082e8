import { bufferName, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import type { CommandTable } from '../order/command-table.js'
import { arenaBytes, ownBytesFrom } from './arenas.js'
import { type HeldPart, runsTouching, stillToCome, type Why } from './held-part.js'

/** A buffer's place in the arena, and its first and last access. */
interface Place {
  readonly buffer: number
  readonly from: number
  readonly to: number
  readonly first: number
  readonly last: number
}

const maximum = <A>(items: readonly A[], value: (item: A) => number): A | undefined =>
  items.reduce<A | undefined>(
    (most, item) => (most === undefined || value(item) > value(most) ? item : most),
    undefined,
  )

/**
 * What each byte of a device's arena belongs to when the buffer that lies highest in it is first touched: one
 * buffer, or none.
 */
export const arenaParts = (
  plan: Plan,
  table: CommandTable,
  device: number,
): { readonly command: number; readonly parts: readonly HeldPart[] } => {
  const size = plan.arena?.[device] ?? 0
  const touching = runsTouching(table)
  const places = plan.buffers.flatMap((buffer, b): Place[] => {
    const slots = buffer.life === 'input' || buffer.life === 'output'
    if (table.root[b] !== b || buffer.space !== 'device' || buffer.device !== device || slots) return []
    const runs = touching[b]!
    const from = Math.min(size, buffer.offset ?? 0)
    const to = Math.min(size, from + buffer.bytes)
    const lasts = buffer.life !== 'tick'
    const first = lasts ? -1 : (runs[0]?.run ?? -1)
    const last = lasts ? plan.commands.length : (runs[runs.length - 1]?.run ?? -1)
    return [{ buffer: b, from, to, first, last }]
  })
  const at = Math.max(-1, maximum(places, ({ to }) => to)?.first ?? -1)
  const cuts = [...new Set([0, size, ...places.flatMap(({ from, to }) => [from, to])])].sort((a, b) => a - b)
  const owned = new Map<string, { buffer: number; why: Why; bytes: number }>()
  const starting = [...places].sort((a, b) => a.from - b.from)
  let started = 0
  let over: Place[] = []
  for (let i = 0; i + 1 < cuts.length; i++) {
    const cut = cuts[i]!
    while (started < starting.length && starting[started]!.from <= cut) over.push(starting[started++]!)
    over = over.filter(({ to }) => cut < to).sort((a, b) => a.buffer - b.buffer)
    const live = over.find(({ first, last }) => first <= at && at <= last)
    // Else the buffer that was accessed last there: in this tick, or else in the one before.
    const before = over.filter(({ last }) => last < at)
    const owner = live ?? maximum(before.length > 0 ? before : over, ({ last }) => last)
    const life = owner === undefined ? 'tick' : plan.buffers[owner.buffer]!.life
    const why: Why = live === undefined ? 'free' : life === 'tick' ? 'used' : 'lasting'
    const key = `${why} ${owner?.buffer ?? -1}`
    const known = owned.get(key) ?? { buffer: owner?.buffer ?? -1, why, bytes: 0 }
    owned.set(key, { ...known, bytes: known.bytes + cuts[i + 1]! - cuts[i]! })
  }
  const because = (buffer: number, why: Why): string => {
    if (buffer < 0) return 'a gap that keeps what lies after it aligned'
    if (why === 'lasting') return `a ${plan.buffers[buffer]!.life}, kept from tick to tick`
    const runs = touching[buffer]!
    if (why === 'used') return stillToCome(plan, table, runs, at - 1) || 'between its operations'
    const last = runs[runs.length - 1]?.run
    const accessed =
      last === undefined ? 'never accessed' : `last accessed by ${nodeName(plan, table.subject[last]!)}`
    return `in no use at that moment; ${accessed}`
  }
  const parts = [...owned.values()].map(({ buffer, why, bytes }) => ({
    buffer,
    name: buffer < 0 ? '' : bufferName(plan, buffer),
    bytes,
    why,
    because: because(buffer, why),
  }))
  const { arenas = 1 } = plan
  const own = arenaBytes(plan, device, ownBytesFrom(plan, device)) - size
  if (own > 0) {
    const because = `what ticks have for themselves, for ${arenas - 1} more in flight`
    parts.push({ buffer: -1, name: 'arenas', bytes: own, why: 'used', because })
  }
  return { command: at, parts }
}
