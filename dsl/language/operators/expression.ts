import type { MapBinary, MapUnary } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { isOperandNumber } from './arithmetic.js'
import { attrsOf, Code, operationNumber } from './code.js'
import type { Attrs } from './operator.js'

/**
 * The instructions that a function of expressions makes: in single assignment, equal ones shared. A value
 * that is no expression of this trace counts as 1 and is listed as an error.
 */
export class Trace {
  readonly code = new Code()
  /** The first operands of the kernel, which the function is given. */
  readonly operands: readonly Expression[]
  /** Values of the function that are no expression of this trace. */
  strangers: readonly string[] = noStrangers

  constructor(operands: number) {
    const given = new Array<Expression>(operands)
    for (let i = 0; i < operands; i++) given[i] = new Expression(this, this.code.add(operandOp, 1, i))
    this.operands = given
  }

  /** The place of an expression of this trace in the code. */
  take(value: unknown): number {
    if (value instanceof Expression && value.trace === this) return value.index
    if (isOperandNumber(value)) return this.code.place(constOp, 1, value)
    this.strangers = [
      ...this.strangers,
      value instanceof Expression ? 'an expression of another map' : show(value),
    ]
    return this.code.place(constOp, 1, 1)
  }

  /**
   * The attributes of an elementwise node that computes the value at a place. An expression made later is of
   * no use.
   */
  attrsUpTo(result: number): Attrs {
    this.code.keepUpTo(result)
    return attrsOf(this.code)
  }
}

const noStrangers: readonly string[] = []
const operandOp = operationNumber('operand')
const constOp = operationNumber('const')

type Operand = Expression | number

/**
 * One element, as `map` traces it: every method adds an instruction to the kernel. Comparisons are 1 or 0.
 */
export class Expression {
  constructor(
    readonly trace: Trace,
    readonly index: number,
  ) {}

  add(other: Operand): Expression {
    return this.binary('add', other)
  }
  sub(other: Operand): Expression {
    return this.binary('sub', other)
  }
  mul(other: Operand): Expression {
    return this.binary('mul', other)
  }
  div(other: Operand): Expression {
    return this.binary('div', other)
  }
  min(other: Operand): Expression {
    return this.binary('min', other)
  }
  max(other: Operand): Expression {
    return this.binary('max', other)
  }
  pow(other: Operand): Expression {
    return this.binary('pow', other)
  }
  /** The quotient rounded down; of whole numbers divided by 0 it is 0. */
  floorDiv(other: Operand): Expression {
    return this.binary('floorDiv', other)
  }
  /** What remains of `floorDiv`, with the sign of the divisor; of whole numbers divided by 0 it is 0. */
  mod(other: Operand): Expression {
    return this.binary('mod', other)
  }
  lt(other: Operand): Expression {
    return this.binary('lt', other)
  }
  le(other: Operand): Expression {
    return this.binary('le', other)
  }
  eq(other: Operand): Expression {
    return this.binary('eq', other)
  }
  gt(other: Operand): Expression {
    return this.flipped('lt', other)
  }
  ge(other: Operand): Expression {
    return this.flipped('le', other)
  }
  neg(): Expression {
    return this.unary('neg')
  }
  abs(): Expression {
    return this.unary('abs')
  }
  exp(): Expression {
    return this.unary('exp')
  }
  log(): Expression {
    return this.unary('log')
  }
  sqrt(): Expression {
    return this.unary('sqrt')
  }
  rsqrt(): Expression {
    return this.unary('rsqrt')
  }
  tanh(): Expression {
    return this.unary('tanh')
  }
  erf(): Expression {
    return this.unary('erf')
  }
  sigmoid(): Expression {
    return this.unary('sigmoid')
  }
  sin(): Expression {
    return this.unary('sin')
  }
  cos(): Expression {
    return this.unary('cos')
  }
  floor(): Expression {
    return this.unary('floor')
  }
  ceil(): Expression {
    return this.unary('ceil')
  }
  /** To the nearest whole number, ties to even. */
  round(): Expression {
    return this.unary('round')
  }
  relu(): Expression {
    return this.max(0)
  }
  silu(): Expression {
    return this.mul(this.sigmoid())
  }
  /** `yes` where this is not 0, else `no`. */
  select(yes: Operand, no: Operand): Expression {
    const { trace } = this
    return this.made('select', 3, trace.take(yes), trace.take(no))
  }

  /** Without it `a > 0 ? b : c` would be decided while the graph is described, once for all elements. */
  [Symbol.toPrimitive](): never {
    throw new TypeError(
      'an expression has no value while the graph is described: compare with a.gt(0), choose with .select(yes, no)',
    )
  }

  private flipped(op: MapBinary, other: Operand): Expression {
    return new Expression(this.trace, this.trace.take(other)).binary(op, this)
  }

  private unary(op: MapUnary): Expression {
    return this.made(op, 1)
  }

  private binary(op: MapBinary, other: unknown): Expression {
    return this.made(op, 2, this.trace.take(other))
  }

  private made(op: MapUnary | MapBinary | 'select', count: number, second = 0, third = 0): Expression {
    const { trace } = this
    return new Expression(trace, trace.code.place(operationNumber(op), count, this.index, second, third))
  }
}
