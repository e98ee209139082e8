// The gradient of an elementwise expression is an elementwise expression: it is derived instruction by
// instruction, from the last one to the first.

import type { MapInstruction } from '../../ir/kernel-spec.js'
import { attrsOfCode, type ElementwiseAttrs } from '../operators/code.js'
import { Expression, Trace } from '../operators/expression.js'
import { mapOperator } from '../operators/map.js'
import type { Attrs } from '../operators/operator.js'
import type { Rule } from './backward.js'

const codeOf = (attrs: Attrs): readonly MapInstruction[] => (attrs as unknown as ElementwiseAttrs).code

/** The instructions of an expression. */
interface Values {
  readonly code: readonly MapInstruction[]
  /** The value of instruction i, computed where it is asked for; the last one is the result. */
  at(i: number): Expression
  /** Whether the value of instruction i depends on an operand. */
  varies(i: number): boolean
}

/**
 * A gradient, and what is chosen of it. Hazard: what was not chosen may be NaN or infinite, and 0 times that is
 * NaN. So nothing is chosen before the gradient is what it will be.
 */
interface Adjoint {
  readonly d: Expression
  readonly choice?: ((d: Expression) => Expression) | undefined
}

const settled = ({ d, choice }: Adjoint): Expression => (choice === undefined ? d : choice(d))

type Args = readonly [number, number, number]
type Part = Expression | Adjoint | undefined
type Derivative = (d: Expression, i: number, args: Args, of: Values) => readonly Part[]

const nothing: Derivative = () => []

/**
 * What each instruction makes of the gradient `d` of its value, for each of its arguments. At a corner: `abs`
 * passes nothing on at 0, and `min` and `max` of equal values half to each; where one of the two is a number,
 * as in relu, nothing. Hazard: every comparison with a NaN is false. So what is chosen last is the NaN itself,
 * and never 0.
 */
const derivatives: Readonly<Record<string, Derivative>> = {
  neg: d => [d.neg()],
  abs: (d, _, [a], of) => [
    of
      .at(a)
      .gt(0)
      .select(d, of.at(a).lt(0).select(d.neg(), of.at(a).abs())),
  ],
  exp: (d, i, _, of) => [d.mul(of.at(i))],
  log: (d, _, [a], of) => [d.div(of.at(a).lt(0).select(of.at(a).sqrt(), of.at(a)))],
  sqrt: (d, i, _, of) => [d.mul(0.5).div(of.at(i))],
  rsqrt: (d, i, [a], of) => [d.mul(-0.5).mul(of.at(i)).div(of.at(a))],
  tanh: (d, i, _, of) => [d.mul(of.at(i).mul(of.at(i)).neg().add(1))],
  erf: (d, _, [a], of) => [d.mul(of.at(a).mul(of.at(a)).neg().exp()).mul(2 / Math.sqrt(Math.PI))],
  sigmoid: (d, i, _, of) => [d.mul(of.at(i)).mul(of.at(i).neg().add(1))],
  sin: (d, _, [a], of) => [d.mul(of.at(a).cos())],
  cos: (d, _, [a], of) => [d.mul(of.at(a).sin()).neg()],
  floor: nothing,
  ceil: nothing,
  round: nothing,
  add: d => [d, d],
  sub: d => [d, d.neg()],
  mul: (d, _, [a, b], of) => [d.mul(of.at(b)), d.mul(of.at(a))],
  div: (d, i, [_, b], of) => [d.div(of.at(b)), d.mul(of.at(i)).div(of.at(b)).neg()],
  min: (d, i, [a, b], of) => chosen(d, i, a, b, of, (x, y) => x.lt(y)),
  max: (d, i, [a, b], of) => chosen(d, i, a, b, of, (x, y) => y.lt(x)),
  pow: (d, i, [a, b], of) => [byBase(d, a, b, of), byExponent(d, i, a, b, of)],
  floorDiv: nothing,
  mod: (d, _, [a, b], of) => [d, d.mul(of.at(a).floorDiv(of.at(b))).neg()],
  lt: nothing,
  le: nothing,
  eq: nothing,
  select: (d, _, [a], of) => [
    undefined,
    { d, choice: e => of.at(a).select(e, 0) },
    { d, choice: e => of.at(a).select(0, e) },
  ],
}

/** The number that an instruction is; undefined where it is computed. */
const numberAt = ({ code }: Values, i: number): number | undefined => {
  const [op, value] = code[i]!
  return op === 'const' ? value : undefined
}

/** To the power of 0 all numbers are 1: it is 0 there at 0 too, where the power of -1 is infinite. */
const byBase = (d: Expression, a: number, b: number, of: Values): Expression => {
  const exponent = numberAt(of, b)
  if (exponent === 0) return new Expression(d.trace, d.trace.take(0))
  const slope = d.mul(of.at(b)).mul(of.at(a).pow(of.at(b).sub(1)))
  return exponent === undefined ? of.at(b).eq(0).select(0, slope) : slope
}

/** 0 to a power from 0 on stays as it is. */
const byExponent = (d: Expression, i: number, a: number, b: number, of: Values): Expression => {
  const slope = d.mul(of.at(i)).mul(of.at(a).log())
  return of.at(a).eq(0).select(of.at(b).ge(0).select(0, slope), slope)
}

/** Of the smaller or larger of two values, which the value of instruction i is. */
const chosen = (
  d: Expression,
  i: number,
  a: number,
  b: number,
  of: Values,
  wins: (one: Expression, other: Expression) => Expression,
): readonly Part[] => {
  // By the result, so that what it is made of need not be kept. What is neither better nor equal is NaN.
  const beside = (other: number): Adjoint => {
    const [value, bound] = [of.at(i), of.at(other)]
    const rest = numberAt(of, other) === 0 ? value : value.eq(bound).select(0, value)
    return { d, choice: e => wins(value, bound).select(e, rest) }
  }
  if (!of.varies(b)) return [beside(b)]
  if (!of.varies(a)) return [undefined, beside(a)]
  const between = (one: Expression, other: Expression): Adjoint => {
    const equal = (e: Expression) => one.eq(other).select(e.mul(0.5), one.add(other))
    return { d, choice: e => wins(one, other).select(e, wins(other, one).select(0, equal(e))) }
  }
  return [between(of.at(a), of.at(b)), between(of.at(b), of.at(a))]
}

/** An expression over some of: the gradient of the result, the operands, and the result. */
interface Derived {
  readonly attrs: Attrs
  /** By operand of the expression: 0 is the gradient, 1 the first operand, and the result comes last. */
  readonly uses: readonly number[]
}

const argumentsOf = ([op, ...args]: MapInstruction): readonly number[] =>
  op === 'operand' || op === 'const' || op === 'index' ? [] : (args as readonly number[])

/** Of the gradient of a value, the part of an argument. */
const chosenBy = ({ choice }: Adjoint, part: Expression | Adjoint): Adjoint => {
  const own = part instanceof Expression ? { d: part } : part
  if (choice === undefined) return own
  return { d: own.d, choice: own.choice === undefined ? choice : e => choice(own.choice!(e)) }
}

/** The gradient of an expression by one of its operands; undefined where it does not change with that. */
const derivedOf = (
  code: readonly MapInstruction[],
  operand: number,
  operands: number,
  isLine: boolean,
): Derived | undefined => {
  const trace = new Trace(operands + 2)
  const [gradient, ...given] = trace.operands
  if (isLine) given[0] = bounded(given[0]!)
  const last = code.length - 1
  const [depends, varies]: boolean[][] = [[], []]
  code.forEach((instruction, i) => {
    const args = argumentsOf(instruction)
    depends![i] = instruction[0] === 'operand' ? instruction[1] === operand : args.some(a => depends![a])
    varies![i] = instruction[0] !== 'const' && (args.length === 0 || args.some(a => varies![a]))
  })
  const values: Expression[] = []
  const computed = (i: number): Expression => {
    const [op, ...args] = code[i]!
    if (op === 'operand') return given[args[0] as number]!
    if (op === 'const') return new Expression(trace, trace.take(args[0]))
    const [first, ...others] = (args as number[]).map(of.at) as [Expression, ...Expression[]]
    return (first as unknown as Record<string, (...others: Expression[]) => Expression>)[op]!(...others)
  }
  const of: Values = {
    code,
    at: i => (values[i] ??= i === last ? given[operands]! : computed(i)),
    varies: i => varies![i]!,
  }
  const adjoints: (Adjoint | undefined)[] = []
  adjoints[last] = { d: gradient! }
  let total: Expression | undefined
  const add = (argument: number, part: Adjoint): void => {
    const other = adjoints[argument]
    adjoints[argument] = other === undefined ? part : { d: settled(other).add(settled(part)) }
  }
  for (let i = last; i >= 0; i--) {
    const adjoint = adjoints[i]
    const [op] = code[i]!
    if (adjoint === undefined || !depends![i]) continue
    if (op === 'operand') total = total === undefined ? settled(adjoint) : total.add(settled(adjoint))
    const args = argumentsOf(code[i]!)
    const parts = derivatives[op]?.(adjoint.d, i, args as unknown as Args, of) ?? []
    parts.forEach((part, k) => {
      if (part === undefined || !depends![args[k]!]) return
      add(args[k]!, chosenBy(adjoint, part))
    })
  }
  const whole = total && codeOf(trace.attrsUpTo(trace.take(total)))
  trace.code.release()
  if (whole === undefined) return undefined
  const uses = [...new Set(whole.flatMap(([op, k]) => (op === 'operand' ? [k as number] : [])))].sort(
    (a, b) => a - b,
  )
  const own = whole.map(instruction =>
    instruction[0] === 'operand' ? (['operand', uses.indexOf(instruction[1])] as const) : instruction,
  )
  return { attrs: attrsOfCode(own), uses }
}

// Nodes with equal expressions have one and the same code. By operand; of those that are lines, by -1 less it.
const known = new WeakMap<readonly MapInstruction[], Map<number, Derived | undefined>>()

const derived = (
  code: readonly MapInstruction[],
  operand: number,
  operands: number,
  isLine: boolean,
): Derived | undefined => {
  let byOperand = known.get(code)
  if (byOperand === undefined) known.set(code, (byOperand = new Map()))
  const key = isLine ? -1 - operand : operand
  if (!byOperand.has(key)) byOperand.set(key, derivedOf(code, operand, operands, isLine))
  return byOperand.get(key)
}

/** -Infinity becomes NaN, as what is computed of it is. */
const bounded = (x: Expression): Expression =>
  x
    .max(-line)
    .min(line)
    .add(x.min(0).sub(x.min(0)))

/**
 * Operators of one value that are lines from `line` on, and below -line. Hazard: their gradients multiply what
 * is 0 there with what overflows. So the slope is that at `line`.
 */
const lines: ReadonlySet<string> = new Set(['gelu', 'silu'])
const line = 100

export const elementwiseRule: Rule = ({ op, attrs, inputs, output }, gradient, make) =>
  inputs.map((x, k) => {
    const found = derived(codeOf(attrs), k, inputs.length, lines.has(op))
    if (found === undefined) return undefined
    return () => {
      const flows = [gradient, ...inputs, output]
      // A number alone reads nothing.
      const [first = gradient, ...others] = found.uses.map(use => flows[use]!)
      const isSame = codeOf(found.attrs).length === 1 && found.uses.length === 1
      const own = isSame ? first : make.apply(mapOperator, first, others, found.attrs)
      return make.summed(make.following(own, gradient), output, x.spec)
    }
  })

const first = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['const', 0],
  ['select', 0, 1, 2],
])
const second = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['const', 0],
  ['select', 0, 2, 1],
])

/** A condition, and one or two values that it chooses from. */
export const whereRule: Rule = ({ attrs, inputs: [condition, ...values], output }, gradient, make) => {
  const code = codeOf(attrs)
  const [, , ...choices] = code.at(-1) as readonly [string, number, number, number]
  return [
    undefined,
    ...values.map((x, k) => () => {
      const isChosen = choices.map(i => code[i]![0] === 'operand' && code[i]![1] === k + 1)
      const choice = { condition: condition!, attrs: isChosen[0] ? first : second }
      const own = isChosen.every(Boolean) ? gradient : make.chosen(gradient, choice)
      return make.summed(own, output, x.spec)
    }),
  ]
}
