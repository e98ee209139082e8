/** A place in a file; line and column count from 1. */
export interface Position {
  readonly file: string
  readonly line: number
  readonly column: number
}

/** Maps a position in the running code to one in its source (by a source map), or yields undefined. */
export type PositionMapper = (position: Position) => Position | undefined

/** The path of a file that an engine names by its path or by a URL. */
export const asPath = (file: string): string => {
  if (!file.startsWith('file://')) return file
  const path = decodeURI(file.slice(7))
  return /^\/[A-Za-z]:/.test(path) ? path.slice(1) : path
}

interface Entry {
  readonly originalSource?: string
  readonly originalLine?: number
  readonly originalColumn?: number
}

interface NodeModule {
  findSourceMap(file: string): { findEntry(line: number, column: number): Entry } | undefined
}

interface Platform {
  readonly process?: { getBuiltinModule?(name: 'node:module'): NodeModule | undefined }
}

/**
 * By the source maps that Node keeps of modules that were loaded with source maps enabled, as tsx and `node
 * --enable-source-maps` load them. Node is asked at run time and not imported, so that the language still runs
 * in a browser, where nothing is mapped.
 */
export const bySourceMap: PositionMapper = ({ file, line, column }) => {
  const { process } = globalThis as Platform
  const map = process?.getBuiltinModule?.('node:module')?.findSourceMap(file)
  const { originalSource, originalLine, originalColumn } = map?.findEntry(line - 1, column - 1) ?? {}
  if (originalSource === undefined || originalLine === undefined || originalColumn === undefined)
    return undefined
  return { file: asPath(originalSource), line: originalLine + 1, column: originalColumn + 1 }
}
