import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import { type DType, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { castTo } from './cast.js'
import { composed, ofFloats } from './composition.js'
import { reshapeOperator } from './reshape.js'
import { takeAlongOperator } from './take-along.js'
import type { Broadcasts, Device, Floats, Invalid, Shape } from './types.js'

/** The number of classes: the size of the last axis. */
const classesOf = (x: TensorSpec): E.Either<UnplacedError, number> =>
  E.chain((): E.Either<UnplacedError, number> => {
    const classes = x.shape.at(-1)
    return typeof classes === 'number'
      ? E.right(classes)
      : E.left(
          shapeMismatch(
            'a last axis of classes, of a size that is a number',
            showSpec(x),
            'give it a number',
          ),
        )
  })(ofFloats(x))

/** The labels as i32, with a last axis of size 1. */
const labelsBeside = (x: FlowValue, at: Where, labels: unknown): FlowValue => {
  const { builder, spec } = x
  const rows = spec.shape.slice(0, -1)
  const value = builder.take(labels, 'device', at, 'crossEntropy', 'the labels', {
    dtype: 'i32',
    shape: rows,
  })
  const { dtype, shape } = value.spec
  const found = `${showSpec(value.spec)}, of ${showSpec(spec)}`
  const fits = shape.length === rows.length && shape.every((size, d) => size === rows[d])
  if (isFloat(dtype))
    builder.report(
      at,
      'crossEntropy',
      dtypeMismatch('labels of i32 or u8', found, "cast them: pipe(cast('i32'))"),
    )
  else if (!fits && !builder.guesses.has(value.id))
    builder.report(
      at,
      'crossEntropy',
      shapeMismatch('a label for each row of the last axis', found, 'reshape one of them'),
    )
  const kept = shape.map((_, axis) => ({ axis }))
  return apply(reshapeOperator, at, castTo('i32', at, value), [], { shape: [...kept, 1] })
}

type Labels<I extends DType> = [I] extends ['i32' | 'u8'] ? unknown : Invalid<'labels are of i32 or u8', I>

/**
 * What a model that scores classes loses for the right one, `logSumExp(x) - x[label]` along the last axis, of
 * floats, computed in f32 (torch.nn.functional.cross_entropy without a reduction). `[…, classes]` becomes
 * `[…]`, the shape of the labels, which are of i32 or u8. A label that is no class, such as -1, loses 0 and has
 * no gradient: divide by the number of the others. Scores of f16 and bf16 are best cast to f32 before.
 */
export const crossEntropy = <I extends DType, R extends Shape>(labels: Device<I, R> & Labels<I>) => {
  const at = here()
  return composed('crossEntropy', at, classesOf, (parts, given, classes) => {
    const label = labelsBeside(given, at, labels)
    const axes = [given.spec.shape.length - 1]
    return parts.inFloat(given, x => {
      // The largest element is taken away from both first: of large scores the difference has few bits.
      const { most, rest } = parts.logSum(x, axes)
      const right = apply(takeAlongOperator, at, x, [['the labels', label]], { axis: axes[0] })
      const known = parts.map(l => l.ge(0).select(l.lt(classes).select(1, 0), 0), label)
      const isClass = castTo('f32', at, known)
      const value = parts.map((r, m, a, c) => c.gt(0).select(r.sub(a.sub(m)), 0), rest, most, right, isClass)
      const attrs = { classes, most: most.id, rest: rest.id, isClass: isClass.id }
      return parts.without(parts.composite('crossEntropy', value, [x, label], attrs), axes)
    })
  }) as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & Broadcasts<S, readonly [...R, 1]>,
  ) => Device<D, R>
}
