import { writeFileSync } from 'node:fs'
import { Failed } from './io.js'

/** Writes what `-o FILE` asked for. */
export const save = (path: string, text: string, subject: string): void => {
  try {
    writeFileSync(path, text)
  } catch (error) {
    throw new Failed([
      {
        _tag: 'BadFile',
        at: path,
        subject,
        wanted: 'a file that can be written',
        found: (error as Error).message,
        next: 'give another path to -o',
      },
    ])
  }
}
