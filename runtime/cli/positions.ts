import { findSourceMap } from 'node:module'
import { fileURLToPath } from 'node:url'
import { setPositionMapper } from '../../dsl/index.js'

const asPath = (source: string): string => (source.startsWith('file://') ? fileURLToPath(source) : source)

/**
 * Installs source maps, so that places in programs are those of their TypeScript. Call it before a program is
 * loaded.
 */
export const mapPositions = (): void => {
  ;(process as { setSourceMapsEnabled?: (on: boolean) => void }).setSourceMapsEnabled?.(true)
  setPositionMapper(({ file, line, column }) => {
    const entry = findSourceMap(file)?.findEntry(line - 1, column - 1)
    if (!entry || !('originalSource' in entry)) return undefined
    return {
      file: asPath(entry.originalSource),
      line: entry.originalLine + 1,
      column: entry.originalColumn + 1,
    }
  })
}
