import type { MapInstruction, MapOperand, MapRowReduction, MapSpec } from './kernel-spec.js'

const reductions: ReadonlySet<string> = new Set<MapRowReduction>(['rowSum', 'rowMean', 'rowMax', 'rowMin'])

export const isRowReduction = (instruction: MapInstruction): boolean => reductions.has(instruction[0])

/** Whether a map reduces along its rows, or writes one number a row. */
export const hasRows = ({ code, results }: Pick<MapSpec, 'code' | 'results'>): boolean =>
  code.some(isRowReduction) || results.some(({ row }) => row === true)

/**
 * Whether an operand has several elements along a dimension, by its strides and those of what it is indexed
 * by.
 */
export const differsAlong = (
  { strides, indexed }: Pick<MapOperand, 'strides' | 'indexed'>,
  operands: readonly Pick<MapOperand, 'strides'>[],
  d: number,
): boolean => strides[d] !== 0 || (indexed !== undefined && operands[indexed.by]?.strides[d] !== 0)

/**
 * By value: whether it is one number a row, and the passes over the row that end before it can be computed.
 */
export interface MapRows {
  readonly isRow: readonly boolean[]
  readonly depth: readonly number[]
}

export const mapRows = ({ shape, operands, code }: Omit<MapSpec, 'results'>): MapRows => {
  const isRow: boolean[] = []
  const depth: number[] = []
  const last = shape.length - 1
  for (const instruction of code) {
    const [op, first] = instruction
    let row = true
    let deep = 0
    if (op === 'operand') {
      const operand = operands[first]
      row = shape[last] === 1 || (operand !== undefined && !differsAlong(operand, operands, last))
    } else if (op === 'index') row = first < last
    else if (op !== 'const')
      for (let i = 1; i < instruction.length; i++) {
        const argument = instruction[i] as number
        row &&= isRow[argument] === true
        deep = Math.max(deep, depth[argument] ?? 0)
      }
    const reduces = isRowReduction(instruction)
    isRow.push(row || reduces)
    depth.push(reduces ? deep + 1 : deep)
  }
  return { isRow, depth }
}

/** Reductions that follow from one another, at most: each needs a pass over the row. */
export const mostPasses = 64

/** Elements of each result of a map. */
export const resultElements = (
  { shape }: Pick<MapSpec, 'shape'>,
  { row }: MapSpec['results'][number],
): number => (row === true ? shape.slice(0, -1) : shape).reduce((product, size) => product * size, 1)
