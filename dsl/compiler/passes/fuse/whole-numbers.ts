import type { MapSpec } from '../../../ir/kernel-spec.js'
import type { DType } from '../../../ir/tensor.js'

// A kernel computes in f32 or in i32. Whole numbers up to 2^24 are exact in f32, so a kernel of i32 whose
// numbers all are no larger yields the same when it computes in f32, and can be one with kernels of floats.
// How large they are is known of u8, of constants and indices, and of what is computed of these. Any i32 may
// be compared with a constant below 2^24: rounding it to f32 does not carry it over one.

/** The least and the largest that a whole number can be; undefined: any i32. */
export type Range = { readonly least: number; readonly most: number } | undefined

const largest = 2 ** 24

const isExact = (range: Range): range is NonNullable<Range> =>
  range !== undefined && range.least >= -largest && range.most <= largest

/** Strictly within the numbers that are exact: what no other number rounds to. */
const isApart = (range: Range): boolean =>
  range !== undefined && range.least > -largest && range.most < largest

const hull = (values: readonly number[]): Range => ({
  least: Math.min(...values),
  most: Math.max(...values),
})

const truth: Range = { least: 0, most: 1 }
const u8: Range = { least: 0, most: 255 }

/** What a store as this element type leaves: a u8 is the nearest that there is. */
const stored = (range: Range, dtype: DType): Range =>
  dtype !== 'u8'
    ? range
    : range && {
        least: Math.min(Math.max(range.least, 0), 255),
        most: Math.min(Math.max(range.most, 0), 255),
      }

export interface WholeNumbers {
  readonly range: Range
  /** Whether the kernel yields the same in f32. */
  readonly inFloats: boolean
}

/** What a kernel of one result that computes in i32 yields of operands of these ranges. */
export const wholeNumbers = (
  { code, operands, results, shape }: MapSpec,
  given: readonly Range[],
): WholeNumbers => {
  const ranges: Range[] = []
  let inFloats = true
  // A value that is no number exact in f32 may only be compared.
  const exact = (...values: readonly number[]): readonly NonNullable<Range>[] | undefined => {
    const all = values.map(value => ranges[value])
    if (all.every(isExact)) return all as readonly NonNullable<Range>[]
    inFloats = false
    return undefined
  }
  for (const instruction of code) {
    const [op] = instruction
    const of = (): Range => {
      switch (op) {
        case 'operand':
          return operands[instruction[1]]!.dtype === 'u8' ? u8 : given[instruction[1]]
        case 'const':
          return { least: instruction[1], most: instruction[1] }
        case 'index':
          return { least: 0, most: shape[instruction[1]]! - 1 }
        case 'lt':
        case 'le':
        case 'eq': {
          const [, a, b] = instruction
          const [x, y] = [ranges[a], ranges[b]]
          if (!(isExact(x) && isExact(y)) && !isApart(x) && !isApart(y)) inFloats = false
          return truth
        }
        case 'select': {
          const [, , a, b] = instruction
          const all = exact(a, b)
          return all && hull(all.flatMap(({ least, most }) => [least, most]))
        }
        case 'add':
        case 'sub':
        case 'mul':
        case 'min':
        case 'max': {
          const all = exact(instruction[1], instruction[2])
          if (all === undefined) return undefined
          const [x, y] = all as [NonNullable<Range>, NonNullable<Range>]
          if (op === 'add') return { least: x.least + y.least, most: x.most + y.most }
          if (op === 'sub') return { least: x.least - y.most, most: x.most - y.least }
          if (op === 'mul')
            return hull([x.least * y.least, x.least * y.most, x.most * y.least, x.most * y.most])
          const either = op === 'min' ? Math.min : Math.max
          return { least: either(x.least, y.least), most: either(x.most, y.most) }
        }
        case 'neg':
        case 'abs': {
          const [x] = exact(instruction[1]) ?? []
          if (x === undefined) return undefined
          if (op === 'neg') return { least: -x.most, most: -x.least }
          const ends = [Math.abs(x.least), Math.abs(x.most)]
          return { least: x.least <= 0 && x.most >= 0 ? 0 : Math.min(...ends), most: Math.max(...ends) }
        }
        case 'rowMax':
        case 'rowMin':
          return exact(instruction[1])?.[0]
        case 'rowSum': {
          const [x] = exact(instruction[1]) ?? []
          const count = shape.at(-1)!
          return x && { least: Math.min(x.least, x.least * count), most: Math.max(x.most, x.most * count) }
        }
        case 'u8':
          return stored(exact(instruction[1])?.[0], 'u8')
        default:
          inFloats = false
          return undefined
      }
    }
    const range = of()
    // Beyond 2^31 whole numbers wrap, and beyond 2^24 they are not exact.
    ranges.push(isExact(range) ? range : undefined)
  }
  const { value, dtype } = results[0]!
  return {
    range: dtype === 'u8' ? (stored(ranges[value], 'u8') ?? u8) : ranges[value],
    inFloats: inFloats && ranges[value] !== undefined,
  }
}

/** The same kernel, computed in f32. */
export const inFloats = (kernel: MapSpec): MapSpec => ({ ...kernel, compute: 'f32' })
