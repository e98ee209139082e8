import {
  bufferCount,
  concatMap,
  defer,
  filter,
  from,
  map,
  type Observable,
  type ObservableInput,
  range,
  zip,
} from 'rxjs'
import { bound, fault, initial, paramValue, type Running, remembers, resultOf } from './evaluate.js'
import { type Graph, irOf } from './graph.js'
import type { GraphIR, GraphNode } from './ir/graph.js'
import type { HostArray } from './operators/operator.js'
import type { ParamValues } from './param.js'
import { period } from './period.js'
import { show } from './show.js'
import type { HostArrayOf, Ports } from './tensor.js'

export interface InterpretOptions {
  readonly params?: ParamValues
  readonly dims?: Readonly<Record<string, number>>
  /** How many ticks a graph without inputs runs; default 1. Feeds end the others. */
  readonly ticks?: number
}

export type HostFeeds<I extends Ports> = { readonly [K in keyof I]: ObservableInput<HostArrayOf<I[K]>> }
export type HostValues<O extends Ports> = { readonly [K in keyof O]: HostArrayOf<O[K]> }

/** One tick of a graph in which all comes once. `state` is moved on. */
const tick = (running: Running, fed: Readonly<Record<string, unknown>>): Record<string, HostArray> => {
  const { graph, state, values } = running
  const { ir, nodes, dead } = graph
  for (const node of nodes) {
    values[node.id] = resultOf(running, node, fed[node.name])
    for (const gone of dead[node.id]!) values[gone] = undefined
  }
  // All at once: a delay that feeds a delay hands on what it had, not what it gets.
  for (const { id, op, inputs } of nodes) if (op === 'delay') state.set(id, values[inputs[0]!]!)
  return Object.fromEntries(ir.outputs.map(({ name, node }) => [name, values[node]!.slice()]))
}

/**
 * A graph's meaning: plain RxJS over typed arrays, one operator's `reference` at a time. Where an input comes r times in a tick its feed
 * gives r values for each, and an output that comes r times has its r values one after the other in one array. Ends with the shortest
 * feed, after the last tick that has all of its values; every subscription starts with fresh state. A graph with mistakes, a feed of a wrong size, and a feed's own error are the Observable's
 * error, a `BraidError` in the first two cases.
 */
export const interpret =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretOptions = {}) =>
  (feeds: HostFeeds<I>): Observable<HostValues<O>> =>
    defer(() => {
      const ready = bound(irOf(graph), options.dims ?? {})
      const { nodes } = ready
      const inputs = nodes.filter(({ op }) => op === 'input')
      const given: Readonly<Record<string, ObservableInput<unknown> | undefined>> = feeds ?? {}
      const missing = inputs.find(({ name }) => given[name] === undefined || given[name] === null)
      if (missing)
        throw fault({
          _tag: 'BadOption',
          at: missing.at.toString(),
          subject: missing.name,
          wanted: 'a feed for every input',
          found: show(given[missing.name]),
          next: `give feeds { ${missing.name}: … }`,
        })
      const { rates } = ready
      // A tick takes as many values of a feed as its input comes times; of fewer at a feed's end there is no tick.
      const whole = ({ id, name }: GraphNode): Observable<unknown> => {
        const values = from(given[name]!)
        const many = rates?.fires[id]
        return many === undefined
          ? values
          : values.pipe(
              bufferCount(many),
              filter(({ length }) => length === many),
            )
      }
      const rows: Observable<unknown[]> =
        inputs.length > 0 ? zip(inputs.map(whole)) : range(options.ticks ?? 1).pipe(map(() => []))
      const load = async (): Promise<ReadonlyMap<number, HostArray>> => {
        const values = new Map<number, HostArray>()
        for (const node of nodes)
          if (node.op === 'param')
            values.set(node.id, await paramValue(node, ready.specs[node.id]!, options.params ?? {}))
        return values
      }
      const state = new Map<number, HostArray>()
      for (const node of nodes) if (remembers(node)) state.set(node.id, initial(node, ready.specs[node.id]!))
      return from(load()).pipe(
        concatMap(params =>
          rows.pipe(
            map(row => {
              const running: Running = { graph: ready, params, state, values: [], writes: new Map() }
              const fed = Object.fromEntries(inputs.map(({ name }, i) => [name, row[i]]))
              return rates === undefined ? tick(running, fed) : period(running, rates, fed as never)
            }),
          ),
        ),
      ) as unknown as Observable<HostValues<O>>
    })
