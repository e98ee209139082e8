import type { GraphNode } from '../../ir/graph.js'
import { type BoundSpec, type DType, elementBytes, elements, tensorBytes } from '../../ir/tensor.js'
import { addOperator } from '../../language/operators/add.js'
import { isFloat } from '../../language/operators/elementwise.js'
import type { Machine } from '../../machine/machine.js'
import type { Checked } from '../analysis/ir.js'
import { pass } from '../analysis/pass.js'

//   y = sum(x) of 2^25 elements
//   → y.rows = reshape(x) to [512, 2^16] · y.parts = sum(y.rows) of each row · y = sum(y.parts)
//
// After this pass a sum, mean, maximum, minimum or running sum of few long lines is made of its parts, so that it fills
// the device: a line is the work of one block of threads. The parts of a sum or mean of f16 or bf16 are f32.

/** Blocks of threads for each multiprocessor, of which some wait for memory while others compute. */
const blocksForEach = 4
/** Of the multiprocessors the part that has a block, at most: a running sum in parts is read twice and written twice. */
const fewBlocks = { reduce: 2, scan: 8 } as const
/** The elements of a part of a line, at least: of bytes that lie side by side, or of columns. */
const [leastBytes, leastColumn] = [2 ** 14, 128]
/** Accesses of threads side by side that a block of threads has of columns: 16 bytes each where the columns allow. */
const across = 32
/** Columns that a block has of a running sum. */
const columnsOfScan = 256

type Way = 'reduce' | 'scan'

const ways: Readonly<Record<string, Way>> = {
  sum: 'reduce',
  mean: 'reduce',
  max: 'reduce',
  min: 'reduce',
  cumsum: 'scan',
}

/** The lines along the axes of a node: `outer` × `inner` of them, whose elements are `inner` apart. */
interface Lines {
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly dtype: DType
}

const linesOf = ({ attrs }: GraphNode, { shape, dtype }: BoundSpec): Lines => {
  const { axis, count = 1 } = attrs as { readonly axis: number; readonly count?: number }
  return {
    outer: elements(shape.slice(0, axis)),
    length: elements(shape.slice(axis, axis + count)),
    inner: elements(shape.slice(axis + count)),
    dtype,
  }
}

/** The largest number of equal parts up to `most`, each of at least `least` elements and of whole accesses; else 1. */
const partsOf = ({ length, inner, dtype }: Lines, most: number, least: number): number => {
  const access = inner > 1 ? 1 : 16 / elementBytes[dtype]
  const aligned = length % access === 0 ? access : 1
  for (let parts = Math.min(most, Math.floor(length / least)); parts > 1; parts--)
    if (length % parts === 0 && (length / parts) % aligned === 0) return parts
  return 1
}

/** Lines that a block of threads has. */
const linesTogether = ({ inner, dtype }: Lines, way: Way): number => {
  if (inner === 1) return 1
  const width = Math.min(8, 16 / elementBytes[dtype])
  const most = way === 'scan' ? columnsOfScan : across * (inner % width === 0 ? width : 1)
  return Math.min(inner, most)
}

/** In how many parts each line is done; 1: as a whole. */
const partsOn = (lines: Lines, way: Way, { device }: Machine): number => {
  const { outer, length, inner, dtype } = lines
  const { multiprocessors, bandwidth, kernelLatency } = device
  const together = linesTogether(lines, way)
  const blocks = outer * Math.ceil(inner / together)
  if (blocks > multiprocessors / fewBlocks[way]) return 1
  const size = elementBytes[dtype]
  const least = inner === 1 ? leastBytes / size : leastColumn
  const parts = partsOf(lines, Math.ceil((blocksForEach * multiprocessors) / blocks), least)
  const saved = length * together * size * (1 - 1 / parts)
  return (saved / (bandwidth / multiprocessors)) * 1e9 > 2 * kernelLatency ? parts : 1
}

/** The nodes that are split, with the number of their parts. */
const splitIn = ({ nodes, specs, settings }: Checked): ReadonlyMap<number, number> => {
  const found = new Map<number, number>()
  const { machine, memory } = settings
  for (const node of nodes) {
    const way = ways[node.op]
    if (way === undefined) continue
    const x = specs[node.inputs[0]!]!
    // The parts of a running sum are a value as large as it.
    if (tensorBytes(x) < leastBytes || (way === 'scan' && memory !== 'fast')) continue
    const parts = partsOn(linesOf(node, x), way, machine)
    if (parts > 1) found.set(node.id, parts)
  }
  return found
}

class Splitting {
  readonly nodes: GraphNode[] = []
  readonly specs: BoundSpec[] = []
  readonly deviceOf: number[] = []
  readonly turnOf: number[] = []
  /** By old node: the new one. */
  readonly renumbered: Int32Array

  constructor(
    private readonly ir: Checked,
    found: ReadonlyMap<number, number>,
  ) {
    this.renumbered = new Int32Array(ir.nodes.length)
    for (const node of ir.nodes) {
      const inputs = node.inputs.map(input => this.renumbered[input]!)
      const parts = found.get(node.id)
      const now = parts === undefined ? { ...node, inputs } : this.parts({ ...node, inputs }, parts)
      this.renumbered[node.id] = this.push(node, now, ir.specs[node.id]!)
    }
    // A state's next value may come after it.
    for (const { id, op, inputs } of ir.nodes) {
      const now = this.renumbered[id]!
      if (op === 'delay')
        this.nodes[now] = { ...this.nodes[now]!, inputs: inputs.map(input => this.renumbered[input]!) }
    }
  }

  private push({ id }: GraphNode, now: GraphNode, spec: BoundSpec): number {
    this.specs.push(spec)
    if (this.ir.deviceOf !== undefined) this.deviceOf.push(this.ir.deviceOf[id]!)
    if (this.ir.turnOf !== undefined) this.turnOf.push(this.ir.turnOf[id]!)
    return this.nodes.push({ ...now, id: this.nodes.length }) - 1
  }

  /** Makes the nodes of the parts of a node, whose inputs are numbered anew; yields what it then is. */
  private parts(node: GraphNode, parts: number): GraphNode {
    const x = this.specs[node.inputs[0]!]!
    const { outer, length, inner } = linesOf(node, x)
    const { dtype } = this.ir.specs[node.id]!
    const wide = isFloat(dtype) && node.op !== 'max' && node.op !== 'min' ? 'f32' : dtype
    const step = (
      part: string,
      op: string,
      inputs: readonly number[],
      attrs: GraphNode['attrs'],
      shape: readonly number[],
      type = wide,
    ): number => {
      const spec = { dtype: type, shape }
      const lane = op === 'reshape' ? undefined : node.lane
      return this.push(node, { ...node, op, name: `${node.name}.${part}`, inputs, attrs, spec, lane }, spec)
    }
    const rows = [outer, parts, length / parts, inner]
    const ofParts = [outer, parts, inner]
    const given = step('rows', 'reshape', node.inputs, { shape: rows }, rows, x.dtype)
    const reduction = node.op === 'cumsum' ? 'sum' : node.op
    const reduced = step('parts', reduction, [given], { axis: 2, keepDims: false }, ofParts)
    if (node.op !== 'cumsum')
      return { ...node, inputs: [reduced], attrs: { ...node.attrs, axis: 1, count: 1 } }
    // The sum of all parts before each one.
    const oneMore = [outer, parts + 1, inner]
    const padded = step('padded', 'pad', [reduced], { axis: 1, before: 1, after: 0, value: 0 }, oneMore)
    const ends = step('ends', 'cumsum', [padded], { axis: 1 }, oneMore)
    const before = step('before', 'slice', [ends], { axis: 1, from: 0, to: parts }, ofParts)
    const column = [outer, parts, 1, inner]
    const starts = step('starts', 'reshape', [before], { shape: column }, column)
    const within = step('within', 'cumsum', [given], { axis: 2 }, rows)
    const added = step('sums', addOperator.name, [within, starts], sumOfTwo, rows, dtype)
    const { shape } = this.ir.specs[node.id]!
    return { ...node, op: 'reshape', inputs: [added], attrs: { shape }, lane: undefined }
  }
}

const sumOfTwo = {
  code: [
    ['operand', 0],
    ['operand', 1],
    ['add', 0, 1],
  ],
} as const

export const split = pass('split', (ir: Checked): Checked => {
  const found = splitIn(ir)
  if (found.size === 0) return ir
  const { nodes, specs, deviceOf, turnOf, renumbered } = new Splitting(ir, found)
  const now = (id: number): number => renumbered[id]!
  return {
    ...ir,
    nodes,
    specs,
    outputs: ir.outputs.map(({ name, node, parts }) => ({
      name,
      node: now(node),
      ...(parts === undefined ? {} : { parts: { ...parts, nodes: parts.nodes.map(now) } }),
    })),
    ...(ir.deviceOf === undefined ? {} : { deviceOf }),
    ...(ir.turnOf === undefined ? {} : { turnOf }),
  }
})
