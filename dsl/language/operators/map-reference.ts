import type { MapBinary, MapInstruction, MapRowReduction, MapSpec, MapUnary } from '../../ir/kernel-spec.js'
import { isRowReduction, resultElements, rowAxis } from '../../ir/map-rows.js'
import type { DType } from '../../ir/tensor.js'
import { type HostArray, hostArray, reader, writer } from '../values.js'
import { denseStrides } from './shapes.js'

const f = Math.fround

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

/** What a float is once it was stored as a type and loaded again. */
const storedAs = (dtype: DType): ((a: number) => number) => {
  const [write, read] = [writer(dtype), reader(dtype)]
  return a => f(read(write(a)))
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
const floatUnary: Readonly<Record<MapUnary, (a: number) => number>> = {
  neg: a => -a,
  abs: Math.abs,
  exp: a => f(Math.exp(a)),
  log: a => f(Math.log(a)),
  sqrt: a => f(Math.sqrt(a)),
  rsqrt: a => f(1 / Math.sqrt(a)),
  tanh: a => f(Math.tanh(a)),
  erf: a => f(erf(a)),
  sigmoid: a => f(1 / (1 + Math.exp(-a))),
  sin: a => f(Math.sin(a)),
  cos: a => f(Math.cos(a)),
  floor: Math.floor,
  ceil: Math.ceil,
  round,
  f16: storedAs('f16'),
  bf16: storedAs('bf16'),
  i32: storedAs('i32'),
  u8: storedAs('u8'),
}

const floatBinary: Readonly<Record<MapBinary, (a: number, b: number) => number>> = {
  add: (a, b) => f(a + b),
  sub: (a, b) => f(a - b),
  mul: (a, b) => f(a * b),
  div: (a, b) => f(a / b),
  // A NaN wins against a number, and -0 is less than +0.
  min: Math.min,
  max: Math.max,
  pow: (a, b) => f(a ** b),
  floorDiv,
  mod: (a, b) => f(mod(a, b)),
  lt: (a, b) => (a < b ? 1 : 0),
  le: (a, b) => (a <= b ? 1 : 0),
  eq: (a, b) => (a === b ? 1 : 0),
}

/** Whole numbers wrap around, as two's complement does. */
const wholeBinary: Readonly<Partial<Record<MapBinary, (a: number, b: number) => number>>> = {
  add: (a, b) => (a + b) | 0,
  sub: (a, b) => (a - b) | 0,
  mul: Math.imul,
  min: Math.min,
  max: Math.max,
  // Divided by 0 both are 0, as in NumPy.
  floorDiv: (a, b) => (b === 0 ? 0 : Math.floor(a / b) | 0),
  mod: (a, b) => (b === 0 ? 0 : mod(a, b) | 0),
  lt: floatBinary.lt,
  le: floatBinary.le,
  eq: floatBinary.eq,
}

const wholeUnary: Readonly<Partial<Record<MapUnary, (a: number) => number>>> = {
  neg: a => -a | 0,
  abs: a => (a < 0 ? -a | 0 : a),
  u8: a => Math.min(255, Math.max(0, a)),
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

/** A reduction of a value over the elements of a row, as the operators of the same names have it. */
const joinRow = (
  op: MapRowReduction,
  row: readonly Float64Array[],
  value: number,
  whole: boolean,
): number => {
  let total = row[0]![value]!
  for (let e = 1; e < row.length; e++) {
    const next = row[e]![value]!
    if (op === 'rowMax') total = Math.max(total, next)
    else if (op === 'rowMin') total = Math.min(total, next)
    // Floats are summed in f64 and rounded once: every order of f32 additions is close to that.
    else total = whole ? (total + next) | 0 : total + next
  }
  const found = op === 'rowMean' ? total / row.length : total
  return whole ? Math.trunc(found) : f(found)
}

type Step = (values: Float64Array, operands: Float64Array, index: Float64Array) => number

const step = (instruction: MapInstruction, compute: 'f32' | 'i32'): Step => {
  const [op] = instruction
  switch (op) {
    case 'operand': {
      const [, which] = instruction
      return (_, operands) => operands[which]!
    }
    case 'index': {
      const [, dimension] = instruction
      return (_, __, index) => index[dimension]!
    }
    case 'const': {
      const value = compute === 'f32' ? f(instruction[1]) : instruction[1] | 0
      return () => value
    }
    case 'select': {
      const [, condition, yes, no] = instruction
      return values => (values[condition]! !== 0 ? values[yes]! : values[no]!)
    }
    default: {
      const [, a, b] = instruction as readonly [string, number, number?]
      if (b === undefined) {
        const unary = (compute === 'f32' ? floatUnary : wholeUnary)[op as MapUnary]
        if (!unary) throw new Error(`${op} of whole numbers has no meaning`)
        return values => unary(values[a]!)
      }
      const binary = (compute === 'f32' ? floatBinary : wholeBinary)[op as MapBinary]
      if (!binary) throw new Error(`${op} of whole numbers has no meaning`)
      return values => binary(values[a]!, values[b]!)
    }
  }
}

/** The relative error of a step, of what becomes an element of the result. */
export type StepError = (op: MapInstruction[0], element: number) => number

/** The meaning of a `map` kernel: each result as a fresh dense array. With an error, each step is off by it. */
export const runMap = (spec: MapSpec, inputs: readonly HostArray[], error?: StepError): HostArray[] => {
  const { operands, compute, code } = spec
  // The dimensions in the order in which points are met: the elements of a row follow one another.
  const axis = rowAxis(spec)
  const order = spec.shape.map((_, d) => d).filter(d => d !== axis)
  if (axis >= 0) order.push(axis)
  const inOrder = (of: readonly number[]): readonly number[] => order.map(d => of[d]!)
  const shape = inOrder(spec.shape)
  const strides = operands.map(operand => inOrder(operand.strides))
  const written = inOrder(denseStrides(spec.shape))
  const total = shape.reduce((product, size) => product * size, 1)
  const steps = code.map(each => (isRowReduction(each) ? undefined : step(each, compute)))
  const reads = operands.map(operand => reader(operand.dtype))
  const writes = spec.results.map(result => writer(result.dtype))
  const results = spec.results.map(result => hostArray(result.dtype, resultElements(spec, result)))
  const length = shape.at(-1) ?? 1
  // Elements are computed one at a time, or a row at a time where it is reduced.
  const width = steps.includes(undefined) ? length : 1
  const table = (size: number) => Array.from({ length: width }, () => new Float64Array(size))
  const [values, loaded, indices] = [table(code.length), table(operands.length), table(shape.length)]
  const index = new Array<number>(shape.length).fill(0)
  const offsets = operands.map(operand => operand.offset)
  /** Of each point of a row, its element of a result that has all. */
  const places = new Float64Array(width)
  let place = 0
  /** The element of an operand at the present point. */
  const read = (o: number): number => {
    const { indexed } = operands[o]!
    if (indexed === undefined) return reads[o]!(inputs[o]![offsets[o]!]!)
    const i = inputs[indexed.by]![offsets[indexed.by]!]!
    return i >= 0 && i < indexed.length ? reads[o]!(inputs[o]![offsets[o]! + i * indexed.step]!) : 0
  }
  // Loads one element, and goes on to the next index: increments the last dimension that is not at its end,
  // and resets the dimensions after it.
  const load = (e: number): void => {
    for (let o = 0; o < operands.length; o++) {
      const value = read(o)
      loaded[e]![o] = compute === 'f32' ? f(value) : value
    }
    for (let d = shape.length - 1; d >= 0; d--) indices[e]![order[d]!] = index[d]!
    places[e] = place
    for (let d = shape.length - 1; d >= 0; d--) {
      const size = shape[d]!
      if (++index[d]! < size) {
        for (let o = 0; o < operands.length; o++) offsets[o]! += strides[o]![d]!
        place += written[d]!
        break
      }
      index[d] = 0
      for (let o = 0; o < operands.length; o++) offsets[o]! -= strides[o]![d]! * (size - 1)
      place -= written[d]! * (size - 1)
    }
  }
  const run = (s: number): void => {
    const step = steps[s]
    if (step !== undefined) {
      for (let e = 0; e < width; e++) {
        const value = step(values[e]!, loaded[e]!, indices[e]!)
        values[e]![s] = error === undefined ? value : value * (1 + error(code[s]![0], places[e]!))
      }
      return
    }
    const [op, argument] = code[s] as readonly [MapRowReduction, number]
    const joined = joinRow(op, values, argument, compute === 'i32')
    for (let e = 0; e < width; e++) values[e]![s] = joined
  }
  for (let i = 0; i < total; i += width) {
    for (let e = 0; e < width; e++) load(e)
    for (let s = 0; s < steps.length; s++) run(s)
    for (let r = 0; r < results.length; r++) {
      const { value, row } = spec.results[r]!
      if (row === true) results[r]![Math.floor(i / length)] = writes[r]!(values[0]![value]!)
      else for (let e = 0; e < width; e++) results[r]![places[e]!] = writes[r]!(values[e]![value]!)
    }
  }
  return results
}
