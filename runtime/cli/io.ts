import type { Fault } from '../../dsl/ir/fault.js'
import { renderAll } from '../../dsl/ir/messages.js'
import { shown, shownLines } from '../../dsl/ir/show.js'
import { thrown } from '../values.js'
import { type Progress, progressOn } from './progress.js'

/** The command line was used wrongly: exit status 2. */
export class Misuse extends Error {}

/** Thrown by a verb for any failure that is not a misuse: the errors as data; exit status 1. */
export class Failed extends Error {
  constructor(readonly faults: readonly Fault[]) {
    super(renderAll(faults))
  }
}

/** What standard output refuses: a disk that is full, for instance. */
export const outputFailed = (error: unknown): Failed =>
  new Failed([
    {
      _tag: 'BadFile',
      at: 'standard output',
      subject: 'output',
      wanted: 'an output that can be written',
      found: thrown(error),
      next: 'send it elsewhere, or free some space',
    },
  ])

/** Where a verb writes. With `--json` standard output carries one object and nothing else. */
export interface Output {
  readonly json: boolean
  /** Text for people; nothing with `--json`. */
  say(text: string): void
  /** The result for programs; nothing without `--json`. */
  result(value: object): void
  /**
   * From now on standard output carries the result alone: what a user's program prints goes to standard
   * error. So it is with `--json` from the start.
   */
  reserve(): void
  /** On standard error, where that is a terminal; nothing with `--json`. */
  readonly progress: Progress
  readonly styles: Styles
}

export interface Styles {
  bold(text: string): string
  dim(text: string): string
  good(text: string): string
  bad(text: string): string
}

// The codes of `styled`, which are no part of the text that they stand in.
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escapes of colours.
const codes = /(\u001b\[(?:1|2|22|31|32|39)m)/

/**
 * Text as it goes to a terminal. Names are escaped where they enter a sentence; here is all else: paths, what
 * the system or a program says, a plan as JSON.
 */
const terminal = (text: string, coloured: boolean): string =>
  coloured
    ? text
        .split(codes)
        .map((part, i) => (i % 2 === 1 ? part : shownLines(part)))
        .join('')
    : shownLines(text)

/** One line of JSON, which leaves C1 controls and overrides of direction as they are. */
const jsonLine = (value: object): string => shown(JSON.stringify(value))

const styled = (on: boolean): Styles => {
  const code = (open: number, close: number) => (text: string) =>
    on ? `\u001b[${open}m${text}\u001b[${close}m` : text
  return { bold: code(1, 22), dim: code(2, 22), good: code(32, 39), bad: code(31, 39) }
}

const colours = (): boolean =>
  process.stdout.isTTY === true && !process.env['NO_COLOR'] && process.env['TERM'] !== 'dumb'

/** The output of this process. */
export const makeOutput = (json: boolean): Output => {
  const given = process.stdout.write.bind(process.stdout) as (text: string) => boolean
  const write = (text: string): void => {
    try {
      given(text)
    } catch (error) {
      throw outputFailed(error)
    }
  }
  const reserve = (): void => {
    process.stdout.write = process.stderr.write.bind(process.stderr)
  }
  if (json) reserve()
  const coloured = !json && colours()
  return {
    json,
    say: text => void (json || write(`${terminal(text, coloured)}\n`)),
    result: value => void (json && write(`${jsonLine(value)}\n`)),
    reserve,
    progress: progressOn(json ? { write: () => undefined } : process.stderr),
    styles: styled(coloured),
  }
}

/** A fault as JSON: its data, without values that JSON cannot hold. */
const plain = (fault: Fault): object => {
  const { cause, ...data } = fault as Fault & { cause?: unknown }
  return cause === undefined
    ? data
    : { ...data, cause: cause instanceof Error ? cause.message : String(cause) }
}

/** Text on standard error. */
export const note = (text: string): void => void process.stderr.write(`${terminal(text, false)}\n`)

/** Reports on standard error what ended the command, and returns the exit status. */
export const report = (error: unknown, json: boolean): number => {
  const say = note
  if (error instanceof Misuse) {
    if (json) {
      const [found, ...next] = error.message.split('\n')
      const fault = {
        _tag: 'Misuse',
        at: 'command line',
        subject: '',
        wanted: '',
        found,
        next: next.join('\n'),
      }
      say(jsonLine({ errors: [{ ...fault, message: error.message }] }))
    } else say(`braid: ${error.message}`)
    return 2
  }
  if (error instanceof Failed) {
    if (json) say(jsonLine({ errors: error.faults.map(plain) }))
    else say(error.message)
    return 1
  }
  const message = thrown(error)
  const stack = error instanceof Error ? error.stack : undefined
  const fault = (typeof error === 'object' && error !== null ? error : {}) as Partial<Fault>
  if (json)
    say(
      jsonLine({
        errors: [
          typeof fault?._tag === 'string' ? plainError(fault as Fault) : { _tag: 'Unexpected', message },
        ],
      }),
    )
  else {
    say(`braid: ${message}`)
    const frames = stack?.slice(stack.indexOf('\n    at ') + 1)
    if (typeof fault?._tag !== 'string' && frames) say(frames)
  }
  return 1
}

// The fields of an Error that is a fault as well: `message` and `stack` are not enumerable, the data is.
const plainError = (fault: Fault): object => plain({ ...fault, _tag: fault._tag })
