// The clock calculus: how many values each flow of a graph has in a tick (its rate). Balance equations (Lee
// and Messerschmitt 1987): a flow has the rate of its operands; window(n) and every(n) have one value for n
// of their operand's, and hold(init, n) and repeat(n) have n values
// for one.

import * as E from 'fp-ts/lib/Either.js'
import { isNonEmpty } from 'fp-ts/lib/ReadonlyArray.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import type { CompileError, CompileErrorTag, GraphIR, GraphNode } from '../ir/graph.js'
import { limits } from '../ir/limits.js'
import { liveNodes } from './live.js'
import { gcd, type Ratio, Relations } from './relations.js'

/** The most values of all flows together in a tick; of one flow: `limits.rate`. */
const mostInAll = 2 ** 20

/**
 * `fires[i]` is the rate of node i, its values in a tick: the least whole numbers in each connected part of
 * the graph. A node that depends on parameters alone is `constant`: it has one value, which is read at any
 * rate; but a hold that counts n instants counts them, and has a constant's value from the n-th on. A node
 * whose value is repeated is `early`, as are those that it is computed from: they come before the first of
 * the values that they belong to.
 */
export interface Rates {
  readonly fires: Int32Array
  readonly constant: Uint8Array
  readonly early: Uint8Array
}

const resampling: ReadonlySet<string> = new Set(['window', 'every', 'hold', 'repeat'])
const changesRate = ({ op }: GraphNode): boolean => resampling.has(op)
const isFaster = ({ op }: GraphNode): boolean => op === 'hold' || op === 'repeat'

/**
 * All nodes, by id, and the live ones: a node that neither an output nor a named state needs does not constrain the rates of others.
 */
interface Graph {
  readonly all: readonly GraphNode[]
  readonly nodes: readonly GraphNode[]
}

/** How many instants a hold counts by itself; undefined where what it meets says so. */
export const countedBy = ({ op, attrs }: GraphNode): number | undefined =>
  op === 'hold' ? (attrs['n'] as number | undefined) : undefined

const constants = ({ all, nodes }: Graph): Uint8Array => {
  const constant = new Uint8Array(all.length)
  for (const node of nodes)
    if (node.op !== 'input' && node.op !== 'delay' && countedBy(node) === undefined)
      constant[node.id] = node.inputs.every(input => constant[input] === 1) ? 1 : 0
  return constant
}

const faultAt = (
  _tag: CompileErrorTag,
  { at, name }: GraphNode,
  wanted: string,
  found: string,
  next: string,
): CompileError => ({ _tag, at: at.toString(), subject: name, wanted, found, next })

const named = ({ name, at }: GraphNode): string => `'${name}' (${at})`

/** What a value is computed from in the same tick, itself first, but for what is known. It is known then. */
function* madeFrom(all: readonly GraphNode[], id: number, known: Uint8Array): Generator<GraphNode> {
  const stack = [id]
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    if (known[next] === 1) continue
    known[next] = 1
    const node = all[next]!
    yield node
    if (node.op !== 'delay') stack.push(...node.inputs)
  }
}

/** Whether a node's values come with the last of several others. */
const isLate = (node: GraphNode): boolean => changesRate(node) && node.op !== 'repeat'

/** a has p values while b has q. The sentence names the faster flow first. */
const meeting = (
  { all }: Graph,
  constant: Uint8Array,
  node: GraphNode,
  a: GraphNode,
  b: GraphNode,
  [p, q]: Ratio,
): CompileError => {
  const [fast, slow, many, few] = p > q ? [a, b, p, q] : [b, a, q, p]
  const times = few === 1 ? 'for each' : `for ${few}`
  const found = `${named(fast)} comes ${many} times ${times} of ${named(slow)}`
  const isThere = (id: number): boolean => ![...madeFrom(all, id, Uint8Array.from(constant))].some(isLate)
  const faster = isThere(slow.id) ? `repeat(${many})` : 'hold(init)'
  const next =
    few === 1
      ? fast.op === 'delay' && !isThere(slow.id)
        ? `read '${fast.name}' through repeat(${many}), so that it is set once for ${many}; ` +
          `or set it by hold(init) on '${slow.name}'`
        : `window(${many}) or every(${many}) on '${fast.name}', or ${faster} on '${slow.name}', ` +
          'bring them to one rate'
      : `bring them to one rate with window or every on '${fast.name}', and repeat or hold on '${slow.name}'`
  return faultAt('RateMismatch', node, 'flows of one rate', found, next)
}

const tooLong = (node: GraphNode, found: string): CompileError =>
  faultAt(
    'LongPeriod',
    node,
    `at most ${limits.rate} values of a flow in a tick, and ${mostInAll} of all together`,
    found,
    'take smaller windows, or windows whose sizes have a common multiple that is small',
  )

/**
 * Values of a node for one value of its input; undefined: determined by the other operands of its readers.
 */
const factorOf = ({ op, attrs }: GraphNode): Ratio | undefined => {
  const n = attrs['n'] as number | undefined
  if (op === 'window' || op === 'every') return [1, n!]
  if (op === 'hold' || op === 'repeat') return n === undefined ? undefined : [n, 1]
  return [1, 1]
}

const relate = ({ all, nodes }: Graph, constant: Uint8Array, errors: CompileError[]): Relations => {
  const relations = new Relations(all.length)
  const equate = (node: GraphNode, input: number, ratio: Ratio, first: number): void => {
    const known = relations.between(node.id, input)
    if (known === undefined) relations.join(node.id, input, ratio)
    else if (known[0] !== ratio[0] || known[1] !== ratio[1]) {
      const apart = node.op === 'delay' ? known : relations.between(first, input)!
      errors.push(meeting({ all, nodes }, constant, node, all[first]!, all[input]!, apart))
    }
  }
  for (const node of nodes) {
    const ratio = factorOf(node)
    if (constant[node.id] === 1 || node.op === 'delay' || ratio === undefined) continue
    const inputs = node.inputs.filter(input => constant[input] === 0)
    for (const input of inputs) equate(node, input, ratio, inputs[0]!)
  }
  // Last, since a delay's input may stand after the delay in the graph.
  for (const node of nodes)
    if (node.op === 'delay')
      for (const input of node.inputs) if (constant[input] === 0) equate(node, input, [1, 1], node.id)
  return relations
}

const checkFaster = (
  { all, nodes }: Graph,
  constant: Uint8Array,
  relations: Relations,
  errors: CompileError[],
): void => {
  for (const node of nodes) {
    if (!isFaster(node) || constant[node.id] === 1) continue
    const [done, again] = node.op === 'hold' ? ['held', 'hold(init, 4)'] : ['repeated', 'repeat(4)']
    const slow = all[node.inputs[0]!]!
    if (constant[slow.id] === 1) continue
    const ratio = relations.between(node.id, slow.id)
    if (ratio === undefined)
      errors.push(
        faultAt(
          'UnknownRate',
          node,
          `how many instants a value of ${named(slow)} is ${done}`,
          'nothing that it meets is related to it by window or every',
          `say it: ${again}`,
        ),
      )
    else if (ratio[0] < ratio[1])
      errors.push(
        faultAt(
          'RateMismatch',
          node,
          `a slow flow that is ${done} at the rate of a faster one`,
          `${named(slow)}, which comes ${ratio[1]} times for ${ratio[0]} of what it meets`,
          'bring the faster flow down with window or every',
        ),
      )
  }
}

const tooLate = (node: GraphNode, from: GraphNode): CompileError =>
  faultAt(
    'RateMismatch',
    node,
    'a value that is there before the first that it is repeated for: a state, an input, a parameter, ' +
      'or what follows from these at one rate',
    `one that follows from ${named(from)}`,
    'hold(init) has it from the last of them on; or keep it in a state, whose value before is there',
  )

/** Marks the nodes that come before the first of the values that they belong to. */
const earlyNodes = ({ all, nodes }: Graph, constant: Uint8Array, errors: CompileError[]): Uint8Array => {
  const early = Uint8Array.from(constant)
  for (const node of nodes) {
    if (node.op !== 'repeat') continue
    for (const from of madeFrom(all, node.inputs[0]!, early))
      if (isLate(from)) errors.push(tooLate(node, from))
  }
  for (const { id } of nodes) if (constant[id] === 1) early[id] = 0
  return early
}

/** The least whole numbers that have the known ratios. */
const repetitions = (
  { all, nodes }: Graph,
  constant: Uint8Array,
  relations: Relations,
  errors: CompileError[],
): Int32Array => {
  const fires = new Int32Array(all.length).fill(1)
  const period = new Map<number, number>()
  for (const node of nodes) {
    const { root, rate } = relations.find(node.id)
    const now = period.get(root) ?? 1
    // What is held for n instants comes once in n of them; a constant has no rate of its own to say so.
    const n = (constant[node.inputs[0] ?? 0] === 1 ? countedBy(node) : undefined) ?? 1
    const parts = rate[1] * (n / gcd(n, rate[0]))
    // Not multiplied beyond the limit: the tick is an error by then, and the product would exceed exact
    // integers.
    period.set(root, now > limits.rate ? now : (now / gcd(now, parts)) * parts)
  }
  let total = 0
  const reported = new Set<number>()
  for (const node of nodes) {
    if (constant[node.id] === 1) continue
    const { root, rate } = relations.find(node.id)
    const often = (period.get(root)! / rate[1]) * rate[0]
    total += often
    if (often > limits.rate && !reported.has(root)) {
      reported.add(root)
      errors.push(tooLong(node, `more than ${limits.rate} of '${node.name}'`))
    }
    fires[node.id] = often
  }
  if (reported.size === 0 && total > mostInAll) errors.push(tooLong(nodes[0]!, `${total} in all`))
  return fires
}

/**
 * The rates of a well-formed graph; undefined where no node changes a rate and every flow has one value a
 * tick.
 */
export const ratesOf = (
  ir: Pick<GraphIR, 'nodes' | 'outputs'>,
): E.Either<ReadonlyNonEmptyArray<CompileError>, Rates | undefined> => {
  if (!ir.nodes.some(changesRate)) return E.right(undefined)
  const graph = { all: ir.nodes, nodes: liveNodes(ir) }
  if (!graph.nodes.some(changesRate)) return E.right(undefined)
  const errors: CompileError[] = []
  const constant = constants(graph)
  const relations = relate(graph, constant, errors)
  checkFaster(graph, constant, relations, errors)
  const early = earlyNodes(graph, constant, errors)
  const fires = errors.length === 0 ? repetitions(graph, constant, relations, errors) : new Int32Array(0)
  if (relations.tooFar !== undefined)
    return E.left([
      tooLong(ir.nodes[relations.tooFar]!, `more than ${limits.rate} values of one flow for one of another`),
    ])
  return isNonEmpty(errors) ? E.left(errors) : E.right({ fires, constant, early })
}
