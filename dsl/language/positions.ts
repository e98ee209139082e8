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

/** As an engine describes a call, for code that formats stacks. */
class CallSite {
  constructor(private readonly position: Position) {}
  getFileName(): string {
    return this.position.file
  }
  getScriptNameOrSourceURL(): string {
    return this.position.file
  }
  getLineNumber(): number {
    return this.position.line
  }
  getColumnNumber(): number {
    return this.position.column
  }
  getFunctionName(): null {
    return null
  }
  getMethodName(): null {
    return null
  }
  getTypeName(): null {
    return null
  }
  getThis(): undefined {
    return undefined
  }
  getFunction(): undefined {
    return undefined
  }
  getEvalOrigin(): undefined {
    return undefined
  }
  getPromiseIndex(): null {
    return null
  }
  isNative(): boolean {
    return false
  }
  isToplevel(): boolean {
    return true
  }
  isEval(): boolean {
    return false
  }
  isConstructor(): boolean {
    return false
  }
  isAsync(): boolean {
    return false
  }
  isPromiseAll(): boolean {
    return false
  }
}

const forms = [
  /\((.+):(\d+):(\d+)\)\s*$/,
  /^\s*at (?:async )?(.+):(\d+):(\d+)\s*$/,
  /^(?:[^@]*@)?(.+):(\d+):(\d+)\s*$/,
]

/** The place in a line of a stack's text: `at fn (file:1:2)`, `at file:1:2` or `fn@file:1:2`. */
export const placeInLine = (line: string): Position | undefined => {
  const found = forms.map(form => form.exec(line)).find(match => match !== null)
  return found ? { file: found[1]!, line: Number(found[2]), column: Number(found[3]) } : undefined
}

/**
 * By the code that formats this program's stacks, where it has its own: test runners and bundlers that load
 * modules themselves map places of them there (`Error.prepareStackTrace`), and Node knows of no source map.
 */
const byFormatter: PositionMapper = position => {
  const { prepareStackTrace: format } = Error as { prepareStackTrace?: unknown }
  if (typeof format !== 'function') return undefined
  const text: unknown = format.call(Error, new Error(), [new CallSite(position)])
  const place = typeof text === 'string' ? placeInLine(text.split('\n').at(-1)!) : undefined
  return place && { ...place, file: asPath(place.file) }
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
    return byFormatter({ file, line, column })
  return { file: asPath(originalSource), line: originalLine + 1, column: originalColumn + 1 }
}
