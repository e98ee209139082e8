import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { ReduceSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  isFloat,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, hostArray, numbers, roundoff, stored } from '../values.js'
import { here } from '../where.js'
import { apply, parted } from './apply.js'
import type { Arithmetic } from './arithmetic.js'
import { castTo } from './cast.js'
import type { Attrs, Operator } from './operator.js'
import { withOptions } from './options.js'
import type { Device, Reduced, ReducedWhole, Shape } from './types.js'

/** One axis, or several: counted from 0, negative from the end. */
export type Axes = number | readonly number[]

export interface ReduceOptions<A extends Axes = Axes, K extends boolean = boolean> {
  readonly axis: A
  /** Keep the axis, with size 1. */
  readonly keepDims?: K
}

/** An axis counted from 0, from one that may count from the end. */
export const axisOf = (axis: unknown, x: TensorSpec): E.Either<UnplacedError, number> => {
  const rank = x.shape.length
  const known = typeof axis === 'number' && Number.isInteger(axis) && axis >= -rank && axis < rank
  if (!known)
    return E.left(
      badAttribute(
        rank === 0 ? 'a value with at least one axis' : `an axis of ${showSpec(x)}: ${-rank} to ${rank - 1}`,
        rank === 0 ? showSpec(x) : show(axis),
        rank === 0 ? 'a scalar has nothing to go along' : 'count axes from 0, or from the end with -1',
      ),
    )
  return E.right(axis < 0 ? axis + rank : axis)
}

/**
 * The error of an axis with more elements than i32 has positions; undefined where it has not, or is a symbol.
 */
export const beyondPositions = (axis: number, x: TensorSpec): UnplacedError | undefined => {
  const size = x.shape[axis]
  return typeof size === 'number' && size >= 2 ** 31
    ? badAttribute(
        'an axis of at most 2,147,483,647 elements: positions are of i32',
        `axis ${axis} of ${showSpec(x)}`,
        'reshape the value, and find the position in parts',
      )
    : undefined
}

/** Axes counted from 0, in their order, from one or several that may count from the end. */
export const axesOf = (axis: unknown, x: TensorSpec): E.Either<UnplacedError, readonly number[]> => {
  const known: number[] = []
  for (const each of Array.isArray(axis) ? axis : [axis]) {
    const one = axisOf(each, x)
    if (E.isLeft(one)) return one
    known.push(one.right)
  }
  return known.length === 0 || new Set(known).size < known.length
    ? E.left(
        badAttribute('one axis, or several that differ', show(axis), 'name each axis once, as in [0, 2]'),
      )
    : E.right(known.sort((a, b) => a - b))
}

/** Adjacent axes that one kernel reduces: `count` of them from `axis` on. */
interface Run {
  readonly axis: number
  /** Absent: 1. */
  readonly count?: number
}

const runsOf = (axes: readonly number[]): readonly Run[] => {
  const runs: Run[] = []
  for (const axis of axes) {
    const last = runs.at(-1)
    const next = last && last.axis + (last.count ?? 1)
    if (last && next === axis) runs[runs.length - 1] = { axis: last.axis, count: axis + 1 - last.axis }
    else runs.push({ axis })
  }
  return runs
}

const runFrom = (attrs: Attrs): Required<Run> => {
  const { axis, count = 1 } = attrs as unknown as Run
  return { axis, count }
}

export interface Along {
  readonly axes: readonly number[]
  readonly keepDims: boolean
  /** Of `max`: what it is of no elements. Absent: an axis without elements is an error. */
  readonly initial?: number
}

/** Of a reduction of all elements to one. */
export interface WholeOptions<K extends boolean = boolean> {
  readonly axis?: undefined
  /** Keep all axes, each with size 1. */
  readonly keepDims?: K
}

/** The axes and `keepDims` of a reduction, from the caller's arguments; without an axis all axes. */
export const alongOf =
  (axis: unknown, keepDims: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Along> => {
    if (keepDims !== undefined && typeof keepDims !== 'boolean')
      return E.left(badAttribute('keepDims: true or false', show(keepDims), 'give a boolean'))
    const axes = axis === undefined ? E.right(x.shape.map((_, d) => d)) : axesOf(axis, x)
    return E.map((axes: readonly number[]) => ({ axes, keepDims: keepDims === true }))(axes)
  }

const spec = (how: ReduceSpec['how'], x: BoundSpec, output: DType, attrs: Attrs): ReduceSpec => {
  const { axis, count } = runFrom(attrs)
  return {
    kind: 'reduce',
    how,
    outer: elements(x.shape.slice(0, axis)),
    length: elements(x.shape.slice(axis, axis + count)),
    inner: elements(x.shape.slice(axis + count)),
    input: x.dtype,
    output,
  }
}

const run = (kernel: ReduceSpec, input: HostArray, initial: number): HostArray => {
  const { how, outer, length, inner } = kernel
  const values = numbers(input, kernel.input)
  const totals = new Float64Array(outer * inner)
  const isWhole = !isFloat(kernel.input)
  // Floats are summed in f64 and rounded once: every order of f32 additions is close to that. Whole numbers
  // wrap. A NaN among the elements is the maximum and the minimum, as in PyTorch; -0 is less than +0.
  for (let o = 0; o < outer; o++)
    for (let i = 0; i < inner; i++) {
      const base = o * length * inner + i
      const end = base + length * inner
      let total = length === 0 ? initial : values[base]!
      if (how === 'max') for (let e = base + inner; e < end; e += inner) total = Math.max(total, values[e]!)
      else if (how === 'min')
        for (let e = base + inner; e < end; e += inner) total = Math.min(total, values[e]!)
      else if (isWhole) for (let e = base + inner; e < end; e += inner) total = (total + values[e]!) | 0
      else for (let e = base + inner; e < end; e += inner) total += values[e]!
      totals[o * inner + i] = how === 'mean' ? total / length : total
    }
  return stored(totals, kernel.output)
}

const choose = (kernel: ReduceSpec, input: HostArray): HostArray => {
  const { how, outer, length, inner } = kernel
  const values = numbers(input, kernel.input)
  const result = hostArray('i32', outer * inner)
  // The first of equal elements, and the first NaN.
  const improves = (next: number, best: number): boolean =>
    !Number.isNaN(best) && (Number.isNaN(next) || (how === 'argmax' ? next > best : next < best))
  for (let o = 0; o < outer; o++)
    for (let i = 0; i < inner; i++) {
      const base = o * length * inner + i
      let place = 0
      for (let l = 1; l < length; l++)
        if (improves(values[base + l * inner]!, values[base + place * inner]!)) place = l
      result[o * inner + i] = place
    }
  return result
}

const isChoice = (how: ReduceSpec['how']): boolean => how === 'argmax' || how === 'argmin'

const pickers: ReadonlySet<ReduceSpec['how']> = new Set(['max', 'min', 'argmax', 'argmin'])

/** What a reduction begins with: what a sum is of no elements, or a maximum that says so. */
const initialOf = (attrs: Attrs): number | undefined => attrs['initial'] as number | undefined

/** The error of a choice among no elements; undefined where it has some, or nothing is chosen. */
const noChoice = (how: ReduceSpec['how'], x: TensorSpec, attrs: Attrs): UnplacedError | undefined => {
  if (!pickers.has(how) || initialOf(attrs) !== undefined) return undefined
  const { axis, count } = runFrom(attrs)
  const [along, others] = [x.shape.slice(axis, axis + count), x.shape.toSpliced(axis, count)]
  // With a symbol, whether the result has elements is known once that is bound.
  if (!along.includes(0) || others.some(size => size === 0 || typeof size === 'string')) return undefined
  return shapeMismatch(
    `an axis with elements: ${how} of none is not defined`,
    count === 1 ? `axis ${axis} of ${showSpec(x)}` : `axes ${axis} to ${axis + count - 1} of ${showSpec(x)}`,
    `give it elements; or pad the axis with what the ${how} is to be of none`,
  )
}

/** How many elements are added up. */
const lengthOf = (inputs: readonly BoundSpec[], attrs: Attrs): number => {
  const { axis, count } = runFrom(attrs)
  return elements(inputs[0]?.shape.slice(axis, axis + count) ?? [])
}

/**
 * How many terms of a sum are added one after the other in f32, at most, before sums are added in pairs:
 * `host` adds in f64, and on CUDA many threads share a row or a column.
 */
export const termsInTurn = (length: number, isRow: boolean): number =>
  Math.min(length, Math.ceil(length / (isRow ? 128 : 8)) + 64)

/**
 * A reduction along one axis, or along some that are adjacent. Sums of u8 are i32; means take floats only.
 */
export const reduction = (how: ReduceSpec['how']): Operator => ({
  name: how,
  infer: ([x], attrs) => {
    const { shape, dtype } = x ?? { shape: [], dtype: 'f32' as const }
    const { axis, count } = runFrom(attrs)
    const within = (d: number) => d >= axis && d < axis + count
    if (how === 'mean' && !isFloat(dtype))
      return E.left(dtypeMismatch('floats', showSpec({ shape, dtype }), "cast first: pipe(cast('f32'))"))
    const beyond = isChoice(how) ? beyondPositions(axis, { shape, dtype }) : undefined
    const wrong = beyond ?? noChoice(how, { shape, dtype }, attrs)
    if (wrong !== undefined) return E.left(wrong)
    const kept = attrs['keepDims'] === true
    return E.right({
      dtype: isChoice(how) || (how === 'sum' && dtype === 'u8') ? 'i32' : dtype,
      shape: kept ? shape.map((size, d) => (within(d) ? 1 : size)) : shape.filter((_, d) => !within(d)),
    })
  },
  lower: (inputs, output, attrs) => {
    const x = inputs[0]!
    return {
      as: 'run',
      kernel: spec(how, x, output.dtype, attrs),
      flops: elements(x.shape),
      movedBytes: tensorBytes(x) + tensorBytes(output),
      workspace: 0,
    }
  },
  // A mean of no elements is that of 0 by 0.
  withEmpty: (_, attrs) => (how === 'mean' ? Number.NaN : (initialOf(attrs) ?? 0)),
  reference: (inputs, specs, output, attrs) =>
    (isChoice(how) ? choose : run)(
      spec(how, specs[0]!, output.dtype, attrs),
      inputs[0]!,
      initialOf(attrs) ?? 0,
    ),
  tolerance: (output, inputs, attrs) => {
    if (how === 'max' || how === 'min' || !isFloat(output.dtype)) return 0
    const { length, inner } = spec(how, inputs[0]!, output.dtype, attrs)
    return (
      termsInTurn(length, inner === 1) * roundoff.f32 +
      (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype])
    )
  },
  scale: ([x], inputs, attrs) => (how === 'mean' ? (x ?? 0) / lengthOf(inputs, attrs) : (x ?? 0)),
})

/**
 * The nodes of a reduction along any axes: one for each run of adjacent axes. A sum or mean of f16 or bf16
 * that takes several is computed in f32 and rounded once.
 */
export const reduceAlong = (operator: Operator, at: Where, x: FlowValue, along: Along): FlowValue => {
  const runs = runsOf(along.axes)
  if (runs.length === 0) return x
  const { axes: _, ...attrs } = along
  const one = (value: FlowValue, run: Run) => apply(operator, at, value, [], { ...run, ...attrs })
  if (runs.length === 1) return one(x, runs[0]!)
  const { builder, spec } = x
  const picks = operator.name === 'max' || operator.name === 'min'
  const half = !picks && isFloat(spec.dtype)
  return builder.parts(operator.name, () => {
    const wide = half ? castTo('f32', at, x) : x
    // From the last run to the first: the axes before it keep their places.
    const reduced = runs.reduceRight(one, wide)
    return half ? castTo(spec.dtype, at, reduced) : reduced
  })
}

/**
 * The public function of a reduction: of axes and its options, or of one object with both; or of all
 * elements.
 */
export const along =
  (operator: Operator) =>
  (axis?: unknown, options?: { readonly keepDims?: unknown }): unknown => {
    const at = here()
    const named = typeof axis === 'object' && axis !== null && !Array.isArray(axis)
    const wanted: Partial<Record<keyof ReduceOptions, unknown>> = named
      ? axis
      : { axis, keepDims: options?.keepDims }
    const known = withOptions(
      named ? axis : options,
      named ? ['axis', 'keepDims'] : ['keepDims'],
      alongOf(wanted.axis, wanted.keepDims),
    )
    return (x: unknown): unknown =>
      Array.isArray(wanted.axis) || wanted.axis === undefined
        ? parted(operator.name, at, x, known, (value, found) => reduceAlong(operator, at, value, found))
        : apply(operator, at, x, [], spec =>
            E.map(({ axes: [one], keepDims }: Along): Attrs => ({ axis: one, keepDims }))(known(spec)),
          )
  }

/**
 * The public function of `min` and `max`: of two values where an operand is given, else along axes, or of all
 * elements.
 */
export const extreme =
  (ofTwo: (operand: never) => unknown, ofAxis: Operator) =>
  (...given: readonly [unknown?]): unknown => {
    const [operand] = given
    if (given.length === 0) return along(ofAxis)()
    return typeof operand === 'object' && operand !== null && !(operand instanceof FlowValue)
      ? along(ofAxis)(operand)
      : ofTwo(operand as never)
  }

export interface Extreme extends Arithmetic {
  <const A extends Axes, const K extends boolean = false>(
    options: ReduceOptions<A, K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Reduced<S, A, K>>
  <const K extends boolean = false>(
    options?: WholeOptions<K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, ReducedWhole<S, K>>
}
