import { joinNames, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import type { CommandTable } from '../order/command-table.js'
import { Mode } from '../order/flat-commands.js'

/**
 * Why some bytes are in memory at the peak. `lasting`: they live on across ticks. `slots`: inputs and
 * outputs, one for each tick in flight. `used`: an operation that is still to be issued touches them. `kept`:
 * no such operation, but they are freed only later (a window has memory of its own). `waiting`: freed, but
 * the allocating lane is not known to be after all that touched them. `free`: no buffer has them at that
 * moment. `rest`: not told apart.
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

/** A run that touches a root. */
export interface Touch {
  readonly run: number
  readonly writes: boolean
}

/** By root, the runs that touch it, in issue order. */
export const runsTouching = (table: CommandTable): readonly (readonly Touch[])[] => {
  const { accessStart, accessRoot, accessMode } = table
  const touches: Touch[][] = Array.from({ length: table.buffers }, () => [])
  for (let c = 0; c < table.commands; c++)
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const own = touches[accessRoot[a]!]!
      const writes = accessMode[a] === Mode.write
      if (own[own.length - 1]?.run !== c) own.push({ run: c, writes })
      else if (writes) own[own.length - 1] = { run: c, writes }
    }
  return touches
}

/**
 * `still to be written by a, then read by b and c`: of the runs that touch a root, those after command `at`;
 * empty where there are none.
 */
export const stillToCome = (
  plan: Plan,
  table: CommandTable,
  touches: readonly Touch[],
  at: number,
): string => {
  const coming = touches.filter(({ run }) => run > at)
  const named = (those: readonly Touch[]) => those.map(({ run }) => nodeName(plan, table.subject[run]!))
  const writers = named(coming.filter(({ writes }) => writes))
  const readers = named(coming.filter(({ writes }) => !writes))
  const part = (verb: string, names: readonly string[]) =>
    names.length === 0 ? [] : [`${verb} ${joinNames(names)}`]
  const parts = [...part('written by', writers), ...part('read by', readers)]
  return parts.length === 0 ? '' : `still to be ${parts.join(', then ')}`
}
