import type { SnapshotFrame } from './snapshot/snapshot.js'

interface StackError {
  captureStackTrace(target: object): void
  stackTraceLimit: number
}

// Frames of Braid's own files are left out: they do not say which code allocates.
const own = [new URL('.', import.meta.url).href, new URL('.', import.meta.url).pathname]
const isOwn = (line: string): boolean =>
  own.some(folder => line.includes(folder)) || line.includes('node:internal')

const line = /^\s*at (?:(?:async )?(.*?) \()?(?:file:\/\/)?(.*?):(\d+):\d+\)?$/

const frameOf = (text: string): SnapshotFrame | undefined => {
  const found = line.exec(text)
  return found ? { filename: found[2]!, line: Number(found[3]), name: found[1] ?? '<anonymous>' } : undefined
}

const most = 65_536
const depth = 24

/**
 * The places where blocks were allocated, each stored once under a number; 0 means not known. A stack is
 * stored as the engine's text and parsed only when it is read.
 */
export class Sites {
  readonly #numbers = new Map<string, number>()
  readonly #texts: string[] = ['']
  readonly #labels: (string | undefined)[] = [undefined]

  /** The number of a label, of the caller's stack, or of both. */
  of(label: string | undefined, stack: boolean): number {
    const text = stack ? capture() : ''
    const key = label === undefined ? text : `${label}\0${text}`
    const known = this.#numbers.get(key)
    if (known !== undefined) return known
    // Bounds the memory of a program whose labels never repeat: further places are not known.
    if (this.#texts.length >= most) return 0
    const number = this.#texts.push(text) - 1
    this.#labels.push(label)
    this.#numbers.set(key, number)
    return number
  }

  /** The frames, innermost first. A label stands before the stack, as a name without a file. */
  frames(site: number): readonly SnapshotFrame[] {
    const text = this.#texts[site] ?? ''
    const label = this.#labels[site]
    const frames = text.split('\n').flatMap(each => (each === '' || isOwn(each) ? [] : (frameOf(each) ?? [])))
    return label === undefined ? frames : [{ filename: '', line: 0, name: label }, ...frames]
  }

  /** A place in words: `weights (train.ts:12 in load)`. */
  words(site: number): string {
    const frames = this.frames(site)
    const label = this.#labels[site]
    const first = frames.find(({ filename }) => filename !== '')
    const place = first
      ? `${first.filename}:${first.line}${first.name === '<anonymous>' ? '' : ` in ${first.name}`}`
      : ''
    if (label !== undefined) return place === '' ? label : `${label} (${place})`
    return place
  }

  all(): readonly (readonly SnapshotFrame[])[] {
    return this.#texts.map((_, site) => this.frames(site))
  }
}

const capture = (): string => {
  const errors = Error as unknown as StackError
  const limit = errors.stackTraceLimit
  try {
    errors.stackTraceLimit = depth
    const holder: { stack?: unknown } = {}
    errors.captureStackTrace(holder)
    const stack = String(holder.stack)
    return stack.slice(stack.indexOf('\n') + 1)
  } catch {
    // Error is frozen, or the program's prepareStackTrace throws: the place is not known.
    return ''
  } finally {
    try {
      errors.stackTraceLimit = limit
    } catch {
      // Error is frozen, so the limit was not changed.
    }
  }
}
