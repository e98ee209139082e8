import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const name = 'braid-gpu'

const isRoot = (folder: string): boolean => {
  try {
    return (
      (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { name?: unknown }).name === name
    )
  } catch {
    return false
  }
}

const above = (folder: string): string | undefined => {
  if (isRoot(folder)) return folder
  const parent = dirname(folder)
  return parent === folder ? undefined : above(parent)
}

const beside = (url: string): string | undefined => {
  try {
    return dirname(createRequire(url).resolve(`${name}/package.json`))
  } catch {
    return undefined
  }
}

/**
 * The folder of this package: from the sources, from dist, and from a bundle that a user's program was made
 * part of, beside which, or beside the program that runs, the package is installed. undefined where it is not.
 */
export const packageRoot = (from: string | undefined = import.meta.url): string | undefined => {
  // A bundle of the form CommonJS has no URL; that of another may be of the machine that made it.
  const program = pathToFileURL(process.argv[1] ?? process.execPath).href
  for (const url of [from, program]) {
    if (!url?.startsWith('file:')) continue
    const root = above(dirname(fileURLToPath(url))) ?? beside(url)
    if (root !== undefined) return root
  }
  return undefined
}
