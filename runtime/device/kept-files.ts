import { native } from '../addon.js'

/** What to do about files of earlier processes that are not used. */
export const keptNext =
  'delete it, or take the right to write from others (chmod go-w), or set BRAID_CACHE to a folder of your own'

/**
 * Warns of what earlier processes kept for cuda (compiled kernels, measured choices) and was not used, since
 * others may have written it: once for each folder.
 */
export const warnOfKeptFiles = (): void => {
  for (const problem of native().keptProblems())
    process.emitWarning(`${problem}: what it keeps is not used, and is made anew. Next: ${keptNext}`, {
      type: 'BraidWarning',
      code: 'BRAID_CACHE',
    })
}
