import { asPath, framesHere, mappedPosition } from '../../dsl/internal.js'
import type { NativeCachingDevice } from '../addon.js'
import type { SnapshotFrame } from './snapshot/snapshot.js'

const line = /^(.*)\t(.*):(\d+):(\d+)$/

const frameOf = (text: string): SnapshotFrame | undefined => {
  const found = line.exec(text)
  if (found === null) return undefined
  const at = mappedPosition({ file: found[2]!, line: Number(found[3]), column: Number(found[4]) })
  return { filename: asPath(at.file), line: at.line, name: found[1] === '' ? '<anonymous>' : found[1]! }
}

const depth = 24

/**
 * The places where blocks were allocated, each stored once under a number; 0 means not known. The numbers are
 * the device's, for all threads and sessions that share it. A site's text is its label, and after a NUL the
 * calls outside of Braid, at their positions in the running code: source maps are asked when it is read.
 */
export class Sites {
  readonly #numbers = new Map<string, number>()
  #texts: string[] = ['']

  constructor(private readonly native: Pick<NativeCachingDevice, 'site' | 'sites'>) {}

  /** The number of a label, of the caller's stack, or of both. */
  of(label: string | undefined, stack: boolean): number {
    const text = stack ? `${label ?? ''}\0${capture()}` : (label ?? '')
    const known = this.#numbers.get(text)
    if (known !== undefined) return known
    const number = this.native.site(text)
    // Numbers end after a while, which bounds the memory of a program whose labels never repeat.
    if (number !== 0) {
      this.#numbers.set(text, number)
      this.#texts[number] = text
    }
    return number
  }

  /** The frames, innermost first. A label stands before the stack, as a name without a file. */
  frames(site: number): readonly SnapshotFrame[] {
    const [label, text] = this.#parts(site)
    const frames = text.split('\n').flatMap(each => frameOf(each) ?? [])
    return label === '' ? frames : [{ filename: '', line: 0, name: label }, ...frames]
  }

  /** A place in words: `weights (train.ts:12 in load)`. */
  words(site: number): string {
    const frames = this.frames(site)
    const [label] = this.#parts(site)
    const first = frames.find(({ filename }) => filename !== '')
    const place = first
      ? `${first.filename}:${first.line}${first.name === '<anonymous>' ? '' : ` in ${first.name}`}`
      : ''
    if (label !== '') return place === '' ? label : `${label} (${place})`
    return place
  }

  all(): readonly (readonly SnapshotFrame[])[] {
    this.#texts = [...this.native.sites()]
    return this.#texts.map((_, site) => this.frames(site))
  }

  #parts(site: number): readonly [label: string, stack: string] {
    // Another thread's, or a session's.
    if (this.#texts[site] === undefined) this.#texts = [...this.native.sites()]
    const [label = '', stack = ''] = (this.#texts[site] ?? '').split('\0')
    return [label, stack]
  }
}

const capture = (): string =>
  framesHere(depth)
    .map(({ name, file, line, column }) => `${name}\t${file}:${line}:${column}`)
    .join('\n')
