// Checks of options that a caller of JavaScript passed: an option may be anything, an object may be a proxy
// or full of getters that throw.
import type { Fault } from '../../../dsl/ir/fault.js'
import { isRecord } from '../../../dsl/ir/record.js'
import { describe } from '../../values.js'

/** An error in an option. `at` is the option's name, as `allocator.pinned.limit`. */
export type OptionFault = Fault<'BadOption'>

/** What an option may be: in words, and as a test. */
export interface Check<T = unknown> {
  readonly wanted: string
  readonly holds: (value: unknown) => value is T
}

export const check = <T>(wanted: string, holds: (value: unknown) => boolean): Check<T> => ({
  wanted,
  holds: holds as (value: unknown) => value is T,
})

export const isWhole = (value: unknown): value is number => Number.isSafeInteger(value)

export const isPowerOfTwo = (value: unknown): value is number =>
  isWhole(value) && value > 0 && 2 ** Math.round(Math.log2(value)) === value

/** A whole number of `unit`: "bytes, a whole number from 0". */
export const whole = (unit: string, least: number, most = Number.MAX_SAFE_INTEGER): Check<number> =>
  check(
    most === Number.MAX_SAFE_INTEGER
      ? `${unit}a whole number from ${least}`
      : `${unit}a whole number from ${least} to ${most}`,
    value => isWhole(value) && value >= least && value <= most,
  )

export const bytes = (least: number): Check<number> => whole('bytes, ', least)

/** Bytes, or `Infinity` for "no bound". */
export const bound = (least: number): Check<number> =>
  check(
    `${bytes(least).wanted}, or Infinity`,
    value => value === Number.POSITIVE_INFINITY || bytes(least).holds(value),
  )

export const between = (wanted: string, holds: (value: number) => boolean): Check<number> =>
  check(wanted, value => typeof value === 'number' && holds(value))

export const rate: Check<number> = between('a rate from 0', value => value >= 0 && Number.isFinite(value))

export const flag: Check<boolean> = check('true or false', value => typeof value === 'boolean')

export const object: Check<object> = check('an object', isRecord)

export const oneOf = <T extends string>(words: readonly T[]): Check<T> =>
  check(`one of ${words.map(word => `'${word}'`).join(', ')}`, value => words.some(word => word === value))

export const badOption = (at: string, wanted: string, value: unknown): OptionFault => ({
  _tag: 'BadOption',
  at,
  subject: at,
  wanted,
  found: describe(value),
  next: 'correct the option, or leave it out',
})

const unknownOption = (prefix: string, name: string, names: readonly string[]): OptionFault => {
  const near = nearest(name, names)
  return {
    ...badOption(`${prefix}${name.slice(0, 64)}`, `one of ${names.join(', ')}`, name),
    next: near === undefined ? 'leave it out' : `write ${near}, or leave it out`,
  }
}

/** An error for each option that the table does not name, and for each value that its check refuses. */
export const checkEach = (
  given: object,
  table: Readonly<Record<string, Check>>,
  prefix = '',
): readonly OptionFault[] =>
  Object.entries(given).flatMap(([name, value]) => {
    if (value === undefined) return []
    if (!Object.hasOwn(table, name)) return [unknownOption(prefix, name, Object.keys(table))]
    const { wanted, holds } = table[name]!
    return holds(value) ? [] : [badOption(`${prefix}${name}`, wanted, value)]
  })

/**
 * The fields of a plain object, each read once; undefined where the value is no plain object, or cannot be
 * read.
 */
export const fieldsOf = (value: unknown): ReadonlyMap<string, unknown> | undefined => {
  try {
    if (!isRecord(value)) return undefined
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype !== null && Object.getPrototypeOf(prototype) !== null) return undefined
    return new Map(Object.keys(value).map(key => [key, value[key]]))
  } catch {
    return undefined
  }
}

/**
 * The items of an array, each read once; undefined where it is no array, cannot be read, or is longer than
 * `most`.
 */
export const itemsOf = (value: unknown, most: number): readonly unknown[] | undefined => {
  try {
    return Array.isArray(value) && value.length <= most ? Array.from(value) : undefined
  } catch {
    return undefined
  }
}

/** The fields of an object of options. Adds a fault for each field that is not in `names`. */
export const knownFields = (
  value: unknown,
  at: string,
  names: readonly string[],
  faults: OptionFault[],
): ReadonlyMap<string, unknown> => {
  if (value === undefined) return new Map()
  const fields = fieldsOf(value)
  if (fields === undefined) {
    faults.push(badOption(at, `a plain object of ${names.join(', ')}`, value))
    return new Map()
  }
  for (const key of fields.keys()) if (!names.includes(key)) faults.push(unknownOption(`${at}.`, key, names))
  return fields
}

// A name may be of any length: only its beginning is compared.
const compared = 64

/** The name that the fewest changes of a character lead to, where they change less than half of the name. */
export const nearest = (given: string, names: readonly string[]): string | undefined => {
  const word = given.slice(0, compared)
  const ranked = names
    .map(name => ({ name, steps: distance(word.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.steps - b.steps)
  const best = ranked[0]
  return best !== undefined && best.steps <= Math.max(1, best.name.length / 2) ? best.name : undefined
}

// Levenshtein's distance, a row at a time.
const distance = (from: string, to: string): number => {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)))
    row = next
  }
  return row[to.length]!
}
