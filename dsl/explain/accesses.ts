import { nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import type { CommandTable } from '../order/command-table.js'
import { listed } from './names.js'

/** Runs that touch each root, in issue order. */
export const accessesOf = (tables: CommandTable): readonly (readonly number[])[] => {
  const runs: number[][] = Array.from({ length: tables.buffers }, () => [])
  for (let c = 0; c < tables.commands; c++)
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) {
      const of = runs[tables.accessRoot[a]!]!
      if (of[of.length - 1] !== c) of.push(c)
    }
  return runs
}

/** `written by a, then read by b and c`: who is still to touch a root after command `at`. */
export const stillToCome = (
  plan: Plan,
  tables: CommandTable,
  root: number,
  runs: readonly number[],
  at: number,
): string => {
  const readers: string[] = []
  const writers: string[] = []
  for (const c of runs) {
    const command = plan.commands[c]!
    if (c <= at || command[0] !== 'run') continue
    const writes = command[4].some(b => tables.root[b] === root)
    ;(writes ? writers : readers).push(nodeName(plan, command[1]))
  }
  const says = (verb: string, who: readonly string[]) => (who.length === 0 ? [] : [`${verb} ${listed(who)}`])
  const parts = [...says('written by', writers), ...says('read by', readers)]
  return parts.length === 0 ? '' : `still to be ${parts.join(', then ')}`
}
