import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * A script of this folder. It is not compiled, so it stands in the sources: beside this file, or beside the
 * dist folder.
 */
export const scriptOf = (name: string): string => {
  const here = dirname(fileURLToPath(import.meta.url))
  const candidates = [join(here, name), join(here, '../../../spec/bench', name)]
  return candidates.find(path => existsSync(path)) ?? candidates[0]!
}

/** Of what a script wrote before it failed, the last lines that say why; PyTorch's end with frames of C++. */
export const reasonOf = (stderr: string): string =>
  stderr
    .trim()
    .split('\n')
    .filter(line => !/^(frame #|<omitting)/.test(line))
    .slice(-8)
    .join('\n')
