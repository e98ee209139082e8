import type { MapBinary, MapInstruction, MapUnary } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { isOperandNumber } from './arithmetic.js'
import { isSame } from './code.js'

/** Instructions from which on equal ones are found by their text. */
const long = 32

const keyOf = ([op, ...rest]: MapInstruction): string =>
  `${op} ${rest.map(each => (Object.is(each, -0) ? '-0' : each)).join(' ')}`

/**
 * The instructions that a function of expressions makes: in single assignment, equal ones shared. A value
 * that is no expression of this trace counts as 1 and is listed as an error.
 */
export class Trace {
  readonly code: MapInstruction[] = []
  /** Values of the function that are no expression of this trace. */
  readonly strangers: string[] = []
  /** The expression of each instruction. */
  private readonly made: Expression[] = []
  /** By instruction, of a code that is long. */
  private known: Map<string, Expression> | undefined

  emit(instruction: MapInstruction): Expression {
    const same = this.find(instruction)
    if (same !== undefined) return same
    this.code.push(instruction)
    const made = new Expression(this, this.code.length - 1)
    this.made.push(made)
    this.known?.set(keyOf(instruction), made)
    return made
  }

  private find(instruction: MapInstruction): Expression | undefined {
    const { code, made } = this
    if (code.length < long) {
      for (let i = 0; i < code.length; i++) if (isSame(code[i]!, instruction)) return made[i]
      return undefined
    }
    this.known ??= new Map(code.map((each, i) => [keyOf(each), made[i]!]))
    return this.known.get(keyOf(instruction))
  }

  take(value: unknown): Expression {
    if (value instanceof Expression && value.trace === this) return value
    if (isOperandNumber(value)) return this.emit(['const', value])
    this.strangers.push(value instanceof Expression ? 'an expression of another map' : show(value))
    return this.emit(['const', 1])
  }

  /** The instructions that a result needs, and no more; the last one is the result. */
  upTo(result: Expression): readonly MapInstruction[] {
    const needed = new Uint8Array(result.index + 1)
    needed[result.index] = 1
    let count = 0
    for (let index = result.index; index >= 0; index--) {
      if (needed[index] === 0) continue
      count++
      const instruction = this.code[index]!
      if (isLeaf(instruction)) continue
      for (let i = 1; i < instruction.length; i++) needed[instruction[i] as number] = 1
    }
    if (count === needed.length) return this.code.slice(0, count)
    const place = new Int32Array(needed.length)
    const kept: MapInstruction[] = []
    for (let index = 0; index <= result.index; index++)
      if (needed[index] === 1) place[index] = kept.push(renumber(this.code[index]!, place)) - 1
    return kept
  }
}

const isLeaf = ([op]: MapInstruction): boolean => op === 'operand' || op === 'const' || op === 'index'

const renumber = (instruction: MapInstruction, place: Int32Array): MapInstruction =>
  isLeaf(instruction)
    ? instruction
    : ([
        instruction[0],
        ...instruction.slice(1).map(index => place[index as number]!),
      ] as unknown as MapInstruction)

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
    return this.trace.take(other).binary('lt', this)
  }
  ge(other: Operand): Expression {
    return this.trace.take(other).binary('le', this)
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
    return this.trace.emit(['select', this.index, this.trace.take(yes).index, this.trace.take(no).index])
  }

  private unary(op: MapUnary): Expression {
    return this.trace.emit([op, this.index])
  }

  private binary(op: MapBinary, other: unknown): Expression {
    return this.trace.emit([op, this.index, this.trace.take(other).index])
  }
}
