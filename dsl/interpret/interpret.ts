import { defer, map, type Observable, type ObservableInput } from 'rxjs'
import type { GraphIR } from '../ir/graph.js'
import { show } from '../ir/show.js'
import { communicatorOf, isShared, ranksOf, showCommunicator } from '../language/communicator.js'
import { type Graph, irOf } from '../language/graph.js'
import type { ParamValues } from '../language/param.js'
import type { HostArrayOf, Ports } from '../language/tensor.js'
import { fault, type Prepared, prepare } from './prepare.js'
import { type RankInputs, runRanks } from './ranks.js'
import type { Between } from './states.js'

export interface InterpretOptions {
  readonly params?: ParamValues
  /** Sizes by symbol: one for each symbol of the graph. */
  readonly dims?: Readonly<Record<string, number>>
  /** The number of ticks of a graph without inputs; default 1. Other graphs end with their feeds. */
  readonly ticks?: number
  /**
   * Called before each tick: it may read and write states by name, as `session.state` does between two ticks.
   */
  readonly between?: Between
}

export interface InterpretRanksOptions extends Omit<InterpretOptions, 'params' | 'between'> {
  /** The same on all ranks, or a list by rank. */
  readonly params?: ParamValues | readonly ParamValues[]
}

export type HostFeeds<I extends Ports> = { readonly [K in keyof I]: ObservableInput<HostArrayOf<I[K]>> }
export type HostValues<O extends Ports> = { readonly [K in keyof O]: HostArrayOf<O[K]> }

const badCount = (at: 'feeds' | 'params', subject: string, wanted: string, found: string, next: string) =>
  fault({ _tag: 'BadOption', at, subject, wanted, found, next })

/**
 * A graph's meaning: plain RxJS over typed arrays, one operator's `reference` at a time. An input of rate r
 * takes r values of its feed for each tick; an output of rate r has its r values one after the other in one
 * array. Ends with the shortest feed, after the last tick with all values; every subscription starts with
 * fresh state. The Observable's error is a `BraidError` for a graph with errors, for a feed's value of a
 * wrong size, and for a graph with collectives among several ranks, which `interpretRanks` runs; a feed's own
 * error is passed on.
 */
export const interpret =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretOptions = {}) =>
  (feeds: HostFeeds<I>): Observable<HostValues<O>> =>
    defer(() => {
      const prepared = prepare(irOf(graph), options.dims ?? {})
      refuseShared(prepared)
      const inputs = { params: options.params ?? {}, feeds: feeds ?? {}, between: options.between }
      return runRanks(prepared, [inputs], options.ticks ?? 1).pipe(map(([only]) => only))
    }) as Observable<HostValues<O>>

/** Throws where several ranks take part. */
export const refuseShared = ({ nodes }: Prepared): void => {
  const shared = nodes.find(isShared)
  if (shared !== undefined)
    throw fault({
      _tag: 'Unsupported',
      at: shared.at.toString(),
      subject: shared.name,
      wanted: 'a graph of one rank',
      found: `a collective over ${showCommunicator(communicatorOf(shared)!)}`,
      next: 'interpretRanks(graph, options)(feeds) runs all ranks side by side, given the feeds of each',
    })
}

/**
 * The meaning of a graph on several ranks, each with its own feeds, in a list by rank. All ranks proceed in
 * lock-step, a tick and a node at a time; a collective takes the values of all ranks of a group, in order of
 * their places. Yields the outputs by rank, tick by tick, and ends with the shortest feed of any rank. The
 * number of ranks follows from the communicators; where each has one rank, from the feeds. Otherwise as
 * `interpret`, its errors too; feeds or parameters of another number of ranks are a `BraidError`.
 */
export const interpretRanks =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretRanksOptions = {}) =>
  (feeds: readonly HostFeeds<I>[]): Observable<readonly HostValues<O>[]> =>
    defer(() => {
      const prepared = prepare(irOf(graph), options.dims ?? {})
      return runRanks(prepared, rankInputs(prepared, feeds, options.params ?? {}), options.ticks ?? 1)
    }) as Observable<readonly HostValues<O>[]>

const rankInputs = (
  { ir: { name }, nodes }: Prepared,
  feeds: readonly RankInputs['feeds'][],
  params: ParamValues | readonly ParamValues[],
): readonly RankInputs[] => {
  if (!Array.isArray(feeds) || feeds.length === 0)
    throw badCount(
      'feeds',
      name,
      'the feeds of each rank, in a list',
      show(feeds),
      'give one object of feeds for each rank',
    )
  const ranks = feeds.length
  const shared = nodes.find(isShared)
  const world = shared && communicatorOf(shared)!
  if (world !== undefined && ranksOf(world) !== ranks)
    throw badCount(
      'feeds',
      name,
      `feeds of ${ranksOf(world)} ranks, which ${showCommunicator(world)} has`,
      `${ranks}`,
      'give one object of feeds for each rank, {} where there are no inputs',
    )
  const byRank: readonly ParamValues[] = Array.isArray(params)
    ? params
    : feeds.map(() => params as ParamValues)
  if (byRank.length !== ranks)
    throw badCount(
      'params',
      name,
      `parameters of ${ranks} ranks, as there are feeds`,
      `${byRank.length}`,
      'give as many, or one object for all ranks',
    )
  return feeds.map((own, rank) => ({ params: byRank[rank] ?? {}, feeds: own ?? {} }))
}
