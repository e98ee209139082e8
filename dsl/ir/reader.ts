import type { Fault } from './fault.js'
import { limits } from './limits.js'

export type PlanFaultTag =
  | 'BadJson' // no JSON text, or a value that cannot be read
  | 'BadVersion'
  | 'Missing'
  | 'WrongType'
  | 'OutOfRange' // a number that is too small or too large, or disagrees with another one
  | 'UnknownId' // an id that nothing in the plan has, or one that is not its own index
  | 'TooMany' // entries of a list
  | 'TooLong' // a string
  | 'DuplicateName' // of two inputs, two outputs, or parameters that are not one
  | 'BadCommand'
  | 'BadAlias' // a view of a view, or one that leaves its root
  | 'BadKernel' // a kernel that contradicts itself
  | 'Extent' // a kernel that would reach outside its buffers
  | 'Overwrite' // a run that may read bytes which it has written itself
  | 'Unwritten' // a kernel, or the host, that would read bytes which no kernel has written

/** Why a text or value is not a plan, and where in it. */
export type PlanFault = Fault<PlanFaultTag>

/** A text of one short line for any value. */
export const show = (value: unknown): string => {
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value)
  if (Array.isArray(value)) return `a list of ${value.length}`
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value === 'bigint') return `${String(value).slice(0, 40)}n`
  return typeof value === 'function' || typeof value === 'symbol' ? `a ${typeof value}` : String(value)
}

const mostAlike = 2 ** 14

/** Stops the reading: the list of faults is full. */
export class Enough extends Error {}

/**
 * Reads fields of untrusted values, each once, and notes each fault. Every method returns a value of its
 * type, a neutral one in place of an invalid one, so that all faults are found at once. It reads own
 * properties only, and only those asked for.
 */
export class Reader {
  readonly faults: PlanFault[] = []
  private readonly alike = new Map<string, unknown>()

  /** `own`: every value was made for this reader alone, in lists without holes; it may overwrite them. */
  constructor(readonly own = false) {}

  fault(tag: PlanFaultTag, at: string, subject: string, wanted: string, found: string, next: string): void {
    this.faults.push({ _tag: tag, at, subject, wanted, found, next })
    if (this.faults.length >= limits.faults) throw new Enough()
  }

  wrong(at: string, wanted: string, value: unknown): void {
    const tag = value === undefined ? 'Missing' : 'WrongType'
    this.fault(tag, at, lastName(at), wanted, value === undefined ? 'nothing' : show(value), `give ${wanted}`)
  }

  object(value: unknown, at: string): object {
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
    this.wrong(at, 'an object', value)
    return {}
  }

  field(value: object, key: string): unknown {
    return Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined
  }

  list(value: unknown, at: string, most: number): readonly unknown[] {
    if (!Array.isArray(value)) {
      this.wrong(at, 'a list', value)
      return []
    }
    if (value.length > most) {
      this.fault('TooMany', at, lastName(at), `at most ${most} entries`, `${value.length}`, 'split the plan')
      return []
    }
    return this.own ? value : Array.from(value) // dense: a hole becomes an entry that is undefined
  }

  /**
   * Reads each entry of a list; in place where the list may be overwritten, so that a large plan is never in
   * memory twice.
   */
  each<T>(list: readonly unknown[], read: (value: unknown, index: number) => T): T[] {
    if (!this.own) return list.map(read)
    const own = list as unknown[]
    for (let i = 0; i < own.length; i++) own[i] = read(own[i], i)
    return own as T[]
  }

  /**
   * Equal values are read once where they are this reader's own: most nodes of a large plan have one of few
   * kernels.
   */
  shared<T>(value: unknown, read: () => T): T {
    if (!this.own) return read()
    const text = JSON.stringify(value)
    const known = this.alike.get(text)
    if (known !== undefined) return known as T
    const faults = this.faults.length
    const made = read()
    if (this.faults.length === faults && this.alike.size < mostAlike) this.alike.set(text, made)
    return made
  }

  tooMany(at: string, most: number, found: number): never {
    this.fault('TooMany', at, lastName(at), `at most ${most} entries`, `${found}`, 'split the plan')
    throw new Enough()
  }

  /** An integer in [least, most]. */
  integer(value: unknown, at: string, least: number, most: number): number {
    if (typeof value !== 'number' || !Number.isInteger(value)) this.wrong(at, 'an integer', value)
    else if (value < least || value > most) {
      this.fault(
        'OutOfRange',
        at,
        lastName(at),
        `an integer from ${least} to ${most}`,
        show(value),
        `give an integer from ${least} to ${most}`,
      )
    } else return value + 0
    return least
  }

  /** The id of an entry of a list, which is its place there. */
  ownIndex(value: unknown, at: string, index: number): number {
    if (value !== index)
      this.fault(
        value === undefined ? 'Missing' : 'UnknownId',
        `${at}.id`,
        'id',
        `${index}, its own index`,
        value === undefined ? 'nothing' : show(value),
        'number them from 0 on, in order',
      )
    return index
  }

  /** An index into a list of the plan. */
  id(value: unknown, at: string, count: number, what: string): number {
    if (typeof value !== 'number' || !Number.isInteger(value)) this.wrong(at, `the id of a ${what}`, value)
    else if (value < 0 || value >= count) {
      const has = count === 0 ? `the plan has no ${what}` : `a ${what} from 0 to ${count - 1}`
      this.fault('UnknownId', at, `${what} ${value}`, has, show(value), `name a ${what} that the plan has`)
    } else return value + 0
    return 0
  }

  string(value: unknown, at: string, most: number): string {
    if (typeof value !== 'string') this.wrong(at, 'a string', value)
    else if (value.length > most) {
      this.fault('TooLong', at, lastName(at), `at most ${most} characters`, `${value.length}`, 'shorten it')
    } else return value
    return ''
  }

  oneOf<const T extends string>(value: unknown, at: string, choices: readonly T[]): T {
    if (typeof value === 'string' && (choices as readonly string[]).includes(value)) return value as T
    this.wrong(at, `one of ${choices.map(choice => JSON.stringify(choice)).join(', ')}`, value)
    return choices[0]!
  }

  finite(value: unknown, at: string, least: number): number {
    if (typeof value !== 'number' || !Number.isFinite(value)) this.wrong(at, 'a finite number', value)
    else if (value < least)
      this.fault(
        'OutOfRange',
        at,
        lastName(at),
        `a number from ${least} on`,
        show(value),
        `give a number from ${least} on`,
      )
    else return value
    return least
  }

  /** Any number of the arithmetic: the three that JSON has no names for are strings there. */
  number(value: unknown, at: string): number {
    if (typeof value === 'number') return value
    if (value === 'Infinity' || value === '-Infinity' || value === 'NaN') return Number(value)
    this.wrong(at, 'a number, or "Infinity", "-Infinity" or "NaN"', value)
    return 0
  }

  boolean(value: unknown, at: string): boolean {
    if (typeof value === 'boolean') return value
    this.wrong(at, 'true or false', value)
    return false
  }
}

const lastName = (at: string): string => at.slice(at.lastIndexOf('.') + 1)
