import { readFileSync, statSync } from 'node:fs'
import * as E from 'fp-ts/lib/Either.js'
import { machines, parseMachine } from '../../dsl/machine/load.js'
import type { Machine } from '../../dsl/machine/machine.js'
import { Failed } from './io.js'

/** `--machine`: one that Braid knows by name, or a file that describes one (JSON, comments allowed). */
export const machineFrom = (flag: string): Machine => {
  const known = Object.hasOwn(machines, flag) ? machines[flag] : undefined
  if (known !== undefined) return known
  const parsed = parseMachine(read(flag), flag)
  if (E.isLeft(parsed)) throw new Failed(parsed.left)
  return parsed.right
}

const read = (path: string): string => {
  const isFile = statSync(path, { throwIfNoEntry: false })?.isFile() === true
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new Failed([
      {
        _tag: 'BadMachine',
        at: '--machine',
        subject: path,
        wanted: `one of ${Object.keys(machines).join(', ')}, or a file that describes one`,
        found: isFile ? (error as Error).message : 'neither a name that is known nor a file',
        next: 'give a name, or the path of a machine file',
      },
    ])
  }
}
