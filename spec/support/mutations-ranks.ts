import type { CollectiveSpec } from '../../dsl/ir/plan.js'
import { type Call, lanes, type Script } from './rank-scripts.js'

/** Ways to break the plans of several ranks, one of them at a time: all of them break L8 where they break anything. */
export interface RankMutation {
  readonly name: string
  readonly apply: (ranks: readonly Script[], pick: (count: number) => number) => readonly Script[] | undefined
}

type Test = (call: Call, i: number, calls: readonly Call[]) => boolean

/** Edits the calls of one rank, at a call that passes the test. */
const edit =
  (test: Test, change: (calls: Call[], i: number, pick: (count: number) => number) => void): RankMutation['apply'] =>
  (ranks, pick) => {
    const places = ranks.flatMap(({ calls }, rank) =>
      calls.flatMap((call, i) => (test(call, i, calls) ? [{ rank, i }] : [])),
    )
    if (places.length === 0) return undefined
    const { rank, i } = places[pick(places.length)]!
    const calls = [...ranks[rank]!.calls]
    change(calls, i, pick)
    return ranks.map((script, r) => (r === rank ? { ...script, calls } : script))
  }
const set = (change: (call: Call) => Partial<Call>) => (calls: Call[], i: number) => {
  calls[i] = { ...calls[i]!, ...change(calls[i]!) }
}
const swap = (calls: Call[], i: number, j: number) => {
  ;[calls[i], calls[j]] = [calls[j]!, calls[i]!]
}
const any: Test = () => true
const isSend: Test = ({ kind }) => kind === 'send'
const kinds: Partial<Record<CollectiveSpec['kind'], CollectiveSpec['kind']>> = {
  allReduce: 'reduceScatter',
  broadcast: 'gather',
  send: 'recv',
  recv: 'send',
}

export const rankMutations: readonly RankMutation[] = [
  {
    name: 'two collectives of one rank swapped',
    apply: edit(
      (_, i, calls) => i > 0 && calls.length > 1,
      (calls, i) => swap(calls, i, i - 1),
    ),
  },
  {
    name: 'two collectives of one communicator swapped',
    apply: edit(
      (call, i, calls) => calls.some((other, j) => j < i && other.communicator === call.communicator),
      (calls, i) =>
        swap(
          calls,
          i,
          calls.findIndex(({ communicator }) => communicator === calls[i]!.communicator),
        ),
    ),
  },
  { name: 'a collective dropped on one rank', apply: edit(any, (calls, i) => void calls.splice(i, 1)) },
  { name: 'a collective issued twice', apply: edit(any, (calls, i) => void calls.splice(i, 0, calls[i]!)) },
  {
    name: 'a collective of another kind',
    apply: edit(
      any,
      set(({ kind }) => ({ kind: kinds[kind]! })),
    ),
  },
  {
    name: 'a collective of another count',
    apply: edit(
      any,
      set(({ count }) => ({ count: count + 1 })),
    ),
  },
  {
    name: 'a collective of another element type',
    apply: edit(
      any,
      set(() => ({ dtype: 'bf16' })),
    ),
  },
  {
    name: 'a reduction of another kind',
    apply: edit(
      ({ how }) => how !== undefined,
      set(() => ({ how: 'max' })),
    ),
  },
  {
    name: 'another root',
    apply: edit(
      ({ root }) => root !== undefined,
      set(({ root }) => ({ root: 1 - root! })),
    ),
  },
  {
    name: 'a send to another place',
    apply: edit(
      isSend,
      set(({ peer }) => ({ peer: 1 - peer! })),
    ),
  },
  {
    name: 'a collective over another communicator',
    apply: edit(
      any,
      set(({ communicator }) => ({ communicator: 1 - communicator })),
    ),
  },
  {
    name: 'a collective on another lane than its events say',
    apply: (ranks, pick) => {
      const moved = edit(any, (calls, i) => {
        calls[i] = { ...calls[i]!, lane: (calls[i]!.lane + 1) % lanes.length }
      })(ranks, pick)
      return moved?.map((script, r) => (script === ranks[r] ? script : { ...script, waits: [] }))
    },
  },
  {
    name: 'no wait between communicators',
    apply: (ranks, pick) => {
      const open = ranks.flatMap(({ waits }, rank) => (waits.length > 0 ? [rank] : []))
      if (open.length === 0) return undefined
      const rank = open[pick(open.length)]!
      return ranks.map((script, r) =>
        r === rank ? { ...script, waits: script.waits.toSpliced(pick(script.waits.length), 1) } : script,
      )
    },
  },
  {
    name: 'no wait around the tick',
    apply: (ranks, pick) => {
      const rank = pick(ranks.length)
      return ranks.map((script, r) => (r === rank ? { ...script, around: false } : script))
    },
  },
]
