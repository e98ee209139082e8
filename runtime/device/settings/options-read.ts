import { describe } from '../../values.js'
import type { AllocatorFault } from './options.js'
import { nearest } from './options-nearest.js'

/** What an option may be, in words, and its value where it is that: `undefined` where it is not. */
export interface Check<T> {
  readonly wanted: string
  readonly of: (value: unknown) => T | undefined
}

/** Bytes in a mebibyte, in which PyTorch's settings count. */
export const MiB = 2 ** 20

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value)

/** Bytes; `+ 0`, since -0 is a whole number of JavaScript's too. */
export const bytes = (least: number, most = Number.MAX_SAFE_INTEGER): Check<number> => ({
  wanted:
    most === Number.MAX_SAFE_INTEGER
      ? `bytes, a whole number from ${least}`
      : `bytes from ${least} to ${most}`,
  of: value => (isWhole(value) && value >= least && value <= most ? value + 0 : undefined),
})

/** Bytes, or `Infinity` where there is to be no bound. */
export const bound = (least: number): Check<number> => ({
  wanted: `${bytes(least).wanted}, or Infinity`,
  of: value => (value === Number.POSITIVE_INFINITY ? value : bytes(least).of(value)),
})

export const flag: Check<boolean> = {
  wanted: 'true or false',
  of: value => (typeof value === 'boolean' ? value : undefined),
}

export const between = (wanted: string, holds: (value: number) => boolean): Check<number> => ({
  wanted,
  of: value => (typeof value === 'number' && holds(value) ? value + 0 : undefined),
})

export const oneOf = <T extends string>(words: readonly T[]): Check<T> => ({
  wanted: `one of ${words.map(word => `'${word}'`).join(', ')}`,
  of: value => words.find(word => word === value),
})

export const isPowerOfTwo = (value: unknown): value is number =>
  isWhole(value) && value > 0 && Number.isInteger(Math.log2(value)) && 2 ** Math.log2(value) === value

/** How many steps there may be between two powers of two: what the allocator holds in 32 bits. */
export const stepsCheck: Check<number> = {
  wanted: '0, or a power of two up to 2147483648',
  of: value => (value === 0 ? 0 : isPowerOfTwo(value) && value <= 2 ** 31 ? value : undefined),
}

export const fault = (at: string, wanted: string, found: string, next: string): AllocatorFault => ({
  _tag: 'BadOption',
  at,
  subject: at,
  wanted,
  found,
  next,
})

export const wrong = (at: string, wanted: string, value: unknown): AllocatorFault =>
  fault(at, wanted, describe(value), 'correct the option, or leave it out')

/**
 * The fields of a plain object, each read once. A caller's object may be anything, a proxy or full of getters that throw:
 * undefined where it is no plain object, or cannot be read.
 */
export const fieldsOf = (value: unknown): ReadonlyMap<string, unknown> | undefined => {
  try {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype !== null && Object.getPrototypeOf(prototype) !== null) return undefined
    return new Map(Object.keys(value).map(key => [key, (value as Readonly<Record<string, unknown>>)[key]]))
  } catch {
    return undefined
  }
}

/** The items of an array, each read once; undefined where it is none, cannot be read, or is longer than `most`. */
export const itemsOf = (value: unknown, most: number): readonly unknown[] | undefined => {
  try {
    return Array.isArray(value) && value.length <= most ? Array.from(value) : undefined
  } catch {
    return undefined
  }
}

/** The known fields of an object, and a fault for each that is not. Nothing given is no field given. */
export const known = (
  value: unknown,
  at: string,
  names: readonly string[],
  faults: AllocatorFault[],
): ReadonlyMap<string, unknown> => {
  if (value === undefined) return new Map()
  const fields = fieldsOf(value)
  if (fields === undefined) {
    faults.push(wrong(at, `a plain object of ${names.join(', ')}`, value))
    return new Map()
  }
  for (const key of fields.keys()) {
    if (names.includes(key)) continue
    const near = nearest(key, names)
    const place = `${at}.${key.slice(0, 64)}`
    const next = near === undefined ? 'leave it out' : `write ${near}, or leave it out`
    faults.push(fault(place, `one of ${names.join(', ')}`, describe(key), next))
  }
  return fields
}
