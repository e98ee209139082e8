import { closeSync, fstatSync, openSync, readFileSync, readSync, writeFileSync } from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { parsePlanParts } from '../../dsl/ir/load.js'
import { Failed } from './io.js'

export const badFile = (
  path: string,
  subject: string,
  wanted: string,
  error: unknown,
  next: string,
): Failed =>
  new Failed([{ _tag: 'BadFile', at: path, subject, wanted, found: (error as Error).message, next }])

/**
 * The text of a file that a flag or an argument names; `next` is the advice of the error where it cannot be
 * read.
 */
export const textOf = (path: string, subject: string, next: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw badFile(path, subject, `a ${subject} file that can be read`, error, next)
  }
}

/** Bytes that are read at a time. */
const piece = 2 ** 22

function* piecesOf(file: number): Generator<string> {
  const decoder = new StringDecoder('utf8')
  const bytes = Buffer.allocUnsafe(piece)
  for (;;) {
    const read = readSync(file, bytes, 0, piece, null)
    if (read === 0) break
    yield decoder.write(bytes.subarray(0, read))
  }
  yield decoder.end()
}

/** A plan from a PLAN.json of any length, read in chunks. */
export const planIn = (path: string): ReturnType<typeof parsePlanParts> => {
  let file = -1
  try {
    file = openSync(path, 'r')
    // Opening a directory works, reading it does not.
    if (fstatSync(file).isDirectory()) throw new Error('it is a directory')
  } catch (error) {
    if (file >= 0) closeSync(file)
    throw badFile(
      path,
      'plan',
      'a plan file that can be read',
      error,
      'write one with: braid plan PROGRAM --as json -o PLAN.json',
    )
  }
  try {
    return parsePlanParts(piecesOf(file))
  } finally {
    closeSync(file)
  }
}

/** Writes the file that a flag names, in parts where it is long. */
export const save = (
  path: string,
  content: string | Uint8Array | Iterable<string>,
  subject: string,
  flag = '-o',
): void => {
  try {
    const whole = typeof content === 'string' || content instanceof Uint8Array
    const file = openSync(path, 'w')
    try {
      for (const part of whole ? [content] : content) writeFileSync(file, part)
    } finally {
      closeSync(file)
    }
  } catch (error) {
    throw badFile(path, subject, 'a file that can be written', error, `give another path to ${flag}`)
  }
}
