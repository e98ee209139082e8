import { limits } from './limits.js'
import type { Reader } from './reader.js'

/** The lists of a plan that may be long: each is read in parts, whatever the file's length. */
const most: Readonly<Record<string, number>> = {
  lanes: limits.lanes,
  buffers: limits.buffers,
  nodes: limits.nodes,
  commands: limits.commands,
  graphs: limits.commands,
}

/** The most characters of list entries that are parsed together, and of the rest of a plan. */
const usual = 2 ** 20
const mostRest = 2 ** 26

const code = {
  quote: 34,
  comma: 44,
  colon: 58,
  backslash: 92,
  open: 91,
  close: 93,
  begin: 123,
  end: 125,
} as const

/**
 * The value of a JSON text that comes in parts and may be longer than a string can be. The entries of a
 * plan's long lists are cut out and parsed by themselves; what is left is an ordinary text. Everything is
 * parsed by JSON.parse in the end, so nothing is accepted here that is not JSON. Throws what JSON.parse
 * throws, with the position in the whole text, and `Enough` where a list is too long, which `r` then has as a
 * fault.
 */
export const jsonOf = (parts: Iterable<string>, r: Reader, together = usual): unknown => {
  const cut = new Cut(r, together)
  for (const part of parts) cut.take(part)
  return cut.whole()
}

/** What JSON.parse throws of a text, with `whole(p)` in place of each position p in it. */
const parsedAt = (text: string, whole: (position: number) => number, more = ''): unknown => {
  try {
    return JSON.parse(text)
  } catch (error) {
    // The line and column that newer versions of V8 add are those of the text that was parsed.
    const found = (error as Error).message.replace(
      / at position (\d+)(?: \(line \d+ column \d+\))?$/,
      (_, position: string) => ` at position ${whole(Number(position))}`,
    )
    throw new SyntaxError(`${found}${more}`)
  }
}

class Cut {
  /** The text without the entries of long lists. */
  private readonly rest: string[] = []
  private restLength = 0
  /** Where each part of the rest begins: in the rest, and in the whole text. */
  private readonly begins: (readonly [inRest: number, inWhole: number])[] = []
  /** The characters of the parts before the present one. */
  private before = 0
  private readonly lists = new Map<string, unknown[]>()
  private depth = 0
  private inString = false
  private escaped = false
  /** At depth 1: the present or last string, and whether it is a key. */
  private word = ''
  private isKey = true
  /** The present long list; its text since the last parsed entries. */
  private list: string | undefined
  private text = ''
  /** Where `text` begins in the whole text. */
  private textAt = 0
  /** Whether the next character follows a comma of the list. */
  private owed = false

  constructor(
    private readonly r: Reader,
    private readonly together: number,
  ) {}

  take(part: string): void {
    let from = 0
    let wordFrom = 0
    for (let i = 0; i < part.length; i++) {
      const c = part.charCodeAt(i)
      if (this.inString) {
        if (this.escaped) this.escaped = false
        else if (c === code.backslash) this.escaped = true
        else if (c === code.quote) {
          this.inString = false
          if (this.depth === 1 && this.isKey) this.word += part.slice(wordFrom, i)
        }
        continue
      }
      switch (c) {
        case code.quote:
          this.inString = true
          if (this.depth === 1 && this.isKey) {
            this.word = ''
            wordFrom = i + 1
          }
          break
        case code.open:
        case code.begin:
          this.depth++
          if (c === code.open && this.depth === 2 && !this.isKey && Object.hasOwn(most, this.word)) {
            this.keep(part.slice(from, i + 1), from)
            from = i + 1
            this.textAt = this.before + from
            this.list = this.word
            this.lists.set(this.word, [])
            this.owed = false
          }
          break
        case code.close:
        case code.end:
          this.depth--
          if (this.list === undefined || this.depth > 1) break
          if (c !== code.close) throw new SyntaxError(`a list of ${this.list} that ends with }`)
          this.text += part.slice(from, i)
          from = i
          this.parse(false)
          this.list = undefined
          break
        case code.colon:
          if (this.depth !== 1) break
          this.isKey = false
          // Of a repeated name the last value counts.
          this.lists.delete(this.word)
          break
        case code.comma:
          if (this.depth === 1) this.isKey = true
          else if (
            this.depth === 2 &&
            this.list !== undefined &&
            this.text.length + i - from >= this.together
          ) {
            this.text += part.slice(from, i)
            from = i + 1
            this.parse(true)
            this.textAt = this.before + from
          }
          break
      }
    }
    if (this.inString && this.depth === 1 && this.isKey) this.word += part.slice(wordFrom)
    if (this.list === undefined) this.keep(part.slice(from), from)
    else this.text += part.slice(from)
    this.before += part.length
  }

  whole(): unknown {
    const value = parsedAt(this.rest.join(''), position => {
      const [inRest, inWhole] = this.begins.findLast(([begin]) => begin <= position) ?? [0, 0]
      return inWhole + position - inRest
    }) as Record<string, unknown>
    for (const [name, list] of this.lists) value[name] = list
    return value
  }

  /** `from`: where the text begins in the present part. */
  private keep(text: string, from: number): void {
    this.begins.push([this.restLength, this.before + from])
    this.restLength += text.length
    if (this.restLength > mostRest)
      throw new RangeError('more than 64 MiB besides lanes, buffers, nodes, commands and graphs')
    this.rest.push(text)
  }

  /** Parses the entries so far, at a comma after them or at the end of their list. */
  private parse(more: boolean): void {
    const name = this.list!
    const into = this.lists.get(name)!
    const entries = parsedAt(
      `[${this.text}]`,
      position => this.textAt + position - 1,
      `, in ${name}[${into.length}] or after it`,
    ) as unknown[]
    if (entries.length === 0 && (more || this.owed))
      throw new SyntaxError(`an entry is missing: ${name}[${into.length}]`)
    for (let i = 0; i < entries.length; i++) into.push(entries[i])
    this.text = ''
    this.owed = more
    if (into.length > most[name]!) this.r.tooMany(`plan.${name}`, most[name]!, into.length)
  }
}
