// How operators are composed of others: each part is a node like any other, at the position of the operator
// and with a name that begins with the operator's. Nothing here has a lowering or a meaning of its own.

import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import type { Composite, FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { apply, parted } from './apply.js'
import { castTo } from './cast.js'
import { type Expression, Trace } from './expression.js'
import { mapOperator } from './map.js'
import { maxOperator } from './max.js'
import { meanOperator } from './mean.js'
import { named } from './options.js'
import { type Along, axesOf, reduceAlong } from './reduce.js'
import { reshapeOperator } from './reshape.js'
import { broadcast } from './shapes.js'
import { sumOperator } from './sum.js'

const largestFloat = 3.4028234663852886e38

const reductions = { mean: meanOperator, sum: sumOperator }

type Elements<F extends readonly FlowValue[]> = { readonly [K in keyof F]: Expression }

/** The parts of one call of an operator. */
export class Parts {
  constructor(readonly at: Where) {}

  /** An elementwise node, by its expression. */
  map<const F extends readonly FlowValue[]>(
    fn: (x: Expression, ...others: Elements<F>) => Expression,
    x: FlowValue,
    ...others: F
  ): FlowValue {
    const trace = new Trace(1 + others.length)
    const [first, ...rest] = trace.operands
    const attrs = trace.attrsUpTo(trace.take(fn(first!, ...(rest as unknown as Elements<F>))))
    trace.code.release()
    const operands = others.map(flow => ['an operand', flow] as const)
    return apply(mapOperator, this.at, x, operands, attrs)
  }

  reduce(how: keyof typeof reductions, x: FlowValue, axes: readonly number[], keepDims = true): FlowValue {
    const along: Along = { axes, keepDims }
    return reduceAlong(reductions[how], this.at, x, along)
  }

  /** The largest element along the axes, which is -Infinity where there is none. */
  largest(x: FlowValue, axes: readonly number[]): FlowValue {
    const mayBeEmpty = axes.some(axis => typeof x.spec.shape[axis] === 'string' || x.spec.shape[axis] === 0)
    const along: Along = { axes, keepDims: true }
    const initial = Number.NEGATIVE_INFINITY
    return reduceAlong(maxOperator, this.at, x, mayBeEmpty ? { ...along, initial } : along)
  }

  /** Of a value of f32: exp(x) divided by its sum along the axes. */
  softmax(x: FlowValue, axes: readonly number[]): FlowValue {
    const most = this.largest(x, axes)
    const powers = this.map((a, m) => a.sub(m).exp(), x, most)
    const shares = this.map((p, total) => p.div(total), powers, this.reduce('sum', powers, axes))
    return this.composite('softmax', shares, [x], { axes })
  }

  /**
   * Of a value of f32: the largest element along the axes, and the logarithm of the sum of exp(x) less it. Both
   * have these axes with size 1.
   */
  logSum(x: FlowValue, axes: readonly number[]): { readonly most: FlowValue; readonly rest: FlowValue } {
    // An infinite maximum is left in place: what it is taken away from would be NaN.
    const most = this.map(m => m.abs().le(largestFloat).select(m, 0), this.largest(x, axes))
    const powers = this.map((a, m) => a.sub(m).exp(), x, most)
    return { most, rest: this.map(t => t.log(), this.reduce('sum', powers, axes)) }
  }

  /** The value, which gradients take for that of one operator of these inputs. */
  composite(
    op: string,
    value: FlowValue,
    inputs: readonly FlowValue[],
    attrs: Composite['attrs'],
  ): FlowValue {
    value.builder.composites.set(value.id, { op, inputs: inputs.map(({ id }) => id), attrs })
    return value
  }

  /** Without axes of size 1. */
  without(x: FlowValue, axes: readonly number[]): FlowValue {
    const kept = x.spec.shape.flatMap((_, axis) => (axes.includes(axis) ? [] : [{ axis }]))
    return apply(reshapeOperator, this.at, x, [], { shape: kept })
  }

  /** A value of f16 or bf16 computed in f32, and rounded once. */
  inFloat(x: FlowValue, compute: (x: FlowValue) => FlowValue): FlowValue {
    return castTo(x.spec.dtype, this.at, compute(castTo('f32', this.at, x)))
  }
}

/** The public function of an operator composed of others. */
export const composed = <O>(
  name: string,
  at: Where,
  options: (x: TensorSpec) => E.Either<UnplacedError, O>,
  make: (parts: Parts, x: FlowValue, options: O) => FlowValue,
) => {
  const parts = new Parts(at)
  return (x: unknown): unknown =>
    parted(name, at, x, options, (value, known) => value.builder.parts(name, () => make(parts, value, known)))
}

/** Floats alone. */
export const ofFloats = (x: TensorSpec): E.Either<UnplacedError, TensorSpec> =>
  isFloat(x.dtype)
    ? E.right(x)
    : E.left(dtypeMismatch('floats: f32, f16 or bf16', showSpec(x), "cast first: pipe(cast('f32'))"))

/** The axes of an operator of floats; the last one where none is given. */
export const floatAxes =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, readonly number[]> =>
    E.chain(() => axesOf(named(options)['axis'] ?? -1, x))(ofFloats(x))

/** What is added below a root, so that it is never 0. */
export const epsilonOf = (options: unknown): E.Either<UnplacedError, number> => {
  const { epsilon = 1e-5 } = named(options)
  return typeof epsilon === 'number' && Math.fround(epsilon) > 0 && Number.isFinite(Math.fround(epsilon))
    ? E.right(epsilon)
    : E.left(badAttribute('epsilon: a number above 0 that f32 can hold', show(epsilon), 'as in 1e-5'))
}

/**
 * A user's operand for each element of x, such as the scale of a norm: of the same element type, and of a
 * shape that broadcasts to that of x.
 */
export const beside = (x: FlowValue, at: Where, operator: string, role: string, flow: unknown): FlowValue => {
  const { builder, spec } = x
  const value = builder.take(flow, 'device', at, operator, role, spec)
  const found = `${showSpec(value.spec)}, of ${showSpec(spec)}`
  const shape = broadcast([spec.shape, value.spec.shape])
  const same = shape?.length === spec.shape.length && shape.every((size, d) => size === spec.shape[d])
  if (value.spec.dtype !== spec.dtype)
    builder.report(at, operator, dtypeMismatch(`${role} of the same element type`, found, 'cast one of them'))
  else if (!same)
    builder.report(
      at,
      operator,
      shapeMismatch(`${role} of a shape that broadcasts to that of the value`, found, 'reshape it'),
    )
  return value
}
