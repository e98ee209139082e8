import * as E from 'fp-ts/lib/Either.js'
import type { GraphIR, GraphNode } from '../../../ir/graph.js'
import { fail, fault } from '../../analysis/faults.js'
import type { Passed } from '../../analysis/pass.js'

const isList = (value: unknown): value is readonly unknown[] => Array.isArray(value)

const isNode = (value: unknown, id: number): boolean => {
  const node = (value ?? {}) as Partial<GraphNode>
  const named = node.id === id && typeof node.op === 'string' && typeof node.name === 'string'
  const { inputs, attrs, spec } = node
  return named && isList(inputs) && typeof attrs === 'object' && attrs !== null && isList(spec?.shape)
}

const isGraphIR = (value: unknown): value is GraphIR => {
  const { name, nodes, outputs, problems } = (value ?? {}) as Partial<Record<keyof GraphIR, unknown>>
  const formed = typeof name === 'string' && isList(nodes) && isList(outputs) && isList(problems)
  return formed && nodes.every(isNode)
}

const kindOf = (value: unknown): string => {
  if (value === null) return 'null'
  if (isList(value)) return 'an array'
  return typeof value === 'object' ? 'an object' : typeof value
}

/** JavaScript callers may pass anything: the nodes of a graph, or an error. */
export const readGraph = (graph: unknown): Passed<GraphIR> => {
  const ir: unknown = typeof graph === 'object' && graph !== null && 'ir' in graph ? graph.ir : graph
  if (isGraphIR(ir)) return E.right(ir)
  const next = 'compile(graph({ … }, ({ … }) => ({ … })))'
  return fail(fault('NotAFlow', 'compile', 'graph', 'a graph, as graph(...) makes it', kindOf(graph), next))
}
