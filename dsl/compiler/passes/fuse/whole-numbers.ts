import type { MapInstruction, MapSpec } from '../../../ir/kernel-spec.js'
import { rowAxis } from '../../../ir/map-rows.js'

// A kernel computes in f32 or in i32. Whole numbers up to 2^24 are exact in f32, so a kernel of i32 whose
// numbers all are no larger yields the same when it computes in f32, and can be one with kernels of floats.
// How large they are is known of u8, of constants and indices, and of what is computed of these. Any i32 may
// be compared with a constant below 2^24: rounding it to f32 does not carry it over one.

/** The least and the largest that a whole number can be; undefined: any i32. */
export type Range = { readonly least: number; readonly most: number } | undefined

/** Whole numbers up to this one are exact in f32. */
export const largest = 2 ** 24

const isExact = (range: Range): range is NonNullable<Range> =>
  range !== undefined && range.least >= -largest && range.most <= largest

/** Strictly within the numbers that are exact: what no other number rounds to. */
const isApart = (range: Range): boolean =>
  range !== undefined && range.least > -largest && range.most < largest

type Known = NonNullable<Range>

const hull = (values: readonly number[]): Known => ({ least: Math.min(...values), most: Math.max(...values) })

const holdsZero = ({ least, most }: Known): boolean => least <= 0 && most >= 0

/** What is nearest to a number among those of u8, as a store leaves it. */
const nearest = ({ least, most }: Known): Known => ({
  least: Math.min(Math.max(least, 0), 255),
  most: Math.min(Math.max(most, 0), 255),
})

/** By instruction, the range of what it computes of exact numbers; `count`: the elements of a row. */
const computed: Readonly<Record<string, (x: Known, y: Known, count: number) => Range>> = {
  add: (x, y) => ({ least: x.least + y.least, most: x.most + y.most }),
  sub: (x, y) => ({ least: x.least - y.most, most: x.most - y.least }),
  mul: (x, y) => hull([x.least * y.least, x.least * y.most, x.most * y.least, x.most * y.most]),
  min: (x, y) => ({ least: Math.min(x.least, y.least), most: Math.min(x.most, y.most) }),
  max: (x, y) => ({ least: Math.max(x.least, y.least), most: Math.max(x.most, y.most) }),
  // Divided by 0, whole numbers yield another result than floats.
  floorDiv: (x, y) =>
    holdsZero(y)
      ? undefined
      : hull([x.least, x.most].flatMap(a => [y.least, y.most].map(b => Math.floor(a / b)))),
  mod: (_, y) =>
    holdsZero(y) ? undefined : { least: Math.min(0, y.least + 1), most: Math.max(0, y.most - 1) },
  neg: x => ({ least: -x.most, most: -x.least }),
  abs: x => ({ least: Math.max(0, x.least, -x.most), most: Math.max(-x.least, x.most) }),
  u8: nearest,
  rowMax: x => x,
  rowMin: x => x,
  // Of a part of the row too.
  rowSum: (x, _, count) => ({
    least: Math.min(x.least, x.least * count),
    most: Math.max(x.most, x.most * count),
  }),
}

export interface WholeNumbers {
  readonly range: Range
  /** Whether the kernel yields the same in f32. */
  readonly inFloats: boolean
}

/** What a kernel of one result that computes in i32 yields of operands of these ranges. */
export const wholeNumbers = (spec: MapSpec, given: readonly Range[]): WholeNumbers => {
  const { code, operands, results, shape } = spec
  const length = shape[rowAxis(spec)] ?? 1
  const ranges: Range[] = []
  let inFloats = true
  const rangeOf = (instruction: MapInstruction): Range => {
    const [op, a, b = a, c = b] = instruction as readonly [string, number, number?, number?]
    if (op === 'operand') return operands[a]!.dtype === 'u8' ? { least: 0, most: 255 } : given[a]
    if (op === 'const') return { least: a, most: a }
    if (op === 'index') return { least: 0, most: shape[a]! - 1 }
    const [x, y, z] = [ranges[a], ranges[b], ranges[c]]
    if (op === 'lt' || op === 'le' || op === 'eq') {
      inFloats &&= (isExact(x) && isExact(y)) || isApart(x) || isApart(y)
      return { least: 0, most: 1 }
    }
    const found =
      op === 'select'
        ? isExact(y) && isExact(z) && hull([y.least, y.most, z.least, z.most])
        : isExact(x) && isExact(y) && computed[op]?.(x, y, length)
    // In i32 what is larger would wrap, and in f32 it would be rounded.
    if (found && isExact(found)) return found
    inFloats = false
    return undefined
  }
  for (const instruction of code) ranges.push(rangeOf(instruction))
  const { value, dtype } = results[0]!
  const range = ranges[value]
  return {
    range: dtype === 'u8' ? nearest(range ?? { least: 0, most: 255 }) : range,
    inFloats: inFloats && isExact(range),
  }
}

/** The same kernel, computed in f32. */
export const inFloats = (kernel: MapSpec): MapSpec => ({ ...kernel, compute: 'f32' })
