import type { AllocatorFault, SizeDivision } from './options.js'
import { type Check, fieldsOf, isPowerOfTwo, itemsOf, known, MiB, stepsCheck, wrong } from './options-read.js'

/** Intervals between powers of two that have steps of their own: below 2 MiB, from 2 MiB … from 32 GiB. */
export const divisionCount = 16

const fromCheck: Check<number> = {
  wanted: `bytes, a power of two from ${MiB} to ${MiB * 2 ** (divisionCount - 1)}`,
  of: value =>
    isPowerOfTwo(value) && value >= MiB && value <= MiB * 2 ** (divisionCount - 1) ? value : undefined,
}

/** Steps by interval, of what a caller gave: each entry counts from its size on to the next one's. */
export const divisionsFrom = (
  value: unknown,
  at: string,
  faults: AllocatorFault[],
): readonly number[] | undefined => {
  if (value === undefined) return undefined
  const items = itemsOf(value, divisionCount)
  if (items !== undefined) return fromList(items, at, faults)
  const steps = stepsCheck.of(value)
  if (steps !== undefined) return Array.from({ length: divisionCount }, () => steps)
  faults.push(
    wrong(at, `${stepsCheck.wanted}; or a list of up to ${divisionCount} of { from, steps }`, value),
  )
  return undefined
}

const fromList = (items: readonly unknown[], at: string, faults: AllocatorFault[]): readonly number[] => {
  const result = Array.from({ length: divisionCount }, () => 0)
  let last = 0
  for (const [index, item] of items.entries()) {
    const place = `${at}[${index}]`
    if (fieldsOf(item) === undefined) {
      faults.push(wrong(place, 'an object { from, steps }', item))
      continue
    }
    const fields = known(item, place, ['from', 'steps'], faults)
    const [from, steps] = [fromCheck.of(fields.get('from')), stepsCheck.of(fields.get('steps'))]
    if (from === undefined) faults.push(wrong(`${place}.from`, fromCheck.wanted, fields.get('from')))
    else if (from <= last) faults.push(wrong(`${place}.from`, `more than ${last}, the entry before it`, from))
    if (steps === undefined) faults.push(wrong(`${place}.steps`, stepsCheck.wanted, fields.get('steps')))
    if (from !== undefined && steps !== undefined) result.fill(steps, Math.log2(from / MiB))
    if (from !== undefined) last = Math.max(last, from)
  }
  return result
}

/** The shortest list that means the same. */
export const divisionList = (steps: readonly number[]): readonly SizeDivision[] =>
  steps.flatMap((count, index) =>
    count === (steps[index - 1] ?? 0) ? [] : [{ from: MiB * 2 ** index, steps: count }],
  )
