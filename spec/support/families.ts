/**
 * Task graphs that schedulers are compared on, each the same for the same arguments. `deps[v]` are the tasks that task v depends on, all
 * smaller than v; `lane[v]` is given where the family fixes it.
 */
export interface TaskGraph {
  readonly deps: readonly (readonly number[])[]
  readonly lane?: readonly number[]
}

/** Numbers from 0 to 1 by xorshift32; the seed is not 0. */
export const xorshift = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state ^ (state << 13)) >>> 0
    state = (state ^ (state >>> 17)) >>> 0
    state = (state ^ (state << 5)) >>> 0
    return state / 2 ** 32
  }
}

/** Tasks in program order over data: each after the last writer of what it reads, and after the readers since of what it writes. */
class Sequence {
  readonly deps: number[][] = []
  private readonly data: { writer: number; readers: number[] }[] = []

  datum(): number {
    return this.data.push({ writer: -1, readers: [] }) - 1
  }

  task(reads: readonly number[], writes: readonly number[]): void {
    const id = this.deps.length
    const after = new Set<number>()
    for (const at of reads) if (this.data[at]!.writer >= 0) after.add(this.data[at]!.writer)
    for (const at of writes) {
      const { writer, readers } = this.data[at]!
      if (readers.length > 0) for (const reader of readers) after.add(reader)
      else if (writer >= 0) after.add(writer)
    }
    for (const at of reads) if (!writes.includes(at)) this.data[at]!.readers.push(id)
    for (const at of writes) this.data[at] = { writer: id, readers: [] }
    after.delete(id)
    this.deps.push([...after])
  }
}

/** Cholesky factorisation of n × n tiles. */
export const cholesky = (n: number): TaskGraph => {
  const run = new Sequence()
  const tile = Array.from({ length: n }, (_, row) => Array.from({ length: row + 1 }, () => run.datum()))
  for (let k = 0; k < n; k++) {
    const diagonal = tile[k]![k]!
    run.task([diagonal], [diagonal])
    for (let i = k + 1; i < n; i++) run.task([diagonal, tile[i]![k]!], [tile[i]![k]!])
    for (let i = k + 1; i < n; i++) {
      const left = tile[i]![k]!
      for (let j = k + 1; j < i; j++) run.task([left, tile[j]![k]!, tile[i]![j]!], [tile[i]![j]!])
      run.task([left, tile[i]![i]!], [tile[i]![i]!])
    }
  }
  return { deps: run.deps }
}

export type Pattern = 'trivial' | 'stencil' | 'fft' | 'sweep' | 'random'

/** Task Bench (Slaughter et al., SC 2020): `steps` rows of `width` tasks, each reading from the row above by the pattern. */
export const taskBench = (pattern: Pattern, width: number, steps: number, seed = 1): TaskGraph => {
  const run = new Sequence()
  const random = xorshift(seed)
  const row = Array.from({ length: steps }, () => Array.from({ length: width }, () => run.datum()))
  const levels = Math.max(1, Math.floor(Math.log2(width)))
  for (let step = 0; step < steps; step++)
    for (let i = 0; i < width; i++) {
      let columns: number[] = []
      if (step > 0) {
        const reach = 1 << ((step - 1) % levels)
        if (pattern === 'stencil') columns = [i - 1, i, i + 1]
        else if (pattern === 'fft') columns = [i, i - reach, i + reach]
        else if (pattern === 'sweep') columns = [i]
        else if (pattern === 'random') columns = [Math.floor(random() * width), Math.floor(random() * width)]
      }
      const reads = columns.filter(column => column >= 0 && column < width).map(column => row[step - 1]![column]!)
      if (pattern === 'sweep' && step > 0 && i > 0) reads.push(row[step]![i - 1]!)
      run.task(reads, [row[step]![i]!])
    }
  return { deps: run.deps }
}

/** n tasks in layers of `width`, each after 1 to `fan` tasks of the layers just above it. */
export const layered = (n: number, width: number, fan: number, seed = 1): TaskGraph => {
  const random = xorshift(seed)
  const deps = Array.from({ length: n }, (_, task) => {
    const layer = Math.floor(task / width)
    const after = new Set<number>()
    if (layer === 0) return []
    for (let edges = 1 + Math.floor(random() * fan); edges > 0; edges--) {
      const above = Math.max(0, layer - 1 - Math.floor(random() * random() * 4))
      after.add(above * width + Math.floor(random() * width))
    }
    return [...after]
  })
  return { deps }
}

/** One step of fully sharded training: gather and forward, gather and backward and reduce, then update. Lanes: compute, gather, reduce. */
export const fsdp = (layers: number, prefetch = 1): TaskGraph => {
  const run = new Sequence()
  const lane: number[] = []
  const task = (on: number, reads: readonly number[], writes: readonly number[]): void => {
    run.task(reads, writes)
    lane.push(on)
  }
  const data = (count: number): number[] => Array.from({ length: count }, () => run.datum())
  const ring = data(prefetch + 1)
  const [shard, gradient, reduced, activation] = [data(layers), data(layers), data(layers), data(layers + 1)]
  let turn = 0
  task(0, [], [activation[0]!])
  for (let i = 0; i < layers; i++) {
    const full = ring[turn++ % ring.length]!
    task(1, [shard[i]!], [full])
    task(0, [full, activation[i]!], [activation[i + 1]!])
  }
  for (let i = layers - 1; i >= 0; i--) {
    const full = ring[turn++ % ring.length]!
    task(1, [shard[i]!], [full])
    task(0, [full, activation[i]!, activation[i + 1]!], [activation[i]!, gradient[i]!])
    task(2, [gradient[i]!], [reduced[i]!])
  }
  for (let i = 0; i < layers; i++) task(0, [reduced[i]!, shard[i]!], [shard[i]!])
  return { deps: run.deps, lane }
}

/** `count` chains of `length` tasks; every `meets`-th task also reads its neighbour's. */
export const chains = (count: number, length: number, meets = 3): TaskGraph => ({
  deps: Array.from({ length: count * length }, (_, task) => {
    const above = task - count
    if (above < 0) return []
    return task % meets === 0 && task % count > 0 ? [above, above - 1] : [above]
  }),
})

/** A tree of 2^depth leaves, two by two down to one root. */
export const tree = (depth: number): TaskGraph => {
  const deps: number[][] = Array.from({ length: 2 ** depth }, () => [])
  for (let first = 0, width = 2 ** depth; width > 1; first += width, width /= 2)
    for (let i = 0; i < width; i += 2) deps.push([first + i, first + i + 1])
  return { deps }
}

/** `count` diamonds in a row: a task, `width` that read it, one that reads those. */
export const diamonds = (count: number, width = 2): TaskGraph => {
  const deps: number[][] = [[]]
  for (let n = 0; n < count; n++) {
    const top = deps.length - 1
    const sides = Array.from({ length: width }, () => deps.push([top]) - 1)
    deps.push(sides)
  }
  return { deps }
}

/** The benchmark graphs of GrCUDA (Parravicini et al., IPDPS 2021), after their descriptions in the paper: one task a kernel. */
export const grcuda = {
  /** Two vectors squared, and the sum of their difference. */
  vec: (): TaskGraph => ({ deps: [[], [], [0, 1]] }),
  /** Independent option prices. */
  blackScholes: (options = 10): TaskGraph => ({ deps: Array.from({ length: options }, () => []) }),
  /** A ridge regression beside a naive Bayes, both with a softmax, and the ensemble's choice. */
  ml: (): TaskGraph => ({ deps: [[], [0], [1], [2], [], [4], [5], [6], [7], [3, 8]] }),
  /** Hubs and authorities: each from the other's last, then both normalised by their sums. */
  hits: (rounds = 5): TaskGraph => {
    const run = new Sequence()
    const [hubs, authorities, nextHubs, nextAuthorities, hubSum, authoritySum] = Array.from({ length: 6 }, () =>
      run.datum(),
    )
    for (let round = 0; round < rounds; round++) {
      run.task([hubs!], [nextAuthorities!])
      run.task([authorities!], [nextHubs!])
      run.task([nextAuthorities!], [authoritySum!])
      run.task([nextHubs!], [hubSum!])
      run.task([nextAuthorities!, authoritySum!], [authorities!])
      run.task([nextHubs!, hubSum!], [hubs!])
    }
    return { deps: run.deps }
  },
  /** An image blurred three ways, two of them to edges, one unsharpened, then combined by masks of the edges. */
  img: (): TaskGraph => ({ deps: [[], [], [], [0], [1], [4], [4], [5, 6], [2], [7, 8], [3, 9]] }),
  /** Two convolutional branches of two layers each with pooling, joined to a dense layer. */
  dl: (): TaskGraph => ({ deps: [[], [0], [1], [2], [], [4], [5], [6], [3, 7], [8]] }),
  /** Conjugate gradients, a matrix of `parts` rows of blocks, `rounds` times. */
  cg: (parts = 4, rounds = 2): TaskGraph => {
    const run = new Sequence()
    const [x, p, r, alpha, beta] = Array.from({ length: 5 }, () => run.datum())
    const product = Array.from({ length: parts }, () => run.datum())
    for (let round = 0; round < rounds; round++) {
      for (const part of product) run.task([p!], [part])
      run.task([p!, r!, ...product], [alpha!])
      run.task([x!, p!, alpha!], [x!])
      run.task([r!, alpha!, ...product], [r!])
      run.task([r!], [beta!])
      run.task([r!, p!, beta!], [p!])
    }
    return { deps: run.deps }
  },
  /** A matrix times a vector by blocks of rows, put together at the end. */
  mul: (parts = 8): TaskGraph => ({
    deps: [...Array.from({ length: parts }, () => []), Array.from({ length: parts }, (_, i) => i)],
  }),
} as const

/** The plainest placement: the lane of the first dependency that has no other successor yet, else the next lane in turn. */
export const greedyLanes = ({ deps, lane }: TaskGraph, lanes: number): Int32Array => {
  if (lane !== undefined) return Int32Array.from(lane)
  const placed = new Int32Array(deps.length)
  const taken = new Uint8Array(deps.length)
  let next = 0
  deps.forEach((after, task) => {
    const parent = after.find(before => taken[before] === 0)
    placed[task] = parent === undefined ? next++ % lanes : placed[parent]!
    for (const before of after) taken[before] = 1
  })
  return placed
}

/** The graphs of `figures`, by the names that they have there. */
export const figured: Readonly<Record<string, () => TaskGraph>> = {
  'cholesky(16)': () => cholesky(16),
  'cholesky(40)': () => cholesky(40),
  "taskBench('stencil', 16, 64)": () => taskBench('stencil', 16, 64),
  "taskBench('fft', 16, 64)": () => taskBench('fft', 16, 64),
  "taskBench('sweep', 16, 64)": () => taskBench('sweep', 16, 64),
  "taskBench('random', 16, 64, 7)": () => taskBench('random', 16, 64, 7),
  'layered(4000, 12, 4, 7)': () => layered(4000, 12, 4, 7),
  'layered(100000, 16, 4, 7)': () => layered(100_000, 16, 4, 7),
  'fsdp(32)': () => fsdp(32),
  'fsdp(64, 2)': () => fsdp(64, 2),
}
