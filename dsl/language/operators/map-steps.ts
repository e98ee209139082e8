import type { MapBinary, MapInstruction, MapRowReduction, MapSpec, MapUnary } from '../../ir/kernel-spec.js'
import { fromBf16, fromF16, toBf16, toF16 } from '../half.js'
import { writer } from '../values.js'

// The meaning of each instruction of a map, over columns: the values of one instruction at many points. Each
// has a loop of its own, since a call for each element costs more than what most instructions compute.

export type Column = Float64Array

type Unary = (out: Column, n: number, a: Column) => void
type Binary = (out: Column, n: number, a: Column, b: Column) => void

const f = Math.fround
const [toI32, toU8] = [writer('i32'), writer('u8')]

// Abramowitz and Stegun would be too coarse: the series below 2, the continued fraction above. Error under
// 1e-15 up to where erf is 1 in f64.
const erf = (x: number): number => {
  const a = Math.abs(x)
  if (Number.isNaN(a)) return x
  if (a > 6) return Math.sign(x)
  if (a < 2.5) {
    let term = a
    let sum = a
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-a * a) / n
      sum += term / (2 * n + 1)
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * sum
  }
  let fraction = 0
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction)
  return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * (a + fraction)))
}

// Ties go to even and a zero keeps the sign, as CUDA's rintf has it.
const round = (x: number): number => {
  const down = Math.floor(x)
  const rest = x - down
  const nearest = rest < 0.5 || (rest === 0.5 && down % 2 === 0) ? down : down + 1
  return nearest === 0 && (x < 0 || Object.is(x, -0)) ? -0 : nearest
}

/** What remains of a division, exact, and with the sign of the divisor. */
const mod = (a: number, b: number): number => {
  const rest = a % b
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest
}

// Every step rounds to f32. The quotient of what divides evenly is a whole number but for its rounding.
const floorDiv = (a: number, b: number): number => {
  if (b === 0) return f(a / b)
  const rest = a % b
  const even = f(f(a - rest) / b)
  const quotient = rest !== 0 && rest < 0 !== b < 0 ? f(even - 1) : even
  if (quotient === 0) return 1 / f(a / b) < 0 || a / b < 0 ? -0 : 0
  const down = Math.floor(quotient)
  return f(quotient - down) > 0.5 ? f(down + 1) : down
}

/** Every step rounds to f32, as a device that computes in f32 does. */
const floatUnary: Readonly<Record<MapUnary, Unary>> = {
  neg(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = -a[e]!
  },
  abs(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = Math.abs(a[e]!)
  },
  exp(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.exp(a[e]!))
  },
  log(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.log(a[e]!))
  },
  sqrt(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.sqrt(a[e]!))
  },
  rsqrt(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(1 / Math.sqrt(a[e]!))
  },
  tanh(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.tanh(a[e]!))
  },
  erf(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(erf(a[e]!))
  },
  sigmoid(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(1 / (1 + Math.exp(-a[e]!)))
  },
  sin(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.sin(a[e]!))
  },
  cos(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(Math.cos(a[e]!))
  },
  floor(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = Math.floor(a[e]!)
  },
  ceil(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = Math.ceil(a[e]!)
  },
  round(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = round(a[e]!)
  },
  f16(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = fromF16(toF16(a[e]!))
  },
  bf16(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = fromBf16(toBf16(a[e]!))
  },
  i32(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = f(toI32(a[e]!))
  },
  u8(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = toU8(a[e]!)
  },
}

const floatBinary: Readonly<Record<MapBinary, Binary>> = {
  add(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(a[e]! + b[e]!)
  },
  sub(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(a[e]! - b[e]!)
  },
  mul(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(a[e]! * b[e]!)
  },
  div(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(a[e]! / b[e]!)
  },
  // A NaN wins against a number, and -0 is less than +0.
  min(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = Math.min(a[e]!, b[e]!)
  },
  max(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = Math.max(a[e]!, b[e]!)
  },
  pow(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(a[e]! ** b[e]!)
  },
  floorDiv(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = floorDiv(a[e]!, b[e]!)
  },
  mod(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = f(mod(a[e]!, b[e]!))
  },
  lt(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = a[e]! < b[e]! ? 1 : 0
  },
  le(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = a[e]! <= b[e]! ? 1 : 0
  },
  eq(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = a[e]! === b[e]! ? 1 : 0
  },
}

/** Whole numbers wrap around, as two's complement does. */
const wholeBinary: Readonly<Partial<Record<MapBinary, Binary>>> = {
  add(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = (a[e]! + b[e]!) | 0
  },
  sub(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = (a[e]! - b[e]!) | 0
  },
  mul(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = Math.imul(a[e]!, b[e]!)
  },
  min: floatBinary.min,
  max: floatBinary.max,
  // Divided by 0 both are 0, as in NumPy.
  floorDiv(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = b[e]! === 0 ? 0 : Math.floor(a[e]! / b[e]!) | 0
  },
  mod(out, n, a, b) {
    for (let e = 0; e < n; e++) out[e] = b[e]! === 0 ? 0 : mod(a[e]!, b[e]!) | 0
  },
  lt: floatBinary.lt,
  le: floatBinary.le,
  eq: floatBinary.eq,
}

const wholeUnary: Readonly<Partial<Record<MapUnary, Unary>>> = {
  neg(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = -a[e]! | 0
  },
  abs(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = a[e]! < 0 ? -a[e]! | 0 : a[e]!
  },
  u8(out, n, a) {
    for (let e = 0; e < n; e++) out[e] = Math.min(255, Math.max(0, a[e]!))
  },
}

/** Instructions that a map of whole numbers may use; the others take floats. */
export const wholeInstructions: ReadonlySet<string> = new Set([
  'operand',
  'const',
  'index',
  'select',
  ...Object.keys(wholeBinary),
  ...Object.keys(wholeUnary),
])

const select = (out: Column, n: number, condition: Column, yes: Column, no: Column): void => {
  for (let e = 0; e < n; e++) out[e] = condition[e]! !== 0 ? yes[e]! : no[e]!
}

/** What an instruction computes of columns that other instructions have made. */
export const computed = (
  [op, ...places]: MapInstruction,
  compute: MapSpec['compute'],
  columns: readonly Column[],
  out: Column,
  n: number,
): void => {
  const [a, b, c] = places.map(place => columns[place as number]!) as [Column, Column, Column]
  if (op === 'select') {
    select(out, n, a, b, c)
    return
  }
  const isFloat = compute === 'f32'
  const step =
    b === undefined
      ? (isFloat ? floatUnary : wholeUnary)[op as MapUnary]
      : (isFloat ? floatBinary : wholeBinary)[op as MapBinary]
  if (!step) throw new Error(`${op} of whole numbers has no meaning`)
  step(out, n, a, b)
}

/** A reduction over each row of `length` elements, as the operators of the same names have it. */
export const reduced = (
  op: MapRowReduction,
  compute: MapSpec['compute'],
  values: Column,
  out: Column,
  n: number,
  length: number,
): void => {
  const isFloat = compute === 'f32'
  for (let from = 0; from < n; from += length) {
    const to = from + length
    let total = values[from]!
    if (op === 'rowMax') for (let e = from + 1; e < to; e++) total = Math.max(total, values[e]!)
    else if (op === 'rowMin') for (let e = from + 1; e < to; e++) total = Math.min(total, values[e]!)
    // Floats are summed in f64 and rounded once: every order of f32 additions is close to that.
    else if (isFloat) for (let e = from + 1; e < to; e++) total += values[e]!
    else for (let e = from + 1; e < to; e++) total = (total + values[e]!) | 0
    const found = op === 'rowMean' ? total / length : total
    out.fill(isFloat ? f(found) : Math.trunc(found), from, to)
  }
}
