// The pass `fuse` against brute force: of small graphs, the kernels of a plan together never read and write
// less than the best kernels of them all, and mostly no more.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  compile,
  cumsum,
  download,
  type Graph,
  gather,
  graph,
  mul,
  orThrow,
  type Plan,
  param,
  sub,
  sum,
  tensor,
  transpose,
} from '../../../dsl/index.js'
import { isFullRun, runs } from '../../fixtures/runs.js'

// biome-ignore lint/suspicious/noExplicitAny: all values are of one type
type Any = any

// The last one has indices.
const params = 3
const indices = params - 1
const matrix = tensor('f32', [32, 32])

/**
 * An operation: which, how far back its operands lie, and whether its value is an output whoever reads it.
 */
interface Step {
  readonly what: 'one' | 'two' | 'turned' | 'taken' | 'rows' | 'columns' | 'apart'
  readonly back: readonly [number, number]
  readonly leaves: boolean
}

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.record({
    what: fc.constantFrom('one', 'one', 'two', 'two', 'turned', 'taken', 'rows', 'columns', 'apart'),
    back: fc.tuple(fc.nat(4), fc.nat(4)),
    leaves: fc.constantFrom(false, false, false, true),
  }),
  { minLength: 3, maxLength: 7 },
)

/** An operation of a graph. */
interface Made {
  readonly what: Step['what'] | 'less'
  /** The values that it reads; the first values are the parameters, the others those of operations in order. */
  readonly operands: readonly number[]
  readonly leaves: boolean
}

const isSum = ({ what }: Made): boolean => what === 'rows' || what === 'columns'

/**
 * The operations of a graph. A turned one reads its operand transposed, one that is taken by indices; one that
 * is apart is another kind. A sum of rows or columns is followed by an operation that takes it from the
 * elements, and is read by no other one.
 */
const madeOf = (steps: readonly Step[]): readonly Made[] => {
  const made: Made[] = []
  const values = Array.from({ length: params }, (_, i) => i)
  for (const { what, back, leaves } of steps) {
    const at = back.map(n => values.length - 1 - n).map(v => (v > indices ? v : Math.max(0, v - 1)))
    const [a, b] = at.map(v => values[v]!) as [number, number]
    const sums = what === 'rows' || what === 'columns'
    if (sums) made.push({ what, operands: [a], leaves: false })
    const operands = sums
      ? [a, params + made.length - 1]
      : what === 'taken'
        ? [a, indices]
        : what === 'two'
          ? [a, b]
          : [a]
    made.push({ what: sums ? 'less' : what, operands, leaves })
    values.push(params + made.length - 1)
  }
  // A value that nothing reads leaves too.
  const read = new Set(made.flatMap(({ operands }) => operands))
  return made.map((one, i) => ({ ...one, leaves: one.leaves || !read.has(params + i) }))
}

/** Whether no two operations are the same, which would be one. */
const areDifferent = (made: readonly Made[]): boolean => {
  const keys = made.map(({ what, operands }, i) => (what === 'one' ? `${i}` : `${what} ${operands}`))
  return new Set(keys).size === keys.length
}

const graphs = steps.map(madeOf).filter(made => made.length <= 7 && areDifferent(made))

const graphOf = (made: readonly Made[]): Graph =>
  graph({}, () => {
    const values: Any[] = Array.from({ length: indices }, (_, i) => param(`p${i}`, matrix))
    values.push(param('at', tensor('i32', [32])))
    for (const [i, { what, operands }] of made.entries()) {
      const [value, other] = operands.map(v => values[v])
      if (what === 'one') values.push(value.pipe(mul(1 + i / 8)))
      else if (what === 'turned') values.push(value.pipe(transpose([1, 0])))
      else if (what === 'taken') values.push(value.pipe(gather(other, { axis: 0 })))
      else if (what === 'apart') values.push(value.pipe(cumsum({ axis: 0 })))
      else if (what === 'rows') values.push(value.pipe(sum({ axis: 1, keepDims: true })))
      else if (what === 'columns') values.push(value.pipe(sum({ axis: 0, keepDims: true })))
      else values.push(value.pipe(sub(other)))
    }
    const leaving = made.flatMap(({ leaves }, i) => (leaves ? [i] : []))
    return Object.fromEntries(leaving.map(i => [`y${i}`, values[params + i].pipe(download())]))
  }) as unknown as Graph

/** All ways to divide so many things among kernels, as the number of each one's kernel. */
function* divisions(count: number, own: readonly number[] = []): Generator<readonly number[]> {
  if (own.length === count) {
    yield own
    return
  }
  for (let kernel = 0; kernel <= Math.max(-1, ...own) + 1; kernel++) yield* divisions(count, [...own, kernel])
}

/** The operations of each kernel, and by operation the kernel whose value is stored; undefined where none is. */
interface Kernels {
  readonly members: readonly ReadonlySet<number>[]
  readonly makes: readonly (number | undefined)[]
}

/** Whether a value is stored whatever the kernels are: it leaves, or a kernel of another kind has it. */
const mustBeStored = (made: readonly Made[], i: number): boolean => {
  const { what, leaves } = made[i]!
  // No sum is computed twice. What is taken lies in memory.
  return (
    leaves ||
    what === 'apart' ||
    isSum(made[i]!) ||
    made.some(({ what, operands }) => (what === 'apart' || what === 'taken') && operands[0] === params + i)
  )
}

/**
 * All sets of kernels: some values are stored, each by one kernel, and a kernel computes all others that it
 * needs itself.
 */
function* kernelsOf(made: readonly Made[]): Generator<Kernels> {
  const must = made.map((_, i) => mustBeStored(made, i))
  const free = must.flatMap((is, i) => (is ? [] : [i]))
  for (let bits = 0; bits < 2 ** free.length; bits++) {
    const stored = made.flatMap((_, i) => (must[i] || (bits >> free.indexOf(i)) & 1 ? [i] : []))
    for (const division of divisions(stored.length)) {
      const makes = made.map((_, i) => division[stored.indexOf(i)])
      const members = Array.from({ length: Math.max(...division) + 1 }, (_, kernel) => {
        const own = new Set(stored.filter(i => makes[i] === kernel))
        for (const i of own)
          for (const v of made[i]!.operands) {
            const maker = v < params ? -1 : makes[v - params]
            if (maker === undefined || maker === kernel) own.add(v - params)
          }
        return own
      })
      yield { members, makes }
    }
  }
}

/**
 * Whether a kernel computes all its results at its points in their order: what is computed of the same values
 * inside of it is not needed both as it is and transposed, and all its sums are along one dimension.
 */
const isInOrder = (
  made: readonly Made[],
  members: ReadonlySet<number>,
  isResult: (i: number) => boolean,
): boolean => {
  const order = new Map<number, boolean>()
  let alongLast: boolean | undefined
  const edges = [...members].flatMap(i =>
    made[i]!.operands.flatMap(v => (members.has(v - params) ? [[i, v - params] as const] : [])),
  )
  for (const first of members) {
    if (order.has(first)) continue
    order.set(first, false)
    const open = [first]
    for (const i of open)
      for (const [reader, read] of edges) {
        if (reader !== i && read !== i) continue
        const other = reader === i ? read : reader
        const wanted = order.get(i) !== (made[reader]!.what === 'turned')
        if (!order.has(other)) open.push(other)
        else if (order.get(other) !== wanted) return false
        order.set(other, wanted)
      }
    const results = open.filter(isResult)
    if (results.some(i => order.get(i) !== order.get(results[0]!))) return false
    for (const i of open.filter(i => isSum(made[i]!))) {
      const isLast = (made[i]!.what === 'rows') === (order.get(i) === order.get(results[0]!))
      if ((alongLast ?? isLast) !== isLast) return false
      alongLast = isLast
    }
  }
  return true
}

/** Reads and writes of kernels; undefined where one is none, or they need one another in a circle. */
const trafficOf = (made: readonly Made[], { members, makes }: Kernels): number | undefined => {
  for (const own of members)
    for (const i of own) {
      const { what, operands } = made[i]!
      if (what === 'apart' && own.size > 1) return undefined
      // What is taken lies in memory.
      if (what === 'taken' && own.has(operands[0]! - params)) return undefined
    }
  // A kernel that could stand in place of its members needs all others that it reads to be done before.
  const readsOf = (own: ReadonlySet<number>) =>
    [...own].flatMap(i => made[i]!.operands.filter(v => !own.has(v - params)))
  const needs = members.map(own => new Set(readsOf(own).flatMap(v => (v < params ? [] : makes[v - params]!))))
  const open = new Set(members.keys())
  for (let before = -1; before !== open.size; ) {
    before = open.size
    for (const kernel of open) if (![...needs[kernel]!].some(other => open.has(other))) open.delete(kernel)
  }
  if (open.size > 0) return undefined
  const read = new Set(members.flatMap(readsOf))
  const isResult = (i: number): boolean => made[i]!.leaves || read.has(params + i)
  // The rows of a table are not what others read of it. Indices and sums are a thirty-second of a value.
  const isSmall = (v: number): boolean => v === indices || (v >= params && isSum(made[v - params]!))
  let traffic = 0
  for (const [kernel, own] of members.entries()) {
    const isOwnResult = (i: number): boolean => makes[i] === kernel && isResult(i)
    if (!isInOrder(made, own, isOwnResult)) return undefined
    const reads = new Set(
      [...own].flatMap(i =>
        made[i]!.operands.flatMap((v, j) => {
          if (isSmall(v) || own.has(v - params)) return []
          return made[i]!.what === 'taken' && j === 0 ? `rows of ${v}` : v
        }),
      ),
    )
    traffic += reads.size + [...own].filter(i => isOwnResult(i) && !isSmall(params + i)).length
  }
  return traffic
}

/**
 * What the kernels of a plan read and write: values, and rows of values, of which each is counted once a
 * kernel.
 */
const movedBy = ({ nodes, commands, buffers }: Plan): number => {
  let moved = 0
  for (const command of commands) {
    if (command[0] !== 'run' || nodes[command[1]]!.kernel?.kind === 'copy') continue
    const { kernel } = nodes[command[1]]!
    const takes = (i: number): boolean =>
      kernel?.kind === 'map' ? kernel.operands[i]!.indexed !== undefined : kernel?.kind === 'gather'
    const memory = (id: number) => buffers[id]!.alias ?? id
    const isWhole = (id: number): boolean => buffers[id]!.bytes === 4 * 32 * 32
    const reads = command[3].flatMap((id, i) => {
      if (!isWhole(id)) return []
      return takes(i) ? `rows of ${memory(id)}` : memory(id)
    })
    moved += new Set(reads).size + new Set(command[4].filter(isWhole).map(memory)).size
  }
  return moved
}

describe('fuse', () => {
  test('reads and writes no less than is needed, and mostly no more', { timeout: 120_000 }, () => {
    let cases = 0
    let least = 0
    let more = 0
    fc.assert(
      fc.property(graphs, made => {
        const plan = orThrow(compile(graphOf(made), { storage: 'planned' })) as Plan
        let bound = Number.POSITIVE_INFINITY
        for (const kernels of kernelsOf(made))
          bound = Math.min(bound, trafficOf(made, kernels) ?? Number.POSITIVE_INFINITY)
        const makes = made.map((_, i) => i)
        const apart = trafficOf(made, { makes, members: makes.map(i => new Set([i])) })!
        const moved = movedBy(plan)
        expect(moved).toBeGreaterThanOrEqual(bound)
        expect(moved).toBeLessThanOrEqual(apart)
        cases++
        if (moved === bound) least++
        more += moved - bound
      }),
      { numRuns: runs(150) },
    )
    // What is left is two kernels that a third one stands between in the order of the graph.
    if (isFullRun) expect(least).toBeGreaterThan(cases / 2)
    if (isFullRun) expect(more).toBeLessThan(cases)
  })
})
