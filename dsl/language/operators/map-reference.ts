import type { MapInstruction, MapRowReduction, MapSpec } from '../../ir/kernel-spec.js'
import { hasRows, isRowReduction, resultElements, rowAxis } from '../../ir/map-rows.js'
import type { DType } from '../../ir/tensor.js'
import { fromBf16, fromF16 } from '../half.js'
import { type HostArray, hostArray, store, writer } from '../values.js'
import { type Column, computed, reduced } from './map-steps.js'
import { denseStrides } from './shapes.js'

/** How far a device may be off in each step, and which way: 1 or -1 by element of the result. */
export interface StepErrors {
  of(op: MapInstruction[0]): number
  readonly directions: Int8Array
}

/** Points that are computed side by side, so that their columns stay in the processor's cache. */
const pointsAtOnce = 512

/**
 * The way through the points of a map in the order in which they are computed: the elements of a row follow
 * one another. Knows where each operand lies at the present point, and the result.
 */
class Walk {
  /** The dimensions from the outermost to the innermost one. */
  private readonly order: readonly number[]
  private readonly shape: readonly number[]
  /** By operand, then of the dense result: the strides, and the element at the present point. */
  private readonly strides: readonly (readonly number[])[]
  private readonly at: number[]
  private readonly index: number[]

  constructor(spec: MapSpec) {
    const axis = rowAxis(spec)
    const rank = spec.shape.length
    const outer = spec.shape.map((_, d) => d).filter(d => d !== axis)
    this.order = axis < 0 ? [] : [...outer, axis]
    this.shape = rank === 0 ? [1] : this.order.map(d => spec.shape[d]!)
    const all = [...spec.operands.map(({ strides }) => strides), denseStrides(spec.shape)]
    this.strides = all.map(own => (rank === 0 ? [0] : this.order.map(d => own[d]!)))
    this.at = [...spec.operands.map(({ offset }) => offset), 0]
    this.index = this.shape.map(() => 0)
  }

  /** Elements of a row. */
  get length(): number {
    return this.shape.at(-1)!
  }

  /** How many of `n` points from here on lie along the innermost dimension. */
  straight(n: number): number {
    return Math.min(n, this.length - this.index.at(-1)!)
  }

  /** Where operand `o` lies, or, after the last one, the result; and how far its next element is from there. */
  placeOf(o: number): readonly [at: number, step: number] {
    return [this.at[o]!, this.strides[o]!.at(-1)!]
  }

  /** The index along a dimension of the map, and how much larger the next point's is. */
  indexOf(dimension: number): readonly [at: number, step: number] {
    const d = this.order.indexOf(dimension)
    return [this.index[d]!, d === this.index.length - 1 ? 1 : 0]
  }

  /** Goes on by `n` points that lie along the innermost dimension. */
  advance(n: number): void {
    const { shape, index } = this
    let d = shape.length - 1
    this.move(d, n)
    while (d > 0 && index[d] === shape[d]) {
      this.move(d, -shape[d]!)
      this.move(--d, 1)
    }
  }

  private move(d: number, by: number): void {
    this.index[d]! += by
    for (let o = 0; o < this.at.length; o++) this.at[o]! += this.strides[o]![d]! * by
  }
}

/** Fills part of a column with numbers that are equally far from one another. */
const count = (out: Column, from: number, n: number, first: number, step: number): void => {
  for (let e = 0; e < n; e++) out[from + e] = first + e * step
}

const gather = (
  out: Column,
  from: number,
  n: number,
  source: HostArray,
  [at, step]: readonly [number, number],
): void => {
  for (let e = 0; e < n; e++) out[from + e] = source[at + e * step]!
}

/** Elements of operand `o` that lie further on, by what operand `by` has there; 0 where that is outside. */
const gatherIndexed = (
  out: Column,
  from: number,
  n: number,
  inputs: readonly HostArray[],
  o: number,
  { operands }: MapSpec,
  walk: Walk,
): void => {
  const { by, length, step } = operands[o]!.indexed!
  const [source, indices] = [inputs[o]!, inputs[by]!]
  const [at, next] = walk.placeOf(o)
  const [indexAt, indexNext] = walk.placeOf(by)
  for (let e = 0; e < n; e++) {
    const i = indices[indexAt + e * indexNext]!
    out[from + e] = i >= 0 && i < length ? source[at + e * next + i * step]! : 0
  }
}

/** Makes numbers of stored elements. */
const decode = (column: Column, n: number, dtype: DType, compute: MapSpec['compute']): void => {
  if (dtype === 'f16') for (let e = 0; e < n; e++) column[e] = fromF16(column[e]!)
  else if (dtype === 'bf16') for (let e = 0; e < n; e++) column[e] = fromBf16(column[e]!)
  else if (dtype === 'i32' && compute === 'f32')
    for (let e = 0; e < n; e++) column[e] = Math.fround(column[e]!)
}

/**
 * The meaning of a `map` kernel: each result as a fresh dense array. With errors, each step is off by its
 * own. Computes many points at a time, one instruction after the other; where rows are reduced, whole rows.
 */
export const runMap = (spec: MapSpec, inputs: readonly HostArray[], errors?: StepErrors): HostArray[] => {
  const { operands, compute, code } = spec
  const results = spec.results.map(result => hostArray(result.dtype, resultElements(spec, result)))
  const total = spec.shape.reduce((product, size) => product * size, 1)
  if (total === 0) return results
  const walk = new Walk(spec)
  const { length } = walk
  const rows = Math.max(1, Math.floor(pointsAtOnce / length))
  const width = Math.min(total, hasRows(spec) ? rows * length : pointsAtOnce)
  const column = (): Column => new Float64Array(width)
  const loaded = operands.map(column)
  // An operand's value is the loaded column itself: no column is written twice for the same points.
  const values = code.map(([op, which]) => (op === 'operand' ? loaded[which as number]! : column()))
  /** Of each point, its element of a result that has all. */
  const places = column()
  const indices = code.flatMap(([op, which], s) => (op === 'index' ? [[s, which as number] as const] : []))
  for (const [s, [op, value]] of code.entries())
    if (op === 'const') values[s]!.fill(compute === 'f32' ? Math.fround(value) : value | 0)

  const load = (from: number, n: number): void => {
    for (let o = 0; o < operands.length; o++)
      if (operands[o]!.indexed === undefined) gather(loaded[o]!, from, n, inputs[o]!, walk.placeOf(o))
      else gatherIndexed(loaded[o]!, from, n, inputs, o, spec, walk)
    for (const [s, dimension] of indices) count(values[s]!, from, n, ...walk.indexOf(dimension))
    count(places, from, n, ...walk.placeOf(operands.length))
    walk.advance(n)
  }
  const run = (s: number, n: number): void => {
    const instruction = code[s]!
    const [op, argument] = instruction
    const out = values[s]!
    if (op === 'operand' || op === 'const' || op === 'index') return
    if (isRowReduction(instruction)) {
      reduced(op as MapRowReduction, compute, values[argument]!, out, n, length)
      return
    }
    computed(instruction, compute, values, out, n)
    const error = errors?.of(op) ?? 0
    if (error === 0) return
    const { directions } = errors!
    for (let e = 0; e < n; e++) out[e]! *= 1 + directions[places[e]!]! * error
  }
  for (let i = 0; i < total; i += width) {
    const n = Math.min(width, total - i)
    for (let from = 0; from < n; ) {
      const straight = walk.straight(n - from)
      load(from, straight)
      from += straight
    }
    for (const [o, { dtype }] of operands.entries()) decode(loaded[o]!, n, dtype, compute)
    for (let s = 0; s < code.length; s++) run(s, n)
    for (const [r, { value, row, dtype }] of spec.results.entries()) {
      const found = values[value]!
      if (row !== true) store(results[r]!, dtype, places, found, n)
      else for (let e = 0; e < n; e += length) results[r]![(i + e) / length] = writer(dtype)(found[e]!)
    }
  }
  return results
}
