import { dirname, resolve } from 'node:path'
import { StringDecoder } from 'node:string_decoder'
import * as E from 'fp-ts/lib/Either.js'
import { parsePlanParts } from '../../dsl/ir/load.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { checkWritable, piecesOf, readWhole, standsAt, writeWhole } from '../files/whole.js'
import { Failed, Misuse } from './io.js'

export const badFile = (
  path: string,
  subject: string,
  wanted: string,
  error: unknown,
  next: string,
): Failed =>
  new Failed([{ _tag: 'BadFile', at: path, subject, wanted, found: (error as Error).message, next }])

/**
 * The bytes of a file that a flag or an argument names; `next` is the advice of the error where it cannot be
 * read.
 */
export const bytesOf = (path: string, subject: string, next: string): Buffer => {
  try {
    return readWhole(path)
  } catch (error) {
    throw badFile(path, subject, `a ${subject} file that can be read`, error, next)
  }
}

/** The text of a file that a flag or an argument names. */
export const textOf = (path: string, subject: string, next: string): string =>
  bytesOf(path, subject, next).toString('utf8')

function* textIn(path: string, failed: (error: unknown) => void): Generator<string> {
  const decoder = new StringDecoder('utf8')
  try {
    for (const bytes of piecesOf(path)) yield decoder.write(bytes)
  } catch (error) {
    failed(error)
  }
  yield decoder.end()
}

/** A plan from a PLAN.json of any length, read in chunks. Throws what is wrong in it, with its path. */
export const planIn = (path: string): Plan => {
  let unreadable: { readonly error: unknown } | undefined
  const parsed = parsePlanParts(
    textIn(path, error => {
      unreadable = { error }
    }),
  )
  if (unreadable !== undefined) {
    const { error } = unreadable as { error: unknown }
    const next = 'write one with: braid plan PROGRAM --as json -o PLAN.json'
    throw badFile(path, 'plan', 'a plan file that can be read', error, next)
  }
  if (E.isRight(parsed)) return parsed.right
  throw new Failed(parsed.left.map(fault => ({ ...fault, at: `${path}: ${fault.at}` })))
}

const refusal = (flag: string, problem: string, path: string): Misuse =>
  new Misuse(`${flag}: wanted a file that can be written; found ${problem} ("${path}")`)

/** The path that `-o` names, where it is given. */
export const outputFrom = (path: string | undefined): string | undefined => {
  if (path === '') throw refusal('-o', 'an empty path', path)
  return path
}

const unwritable = (path: string): string | undefined => {
  if (path === '') return 'an empty path'
  const folder = dirname(resolve(path))
  if (standsAt(folder) === undefined) return `no folder ${folder}`
  try {
    checkWritable(path)
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/** Refuses a file that cannot be written, before the work whose result it is to hold: that may take hours. */
export const refuseUnwritable = (path: string, flag: string): void => {
  const problem = unwritable(path)
  if (problem !== undefined) throw refusal(flag, problem, path)
}

/** Writes the file that a flag names, in parts where it is long. */
export const save = (
  path: string,
  content: string | Uint8Array | Iterable<string>,
  subject: string,
  flag = '-o',
): void => {
  const whole = typeof content === 'string' || content instanceof Uint8Array
  try {
    writeWhole(path, whole ? [content] : content)
  } catch (error) {
    throw badFile(path, subject, 'a file that can be written', error, `give another path to ${flag}`)
  }
}
