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
import { show } from '../ir/show.js'
import type { ParamValues } from '../language/param.js'
import type { HostArray } from '../language/values.js'
import { type Disturb, initial, loadParams, type Rank } from './evaluate.js'
import { fault, isState, type Prepared } from './prepare.js'
import { type Between, statesOver } from './states.js'
import { type Fed, tick } from './tick.js'

/** The inputs of a rank. Parameters that ranks share as one object are loaded once. */
export interface RankInputs {
  readonly params: ParamValues
  readonly feeds: Readonly<Record<string, ObservableInput<unknown> | undefined>>
  readonly disturb?: Disturb | undefined
  readonly between?: Between | undefined
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
  const { nodes, specs, rateOf } = graph
  const label = (rank: number): string => (given.length > 1 ? ` of rank ${rank}` : '')
  const inputs = nodes.filter(({ op }) => op === 'input')
  const feeds = given.flatMap(({ feeds }, rank) =>
    inputs.map(node => {
      const { name, at } = node
      const feed = feeds[name]
      // A tick takes as many values as its input's rate; an incomplete group at the feed's end makes no tick.
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
        wanted: `a feed for every input${label(rank)}`,
        found: show(feed),
        next: `give feeds ${given.length > 1 ? `[{ ${name}: … }, …], one for each rank` : `{ ${name}: … }`}`,
      })
    }),
  )
  const rows: Observable<unknown[][]> = inputs.length > 0 ? zip(feeds) : range(ticks).pipe(map(() => []))
  const load = async (): Promise<readonly ReadonlyMap<number, HostArray>[]> => {
    const loaded = new Map<ParamValues, ReadonlyMap<number, HostArray>>()
    for (const [rank, { params }] of given.entries())
      if (!loaded.has(params)) loaded.set(params, await loadParams(graph, params, label(rank)))
    return given.map(({ params }) => loaded.get(params)!)
  }
  const states = given.map(
    () => new Map(nodes.filter(isState).map(node => [node.id, initial(node, specs[node.id]!)])),
  )
  const named = states.map(state => statesOver(graph, state))
  return from(load()).pipe(
    concatMap(params =>
      rows.pipe(
        map((row, number) => {
          for (const [rank, { between }] of given.entries()) between?.(number, named[rank]!)
          const ranks = given.map((_, rank): Rank => {
            const [own, state] = [params[rank]!, states[rank]!]
            const { disturb } = given[rank]!
            return { label: label(rank), params: own, state, values: [], writes: new Map(), disturb }
          })
          const fed: Fed = given.map((_, rank) =>
            Object.fromEntries(inputs.map(({ name }, i) => [name, row[rank * inputs.length + i]!])),
          )
          return tick(graph, ranks, fed)
        }),
      ),
    ),
  )
}
