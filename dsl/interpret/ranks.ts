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
import { type Disturb, initial, loadParams, type Rank } from './evaluate.js'
import { fault, isState, type Prepared } from './prepare.js'
import { type Between, type InterpretedStates, statesOver } from './states.js'
import { type Fed, tick } from './tick.js'

/** The inputs of a rank. Parameters that ranks share as one object are loaded once. */
export interface RankInputs {
  readonly params: ParamValues
  readonly feeds: Readonly<Record<string, ObservableInput<unknown> | undefined>>
  readonly disturb?: Disturb | undefined
  readonly between?: Between | undefined
  /** Whether each user's kernel is computed twice, which refuses one whose reference is not a function. */
  readonly repeats?: boolean
}

/** What every run of a graph begins with, by rank: the values of its parameters, and of its states. */
export interface Beginning {
  readonly params: ReadonlyMap<number, HostArray>
  first(node: GraphNode): HostArray
}

const labelOf = (ranks: number, rank: number): string => (ranks > 1 ? ` of rank ${rank}` : '')

/** Loads the parameters of each rank; those that ranks share as one object once. */
export const beginnings = async (
  graph: Prepared,
  given: readonly Pick<RankInputs, 'params'>[],
): Promise<readonly Beginning[]> => {
  const loaded = new Map<ParamValues, ReadonlyMap<number, HostArray>>()
  for (const [rank, { params }] of given.entries())
    if (!loaded.has(params)) loaded.set(params, await loadParams(graph, params, labelOf(given.length, rank)))
  const first = (node: GraphNode) => initial(node, graph.specs[node.id]!)
  return given.map(({ params }) => ({ params: loaded.get(params)!, first }))
}

/** The values of a tick's feeds: by rank, and in it by input, the values in order. */
type Row = readonly (readonly unknown[])[]

/**
 * The rows of the feeds of all ranks. A tick takes as many values as its input's rate; an incomplete group at
 * a feed's end makes no tick. Ends with the shortest feed of any rank; a graph without inputs has `ticks` rows.
 */
export const rowsOf = (
  { nodes, rateOf }: Prepared,
  given: readonly Pick<RankInputs, 'feeds'>[],
  ticks: number,
): Observable<Row> => {
  const inputs = nodes.filter(({ op }) => op === 'input')
  const feeds = given.flatMap(({ feeds }, rank) =>
    inputs.map(node => {
      const { name, at } = node
      const feed = feeds[name]
      const rate = rateOf(node)
      if (feed !== undefined && feed !== null)
        return from(feed).pipe(
          bufferCount(rate),
          filter(({ length }) => length === rate),
        )
      throw fault({
        _tag: 'BadOption',
        at: at.toString(),
        subject: name,
        wanted: `a feed for every input${labelOf(given.length, rank)}`,
        found: show(feed),
        next: `give feeds ${given.length > 1 ? `[{ ${name}: … }, …], one for each rank` : `{ ${name}: … }`}`,
      })
    }),
  )
  return inputs.length > 0 ? zip(feeds) : range(ticks).pipe(map(() => []))
}

export interface RanksRun {
  /** One tick: the outputs by rank. */
  tick(row: Row): Record<string, HostArray>[]
  /** By rank, between two ticks. */
  readonly states: readonly InterpretedStates[]
}

/** Begins a run of all ranks in lock-step. */
export const begin = (
  graph: Prepared,
  given: readonly RankInputs[],
  beginning: readonly Beginning[],
): RanksRun => {
  const { nodes } = graph
  const inputs = nodes.filter(({ op }) => op === 'input')
  const states = beginning.map(
    ({ first }) => new Map(nodes.filter(isState).map(node => [node.id, first(node)])),
  )
  const named = states.map((state, rank) => statesOver(graph, state, beginning[rank]!.first))
  let number = 0
  return {
    states: named,
    tick(row) {
      for (const [rank, { between }] of given.entries()) between?.(number, named[rank]!)
      number++
      const ranks = given.map(({ disturb, repeats }, rank): Rank => {
        const [{ params }, state] = [beginning[rank]!, states[rank]!]
        const label = labelOf(given.length, rank)
        return { label, params, state, values: [], writes: new Map(), disturb, repeats }
      })
      const fed: Fed = given.map((_, rank) =>
        Object.fromEntries(inputs.map(({ name }, i) => [name, row[rank * inputs.length + i]!])),
      )
      return tick(graph, ranks, fed)
    },
  }
}

/**
 * Runs all ranks of a graph in lock-step. Yields each rank's outputs, tick by tick. Ends with the shortest
 * feed of any rank; a graph without inputs runs `ticks` ticks.
 */
export const runRanks = (
  graph: Prepared,
  given: readonly RankInputs[],
  ticks: number,
): Observable<readonly Record<string, HostArray>[]> => {
  const rows = rowsOf(graph, given, ticks)
  return from(beginnings(graph, given)).pipe(
    concatMap(beginning => {
      const run = begin(graph, given, beginning)
      return rows.pipe(map(row => run.tick(row)))
    }),
  )
}
