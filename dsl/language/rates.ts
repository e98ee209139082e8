// The clock calculus: how often each flow of a graph comes in a tick. Balance equations (Lee and Messerschmitt 1987): a flow and what it is
// made from come equally often, but for window(n) and every(n), which come once for n, and hold(init, n), which comes n times for one.
import * as E from 'fp-ts/lib/Either.js'
import { isNonEmpty } from 'fp-ts/lib/ReadonlyArray.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import type { CompileError, CompileErrorTag, GraphIR, GraphNode } from '../ir/graph.js'
import { limits } from '../ir/limits.js'
import { liveNodes } from './live.js'

/** The most values of one flow in a tick, and of all flows together. */
export const mostFirings = limits.rate
const mostInAll = 2 ** 20

/**
 * `fires[i]` is how often node i comes in a tick, the least whole numbers of each connected part of the graph. What depends on parameters alone is
 * `constant`: it comes once and is read at any rate.
 */
export interface Rates {
  readonly fires: Int32Array
  readonly constant: Uint8Array
}

const changesRate = ({ op }: GraphNode): boolean => op === 'window' || op === 'every' || op === 'hold'

/** All nodes, by id, and those that count: what no output needs has no say in how often the others come. */
interface Graph {
  readonly all: readonly GraphNode[]
  readonly nodes: readonly GraphNode[]
}

const constants = ({ all, nodes }: Graph): Uint8Array => {
  const constant = new Uint8Array(all.length)
  for (const { id, op, inputs } of nodes)
    if (op !== 'input' && op !== 'delay') constant[id] = inputs.every(input => constant[input] === 1) ? 1 : 0
  return constant
}

/** A reduced fraction. */
type Ratio = readonly [number, number]

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b))

const reduced = (a: number, b: number): Ratio => {
  const by = gcd(a, b)
  return [a / by, b / by]
}

const times = ([a, b]: Ratio, [c, d]: Ratio): Ratio => reduced(a * c, b * d)
const over = (a: Ratio, [c, d]: Ratio): Ratio => times(a, [d, c])

// Of any two flows whose rates are further apart than that, one comes too often in any tick.
const isLong = ([a, b]: Ratio): boolean => a > mostFirings || b > mostFirings

/** Nodes whose rates are known of each other: a forest in which each node knows its rate by that of its parent. */
class Relations {
  /** A node that is too far from another one; numbers stay small, because beyond that they are no longer right. */
  far: number | undefined
  private readonly parent: Int32Array
  private readonly rate: Ratio[]

  constructor(count: number) {
    this.parent = Int32Array.from({ length: count }, (_, id) => id)
    this.rate = new Array<Ratio>(count).fill([1, 1])
  }

  /** What stands for all that `id` is related to, and id's rate by its. */
  find(id: number): { readonly root: number; readonly rate: Ratio } {
    const { parent, rate } = this
    const path: number[] = []
    let root = id
    for (; parent[root] !== root; root = parent[root]!) path.push(root)
    let by: Ratio = [1, 1]
    for (let step = path.pop(); step !== undefined; step = path.pop()) {
      by = this.near(step, times(rate[step]!, by))
      rate[step] = by
      parent[step] = root
    }
    return { root, rate: by }
  }

  /** a's rate by b's, where that is known. */
  between(a: number, b: number): Ratio | undefined {
    const [x, y] = [this.find(a), this.find(b)]
    return x.root === y.root ? over(x.rate, y.rate) : undefined
  }

  /** From now on a comes `ratio` times as often as b; nothing was known of the two. */
  join(a: number, b: number, ratio: Ratio): void {
    const [x, y] = [this.find(a), this.find(b)]
    this.parent[x.root] = y.root
    this.rate[x.root] = this.near(a, over(times(ratio, y.rate), x.rate))
  }

  private near(id: number, rate: Ratio): Ratio {
    if (!isLong(rate)) return rate
    this.far ??= id
    return [1, 1]
  }
}

const faultAt = (
  _tag: CompileErrorTag,
  { at, name }: GraphNode,
  wanted: string,
  found: string,
  next: string,
): CompileError => ({ _tag, at: at.toString(), subject: name, wanted, found, next })

const named = ({ name, at }: GraphNode): string => `'${name}' (${at})`

/** a comes p times while b comes q times: told with the faster one first. */
const meeting = (node: GraphNode, a: GraphNode, b: GraphNode, [p, q]: Ratio): CompileError => {
  const [fast, slow, many, few] = p > q ? [a, b, p, q] : [b, a, q, p]
  const found = `${named(fast)} comes ${many} times ${few === 1 ? 'for each' : `for ${few}`} of ${named(slow)}`
  const next =
    few === 1
      ? `window(${many}) or every(${many}) on '${fast.name}', or hold(init) on '${slow.name}', bring them to one rate`
      : `bring them to one rate with window or every on '${fast.name}', and hold on '${slow.name}'`
  return faultAt('RateMismatch', node, 'flows of one rate', found, next)
}

const tooLong = (node: GraphNode, found: string): CompileError =>
  faultAt(
    'LongPeriod',
    node,
    `at most ${mostFirings} values of a flow in a tick, and ${mostInAll} of all together`,
    found,
    'take smaller windows, or windows whose sizes have a common multiple that is small',
  )

/** How often a node comes for one coming of its input; undefined: as often as what it meets. */
const factorOf = ({ op, attrs }: GraphNode): Ratio | undefined => {
  const n = attrs['n'] as number | undefined
  if (op === 'window' || op === 'every') return [1, n!]
  if (op === 'hold') return n === undefined ? undefined : [n, 1]
  return [1, 1]
}

const relate = ({ all, nodes }: Graph, constant: Uint8Array, errors: CompileError[]): Relations => {
  const relations = new Relations(all.length)
  const equate = (node: GraphNode, input: number, ratio: Ratio, first: number): void => {
    const known = relations.between(node.id, input)
    if (known === undefined) relations.join(node.id, input, ratio)
    else if (known[0] !== ratio[0] || known[1] !== ratio[1]) {
      const apart = node.op === 'delay' ? known : relations.between(first, input)!
      errors.push(meeting(node, all[first]!, all[input]!, apart))
    }
  }
  for (const node of nodes) {
    const ratio = factorOf(node)
    if (constant[node.id] === 1 || node.op === 'delay' || ratio === undefined) continue
    const inputs = node.inputs.filter(input => constant[input] === 0)
    for (const input of inputs) equate(node, input, ratio, inputs[0]!)
  }
  // What a delay remembers may come later in the graph than the delay.
  for (const node of nodes)
    if (node.op === 'delay')
      for (const input of node.inputs) if (constant[input] === 0) equate(node, input, [1, 1], node.id)
  return relations
}

const checkHolds = (
  { all, nodes }: Graph,
  constant: Uint8Array,
  relations: Relations,
  errors: CompileError[],
): void => {
  for (const node of nodes) {
    if (node.op !== 'hold' || constant[node.id] === 1) continue
    const slow = all[node.inputs[0]!]!
    const ratio = relations.between(node.id, slow.id)
    if (ratio === undefined)
      errors.push(
        faultAt(
          'UnknownRate',
          node,
          `how many instants a value of ${named(slow)} is held`,
          'nothing that it meets is related to it by window or every',
          'say it: hold(init, 4)',
        ),
      )
    else if (ratio[0] < ratio[1])
      errors.push(
        faultAt(
          'RateMismatch',
          node,
          'a slow flow that is held at the rate of a faster one',
          `${named(slow)}, which comes ${ratio[1]} times for ${ratio[0]} of what it meets`,
          'bring the faster flow down with window or every',
        ),
      )
  }
}

/** The least whole numbers in the ratios that are known. */
const repetitions = (
  { all, nodes }: Graph,
  constant: Uint8Array,
  relations: Relations,
  errors: CompileError[],
): Int32Array => {
  const fires = new Int32Array(all.length).fill(1)
  const period = new Map<number, number>()
  for (const { id } of nodes) {
    const { root, rate } = relations.find(id)
    const now = period.get(root) ?? 1
    // Beyond the most it stays there: by then the tick is too long anyway.
    period.set(root, now > mostFirings ? now : (now / gcd(now, rate[1])) * rate[1])
  }
  let total = 0
  const told = new Set<number>()
  for (const node of nodes) {
    if (constant[node.id] === 1) continue
    const { root, rate } = relations.find(node.id)
    const often = (period.get(root)! / rate[1]) * rate[0]
    total += often
    if (often > mostFirings && !told.has(root)) {
      told.add(root)
      errors.push(tooLong(node, `more than ${mostFirings} of '${node.name}'`))
    }
    fires[node.id] = often
  }
  if (told.size === 0 && total > mostInAll) errors.push(tooLong(nodes[0]!, `${total} in all`))
  return fires
}

/** The rates of a graph whose links are sound; undefined where nothing changes a rate, so that all is once a tick. */
export const ratesOf = (
  ir: Pick<GraphIR, 'nodes' | 'outputs'>,
): E.Either<ReadonlyNonEmptyArray<CompileError>, Rates | undefined> => {
  if (!ir.nodes.some(changesRate)) return E.right(undefined)
  const graph = { all: ir.nodes, nodes: liveNodes(ir) }
  if (!graph.nodes.some(changesRate)) return E.right(undefined)
  const errors: CompileError[] = []
  const constant = constants(graph)
  const relations = relate(graph, constant, errors)
  checkHolds(graph, constant, relations, errors)
  const fires = errors.length === 0 ? repetitions(graph, constant, relations, errors) : new Int32Array(0)
  if (relations.far !== undefined)
    return E.left([
      tooLong(ir.nodes[relations.far]!, `more than ${mostFirings} values of one flow for one of another`),
    ])
  return isNonEmpty(errors) ? E.left(errors) : E.right({ fires, constant })
}

/** What comes at one instant of a tick: flows that come `fires` times, for the time `copy` (from 0). */
export interface Coming {
  readonly fires: number
  readonly copy: number
}

/**
 * The instants of a tick in order. A flow that comes r times comes at the ends of r equal parts of the tick, so that a slow value comes with the
 * last of its fast ones.
 */
export function* instantsOf(fires: Iterable<number>): Generator<readonly Coming[]> {
  const rates = [...new Set(fires)]
  const copies = rates.map(() => 0)
  for (;;) {
    let soonest = -1
    const isBefore = (a: number, b: number): boolean =>
      (copies[a]! + 1) * rates[b]! < (copies[b]! + 1) * rates[a]!
    for (let k = 0; k < rates.length; k++)
      if (copies[k]! < rates[k]! && (soonest === -1 || isBefore(k, soonest))) soonest = k
    if (soonest === -1) return
    const now: number[] = []
    for (let k = 0; k < rates.length; k++) if (copies[k]! < rates[k]! && !isBefore(soonest, k)) now.push(k)
    yield now.map(k => ({ fires: rates[k]!, copy: copies[k]!++ }))
  }
}

/** The newest value, by its number in the tick, of a flow of rate `slow` at coming `copy` of a flow of rate `fast`; -1: that of the tick before. */
export const newest = (copy: number, fast: number, slow: number): number =>
  Math.floor(((copy + 1) * slow) / fast) - 1
