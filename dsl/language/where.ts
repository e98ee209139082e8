import type { Where } from '../ir/graph.js'
import { asPath, bySourceMap, type Position, type PositionMapper, placeInLine } from './positions.js'

let mapper = bySourceMap

/** Takes the place of the platform's own source maps; undefined: these again. */
export const setPositionMapper = (next: PositionMapper | undefined): void => {
  mapper = next ?? bySourceMap
}

/** The position in the source, where the mapper finds one, else the position itself. */
export const mappedPosition = (position: Position): Position => {
  try {
    return mapper(position) ?? position
  } catch {
    return position
  }
}

interface Site {
  getFunctionName?(): string | null
  getFileName(): string | null | undefined
  getLineNumber(): number | null
  getColumnNumber(): number | null
}

interface StackError {
  captureStackTrace?(holder: object, above: unknown): void
  prepareStackTrace?: unknown
  stackTraceLimit?: number | undefined
}

/** This file; empty in a bundle of the form CommonJS, which has no URL. */
const self = asPath((import.meta as { readonly url?: string }).url ?? '')
/** Whether this file is Braid's, in the sources or in dist/. Else a user's bundle has Braid in it. */
const standsAlone = /[/\\]dsl[/\\]language[/\\](where\.ts|bundle\.js)$/.test(self)

// The folders of the language and of the runtime. Frames in them belong to Braid.
const own = standsAlone
  ? ['../', '../../runtime/'].map(folder => asPath(new URL(folder, import.meta.url).href))
  : []
const ownFile = (file: string): boolean =>
  standsAlone ? own.some(folder => asPath(file).startsWith(folder)) : self === '' || asPath(file) === self

const workingDirectory = (): string | undefined => {
  try {
    return (globalThis as { process?: { cwd?: () => string } }).process?.cwd?.()
  } catch {
    return undefined
  }
}

const relative = (file: string, folder: string | undefined): string => {
  const root = folder?.replaceAll('\\', '/')
  const path = asPath(file).replaceAll('\\', '/')
  return root !== undefined && path.startsWith(`${root}/`) ? path.slice(root.length + 1) : path
}

class Captured implements Where {
  /** The text, and the mapper and the folder that it was made with. */
  private text = ''
  private by: PositionMapper | undefined
  private root: string | undefined

  constructor(
    readonly position: Position | undefined,
    /** A further place of the file with the same key. */
    readonly next?: Captured,
  ) {}

  toString(): string {
    const root = workingDirectory()
    if (this.text === '' || this.by !== mapper || this.root !== root) {
      this.text = this.rendered(root)
      this.by = mapper
      this.root = root
    }
    return this.text
  }

  private rendered(root: string | undefined): string {
    if (this.position === undefined) return 'unknown'
    const { file, line, column } = mappedPosition(this.position)
    return `${relative(file, root)}:${line}:${column}`
  }

  toJSON(): string {
    return this.toString()
  }
}

const unknown = new Captured(undefined)

/** Files, and places of one file, that are kept at most. */
const mostKept = 2 ** 16

/** A file by the name that the engine gives it. */
class SourceFile {
  /** Neither Braid's nor Node's. */
  readonly foreign: boolean
  /**
   * By a number that several may have. A loop makes a million nodes in one place, and they share one object.
   */
  private readonly places = new Map<number, Captured>()

  constructor(readonly name: string) {
    this.foreign = name !== '' && !ownFile(name) && !name.startsWith('node:')
  }

  at(line: number, column: number): Captured {
    const { places } = this
    // Small, so that it is no object of its own.
    const key = ((line << 10) + column) & 0x3fffffff
    const first = places.get(key)
    for (let place = first; place !== undefined; place = place.next)
      if (place.position!.line === line && place.position!.column === column) return place
    if (places.size >= mostKept) places.clear()
    const place = new Captured({ file: this.name, line, column }, places.get(key))
    places.set(key, place)
    return place
  }
}

const files = new Map<string, SourceFile>()
/** Mostly the next one too. */
let latest = new SourceFile('')

const fileOf = (name: string): SourceFile => {
  if (latest.name === name) return latest
  let file = files.get(name)
  if (file === undefined) {
    if (files.size >= mostKept) files.clear()
    file = new SourceFile(name)
    files.set(name, file)
  }
  latest = file
  return file
}

// The stack of a browser that has no structured call sites: `fn (file:1:2)` and `fn@file:1:2`.
const parse = (stack: string): Position[] => stack.split('\n').flatMap(line => placeInLine(line) ?? [])

const firstIn = (stack: string): Captured | undefined => {
  const first = parse(stack).find(({ file }) => fileOf(file).foreign)
  return first && fileOf(first.file).at(first.line, first.column)
}

/**
 * Finds the place among call sites, as `prepareStackTrace`: what it returns is what a read of `stack` yields.
 */
const firstOf = (_: unknown, sites: readonly Site[]): Captured | undefined => {
  for (let i = 0; i < sites.length; i++) {
    const site = sites[i]!
    const file = fileOf(site.getFileName() ?? '')
    if (file.foreign) return file.at(site.getLineNumber() ?? 0, site.getColumnNumber() ?? 0)
  }
  // The program and Braid are one file: the furthest call that was asked for is the program's, mostly.
  const last = standsAlone ? undefined : sites.at(-1)
  return last && fileOf(last.getFileName() ?? '').at(last.getLineNumber() ?? 0, last.getColumnNumber() ?? 0)
}

// Hazard: `prepareStackTrace` and `stackTraceLimit` are global. They are restored before any other code can
// run. One that was not set before is set to undefined, which engines take for not set: to delete a property
// of Error costs more than all else here.

type Caller = (...given: never[]) => unknown

interface Holder {
  readonly stack?: unknown
}

/**
 * A stack that nobody has read yet, in `holder`: so many frames, from the caller of the function `above` on.
 */
const traced = (holder: Holder, frames: number, above: Caller): Holder | undefined => {
  const errors = Error as unknown as StackError
  const { stackTraceLimit } = errors
  try {
    errors.stackTraceLimit = frames
    // An engine that cannot leave out what is above gives all of it.
    if (typeof errors.captureStackTrace !== 'function') return new Error()
    errors.captureStackTrace(holder, above)
    return holder
  } catch {
    return undefined
  } finally {
    try {
      errors.stackTraceLimit = stackTraceLimit
    } catch {
      // A frozen `Error`: nothing was changed, so nothing is restored.
    }
  }
}

/**
 * From what the read of a stack yields: what `firstOf` found, or the text of an engine that does not ask it.
 */
const placeOf = (stack: unknown): Captured | undefined =>
  typeof stack === 'string' ? firstIn(stack) : (stack as Captured | undefined)

/** What the read of a stack yields, with `prepare` in the place of the engine's own formatter. */
const read = (holder: Holder | undefined, prepare: unknown): unknown => {
  if (holder === undefined) return undefined
  const errors = Error as unknown as StackError
  const { prepareStackTrace } = errors
  try {
    errors.prepareStackTrace = prepare
    return holder.stack
  } catch {
    return undefined
  } finally {
    try {
      errors.prepareStackTrace = prepareStackTrace
    } catch {
      // As above.
    }
  }
}

/** The place in a stack. */
const placeIn = (holder: Holder | undefined): Captured | undefined => placeOf(read(holder, firstOf))

/** A call outside of Braid, at its position in the running code: see `mappedPosition`. */
export interface Frame extends Position {
  /** The function's name, or the empty text. */
  readonly name: string
}

const framesOf = (_: unknown, sites: readonly Site[]): readonly Frame[] =>
  sites.flatMap(site => {
    const { name, foreign } = fileOf(site.getFileName() ?? '')
    if (!foreign) return []
    const [line, column] = [site.getLineNumber() ?? 0, site.getColumnNumber() ?? 0]
    return [{ file: name, line, column, name: site.getFunctionName?.() ?? '' }]
  })

/** The calls outside of Braid among so many nearest ones, the nearest first. Never throws. */
export const framesHere = (most: number): readonly Frame[] => {
  const found = read(traced({}, most, framesHere), framesOf)
  if (typeof found !== 'string') return Array.isArray(found) ? (found as readonly Frame[]) : []
  return parse(found).flatMap(place => (fileOf(place.file).foreign ? [{ ...place, name: '' }] : []))
}

/**
 * Holds the stacks that are read at once. An engine turns an object that gets a stack into a dictionary,
 * which costs as much as the stack, so there is one of them.
 */
const shared: Holder = {}

/** As `here`, from the next 40 callers. */
const further = (): Where => placeIn(traced({}, 40, here)) ?? unknown

/**
 * The nearest place on the stack outside of Braid. Cheap enough for every node of a large graph: it mostly
 * takes two frames (the operator's and its caller's), or the caller's alone where the operator names itself,
 * and formats text only on demand. Never throws; yields `unknown` where an engine has no stacks.
 *
 * All in one function: each that is on the stack makes the engine's walk longer.
 */
export const here = (operator?: Caller): Where => {
  const errors = Error as unknown as StackError
  const { stackTraceLimit, prepareStackTrace } = errors
  let place: Captured | undefined
  try {
    errors.stackTraceLimit = operator === undefined ? 2 : 1
    errors.prepareStackTrace = firstOf
    errors.captureStackTrace?.(shared, operator ?? here)
    place = placeOf(shared.stack)
  } catch {
    // Looked for once more, further away.
  } finally {
    try {
      errors.stackTraceLimit = stackTraceLimit
      errors.prepareStackTrace = prepareStackTrace
    } catch {
      // A frozen `Error`: nothing was changed, so nothing is restored.
    }
  }
  return place ?? further()
}

/** A place that is looked for when somebody asks for it first. */
class Late implements Where {
  private place: Where | undefined

  constructor(private find: (() => Where) | undefined) {}

  toString(): string {
    this.place ??= this.find?.() ?? unknown
    this.find = undefined
    return this.place.toString()
  }

  toJSON(): string {
    return this.toString()
  }
}

/** The place of the call during which somebody asks for it first, such as one that reports an error. */
export const hereOnDemand = (): Where => new Late(() => here())

/**
 * The place that `here` gives, for what is called so often that even looking for it counts: takes half the
 * time, and keeps the stack until the place is read. The place is among the next three callers, or it is
 * `unknown`.
 */
export const hereLater = (): Where => {
  const holder = traced({}, 3, hereLater)
  return new Late(() => placeIn(holder) ?? unknown)
}
