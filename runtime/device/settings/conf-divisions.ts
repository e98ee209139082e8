import type { ConfValue } from './conf-syntax.js'
import { divisionCount } from './options-divisions.js'

/** What is wrong with a value, and where in the text. */
export interface BadValue {
  readonly wanted: string
  readonly found: string
  readonly at: number
}

export const largestWord = 2n ** 64n - 1n

/** A whole number of PyTorch's, of 64 bits without a sign; undefined for anything else. */
export const wholeOf = (text: string): bigint | undefined => {
  if (!/^\d+$/.test(text)) return undefined
  const digits = text.replace(/^0+(?=\d)/, '')
  const number = digits.length <= 20 ? BigInt(digits) : largestWord + 1n
  return number <= largestWord ? number : undefined
}

const isPower = (value: bigint): boolean => value > 0n && (value & (value - 1n)) === 0n
const mostSteps = 2n ** 31n

const stepsOf = (text: string): number | undefined => {
  const steps = wholeOf(text)
  return steps !== undefined && steps <= mostSteps && (steps === 0n || isPower(steps))
    ? Number(steps)
    : undefined
}

/**
 * The steps of the sixteen intervals that `roundup_power2_divisions` names, exactly as PyTorch fills them: the first entry counts
 * for all intervals below its own as well, each other one for its own alone, `>` for all after the last one named, and
 * intervals beyond 32 GiB are one. A single number counts for all.
 * Source: `AcceleratorAllocatorConfig::parseRoundUpPower2Divisions`.
 */
export const divisionsOf = (value: ConfValue): readonly number[] | BadValue => {
  const result = Array.from({ length: divisionCount }, () => 0)
  if (value.kind === 'word') {
    const steps = stepsOf(value.word.text)
    return steps === undefined
      ? { wanted: `${stepsWanted}; or a list of MiB:steps`, found: value.word.text, at: value.word.at }
      : result.fill(steps)
  }
  let last = 0
  let first = true
  for (const { name, value: word } of value.pairs) {
    const steps = stepsOf(word.text)
    if (steps === undefined) return { wanted: stepsWanted, found: word.text, at: word.at }
    if (name.text === '>') {
      result.fill(steps, last + 1)
      continue
    }
    const mebibytes = wholeOf(name.text)
    if (mebibytes === undefined || !isPower(mebibytes))
      return { wanted: 'MiB, a power of two, or ">" for all that is larger', found: name.text, at: name.at }
    last = Math.min(mebibytes.toString(2).length, divisionCount) - 1
    if (first) result.fill(steps, 0, last)
    result[last] = steps
    first = false
  }
  return result
}

const stepsWanted = `0, or a power of two up to ${mostSteps}`
