import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import type { DType } from '../../ir/tensor.js'
import type { AnyFlow } from '../flow.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { elementwise } from './elementwise.js'
import { type Expression, Trace } from './expression.js'
import type { Attrs } from './operator.js'
import type { Broadcast, Broadcasts, Device, Invalid, Shape } from './types.js'

export const mapOperator = elementwise('map')

type ShapesOf<F extends readonly AnyFlow[], S extends Shape> = F extends readonly [
  infer Y extends AnyFlow,
  ...infer R extends readonly AnyFlow[],
]
  ? ShapesOf<R, Broadcast<S, Y['spec']['shape']>>
  : S

type AllBroadcast<F extends readonly AnyFlow[], S extends Shape> = F extends readonly [
  infer Y extends AnyFlow,
  ...infer R extends readonly AnyFlow[],
]
  ? Broadcasts<S, Y['spec']['shape']> & AllBroadcast<R, Broadcast<S, Y['spec']['shape']>>
  : unknown

type OneType<F extends readonly AnyFlow[], D extends DType> = [F[number]['spec']['dtype']] extends [D]
  ? unknown
  : Invalid<'the element types differ: cast one of them', readonly [D, F[number]['spec']['dtype']]>

const bad = (wanted: string, found: string): E.Either<UnplacedError, never> =>
  E.left(
    badAttribute(
      wanted,
      found,
      'compute with the methods of what the function is given: (a, b) => a.mul(b).add(1)',
    ),
  )

const attrsOf = (fn: unknown, operands: number): E.Either<UnplacedError, Attrs> => {
  if (typeof fn !== 'function') return bad('a function of expressions', show(fn))
  const trace = new Trace(operands)
  try {
    const result = trace.take(fn(...trace.operands))
    if (trace.strangers.length > 0) return bad('expressions and finite numbers', trace.strangers.join(', '))
    return E.right(trace.attrsUpTo(result))
  } catch (error) {
    return bad(
      'a function of expressions',
      `one that threw: ${error instanceof Error ? error.message : show(error)}`,
    )
  } finally {
    trace.code.release()
  }
}

const roles: string[] = []
const roleOf = (i: number): string => {
  const role = roles[i] ?? `operand ${i + 1} of map`
  if (i === roles.length && i < 64) roles.push(role)
  return role
}

/**
 * One fused elementwise kernel: `x.pipe(map((a, b) => a.mul(b).add(1), y))`, where `a` is an element of x and
 * `b` the one of y in its place; shapes broadcast, element types are equal. The function runs once, on
 * symbols.
 */
export const map = <const F extends readonly Device<DType, Shape>[]>(
  fn: (x: Expression, ...others: { readonly [K in keyof F]: Expression }) => Expression | number,
  ...others: F
) => {
  const at = here(map)
  const operands = others.map((flow, i) => [roleOf(i), flow] as const)
  const fused = (x: unknown): unknown =>
    apply(mapOperator, at, x, operands, () => attrsOf(fn, 1 + others.length))
  return fused as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & OneType<F, D> & AllBroadcast<F, S>,
  ) => Device<D, ShapesOf<F, S>>
}
