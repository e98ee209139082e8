import type { Lowered } from './ir.js'

/** Who comes after whom, in compressed rows: the successors of i are `to[start[i] .. start[i + 1]]`; `degree[i]` operations come before it. */
export interface Dependencies {
  readonly start: Int32Array
  readonly to: Int32Array
  readonly degree: Int32Array
}

export const dependenciesOf = ({ operations }: Pick<Lowered, 'operations'>): Dependencies => {
  const count = operations.length
  const start = new Int32Array(count + 1)
  const degree = new Int32Array(count)
  operations.forEach(({ after }, i) => {
    degree[i] = after.length
    for (const before of after) start[before + 1]!++
  })
  for (let i = 0; i < count; i++) start[i + 1]! += start[i]!
  const to = new Int32Array(start[count]!)
  const fill = start.slice()
  operations.forEach(({ after }, i) => {
    for (const before of after) to[fill[before]!++] = i
  })
  return { start, to, degree }
}

const leastOf = (to: Int32Array, from: number, end: number): number => {
  let least = to[from]!
  for (let e = from + 1; e < end; e++) least = Math.min(least, to[e]!)
  return least
}

/** A topological order: as the user wrote it, if that is one. Shorter than the graph where there is a cycle. */
export const topological = ({ start, to, degree }: Dependencies): Int32Array => {
  if (degree.every((_, i) => start[i] === start[i + 1] || leastOf(to, start[i]!, start[i + 1]!) > i))
    return Int32Array.from(degree.keys())
  const left = degree.slice()
  const order = new Int32Array(left.length)
  let length = 0
  for (let i = 0; i < left.length; i++) if (left[i] === 0) order[length++] = i
  for (let next = 0; next < length; next++) {
    const i = order[next]!
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) order[length++] = to[e]!
  }
  return order.subarray(0, length)
}

/** The longest path from the start of each operation to the end of the tick, by what each takes alone. */
export const remainingPath = (order: Int32Array, { start, to }: Dependencies, alone: Float64Array): Float64Array => {
  const path = new Float64Array(alone.length)
  for (let next = order.length - 1; next >= 0; next--) {
    const i = order[next]!
    let longest = 0
    for (let e = start[i]!; e < start[i + 1]!; e++) longest = Math.max(longest, path[to[e]!]!)
    path[i] = longest + alone[i]!
  }
  return path
}
