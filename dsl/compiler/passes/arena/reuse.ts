import { IntervalMap } from '../../../order/interval-map.js'
import type { Arena, Ordered, WindowEdge } from '../../analysis/ir.js'
import { aligned, type Tenants } from './tenants.js'

/** Tenant `later` has bytes that tenant `earlier` had just before it: in this tick (0), or in the one before (-1). */
type Visit = (later: number, earlier: number, tick: 0 | -1) => void

/** Calls `visit` for every two tenants of one arena of which one has a byte right after the other; `members` are in order of first access. */
const eachTakeover = (members: Int32Array, from: Float64Array, to: Float64Array, visit: Visit): void => {
  const cuts = Float64Array.from(new Set([...from, ...to])).sort()
  const index = new Map<number, number>()
  cuts.forEach((cut, i) => {
    index.set(cut, i)
  })
  const intervals = new IntervalMap(cuts.length)
  // In the second tick every byte has had an owner: in that tick if it is one that came before, else in the tick before.
  for (const tick of [0, 1])
    members.forEach((k, i) => {
      intervals.claim(index.get(from[i]!)!, index.get(to[i]!)!, k, earlier => {
        if (tick === 0) visit(k, earlier, 0)
        else if (earlier >= k) visit(k, earlier, -1)
      })
    })
}

/**
 * Every order between lanes that places in an arena ask for: a first access is after all last ones of whoever had the bytes just before, a tick ago too.
 * Of any two that share a byte the rest follows.
 */
export const reuseEdges = (
  { laneOf, buffers, settings }: Ordered,
  { buffer, first, start, lastOn }: Tenants,
  { offset, members }: Arena & { readonly members: readonly Int32Array[] },
): WindowEdge[] => {
  const edges: WindowEdge[] = []
  const visit: Visit = (later, earlier, tick) => {
    if (tick === -1 && settings.inFlight === 1) return
    for (let a = start[earlier]!; a < start[earlier + 1]!; a++)
      if (laneOf[lastOn[a]!] !== laneOf[first[later]!])
        edges.push({ later: first[later]!, earlier: lastOn[a]!, tick })
  }
  for (const own of members) {
    const from = Float64Array.from(own, k => offset[buffer[k]!]!)
    const to = from.map((at, i) => at + aligned(buffers[buffer[own[i]!]!]!.bytes))
    eachTakeover(own, from, to, visit)
  }
  return edges
}

/** Tenants after themselves a tick ago, so that one place is enough for each, whoever has it in between. */
export const returnEdges = (
  { settings }: Ordered,
  { first, start, lastOn }: Tenants,
  of: (k: number) => boolean,
): WindowEdge[] => {
  const edges: WindowEdge[] = []
  if (settings.inFlight === 1) return edges
  for (let k = 0; k < first.length; k++)
    if (of(k))
      for (let a = start[k]!; a < start[k + 1]!; a++)
        edges.push({ later: first[k]!, earlier: lastOn[a]!, tick: -1 })
  return edges
}
