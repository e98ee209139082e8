// Samples of a linear relation with some noise, from a seed, and the training in plain loops that the graph
// is compared with.
export const features = 64
export const rows = 32
export const micro = 8
export const rate = 0.05

/** Rows of features, and the target of each row. */
export interface Sample {
  readonly x: Float32Array
  readonly target: Float32Array
}

const random = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  }
}

export const truth: Float32Array = Float32Array.from({ length: features }, random(1))

/** The n-th micro-batch. */
export const sample = (n: number): Sample => {
  const next = random(7919 * (n + 1))
  const x = Float32Array.from({ length: rows * features }, next)
  const target = Float32Array.from({ length: rows }, (_, row) => {
    let sum = 0.01 * next()
    for (let f = 0; f < features; f++) sum += x[row * features + f]! * truth[f]!
    return sum
  })
  return { x, target }
}

/** One step of the weights, from `micro` micro-batches whose gradients are averaged. */
export const step = (weights: Float64Array, batches: readonly Sample[]): Float64Array => {
  const gradient = new Float64Array(features)
  for (const { x, target } of batches)
    for (let row = 0; row < rows; row++) {
      let error = -target[row]!
      for (let f = 0; f < features; f++) error += x[row * features + f]! * weights[f]!
      for (let f = 0; f < features; f++)
        gradient[f]! += (error * x[row * features + f]!) / (rows * batches.length)
    }
  return weights.map((weight, f) => weight - rate * gradient[f]!)
}
