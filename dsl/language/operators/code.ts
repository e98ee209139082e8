import type { MapInstruction } from '../../ir/kernel-spec.js'

/**
 * Attributes of every elementwise node: its expression over its inputs, in the form of `MapSpec.code`; the
 * last value is the result.
 */
export interface ElementwiseAttrs {
  readonly code: readonly MapInstruction[]
}

/** Expressions that are kept at most. */
const most = 2 ** 16

type CodeAttrs = ElementwiseAttrs & Readonly<Record<string, unknown>>

/** Operations by number; the first ones have no earlier value as an argument. */
const operations: string[] = ['operand', 'const', 'index']
const numbers = new Map(operations.map((op, number) => [op, number]))
const isLeaf = (op: number): boolean => op < 3

/** The number by which an operation stands in a `Code`. */
export const operationNumber = (op: MapInstruction[0]): number => {
  let number = numbers.get(op)
  if (number === undefined) numbers.set(op, (number = operations.push(op) - 1))
  return number
}

/** Numbers of an instruction in a `Code`: its operation, how many arguments it has, and the arguments. */
const stride = 5

/** The instructions from which on equal ones are found by their hash. */
const long = 32

/**
 * Instructions in single assignment, as numbers in one array: describing a large graph makes millions of
 * them, nearly all of which are in the code of another node already.
 */
export class Code {
  length = 0
  private numbers: Float64Array
  /** The latest instruction of a hash, and of each instruction the one before of the same hash; if long. */
  private latest: Map<number, number> | undefined
  private earlier: number[] = []

  constructor() {
    this.numbers = spare.pop() ?? new Float64Array(long * stride)
  }

  /** Gives the memory back. The code is empty then. */
  release(): void {
    if (spare.length < mostSpare && this.numbers.length <= mostSpareNumbers) spare.push(this.numbers)
    this.numbers = none
    this.length = 0
    this.latest = undefined
  }

  /** The place of an instruction: that of an equal one, or the end, where it is added. */
  place(op: number, count: number, a: number, b = 0, c = 0): number {
    const same = this.length < long ? this.search(op, a, b, c) : this.lookUp(op, a, b, c)
    return same >= 0 ? same : this.add(op, count, a, b, c)
  }

  /** Adds an instruction at the end, whether or not there is an equal one. */
  add(op: number, count: number, a: number, b = 0, c = 0): number {
    const at = this.length * stride
    if (at + stride > this.numbers.length) this.grow()
    const { numbers } = this
    numbers[at] = op
    numbers[at + 1] = count
    numbers[at + 2] = a
    numbers[at + 3] = b
    numbers[at + 4] = c
    if (this.latest !== undefined) this.enter(this.latest, this.length)
    return this.length++
  }

  /** Leaves the instructions that the one at `last` needs, and no more; it is the last one then. */
  keepUpTo(last: number): void {
    const { numbers } = this
    if (needed.length <= last) needed = new Int32Array(2 * last + 1)
    needed.fill(0, 0, last + 1)
    needed[last] = 1
    let kept = 0
    for (let at = last; at >= 0; at--) {
      if (needed[at] === 0) continue
      kept++
      const from = at * stride
      if (isLeaf(numbers[from]!)) continue
      for (let i = from + 2, end = i + numbers[from + 1]!; i < end; i++) needed[numbers[i]!] = 1
    }
    this.length = last + 1
    if (kept <= last) this.pack()
  }

  /** Moves the instructions that are needed to the front; from then on `needed` has their places. */
  private pack(): void {
    const { numbers, length } = this
    let to = 0
    for (let at = 0; at < length; at++) {
      if (needed[at] === 0) continue
      const from = at * stride
      const leaf = isLeaf(numbers[from]!)
      const end = from + 2 + numbers[from + 1]!
      for (let i = from + 2; !leaf && i < end; i++) numbers[i] = needed[numbers[i]!]!
      numbers.copyWithin(to * stride, from, from + stride)
      needed[at] = to++
    }
    this.length = to
  }

  hash(): number {
    let hash = this.length
    for (let at = 0; at < this.length; at++) hash = this.hashed(hash, at)
    return hash
  }

  /** The numbers alone, in memory of their own. */
  copied(): Float64Array {
    return this.numbers.slice(0, this.length * stride)
  }

  /** Whether these are the numbers of this code; of constants, -0 is not 0. */
  equals(other: Float64Array): boolean {
    const { numbers } = this
    if (other.length !== this.length * stride) return false
    for (let i = 0; i < other.length; i++) if (!Object.is(other[i], numbers[i])) return false
    return true
  }

  instructions(): readonly MapInstruction[] {
    return Array.from({ length: this.length }, (_, at) => {
      const from = at * stride
      const given = this.numbers.subarray(from + 2, from + 2 + this.numbers[from + 1]!)
      return Object.freeze([operations[this.numbers[from]!], ...given]) as unknown as MapInstruction
    })
  }

  private search(op: number, a: number, b: number, c: number): number {
    for (let at = 0; at < this.length; at++) if (this.isAt(at, op, a, b, c)) return at
    return -1
  }

  private isAt(at: number, op: number, a: number, b: number, c: number): boolean {
    const { numbers } = this
    const from = at * stride
    return (
      numbers[from] === op &&
      Object.is(numbers[from + 2], a) &&
      numbers[from + 3] === b &&
      numbers[from + 4] === c
    )
  }

  private lookUp(op: number, a: number, b: number, c: number): number {
    let { latest } = this
    if (latest === undefined) {
      this.latest = latest = new Map()
      for (let at = 0; at < this.length; at++) this.enter(latest, at)
    }
    let at = latest.get(hashed(0, op, a, b, c)) ?? -1
    while (at >= 0 && !this.isAt(at, op, a, b, c)) at = this.earlier[at]!
    return at
  }

  private enter(latest: Map<number, number>, at: number): void {
    const hash = this.hashed(0, at)
    this.earlier[at] = latest.get(hash) ?? -1
    latest.set(hash, at)
  }

  private hashed(hash: number, at: number): number {
    const { numbers } = this
    const from = at * stride
    return hashed(hash, numbers[from]!, numbers[from + 2]!, numbers[from + 3]!, numbers[from + 4]!)
  }

  private grow(): void {
    const more = new Float64Array(Math.max(2 * this.numbers.length, long * stride))
    more.set(this.numbers)
    this.numbers = more
  }
}

const hashed = (hash: number, op: number, a: number, b: number, c: number): number => {
  let mixed = Math.imul(hash ^ op, 0x85ebca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13) ^ (a * 0x10000), 0xc2b2ae35)
  mixed = Math.imul(mixed ^ (mixed >>> 13) ^ (b * 0x10000), 0xc2b2ae35)
  // Small, so that as a key it is no object of its own.
  return Math.imul(mixed ^ (mixed >>> 13) ^ (c * 0x10000), 0xc2b2ae35) >> 2
}

/** Of instructions, whether they are needed, then their places: for as long as `keepUpTo` runs. */
let needed = new Int32Array(long)

/** Memory of codes that are gone. A function that `map` traces may trace others, so there may be several. */
const spare: Float64Array[] = []
const mostSpare = 16
const mostSpareNumbers = 2 ** 12 * stride
const none = new Float64Array(0)

interface Known {
  readonly numbers: Float64Array
  readonly attrs: CodeAttrs
  readonly next: Known | undefined
}

/** By hash. */
const known = new Map<number, Known>()
let kept = 0

/**
 * The attributes of an elementwise node. Equal expressions have one and the same object: a large graph has
 * few expressions, and whatever the compiler finds out about one it finds out once.
 */
export const attrsOf = (code: Code): Readonly<Record<string, unknown>> => {
  const hash = code.hash()
  for (let one = known.get(hash); one !== undefined; one = one.next)
    if (code.equals(one.numbers)) return one.attrs
  const attrs: CodeAttrs = Object.freeze({ code: Object.freeze(code.instructions()) })
  if (kept === most) {
    known.clear()
    kept = 0
  }
  known.set(hash, { numbers: code.copied(), attrs, next: known.get(hash) })
  kept++
  return attrs
}

/** The same from the instructions themselves. */
export const attrsOfCode = (instructions: readonly MapInstruction[]): Readonly<Record<string, unknown>> => {
  const code = new Code()
  for (const [op, a, b, c] of instructions as readonly (readonly [MapInstruction[0], ...number[]])[])
    code.add(operationNumber(op), c !== undefined ? 3 : b !== undefined ? 2 : 1, a!, b, c)
  const attrs = attrsOf(code)
  code.release()
  return attrs
}
