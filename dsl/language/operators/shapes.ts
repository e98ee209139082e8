import type { Dim } from '../../ir/tensor.js'

/**
 * One dimension of a broadcast: equal sizes, or one of them 1. Symbols are equal by name. Undefined where
 * they differ.
 */
export const broadcastDim = (a: Dim, b: Dim): Dim | undefined =>
  a === b || b === 1 ? a : a === 1 ? b : undefined

/**
 * The shape that several shapes broadcast to, trailing dimensions aligned as in numpy; undefined where they
 * do not.
 */
export const broadcast = (shapes: readonly (readonly Dim[])[]): readonly Dim[] | undefined => {
  const first = shapes[0] ?? []
  if (shapes.every(shape => shape === first)) return first
  const rank = shapes.reduce((most, shape) => Math.max(most, shape.length), 0)
  const result: Dim[] = []
  for (let d = 0; d < rank; d++) {
    let size: Dim | undefined = 1
    for (const shape of shapes) {
      const own: Dim = shape[shape.length - rank + d] ?? 1
      size = broadcastDim(size, own)
      if (size === undefined) return undefined
    }
    result.push(size)
  }
  return result
}

/** Row-major strides, in elements. */
export const denseStrides = (shape: readonly number[]): number[] => {
  const strides = new Array<number>(shape.length)
  let step = 1
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = step
    step *= shape[d] ?? 1
  }
  return strides
}

/**
 * Strides that read a dense operand of shape `from` as if it had shape `to`: 0 along every broadcast
 * dimension.
 */
export const broadcastStrides = (from: readonly number[], to: readonly number[]): number[] => {
  const own = denseStrides(from)
  const lead = to.length - from.length
  return to.map((_, d) => (d < lead || from[d - lead] === 1 ? 0 : (own[d - lead] ?? 0)))
}

/**
 * The same strided access in as few dimensions as possible: dimensions of size 1 are dropped, and two
 * neighbours merge where for every operand the outer stride is the inner size times the inner stride.
 */
export const coalesce = (
  shape: readonly number[],
  strides: readonly (readonly number[])[],
): { readonly shape: number[]; readonly strides: number[][] } => {
  const sizes: number[] = []
  const steps: number[][] = strides.map(() => [])
  shape.forEach((size, d) => {
    if (size === 1) return
    const last = sizes.length - 1
    const merges = last >= 0 && strides.every((own, i) => steps[i]?.[last] === size * (own[d] ?? 0))
    if (merges) sizes[last] = (sizes[last] ?? 1) * size
    else sizes.push(size)
    const where = sizes.length - 1
    strides.forEach((own, i) => {
      const target = steps[i]
      if (target) target[where] = own[d] ?? 0
    })
  })
  return { shape: sizes, strides: steps }
}
