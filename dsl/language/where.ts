import type { Where } from '../ir/graph.js'

/** A place in a file; line and column count from 1. */
export interface Position {
  readonly file: string
  readonly line: number
  readonly column: number
}

/** Maps a position in the running code to one in its source (by a source map), or yields undefined. */
export type PositionMapper = (position: Position) => Position | undefined

let mapper: PositionMapper | undefined

/** Installed once by the runtime, which can read source maps; the language itself does no I/O. */
export const setPositionMapper = (next: PositionMapper | undefined): void => {
  mapper = next
}

interface Site {
  getFileName(): string | null | undefined
  getLineNumber(): number | null
  getColumnNumber(): number | null
}

interface StackError {
  captureStackTrace?: (target: object) => void
  prepareStackTrace?: unknown
  stackTraceLimit?: number
}

const asPath = (file: string): string => {
  if (!file.startsWith('file://')) return file
  const path = decodeURI(file.slice(7))
  return /^\/[A-Za-z]:/.test(path) ? path.slice(1) : path
}

// The folders of the language and of the runtime, in the sources or in dist/. Frames in them belong to Braid.
const own = ['../', '../../runtime/'].map(folder => asPath(new URL(folder, import.meta.url).href))
const ownFile = (file: string): boolean => own.some(folder => asPath(file).startsWith(folder))

const workingDirectory = (): string | undefined => {
  try {
    return (globalThis as { process?: { cwd?: () => string } }).process?.cwd?.()
  } catch {
    return undefined
  }
}

const relative = (file: string): string => {
  const root = workingDirectory()?.replaceAll('\\', '/')
  const path = asPath(file).replaceAll('\\', '/')
  return root !== undefined && path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path
}

const firstForeign = (positions: readonly Position[]): Position | undefined =>
  positions.find(({ file }) => !ownFile(file) && !file.startsWith('node:')) ?? positions[0]

class Captured implements Where {
  constructor(private readonly position: Position | undefined) {}

  toString(): string {
    if (this.position === undefined) return 'unknown'
    let mapped: Position | undefined
    try {
      mapped = mapper?.(this.position)
    } catch {
      mapped = undefined
    }
    const { file, line, column } = mapped ?? this.position
    return `${relative(file)}:${line}:${column}`
  }

  toJSON(): string {
    return this.toString()
  }
}

const position = (site: Site): Position => ({
  file: site.getFileName() ?? '',
  line: site.getLineNumber() ?? 0,
  column: site.getColumnNumber() ?? 0,
})

const keepSites = (_: unknown, sites: readonly Site[]): readonly Site[] => sites

// The stack of a browser that has no structured call sites: `fn (file:1:2)` and `fn@file:1:2`.
const parse = (stack: string): Position[] =>
  stack.split('\n').flatMap(line => {
    const found = /([^\s(@]+):(\d+):(\d+)\)?\s*$/.exec(line)
    return found ? [{ file: found[1] ?? '', line: Number(found[2]), column: Number(found[3]) }] : []
  })

// Hazard: `prepareStackTrace` and `stackTraceLimit` are global. They are restored before any other code can
// run.
const captureAtMost = (frames: number): Position | undefined => {
  const errors = Error as unknown as StackError
  const { prepareStackTrace, stackTraceLimit } = errors
  try {
    errors.stackTraceLimit = frames
    errors.prepareStackTrace = keepSites
    const holder: { stack?: unknown } = errors.captureStackTrace ? {} : new Error()
    errors.captureStackTrace?.(holder)
    const { stack } = holder
    if (typeof stack === 'string') return firstForeign(parse(stack))
    if (!Array.isArray(stack)) return undefined
    for (const site of stack as readonly Site[]) {
      const file = site.getFileName()
      if (file && !ownFile(file) && !file.startsWith('node:')) return position(site)
    }
    return undefined
  } catch {
    return undefined
  } finally {
    try {
      if (prepareStackTrace === undefined) delete errors.prepareStackTrace
      else errors.prepareStackTrace = prepareStackTrace
      if (stackTraceLimit === undefined) delete errors.stackTraceLimit
      else errors.stackTraceLimit = stackTraceLimit
    } catch {
      // A frozen `Error`: nothing was changed, so nothing is restored.
    }
  }
}

/**
 * The nearest place on the stack outside of Braid. Cheap enough for every node of a large graph: it takes few
 * frames, and formats text only on demand. Never throws; yields `unknown` where an engine has no stacks.
 */
export const here = (): Where => new Captured(captureAtMost(6) ?? captureAtMost(40))
