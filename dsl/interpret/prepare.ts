import * as E from 'fp-ts/lib/Either.js'
import { BraidError } from '../ir/braid-error.js'
import type { CompileError, GraphIR, GraphNode } from '../ir/graph.js'
import type { BoundSpec } from '../ir/tensor.js'
import { bindSpec, checkDims, unboundSymbols } from '../language/bind.js'
import { type BoundKernel, boundKernel, type KernelAttrs } from '../language/bound-kernel.js'
import { instantsOf } from '../language/instants.js'
import { liveNodes } from '../language/live.js'
import { operators } from '../language/operators/registry.js'
import { initLength } from '../language/operators/state.js'
import { type Rates, ratesOf } from '../language/rates.js'

export const fault = (error: CompileError): BraidError => new BraidError([error])

/** A node of one instant of a tick, for the time `copy` (from 0) in that tick. */
export interface Coming {
  readonly node: GraphNode
  readonly copy: number
  /** A node that is early is computed in one instant, and the nodes that collect its values take it in another. */
  readonly part?: 'computed' | 'taken'
}

/** A graph without errors: the types of its values, and the schedule of one tick. */
export interface Prepared {
  readonly ir: GraphIR
  /** The nodes that some output or named state depends on, in this tick or a later one, and every input. */
  readonly nodes: readonly GraphNode[]
  /** By node. */
  readonly specs: readonly BoundSpec[]
  readonly kernels: ReadonlyMap<number, BoundKernel>
  /**
   * Nodes that depend on parameters alone, in a graph of several rates: they are computed before everything
   * else.
   */
  readonly constants: readonly GraphNode[]
  /** Holds that count the instants of a constant's value. */
  readonly counting: ReadonlySet<number>
  /** The instants of one tick; one instant with every node where no node changes a rate. */
  readonly instants: readonly (readonly Coming[])[]
  /** By node: the values that no later node of the tick reads. None in a graph of several rates. */
  readonly lastRead: readonly (readonly number[])[]
  /** The number of values of an input in a tick. */
  rateOf(node: GraphNode): number
}

/** Whether a node's value is a state: it was computed before this instant. */
export const isState = ({ op }: GraphNode): boolean => op === 'delay' || op === 'hold'

const typesOf = (ir: GraphIR, dims: Readonly<Record<string, number>>): readonly BoundSpec[] => {
  const specs: BoundSpec[] = []
  for (const node of ir.nodes) {
    const operator = operators[node.op]
    const inputs = node.inputs.map(input => specs[input]!)
    const inferred = operator?.infer(inputs, node.attrs) ?? E.right(bindSpec(node, dims))
    const error = E.isLeft(inferred)
      ? inferred.left
      : isState(node)
        ? initLength(node.attrs['init'], inferred.right as BoundSpec)
        : undefined
    if (error) throw fault({ ...error, at: node.at.toString(), subject: node.name })
    if (E.isRight(inferred)) specs.push(inferred.right as BoundSpec)
  }
  return specs
}

const lastReads = ({ nodes, outputs }: GraphIR): readonly (readonly number[])[] => {
  const reader = nodes.map(({ id }) => id)
  for (const { id, inputs, op } of nodes)
    for (const input of inputs)
      reader[input] = op === 'delay' ? Number.POSITIVE_INFINITY : Math.max(reader[input]!, id)
  for (const { node } of outputs) reader[node] = Number.POSITIVE_INFINITY
  const last: number[][] = nodes.map(() => [])
  for (const [id, by] of reader.entries()) last[by]?.push(id)
  return last
}

const instants = (nodes: readonly GraphNode[], { fires, constant, early }: Rates): Coming[][] => {
  const coming = nodes.filter(({ id }) => constant[id] === 0)
  const begun = coming.filter(({ id }) => early[id] === 1)
  const often = (of: readonly GraphNode[]) => of.map(({ id }) => fires[id]!)
  return Array.from(instantsOf(often(coming), often(begun)), now => {
    const copies = new Map(now.coming.map(({ fires, copy }) => [fires, copy]))
    return (now.early ? begun : coming).flatMap((node): Coming[] => {
      const copy = copies.get(fires[node.id]!)
      if (copy === undefined) return []
      return [early[node.id] === 0 ? { node, copy } : { node, copy, part: now.early ? 'computed' : 'taken' }]
    })
  })
}

/** Throws a `BraidError` with the graph's errors. */
export const prepare = (ir: GraphIR, dims: Readonly<Record<string, number>>): Prepared => {
  const problems = [...ir.problems, ...checkDims(ir, dims), ...unboundSymbols(ir, dims)]
  if (problems.length > 0) throw new BraidError(problems)
  const specs = typesOf(ir, dims)
  const found = ratesOf(ir)
  if (E.isLeft(found)) throw new BraidError(found.left)
  const rates = found.right
  const nodes = liveNodes(ir)
  const kernels = nodes
    .filter(({ op }) => op === 'kernel')
    .map(({ id, inputs, attrs }): [number, BoundKernel] => [
      id,
      boundKernel(
        attrs as unknown as KernelAttrs,
        inputs.map(input => specs[input]!),
        dims,
      ),
    ])
  return {
    ir,
    nodes,
    specs,
    kernels: new Map(kernels),
    constants: nodes.filter(({ id }) => rates?.constant[id] === 1),
    counting: new Set(
      nodes.flatMap(({ id, op, inputs }) =>
        op === 'hold' && rates?.constant[id] === 0 && rates.constant[inputs[0]!] === 1 ? [id] : [],
      ),
    ),
    instants: rates ? instants(nodes, rates) : [nodes.map(node => ({ node, copy: 0 }))],
    lastRead: rates ? ir.nodes.map(() => []) : lastReads(ir),
    rateOf: ({ id }) => rates?.fires[id] ?? 1,
  }
}
