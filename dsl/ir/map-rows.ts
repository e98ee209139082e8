import { type MapInstruction, type MapOperand, type MapSpec, mapRowReductions } from './kernel-spec.js'

const reductions: ReadonlySet<string> = new Set(mapRowReductions)

export const isRowReduction = (instruction: MapInstruction): boolean => reductions.has(instruction[0])

/** Whether a map reduces along its rows, or writes one number a row. */
export const hasRows = ({ code, results }: Pick<MapSpec, 'code' | 'results'>): boolean =>
  code.some(isRowReduction) || results.some(({ row }) => row === true)

/** The dimension along which the rows of a map lie; -1: the shape has none. */
export const rowAxis = ({ shape, axis = shape.length - 1 }: Pick<MapSpec, 'shape' | 'axis'>): number => axis

/** Whether the rows of a map lie side by side: neighbours in memory are of different rows. */
export const hasColumns = (spec: Pick<MapSpec, 'shape' | 'axis'>): boolean =>
  rowAxis(spec) < spec.shape.length - 1

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

export const mapRows = (spec: Omit<MapSpec, 'results'>): MapRows => {
  const { shape, operands, code } = spec
  const isRow: boolean[] = []
  const depth: number[] = []
  const axis = rowAxis(spec)
  for (const instruction of code) {
    const [op, first] = instruction
    let row = true
    let deep = 0
    if (op === 'operand') {
      const operand = operands[first]
      row = shape[axis] === 1 || (operand !== undefined && !differsAlong(operand, operands, axis))
    } else if (op === 'index') row = first !== axis
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
  spec: Pick<MapSpec, 'shape' | 'axis'>,
  { row }: MapSpec['results'][number],
): number =>
  spec.shape.reduce((product, size, d) => (row === true && d === rowAxis(spec) ? product : product * size), 1)
