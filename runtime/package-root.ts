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

/**
 * The folder of this package: from the sources, from dist, and from a bundle that a user's program was made
 * part of, beside which the package is installed. undefined where it is not.
 */
export const packageRoot = (from: string | undefined = import.meta.url): string | undefined => {
  // A bundle of the form CommonJS has no URL, and one in memory none of a file.
  const url = from?.startsWith('file:') ? from : pathToFileURL(process.argv[1] ?? process.execPath).href
  const root = above(dirname(fileURLToPath(url)))
  if (root !== undefined) return root
  try {
    return dirname(createRequire(url).resolve(`${name}/package.json`))
  } catch {
    return undefined
  }
}
