import { joinNames, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import type { CommandTable } from '../order/command-table.js'

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

/** By root, the runs that touch it, in issue order. */
export const runsTouching = (table: CommandTable): readonly (readonly number[])[] => {
  const runs: number[][] = Array.from({ length: table.buffers }, () => [])
  for (let c = 0; c < table.commands; c++)
    for (let a = table.accessStart[c]!; a < table.accessStart[c + 1]!; a++) {
      const own = runs[table.accessRoot[a]!]!
      if (own[own.length - 1] !== c) own.push(c)
    }
  return runs
}

/**
 * `still to be written by a, then read by b and c`: of the runs that touch a root, those after command `at`;
 * empty where there are none.
 */
export const stillToCome = (
  plan: Plan,
  table: CommandTable,
  root: number,
  runs: readonly number[],
  at: number,
): string => {
  const readers: string[] = []
  const writers: string[] = []
  for (const c of runs) {
    const command = plan.commands[c]!
    if (c <= at || command[0] !== 'run') continue
    const writes = command[4].some(b => table.root[b] === root)
    ;(writes ? writers : readers).push(nodeName(plan, command[1]))
  }
  const part = (verb: string, names: readonly string[]) =>
    names.length === 0 ? [] : [`${verb} ${joinNames(names)}`]
  const parts = [...part('written by', writers), ...part('read by', readers)]
  return parts.length === 0 ? '' : `still to be ${parts.join(', then ')}`
}
