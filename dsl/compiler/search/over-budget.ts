import type { CompileError, Where } from '../../ir/graph.js'
import { joinNames } from '../../ir/names.js'
import { heldAtPeak } from '../../memory/held.js'
import { fault } from '../analysis/faults.js'
import type { Bounded } from '../analysis/ir.js'
import { outlineOf } from '../passes/emit.js'

/** Parts that are listed one by one; the rest of them is one part. */
const maxParts = 1000

type Part = NonNullable<CompileError['parts']>[number]

/**
 * By root, the user's line of the operation that accesses it first: of a tick's buffer, the one that makes
 * it; of a state that no operation accesses, the line of the state.
 */
const placesOf = ({ operations, buffers }: Bounded): ReadonlyMap<number, string> => {
  const places = new Map<number, string>()
  const text = (at: Where): string => (String(at) === 'unknown' ? '' : String(at))
  for (const { at, reads, writes } of operations)
    for (const list of [writes, reads])
      for (const id of list) {
        const { root } = buffers[id]!
        if (!places.has(root)) places.set(root, text(at))
      }
  for (const { at, root } of buffers) if (at !== undefined && !places.has(root)) places.set(root, text(at))
  return places
}

const partsOf = (ir: Bounded, device: number): readonly Part[] => {
  const places = placesOf(ir)
  const held = heldAtPeak(outlineOf(ir)).find(one => one.space === 'device' && one.device === device)
  const parts = (held?.parts ?? [])
    .map(({ buffer, name, bytes, because }) => ({ name, bytes, at: places.get(buffer) ?? '', because }))
    .sort((a, b) => b.bytes - a.bytes)
  const others = parts.splice(maxParts)
  const sum = (parts: readonly Part[]): number => parts.reduce((bytes, part) => bytes + part.bytes, 0)
  if (others.length > 0)
    parts.push({
      name: '',
      bytes: sum(others),
      at: '',
      because: `of ${others.length} buffers that are no larger`,
    })
  // The bound is the larger of this peak and what the session's pool takes, which gives out whole granules,
  // each in one piece.
  const more = ir.bound.device[device]! - sum(parts)
  if (more > 0)
    parts.push({
      name: '',
      bytes: more,
      at: '',
      because: 'free, but in no piece that is long enough, or lost to sizes that are no multiple of 512',
    })
  return parts
}

/**
 * The error that the smallest plan found does not fit `memory: BYTES`: it gives that plan's bound, and for
 * every byte of it what holds the byte at the peak. Of bytes that are freed already it names the lane that
 * may not take them yet, and the operations that this lane is not known to be after.
 */
export const overBudget = (ir: Bounded, memory: number): CompileError => {
  const least = Math.max(...ir.bound.device)
  const device = ir.bound.device.indexOf(least)
  const parts = partsOf(ir, device)
  const names = parts.map(({ name }) => name).filter(name => name !== '')
  const where = ir.bound.device.length > 1 ? ` on device ${device}` : ''
  const found = `${least} bytes at the least${where}; in memory at the peak: ${joinNames(names, 8)}`
  return {
    ...fault(
      'OverBudget',
      'options.memory',
      ir.settings.name,
      `at most ${memory} bytes of device memory`,
      found,
      `give at least ${least} bytes, fewer inFlight, or smaller dims`,
    ),
    parts,
  }
}
