// What the rules of gradients are written with. A rule is given the gradient of a node's value, and makes the
// gradients of what the node reads from it.

import type { GraphNode, LaneSpec, Where } from '../../ir/graph.js'
import { type Dim, type DType, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { shapeMismatch } from '../messages.js'
import { addOperator } from '../operators/add.js'
import { apply } from '../operators/apply.js'
import { castTo } from '../operators/cast.js'
import { attrsOfCode } from '../operators/code.js'
import { Parts } from '../operators/composition.js'
import { concatOperator, joined } from '../operators/concat.js'
import { expandOperator } from '../operators/expand.js'
import { mapOperator } from '../operators/map.js'
import { matmulOperator } from '../operators/matmul.js'
import type { Attrs, Operator } from '../operators/operator.js'
import { padOperator } from '../operators/pad.js'
import { reshapeOperator } from '../operators/reshape.js'
import { rowsAdded } from '../operators/scatter-add.js'
import { sliceOperator } from '../operators/slice.js'
import { transposeOperator } from '../operators/transpose.js'
import { whereOperator } from '../operators/where.js'
import { windowed } from '../operators/window.js'

/** A node, or an operator that is composed of several, whose gradient is being made. */
export interface Differentiated {
  readonly op: string
  readonly attrs: Attrs
  readonly inputs: readonly FlowValue[]
  readonly output: FlowValue
  /** The lane of the node: a collective's own. */
  readonly lane: LaneSpec | undefined
}

/** The gradient of the elements from `from` to `to` along an axis; that of the others is 0. */
export interface Within {
  readonly axis: number
  readonly from: number
  readonly to: number
  readonly gradient: FlowValue
}

/**
 * The gradients of the inputs, by place, each made when it is asked for; undefined where the value changes by
 * no input there.
 *
 * `gradient` has the rank of the output. A size of it may be 1 where the output's is not: then it is the same
 * along that axis. What a rule returns may be likewise, beside its input.
 */
export type Rule = (
  of: Differentiated,
  gradient: FlowValue,
  make: Backward,
) => readonly ((() => FlowValue | Within) | undefined)[]

const sum = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
])

const one = attrsOfCode([['const', 1]])

const isNumber = (size: Dim): size is number => typeof size === 'number'

/** The choice of a `where`, for a gradient that is 0 where the value was not chosen. */
export interface Choice {
  readonly condition: FlowValue
  /** Of a `where` of the condition and a value: that value where it was chosen, else 0. */
  readonly attrs: Attrs
}

/** The nodes that gradients are made of. */
export class Backward extends Parts {
  constructor(
    at: Where,
    private readonly hint: LaneSpec | undefined,
    /** By node of a gradient. */
    private readonly choices: Map<number, Choice> = new Map(),
    /** By node that rounds a gradient: the gradient before. */
    private readonly unrounded: Map<number, FlowValue> = new Map(),
  ) {
    super(at)
  }

  /** The same on another lane. */
  onLane(lane: LaneSpec | undefined): Backward {
    return new Backward(this.at, lane, this.choices, this.unrounded)
  }

  /** What is 0 where the value was not chosen. */
  chosen(x: FlowValue, choice: Choice): FlowValue {
    const value = this.apply(whereOperator, choice.condition, [x], choice.attrs)
    this.choices.set(value.id, choice)
    return value
  }

  /**
   * A gradient that an elementwise rule made of another. Hazard: what was not chosen may be NaN or infinite,
   * and 0 times that is NaN. So it is chosen once more.
   */
  following(x: FlowValue, gradient: FlowValue): FlowValue {
    const choice = this.choices.get(gradient.id)
    return choice === undefined || x.id === gradient.id ? x : this.chosen(x, choice)
  }

  /** The size of an axis, which must be a number. */
  size(x: FlowValue, axis: number): number {
    const size = x.spec.shape[axis]!
    if (isNumber(size)) return size
    const found = `axis ${axis} of ${showSpec(x.spec)}`
    x.builder.report(
      this.at,
      'gradients',
      shapeMismatch(
        'a size that is a number, for the gradient of an operator that moves elements',
        found,
        'give the dimension a number',
      ),
    )
    return 1
  }

  apply(operator: Operator, x: FlowValue, others: readonly FlowValue[], attrs: Attrs): FlowValue {
    return apply(
      operator,
      this.at,
      this.here(x),
      others.map(flow => ['an operand', flow] as const),
      attrs,
    )
  }

  /** The same value; what is computed of it runs on the lane of the node whose gradient is made. */
  here({ builder, id, spec, place }: FlowValue): FlowValue {
    return new FlowValue(builder, id, spec, place, this.hint)
  }

  /** A node's value. */
  value(builder: FlowValue['builder'], id: number): FlowValue {
    const { spec, place } = builder.nodes[id] as GraphNode
    return new FlowValue(builder, id, spec, place, this.hint)
  }

  /** The gradient of a loss by itself. */
  one(loss: FlowValue): FlowValue {
    return this.apply(mapOperator, loss, [], one)
  }

  cast(x: FlowValue, to: DType): FlowValue {
    return castTo(to, this.at, this.here(x))
  }

  /** A cast of what was added up in another type on purpose: one that leads back to that type is none. */
  rounded(x: FlowValue, to: DType): FlowValue {
    const value = this.cast(x, to)
    if (value.id !== x.id) this.unrounded.set(value.id, x)
    return value
  }

  /** The gradient in the type, without the rounding of a collective before. */
  castOf(gradient: FlowValue, to: DType): FlowValue {
    const before = this.unrounded.get(gradient.id)
    return before?.spec.dtype === to ? this.here(before) : this.cast(gradient, to)
  }

  add(a: FlowValue, b: FlowValue): FlowValue {
    return this.apply(addOperator, a, [b], sum)
  }

  /** Symbols of the new shape are taken from the value, by name and in order. */
  reshape(x: FlowValue, shape: readonly Dim[]): FlowValue {
    const own = x.spec.shape
    if (own.length === shape.length && own.every((size, d) => size === shape[d])) return x
    const taken = new Set<number>()
    const sizes = shape.map(size => {
      if (typeof size === 'number') return size
      const axis = own.findIndex((other, d) => other === size && !taken.has(d))
      taken.add(axis)
      return { axis }
    })
    return this.apply(reshapeOperator, x, [], { shape: sizes })
  }

  transpose(x: FlowValue, axes: readonly number[]): FlowValue {
    return axes.every((axis, d) => axis === d) ? x : this.apply(transposeOperator, x, [], { axes })
  }

  slice(x: FlowValue, axis: number, from: number, to: number): FlowValue {
    const size = x.spec.shape[axis]
    return from === 0 && to === size ? x : this.apply(sliceOperator, x, [], { axis, from, to })
  }

  /** Symbols are those that the value has in the same place. */
  expand(x: FlowValue, shape: readonly Dim[]): FlowValue {
    const lead = shape.length - x.spec.shape.length
    const sizes = shape.map((size, d) => (isNumber(size) ? size : { axis: d - lead }))
    return this.apply(expandOperator, x, [], { shape: sizes })
  }

  concat(values: readonly FlowValue[], axis: number): FlowValue {
    return joined(values, ([first, ...others]) =>
      others.length === 0 ? first! : this.apply(concatOperator, first!, others, { axis }),
    )
  }

  /** With zeros before and after, or without so many elements where a number is negative. */
  pad(x: FlowValue, axis: number, before: number, after: number): FlowValue {
    const size = this.size(x, axis)
    const within = this.slice(x, axis, Math.max(0, -before), size - Math.max(0, -after))
    if (before <= 0 && after <= 0) return within
    const attrs = { axis, before: Math.max(0, before), after: Math.max(0, after), value: 0 }
    return this.apply(padOperator, within, [], attrs)
  }

  matmul(x: FlowValue, w: FlowValue, transposeX: boolean, transpose: boolean, to?: DType): FlowValue {
    return this.apply(matmulOperator, x, [w], {
      transpose,
      ...(transposeX ? { transposeX: true } : {}),
      ...(to === undefined || to === x.spec.dtype ? {} : { to }),
    })
  }

  /** The sums of the rows of each index, in so many rows. */
  addRows(x: FlowValue, indices: FlowValue, to: { readonly axis: number; readonly size: number }): FlowValue {
    return rowsAdded(this.at, this.here(x), indices, to)
  }

  /** The sum of n values in a row, once for n. */
  sumOf(x: FlowValue, n: number): FlowValue {
    const node = { op: 'window', inputs: [x.id], attrs: { n }, spec: windowed(x.spec, n) } as const
    const values = x.builder.flow({ ...node, place: 'device', lane: this.hint, at: this.at }, this.hint)
    return this.reduce('sum', values, [0], false)
  }

  /** The gradient in the whole shape of the value that it is of. */
  whole(gradient: FlowValue, of: FlowValue): FlowValue {
    const { shape } = of.spec
    if (gradient.spec.shape.every((size, d) => size === shape[d])) return gradient
    const isKept = shape.every((size, d) => isNumber(size) || size === gradient.spec.shape[d])
    return isKept ? this.expand(gradient, shape) : this.map((g, _) => g, this.here(gradient), of)
  }

  /**
   * The gradient of a value that was repeated up to the shape `over`: its sum along the axes of the
   * repetition. `of` has the shape `over`.
   */
  summed(gradient: FlowValue, of: FlowValue, value: TensorSpec): FlowValue {
    const over = of.spec.shape
    const lead = over.length - value.shape.length
    const isRepeated = (d: number) => over[d] !== 1 && (d < lead || value.shape[d - lead] === 1)
    const repeated = over.flatMap((_, d) => (isRepeated(d) ? [d] : []))
    // Along an axis where it is the same everywhere the sum is a product.
    const isSame = (d: number) => gradient.spec.shape[d] === 1
    const known = repeated.every(d => !isSame(d) || isNumber(over[d]!))
    const from = this.here(known ? gradient : this.whole(gradient, of))
    const axes = repeated.filter(d => from.spec.shape[d] !== 1)
    const total = axes.length === 0 ? from : this.reduce('sum', from, axes)
    const times = repeated.reduce((n, d) => (known && isSame(d) ? n * (over[d] as number) : n), 1)
    const scaled = times === 1 ? total : this.map(g => g.mul(times), total)
    return lead === 0 ? scaled : this.reshape(scaled, scaled.spec.shape.slice(lead))
  }
}
