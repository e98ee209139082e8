import { heap } from '../../../collections/scratch-arena.js'
import type { Lowered } from '../../analysis/ir.js'

/**
 * Deferred operations are issued where a reader or a window asks for them, not as soon as they could be:
 * uploads that come after nothing; collectives of parameters and states, uploaded or not; and collectives
 * with a window. Their level is 1 where no deferred operation reads them, 2 where one of level 1 does (as the
 * upload of a shard that is gathered), and so on. All other operations have level 0.
 */
export const deferralLevels = ({
  operations,
  buffers,
}: Pick<Lowered, 'operations' | 'buffers'>): Int32Array => {
  const levels = heap.int32(operations.length)
  const steady = new Set<number>()
  const lasts = (i: number): boolean => {
    const { life } = buffers[operations[i]!.reads[0]!]!
    return life === 'param' || life === 'state' || steady.has(i)
  }
  let chained = false
  for (let i = 0; i < levels.length; i++) {
    const { kind } = operations[i]!
    if (kind !== 'upload' && kind !== 'collective') continue
    const { after, ahead } = operations[i]!
    const free = after.length === 0
    if (
      kind === 'upload'
        ? !free
        : ahead === undefined && !after.every(before => levels[before]! > 0 && lasts(before))
    )
      continue
    levels[i] = 1
    if (kind === 'collective' && ahead === undefined) steady.add(i)
    chained ||= !free
  }
  if (chained)
    for (let i = levels.length - 1; i >= 0; i--)
      if (levels[i]! > 0)
        for (const before of operations[i]!.after)
          if (levels[before]! > 0) levels[before] = Math.max(levels[before]!, levels[i]! + 1)
  return levels
}
