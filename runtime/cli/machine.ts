import * as E from 'fp-ts/lib/Either.js'
import { type Machine, machines, parseMachine } from '../../dsl/index.js'
import { textOf } from './files.js'
import { Failed, Misuse } from './io.js'

const names = (): string => Object.keys(machines).join(', ')

/**
 * `--machine`: the name of a known machine, or a file that describes one (JSON, comments allowed). A value
 * without a dot or a slash is a name.
 */
export const machineFrom = (flag: string): Machine => {
  const known = Object.hasOwn(machines, flag) ? machines[flag] : undefined
  if (known !== undefined) return known
  if (!/[./\\]/.test(flag))
    throw new Misuse(`--machine: wanted ${names()}, or a machine file; found "${flag}"`)
  const parsed = parseMachine(
    textOf(flag, 'machine', `give one of ${names()}, or write a file with: npx braid doctor --machine FILE`),
    flag,
  )
  if (E.isLeft(parsed)) throw new Failed(parsed.left)
  return parsed.right
}
