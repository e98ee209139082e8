import type { MapSpec } from '../ir/kernel-spec.js'
import { differsAlong, isRowReduction, mapRows, rowAxis } from '../ir/map-rows.js'
import { elementBytes, elements } from '../ir/tensor.js'

// How `native/cuda/sources/row_plan.cc` divides the rows of a map among threads, and what stays in their
// registers. The cost model needs it: rows that do not fit are read again, and few blocks at a time hide
// little.

/** Elements of the longest row that lanes of a warp have; a longer row has a block of threads. */
export const warpRow = 1024
const [warpBlock, mostBlock] = [128, 512]
/** Bytes of a longer row that a thread has. */
const threadBytes = 64
/** Packs that are on their way at a time of operands that a later pass is the first to read. */
const latePacks = 4
/**
 * Registers of a multiprocessor, of a thread at most, and those of a thread that are not its part of the row.
 */
const [allRegisters, mostRegisters, ownRegisters] = [65_536, 255, 36]
/** The last of these as NVIDIA's assembler manages: in blocks of up to 256 threads, and in the largest. */
const [besidesInOthers, besidesInLargest] = [16, 28]

/** Bytes of shared memory that a block may have, but for what its threads add up in. */
const sharedBytes = 227 * 1024 - 4096

export const powerOfTwoAtLeast = (count: number): number => 2 ** Math.ceil(Math.log2(Math.max(1, count)))
const clamped = (value: number, least: number, most: number): number => Math.min(most, Math.max(least, value))

export interface RowKernel {
  readonly rows: number
  readonly length: number
  readonly passes: number
  /** By value: whether it is one number a row, and the passes that end before it can be computed. */
  readonly isRow: readonly boolean[]
  readonly depth: readonly number[]
  /**
   * By pass and value: whether the pass computes it for each element that stays, of which NVIDIA's assembler
   * keeps whatever takes least, and for each of the others.
   */
  readonly computed: readonly (readonly boolean[])[]
  readonly computedAgain: readonly (readonly boolean[])[]
  /** Threads of a row, and of a block. */
  readonly group: number
  readonly block: number
  /** The part of each row that stays in registers from pass to pass, and in these or in shared memory. */
  readonly held: number
  readonly near: number
  /** Blocks that a multiprocessor has at a time, by their registers. */
  readonly together: number
}

const isDear = (what: string): boolean => /^(exp|log|sqrt|rsqrt|tanh|erf|sigmoid|sin|cos|div|pow)$/.test(what)

const argumentsOf = ([what, ...rest]: MapSpec['code'][number]): readonly number[] =>
  what === 'operand' || what === 'const' || what === 'index' ? [] : (rest as number[])

/** By pass and value: what each pass computes for each element, where the `kept` values stay. */
const computedIn = (
  { code, results }: MapSpec,
  { isRow, depth }: ReturnType<typeof mapRows>,
  passes: number,
  kept: readonly boolean[],
): boolean[][] => {
  const stays = code.map(() => false)
  return Array.from({ length: passes }, (_, pass) => {
    const own = code.map(() => false)
    const want = (value: number): void => {
      if (!isRow[value] && !stays[value]) own[value] = true
    }
    code.forEach((instruction, j) => {
      if (isRowReduction(instruction) && depth[j] === pass + 1) want(instruction[1])
    })
    if (pass + 1 === passes) for (const { row, value } of results) if (row !== true) want(value)
    for (let j = code.length - 1; j >= 0; j--) if (own[j]) for (const of of argumentsOf(code[j]!)) want(of)
    own.forEach((is, j) => {
      if (is && kept[j]) stays[j] = true
    })
    return own
  })
}

/** Reads of each value: by pass. */
const readIn = (
  { code, results }: MapSpec,
  depth: readonly number[],
  computed: readonly (readonly boolean[])[],
): boolean[][] =>
  computed.map((own, pass) => {
    const read = code.map(() => false)
    code.forEach((instruction, j) => {
      if (own[j] || (isRowReduction(instruction) && depth[j] === pass + 1))
        for (const of of argumentsOf(instruction)) read[of] = true
    })
    if (pass + 1 === computed.length)
      for (const { row, value } of results) if (row !== true) read[value] = true
    return read
  })

interface Kept {
  readonly kept: readonly boolean[]
  /** Registers for each element: the most that lie between two passes, and the sum over all. */
  readonly words: number
  readonly sum: number
  /** By value: the first pass that computes it, and the last one that reads it. */
  readonly first: readonly number[]
  readonly last: readonly number[]
}

const keptOf = (
  spec: MapSpec,
  rows: ReturnType<typeof mapRows>,
  passes: number,
  kept: readonly boolean[],
): Kept => {
  const { code, operands } = spec
  const computed = computedIn(spec, rows, passes, kept)
  const read = readIn(spec, rows.depth, computed)
  const first = code.map((_, j) => computed.findIndex(own => own[j]!))
  const last = code.map((_, j) => read.findLastIndex(own => own[j]!))
  let words = 0
  let sum = 0
  for (let pass = 0; pass + 1 < passes; pass++) {
    let here = 0
    code.forEach(([what, operand], j) => {
      if (rows.isRow[j] || (what !== 'operand' && !kept[j])) return
      if (first[j]! < 0 || first[j]! > pass || last[j]! <= pass) return
      const [dtype] = what === 'operand' ? [operands[operand]!.dtype] : [what]
      here += dtype === 'bf16' || dtype === 'f16' ? 0.5 : dtype === 'u8' && what === 'operand' ? 0.25 : 1
    })
    words = Math.max(words, here)
    sum += here
  }
  return { kept, words, sum, first, last }
}

/** Keeps values that take fewer registers than all that they are made of. */
const keepingLess = (spec: MapSpec, rows: ReturnType<typeof mapRows>, passes: number, of: Kept): Kept => {
  let best = of
  for (let made: Kept | undefined; made !== best; ) {
    made = best
    for (let j = 0; j < spec.code.length; j++) {
      if (rows.isRow[j] || made.kept[j] || spec.code[j]![0] === 'operand') continue
      if (made.last[j]! <= made.first[j]!) continue
      const kept = made.kept.with(j, true)
      const tried = keptOf(spec, rows, passes, kept)
      if (tried.words < best.words || (tried.words === best.words && tried.sum < best.sum)) best = tried
    }
  }
  return best
}

/** What stays: values that take long to compute, if the whole row still fits then, and what takes least. */
const holding = (
  spec: MapSpec,
  rows: ReturnType<typeof mapRows>,
  passes: number,
  packs: number,
  registers: number,
  width: number,
): Kept => {
  const { code } = spec
  const dear: boolean[] = []
  code.forEach((instruction, j) => {
    dear.push(!rows.isRow[j] && (isDear(instruction[0]) || argumentsOf(instruction).some(of => dear[of])))
  })
  const all = keptOf(spec, rows, passes, dear)
  const less = (kept: readonly boolean[]): Kept =>
    keepingLess(spec, rows, passes, keptOf(spec, rows, passes, kept))
  const some = less(dear.map((is, j) => is && all.last[j]! > all.first[j]!))
  const none = less(code.map(() => false))
  return some.words * width * packs > registers && none.words < some.words ? none : some
}

/** How `native/cuda/sources/columns.cc` reduces rows that lie side by side. */
export interface ColumnKernel extends Pick<RowKernel, 'isRow' | 'depth' | 'computed'> {
  /** Bytes that passes read again, since they do not stay in registers. */
  readonly again: number
}

/** Packs of a thread that stay in registers, at most, and those of the narrowest strip of columns. */
const [mostHeld, leastAcross] = [32, 8]
/** Registers of a thread that are neither accesses nor totals, and all of one whose columns stay, at most. */
const [columnRegisters, mostOfColumns] = [32, 128]

/** The kernel of a map whose rows lie side by side. */
export const columnKernel = (spec: MapSpec): ColumnKernel => {
  const { shape, operands, results, code } = spec
  const axis = rowAxis(spec)
  const length = shape[axis] ?? 1
  const inner = elements(shape.slice(axis + 1))
  const rows = mapRows(spec)
  const none = code.map(() => false)
  const computed = computedIn(spec, rows, passesOf(spec, rows), none)
  const written = results.filter(({ row }) => row !== true)
  const narrowest = Math.min(4, ...[...operands, ...written].map(({ dtype }) => elementBytes[dtype]))
  const lanes = narrowest === 4 ? 4 : 8
  const width = (shape.at(-1) ?? 1) % lanes === 0 && operands.every(({ indexed }) => !indexed) ? lanes : 1
  let words = 0
  let bytes = 0
  // Numbers a column of which elements are computed, and what is reduced.
  const counts = new Set<number>()
  code.forEach((instruction, j) => {
    if (isRowReduction(instruction)) counts.add(j)
    if (rows.isRow[j]) return
    for (const of of argumentsOf(instruction)) if (rows.isRow[of] && code[of]![0] !== 'const') counts.add(of)
    const more = computed.filter(own => own[j]).length - 1
    if (instruction[0] !== 'operand' || more < 1) return
    const read = operands[instruction[1]]!
    words += Math.max(1, (width * elementBytes[read.dtype]) / 4)
    const reached = shape.reduce((all, size, d) => (differsAlong(read, operands, d) ? all * size : all), 1)
    bytes += more * reached * elementBytes[read.dtype]
  })
  const totals = width * counts.size
  const most = Math.min(32, powerOfTwoAtLeast(Math.ceil(inner / width)))
  const least = width > 1 ? Math.min(most, leastAcross) : most
  const stays = [256, 512, 1024].some(block => {
    const packs = Math.ceil((length * least) / block)
    const room = Math.min(mostOfColumns, allRegisters / block) - columnRegisters - totals
    return packs <= mostHeld && packs * words <= room
  })
  return { ...rows, computed, again: stays ? 0 : bytes }
}

const passesOf = ({ results }: MapSpec, { depth }: ReturnType<typeof mapRows>): number =>
  Math.max(1, ...results.map(({ row, value }) => depth[value]! + (row === true ? 0 : 1)))

/**
 * The kernel of a map whose rows are its last dimension, with accesses as wide as its narrowest type allows.
 */
export const rowKernel = (spec: MapSpec): RowKernel => {
  const { shape, operands, results, code } = spec
  const length = shape.at(-1) || 1
  const rows = mapRows(spec)
  const passes = passesOf(spec, rows)
  const narrowest = Math.min(...[...operands, ...results].map(({ dtype }) => elementBytes[dtype]))
  const lanes = narrowest === 4 ? 4 : 8
  const width = length % lanes === 0 ? lanes : 1
  const wide = Math.ceil(length / width)
  const group =
    length <= warpRow
      ? clamped(powerOfTwoAtLeast(Math.ceil(wide / 4)), Math.min(8, powerOfTwoAtLeast(wide)), 32)
      : clamped(powerOfTwoAtLeast(Math.ceil((length * narrowest) / threadBytes)), warpBlock, mostBlock)
  const block = Math.max(warpBlock, group)
  const packs = Math.ceil(wide / group)
  const registers = Math.min(mostRegisters, allRegisters / block) - ownRegisters
  const { words, first } = holding(spec, rows, passes, packs, registers, width)
  // Operands that a later pass is the first to read are on their way a pack at a time.
  const late = code.reduce(
    (sum, [what, operand], j) =>
      what === 'operand' && !rows.isRow[j] && first[j]! > 0
        ? sum + (elementBytes[operands[operand]!.dtype] / 4) * width
        : sum,
    0,
  )
  const whole = registers - (words * width * packs > registers ? latePacks * late : 0)
  const heldPacks = words === 0 ? 0 : Math.min(packs, Math.floor(Math.max(0, whole) / (words * width)))
  const besides = block === mostBlock ? besidesInLargest : besidesInOthers
  const used = Math.ceil((besides + heldPacks * words * width + late) / 8) * 8
  const computedAgain = computedIn(
    spec,
    rows,
    passes,
    code.map(() => false),
  )
  // Bytes of a pack of each thread that several passes read, of operands that are not the same for all rows.
  const again = code.reduce((sum, [what, operand], j) => {
    if (what !== 'operand' || rows.isRow[j] || computedAgain.filter(own => own[j]).length < 2) return sum
    const read = operands[operand]!
    const differs = shape.slice(0, -1).some((_, d) => differsAlong(read, operands, d))
    return differs ? sum + group * width * elementBytes[read.dtype] : sum
  }, 0)
  const others = packs - heldPacks
  const shared = group < block || again === 0 ? 0 : Math.min(others, Math.floor(sharedBytes / again))
  return {
    rows: elements(shape) / length,
    length,
    passes,
    ...rows,
    computed: computedIn(
      spec,
      rows,
      passes,
      code.map(() => true),
    ),
    computedAgain,
    group,
    block,
    held: passes < 2 ? 1 : heldPacks / packs,
    near: passes < 2 ? 1 : (heldPacks + shared) / packs,
    together: Math.max(1, Math.floor(allRegisters / (block * Math.min(mostRegisters, used)))),
  }
}
