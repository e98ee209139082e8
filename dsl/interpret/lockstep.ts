import {
  bufferCount,
  concatMap,
  filter,
  from,
  map,
  type Observable,
  type ObservableInput,
  range,
  zip,
} from 'rxjs'
import type { GraphNode } from '../ir/graph.js'
import { show } from '../ir/show.js'
import type { ParamValues } from '../language/param.js'
import type { HostArray } from '../language/values.js'
import { type Bound, fault, initial, paramValue, type Running, remembers, resultsOf } from './evaluate.js'
import { period } from './period.js'

type Given = Readonly<Record<string, ObservableInput<unknown> | undefined>>

/** What a rank brings. Ranks with one object of parameters have the same values, which are asked for once. */
export interface Share {
  readonly params: ParamValues
  readonly feeds: Given
}

/** One tick of a graph in which all comes once. `state` is moved on. */
const tick = (
  ranks: readonly Running[],
  fed: readonly Readonly<Record<string, unknown>>[],
): Record<string, HostArray>[] => {
  const { ir, nodes, dead } = ranks[0]!.graph
  for (const node of nodes) {
    const results = resultsOf(ranks, node, rank => fed[rank]![node.name])
    for (const [rank, { values }] of ranks.entries()) {
      values[node.id] = results[rank]
      for (const gone of dead[node.id]!) values[gone] = undefined
    }
  }
  return ranks.map(({ state, values }) => {
    // All at once: a delay that feeds a delay hands on what it had, not what it gets.
    for (const { id, op, inputs } of nodes) if (op === 'delay') state.set(id, values[inputs[0]!]!)
    return Object.fromEntries(ir.outputs.map(({ name, node }) => [name, values[node]!.slice()]))
  })
}

/** A tick takes as many values of a feed as its input comes times; of fewer at a feed's end there is no tick. */
const wholeTicks = (feed: ObservableInput<unknown>, many: number | undefined): Observable<unknown> =>
  many === undefined
    ? from(feed)
    : from(feed).pipe(
        bufferCount(many),
        filter(({ length }) => length === many),
      )

const paramsOf = async (
  { nodes, specs }: Bound,
  params: ParamValues,
  whose: string,
): Promise<ReadonlyMap<number, HostArray>> => {
  const values = new Map<number, HostArray>()
  for (const node of nodes)
    if (node.op === 'param') values.set(node.id, await paramValue(node, specs[node.id]!, params, whose))
  return values
}

/**
 * All ranks of a graph side by side: a tick at a time, a node at a time, so that a collective has the values of all. Yields what each rank's outputs are, tick by tick.
 * Ends with the shortest feed of any rank; a graph without inputs runs `ticks` ticks.
 */
export const lockstep = (
  graph: Bound,
  shares: readonly Share[],
  ticks: number,
): Observable<readonly Record<string, HostArray>[]> => {
  const { nodes, specs, rates } = graph
  const whose = (rank: number): string => (shares.length > 1 ? ` of rank ${rank}` : '')
  const inputs = nodes.filter(({ op }) => op === 'input')
  const feeds = shares.flatMap(({ feeds }, rank) =>
    inputs.map(({ id, name, at }: GraphNode) => {
      const feed = feeds[name]
      if (feed !== undefined && feed !== null) return wholeTicks(feed, rates?.fires[id])
      throw fault({
        _tag: 'BadOption',
        at: at.toString(),
        subject: name,
        wanted: `a feed for every input${whose(rank)}`,
        found: show(feed),
        next: `give feeds ${shares.length > 1 ? `[{ ${name}: … }, …], one for each rank` : `{ ${name}: … }`}`,
      })
    }),
  )
  const rows: Observable<unknown[]> = inputs.length > 0 ? zip(feeds) : range(ticks).pipe(map(() => []))
  const load = async (): Promise<readonly ReadonlyMap<number, HostArray>[]> => {
    const loaded = new Map<ParamValues, ReadonlyMap<number, HostArray>>()
    for (const [rank, { params }] of shares.entries())
      if (!loaded.has(params)) loaded.set(params, await paramsOf(graph, params, whose(rank)))
    return shares.map(({ params }) => loaded.get(params)!)
  }
  const states = shares.map(
    () => new Map(nodes.filter(remembers).map(node => [node.id, initial(node, specs[node.id]!)])),
  )
  return from(load()).pipe(
    concatMap(params =>
      rows.pipe(
        map(row => {
          const ranks = shares.map((_, rank): Running => {
            const [own, state] = [params[rank]!, states[rank]!]
            return { graph, whose: whose(rank), params: own, state, values: [], writes: new Map() }
          })
          const fed = shares.map((_, rank) =>
            Object.fromEntries(inputs.map(({ name }, i) => [name, row[rank * inputs.length + i]])),
          )
          return rates === undefined ? tick(ranks, fed) : period(ranks, rates, fed as never)
        }),
      ),
    ),
  )
}
