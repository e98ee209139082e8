import type { MapIndex } from '../../../ir/kernel-spec.js'
import { denseStrides } from '../../../language/operators/shapes.js'

/**
 * Which element of a value each point of a region reads: of the row-major elements of the value the one at
 * `offset + Σ index[d] · strides[d]`, where `index` runs over `shape`. The shape has no size of 1.
 */
export interface Access {
  readonly shape: readonly number[]
  readonly offset: number
  readonly strides: readonly number[]
}

export const sizeOf = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1)

/** Every element once, in row-major order. */
export const inOrder = (shape: readonly number[]): Access => ({
  shape,
  offset: 0,
  strides: denseStrides(shape),
})

/** How many different elements an access reaches, at most. */
export const reached = ({ shape, strides }: Access): number =>
  shape.reduce((product, size, d) => (strides[d] === 0 ? product : product * size), 1)

/**
 * The same of operand i of several, which may be indexed: of a table only rows that are chosen count, each
 * once.
 */
export const reachedBy = (
  operands: readonly (Access & { readonly indexed?: MapIndex | undefined })[],
  i: number,
): number => {
  const { shape, strides, indexed } = operands[i]!
  if (indexed === undefined) return reached(operands[i]!)
  const by = operands[indexed.by]!
  const rows = shape.reduce((all, size, d) => (strides[d] === 0 && by.strides[d] !== 0 ? all * size : all), 1)
  return reached(operands[i]!) * Math.min(rows, indexed.length)
}

export const isEqual = (a: readonly number[], b: readonly number[]): boolean =>
  a === b || (a.length === b.length && a.every((each, i) => each === b[i]))

/**
 * The same access over a finer shape, in which each dimension may be several. Undefined where the shape is no
 * refinement.
 */
export const refined = (access: Access, shape: readonly number[]): Access | undefined => {
  if (isEqual(access.shape, shape)) return access
  const strides = new Array<number>(shape.length)
  let d = shape.length - 1
  for (let own = access.shape.length - 1; own >= 0; own--) {
    let left = access.shape[own]!
    for (let step = access.strides[own]!; left > 1; d--) {
      const size = shape[d]
      if (size === undefined || left % size !== 0) return undefined
      strides[d] = step
      step *= size
      left /= size
    }
  }
  return d < 0 ? { shape, offset: access.offset, strides } : undefined
}

/** Whether two accesses read the same element at every point of `shape`, which refines the shapes of both. */
export const isSameAccess = (a: Access, b: Access, shape: readonly number[]): boolean => {
  if (a === b) return true
  if (a.offset !== b.offset) return false
  const one = refined(a, shape)
  const other = refined(b, shape)
  return one !== undefined && other !== undefined && isEqual(one.strides, other.strides)
}

/** The sizes of a shape's dimensions multiplied from the right: the strides of its digits, and its size. */
const places = (shape: readonly number[]): number[] => {
  const places = [1]
  for (let d = shape.length - 1; d >= 0; d--) places.push(places.at(-1)! * shape[d]!)
  return places
}

/** Cuts dimensions of an access wherever it passes from one digit of a dense value of `of` to the next. */
const cut = ({ shape, offset, strides }: Access, of: readonly number[]): Access | undefined => {
  const cuts = places(of)
  const sizes: number[] = []
  const steps: number[] = []
  for (let d = 0; d < shape.length; d++) {
    let size = shape[d]!
    const step = strides[d]!
    if (step > 0)
      for (let c = cuts.length - 1; c >= 0; c--) {
        const place = cuts[c]!
        if (place <= step || place >= step * size) continue
        const inner = place / step
        if (!Number.isInteger(inner) || size % inner !== 0) return undefined
        sizes.push(size / inner)
        steps.push(place)
        size = inner
      }
    sizes.push(size)
    steps.push(step)
  }
  return { shape: sizes, offset, strides: steps }
}

/** What a kernel reads of its operands where it is computed at other points than its own. */
export interface Composed {
  /** The points: a refinement of the shape of the access. */
  readonly shape: readonly number[]
  readonly operands: readonly Access[]
}

/**
 * A kernel over `shape` has operands with `offset` and `strides`; of its result, elements are read by
 * `access`. So each of its operands is read by the access that this yields. Undefined where a point's digits
 * in `shape` do not follow from its digits in the access, as with a transposed value that is reshaped.
 */
export const composed = (
  shape: readonly number[],
  operands: readonly Pick<Access, 'offset' | 'strides'>[],
  access: Access,
): Composed | undefined => {
  if (access.offset === 0 && isEqual(access.shape, shape) && isEqual(access.strides, denseStrides(shape)))
    return { shape, operands: operands.map(({ offset, strides }) => ({ shape, offset, strides })) }
  const fine = cut(access, shape)
  if (fine === undefined) return undefined
  const digits = denseStrides(shape)
  // By digit of the kernel's own index: where it begins, and the furthest that it gets.
  const first = shape.map((size, k) => Math.floor(access.offset / digits[k]!) % size)
  const last = [...first]
  const digitOf = new Array<number>(fine.shape.length).fill(-1)
  for (let d = 0; d < fine.shape.length; d++) {
    const step = fine.strides[d]!
    if (step === 0) continue
    const k = digits.findIndex(place => place <= step)
    if (k < 0 || step % digits[k]! !== 0) return undefined
    last[k]! += (fine.shape[d]! - 1) * (step / digits[k]!)
    if (last[k]! >= shape[k]!) return undefined
    digitOf[d] = k
  }
  return {
    shape: fine.shape,
    operands: operands.map(({ offset, strides }) => ({
      shape: fine.shape,
      offset: offset + first.reduce((sum, digit, k) => sum + digit * strides[k]!, 0),
      strides: digitOf.map((k, d) => (k < 0 ? 0 : (fine.strides[d]! / digits[k]!) * strides[k]!)),
    })),
  }
}

/** The rows of a region: their elements, and the points of the dimensions that follow theirs. */
export interface RowsOf {
  readonly length: number
  readonly inner: number
}

/** The dimension that `inner` points follow; undefined where none is followed by exactly so many. */
export const rowDim = (shape: readonly number[], inner: number): number | undefined => {
  let d = shape.length
  let points = 1
  while (points < inner && d > 0) points *= shape[--d]!
  return points === inner ? d - 1 : undefined
}

/** Whether a dimension of so many elements lies where rows have theirs. */
export const isOfRows = (shape: readonly number[], { length, inner }: RowsOf): boolean =>
  shape[rowDim(shape, inner) ?? -1] === length

export const withoutRow = (shape: readonly number[], { inner }: RowsOf): readonly number[] => {
  const row = rowDim(shape, inner)
  return shape.filter((_, d) => d !== row)
}

/** Cuts the dimension in which the last `inner` points begin, where it is one that can be cut there. */
const cutBefore = (access: Access, inner: number): Access | undefined => {
  const { shape } = access
  if (rowDim(shape, inner) !== undefined) return access
  let d = shape.length - 1
  let points = 1
  for (; d >= 0 && points * shape[d]! < inner; d--) points *= shape[d]!
  if (d < 0 || inner % points !== 0) return undefined
  const size = inner / points
  if (shape[d]! % size !== 0) return undefined
  return refined(access, [...shape.slice(0, d), shape[d]! / size, size, ...shape.slice(d + 1)])
}

/** Of a shape that gained the dimension of rows: the same element all along it. */
export const alongRow = (access: Access, { length, inner }: RowsOf): Access | undefined => {
  const cut = cutBefore(access, inner)
  if (cut === undefined) return undefined
  const at = rowDim(cut.shape, inner)! + 1
  return {
    shape: cut.shape.toSpliced(at, 0, length),
    offset: cut.offset,
    strides: cut.strides.toSpliced(at, 0, 0),
  }
}

/** Whether an access has each result of a reduction once, all along the dimension of its row. */
export const repeatsAlongRow = ({ shape, strides }: Access, rows: RowsOf): boolean => {
  if (!isOfRows(shape, rows)) return false
  const row = rowDim(shape, rows.inner)!
  return strides.every((stride, d) => (stride === 0) === (d === row))
}

/**
 * What a reduction reads where `access` reads its results, none of them twice. Its operands lie over `shape`,
 * which has the rows. Undefined where a result differs along its row.
 */
export const rowOf = (
  access: Access,
  rows: RowsOf,
  shape: readonly number[],
  operands: readonly Pick<Access, 'offset' | 'strides'>[],
): Composed | undefined => {
  if (!repeatsAlongRow(access, rows)) return undefined
  const own = rowDim(shape, rows.inner)!
  const row = rowDim(access.shape, rows.inner)!
  const made = composed(
    shape.toSpliced(own, 1),
    operands.map(({ offset, strides }) => ({ offset, strides: strides.toSpliced(own, 1) })),
    { ...access, shape: access.shape.toSpliced(row, 1), strides: access.strides.toSpliced(row, 1) },
  )
  // All operands have the same shape, so they have the row in the same place, or none has.
  const reads = made?.operands.map(read => alongRow(read, rows))
  const first = reads?.[0]
  if (first === undefined) return undefined
  const along = rowDim(first.shape, rows.inner)!
  return {
    shape: first.shape,
    operands: reads!.map((read, i) => ({
      ...read!,
      strides: read!.strides.with(along, operands[i]!.strides[own]!),
    })),
  }
}
