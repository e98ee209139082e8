import { findSourceMap } from 'node:module'
import { fileURLToPath } from 'node:url'
import { type PositionMapper, setPositionMapper } from '../dsl/index.js'

const asPath = (source: string): string => (source.startsWith('file://') ? fileURLToPath(source) : source)

const mapped: PositionMapper = ({ file, line, column }) => {
  const entry = findSourceMap(file)?.findEntry(line - 1, column - 1)
  if (!entry || !('originalSource' in entry)) return undefined
  return {
    file: asPath(entry.originalSource),
    line: entry.originalLine + 1,
    column: entry.originalColumn + 1,
  }
}

/**
 * Maps the places in errors and plans to the user's TypeScript, by the source maps that Node keeps: of
 * modules that were loaded with source maps enabled, as tsx and `node --enable-source-maps` load them.
 */
export const mapPositions = (): void => setPositionMapper(mapped)
