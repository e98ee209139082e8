import type { GraphNode } from '../../../ir/graph.js'
import { type BoundSpec, type DType, elementBytes, elements } from '../../../ir/tensor.js'
import { columnsOfScan, columnsTogether } from '../../../machine/cost.js'
import type { Machine } from '../../../machine/machine.js'

/** Blocks of threads for each multiprocessor, of which some wait for memory while others compute. */
const blocksForEach = 4
/**
 * Of the multiprocessors the part that has a block, at most: a running sum in parts is read twice and written
 * twice.
 */
const fewBlocks = { reduce: 2, scan: 8 } as const
/** The elements of a part of a line, at least: of bytes that lie side by side, or of columns. */
const [leastBytes, leastColumn] = [2 ** 14, 128]

export type Way = keyof typeof fewBlocks

/** The lines along the axes of a node: `outer` × `inner` of them, whose elements are `inner` apart. */
export interface Lines {
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly dtype: DType
}

export const linesOf = ({ attrs }: GraphNode, { shape, dtype }: BoundSpec): Lines => {
  const { axis, count = 1 } = attrs as { readonly axis: number; readonly count?: number }
  return {
    outer: elements(shape.slice(0, axis)),
    length: elements(shape.slice(axis, axis + count)),
    inner: elements(shape.slice(axis + count)),
    dtype,
  }
}

/**
 * The largest number of equal parts up to `most`, each of at least `least` elements and of whole accesses;
 * else 1.
 */
const divided = ({ length, inner, dtype }: Lines, most: number, least: number): number => {
  const access = inner > 1 ? 1 : 16 / elementBytes[dtype]
  const aligned = length % access === 0 ? access : 1
  for (let parts = Math.min(most, Math.floor(length / least)); parts > 1; parts--)
    if (length % parts === 0 && (length / parts) % aligned === 0) return parts
  return 1
}

/** In how many parts each line is done on a machine; 1: as a whole. */
export const partsOn = (lines: Lines, way: Way, { device }: Machine): number => {
  const { outer, length, inner, dtype } = lines
  const { multiprocessors, bandwidth, kernelLatency } = device
  const most = way === 'scan' ? columnsOfScan : columnsTogether(inner, dtype)
  const together = inner === 1 ? 1 : Math.min(inner, most)
  const blocks = outer * Math.ceil(inner / together)
  if (blocks > multiprocessors / fewBlocks[way]) return 1
  const size = elementBytes[dtype]
  const least = inner === 1 ? leastBytes / size : leastColumn
  const parts = divided(lines, Math.ceil((blocksForEach * multiprocessors) / blocks), least)
  const saved = length * together * size * (1 - 1 / parts)
  return (saved / (bandwidth / multiprocessors)) * 1e9 > 2 * kernelLatency ? parts : 1
}
