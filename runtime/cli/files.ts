import { readFileSync, writeFileSync } from 'node:fs'
import { Failed } from './io.js'

const bad = (path: string, subject: string, wanted: string, error: unknown, next: string): Failed =>
  new Failed([{ _tag: 'BadFile', at: path, subject, wanted, found: (error as Error).message, next }])

/** The text of a file that a flag or an argument names; `next` says what to give instead where it cannot be read. */
export const textOf = (path: string, subject: string, next: string): string => {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw bad(path, subject, `a ${subject} file that can be read`, error, next)
  }
}

/** The text of a PLAN.json. */
export const planText = (path: string): string =>
  textOf(path, 'plan', 'write one with: braid plan PROGRAM --as json -o PLAN.json')

/** Writes what `-o FILE` asked for. */
export const save = (path: string, text: string, subject: string): void => {
  try {
    writeFileSync(path, text)
  } catch (error) {
    throw bad(path, subject, 'a file that can be written', error, 'give another path to -o')
  }
}
