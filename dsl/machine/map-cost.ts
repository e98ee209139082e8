import type { MapSpec } from '../ir/kernel-spec.js'
import { differsAlong, hasColumns, hasRows, isRowReduction, rowAxis } from '../ir/map-rows.js'
import { type DType, elements } from '../ir/tensor.js'
import { columnKernel, type RowKernel, rowKernel } from './row-kernels.js'

/**
 * The cost of an instruction of a fused kernel on a GPU, in instructions of one cycle: what NVIDIA's
 * assembler makes of it for 9.0. It counts polynomials, and both sides of a branch where neighbours differ
 * (erf, tanh, pow). Of f32 the turns at the units of functions, of which there are an eighth as many, are
 * never more than these.
 */
const slots: Readonly<Record<string, number>> = {
  const: 0,
  operand: 1, // an access reads several
  exp: 8,
  log: 10,
  sqrt: 10,
  rsqrt: 18,
  tanh: 19,
  erf: 36,
  sigmoid: 18,
  sin: 20,
  cos: 20,
  div: 11,
  pow: 40,
}

/**
 * The same where the value is rounded to bf16 at once: the processor's approximations. Their turns at the
 * units of functions take eight cycles each, while the other units go on.
 */
const roundedSlots: Readonly<Record<string, number>> = { exp: 3, tanh: 1, sigmoid: 5 }
const roundedTurns: Readonly<Record<string, number>> = { exp: 8, tanh: 8, sigmoid: 16 }

/**
 * A division by a number of the row: a product with its inverse, which is corrected once. Of the exponential
 * of how far a number lies below the largest one of its row, which is 1 at most, it needs no test; and where
 * the result is rounded to a narrow type, no correction.
 */
const [divisionByRow, divisionOfPart, divisionNear] = [6, 4, 1]
/** Such an exponential, where all that is made of it is rounded. */
const expBelowOne = 2

/** What an indexed operand takes more: its index, which is read, compared with the length, and multiplied. */
const indexSlots = 5

/**
 * Whether an instruction reads an indexed operand whose index differs along a row (`along`), or is one number
 * a row (not `along`).
 */
const isIndexed = (
  spec: Pick<MapSpec, 'shape' | 'axis' | 'operands'>,
  [what, operand]: MapSpec['code'][number],
  along: boolean,
): boolean => {
  const indexed = what === 'operand' ? spec.operands[operand]?.indexed : undefined
  return indexed !== undefined && differsAlong(spec.operands[indexed.by]!, [], rowAxis(spec)) === along
}

/** The cost of one element of a fused kernel, in instructions of one cycle. */
export const slotsOf = (spec: Pick<MapSpec, 'shape' | 'axis' | 'operands' | 'code'>): number =>
  spec.code.reduce(
    (sum, each) => sum + (slots[each[0]] ?? 1) + (isIndexed(spec, each, true) ? indexSlots : 0),
    0,
  )

/** Floating-point operations that take as long as these many elements of so many instructions each. */
export const operationsOf = (elements: number, slots: number): number => 2 * elements * slots

const isNarrow = (dtype: DType | string): boolean => dtype === 'bf16' || dtype === 'f16'
/** What one instruction does to two elements of 16 bits, which lie in one word. */
const isPaired = (what: string): boolean => /^(add|sub|mul|min|max)$/.test(what)

const argumentsOf = ([what, ...rest]: MapSpec['code'][number]): readonly number[] =>
  what === 'operand' || what === 'const' || what === 'index' ? [] : (rest as number[])

/**
 * The cost of each value of a map for one element. Elements of 16 bits are handled two at a time (decision
 * 237), but for those of rows that lie side by side: a sum, a difference, a product, the larger or the smaller
 * of two such values that is rounded to their type is one instruction for both; any other reader takes them
 * apart first.
 */
interface ElementCosts {
  /** Of the value itself. */
  readonly own: readonly number[]
  /** Of its turns at the units of functions, where those are longer than its instructions. */
  readonly turns: readonly number[]
  /** Whether it lies with its neighbour in one word, so that arithmetic in f32 takes both apart first. */
  readonly joined: readonly boolean[]
  /** Whether the instruction takes pairs as they are. */
  readonly takesPairs: readonly boolean[]
}

const elementCosts = (spec: MapSpec, isRow: readonly boolean[]): ElementCosts => {
  const { code, operands, results, compute } = spec
  const isAny = [...operands, ...results].some(({ dtype }) => isNarrow(dtype))
  const narrow = isAny && !(hasRows(spec) && hasColumns(spec))
  const readers = code.map((): number[] => [])
  code.forEach((instruction, j) => {
    for (const of of argumentsOf(instruction)) readers[of]!.push(j)
  })
  const isRounded = (j: number): boolean =>
    readers[j]!.every(reader => isNarrow(code[reader]![0])) &&
    results.every(({ value, dtype }) => value !== j || isNarrow(dtype))
  // Whether an error of 2^-18 of a value is lost where all that is made of it is rounded to 16 bits: products
  // and quotients keep a relative error, and so do sums of exponentials, which are positive.
  const isCoarse = code.map((_, j) => results.every(({ value, dtype }) => value !== j || isNarrow(dtype)))
  for (let j = code.length - 1; j >= 0; j--) {
    const [what] = code[j]!
    for (const of of argumentsOf(code[j]!)) {
      const sums = (what === 'rowSum' || what === 'rowMean') && code[of]![0] === 'exp'
      const keeps = (what === 'mul' || what === 'div' || sums) && isCoarse[j]!
      if (!isNarrow(what) && !keeps) isCoarse[of] = false
    }
  }
  const isBelowOne = (j: number): boolean => {
    const [what, of] = code[j]!
    const [how, from, most] = what === 'exp' ? code[of as number]! : []
    const [largest, value] = how === 'sub' ? code[most as number]! : []
    return largest === 'rowMax' && value === from
  }
  const isResult = code.map((_, j) => results.some(({ value }) => value === j))
  const joined: boolean[] = []
  const takesPairs: boolean[] = []
  const isNear = (j: number): boolean => isRounded(j) || (code[j]![0] === 'exp' && isCoarse[j]!)
  const turns = code.map(([what], j) => (isNear(j) ? roundedTurns[what] : undefined) ?? 0)
  const own = code.map((instruction, j) => {
    const [what] = instruction
    const given = argumentsOf(instruction)
    const pairs =
      narrow &&
      compute === 'f32' &&
      isPaired(what) &&
      given.some(of => joined[of]) &&
      given.every(of => joined[of] || isRow[of] || code[of]![0] === 'const')
    const isMost = what === 'max' || what === 'min'
    const rounds = isNarrow(what)
    joined.push(
      narrow &&
        !isRow[j] &&
        (rounds || (pairs && isMost) || (what === 'operand' && isNarrow(operands[instruction[1]]!.dtype))),
    )
    takesPairs.push(rounds || (pairs && (isMost || (isRounded(j) && !isResult[j]))))
    if (what === 'operand') return slots['operand']! + (isIndexed(spec, instruction, true) ? indexSlots : 0)
    if (rounds) return narrow ? 0.5 : 1
    if (what === 'div' && isRow[given[1]!]) {
      if (!isBelowOne(given[0]!)) return divisionByRow
      return isCoarse[given[0]!] ? divisionNear : divisionOfPart
    }
    if (what === 'exp' && isCoarse[j] && isBelowOne(j)) return expBelowOne
    // The rounding that follows is the instruction.
    if (pairs && isMost) return readers[j]!.length > 0 && isRounded(j) ? 0 : 0.5
    if (pairs && isRounded(j) && readers[j]!.length > 0) return 0
    return (
      ((isNear(j) ? roundedSlots[what] : undefined) ?? slots[what] ?? 1) + (isResult[j] && narrow ? 0.5 : 0)
    )
  })
  return { own, turns, joined, takesPairs }
}

/**
 * One pass over elements: the values that it computes, and those that it takes apart for arithmetic in f32;
 * or the turns at the units of functions, if those take longer.
 */
const passSlots = (
  { code }: MapSpec,
  { own, turns, joined, takesPairs }: ElementCosts,
  computed: readonly boolean[],
  reduced: readonly number[],
): number => {
  let sum = reduced.length
  let turned = 0
  const apart = new Set<number>()
  const take = (j: number): void => {
    for (const of of argumentsOf(code[j]!)) if (joined[of] && !takesPairs[j]) apart.add(of)
  }
  computed.forEach((is, j) => {
    if (!is) return
    sum += own[j]!
    turned += turns[j]!
    take(j)
  })
  reduced.forEach(take)
  return Math.max(sum + apart.size, turned)
}

/** Instructions of a thread of a kernel with rows beside those of its elements: where it is, and its end. */
const threadSlots = 40

/** The work of a map. */
export interface MapWork {
  /** Instructions of one cycle, of all elements and threads. */
  readonly slots: number
  /** Of a map with rows whose elements follow one another. */
  readonly kernel?: RowKernel
  /** Of one whose rows lie side by side: bytes that passes read again. */
  readonly again?: number
}

const known = new WeakMap<MapSpec, MapWork>()

/** The work of a map; large graphs repeat few specs, so each is counted once. */
export const mapWork = (spec: MapSpec): MapWork => {
  const found = known.get(spec)
  if (found !== undefined) return found
  const made = !hasRows(spec)
    ? { slots: elements(spec.shape) * plainSlots(spec) }
    : hasColumns(spec)
      ? columnsWork(spec)
      : rowsWork(spec)
  known.set(spec, made)
  return made
}

const plainSlots = (spec: MapSpec): number =>
  passSlots(
    spec,
    elementCosts(
      spec,
      spec.code.map(() => false),
    ),
    spec.code.map(() => true),
    [],
  )

/** The reductions whose pass over the rows this is. */
const reducedIn = ({ code }: MapSpec, depth: readonly number[], pass: number): readonly number[] =>
  code.flatMap((instruction, j) => (isRowReduction(instruction) && depth[j] === pass + 1 ? [j] : []))

const columnsWork = (spec: MapSpec): MapWork => {
  const { computed, isRow, depth, again } = columnKernel(spec)
  const costs = elementCosts(spec, isRow)
  const each = computed.reduce(
    (sum, own, pass) => sum + passSlots(spec, costs, own, reducedIn(spec, depth, pass)),
    0,
  )
  return { slots: elements(spec.shape) * each, again }
}

const rowsWork = (spec: MapSpec): MapWork => {
  const { code, shape } = spec
  const kernel = rowKernel(spec)
  const { computed, computedAgain, isRow, depth, held, passes, group, rows } = kernel
  const costs = elementCosts(spec, isRow)
  let each = 0
  for (let pass = 0; pass < passes; pass++) {
    const reduced = reducedIn(spec, depth, pass)
    each += held * passSlots(spec, costs, computed[pass]!, reduced)
    each += (1 - held) * passSlots(spec, costs, computedAgain[pass]!, reduced)
  }
  // Numbers a row are computed by each of its threads, which add up what each of them has.
  const warp = Math.log2(Math.min(32, group))
  const joins = 2 * warp + (group > 32 ? 16 + 2 * Math.log2(group / 32) : 0)
  const ofThread = code.reduce((sum, instruction, j) => {
    if (isRowReduction(instruction)) return sum + joins
    const index = isIndexed(spec, instruction, false) ? indexSlots : 0
    return sum + index + (isRow[j] ? (slots[instruction[0]] ?? 1) : 0)
  }, threadSlots)
  return { slots: elements(shape) * each + rows * group * ofThread, kernel }
}
