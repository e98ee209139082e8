import { collectiveName } from '../ir/names.js'
import type { CollectiveSpec } from '../ir/plan.js'
import { type Call, callText, type Group, isPaired, type World } from './ranks.js'

/** Where something is wrong with one call, and what. */
export type Blame = (call: Call, said: () => string) => void

/**
 * L8, who meets whom: the n-th collective of each rank of a group is one meeting, and so is the n-th send from one place to another with the n-th receive
 * there. All who meet say the same: kind, count, element type, reduction, root. Undefined where some call meets nobody, or somebody
 * else; of each rank and group only the first such is told, since all that follow are one off.
 */
export const meetingsOf = (world: World, blame: Blame): readonly Call[][] | undefined => {
  const meetings: Call[][] = []
  let sound = true
  const wrong: Blame = (call, said) => {
    sound = false
    blame(call, said)
  }
  for (const group of world.groups) {
    meetCollectives(group, meetings, wrong)
    meetPairs(group, meetings, wrong)
  }
  return sound ? meetings : undefined
}

const meetCollectives = (group: Group, meetings: Call[][], wrong: Blame): void => {
  const lists = group.calls.map(calls => calls.filter(call => !isPaired(call)))
  // Most ranks are right: each is held against the list that most have, by length.
  const first = lists[0]!
  lists.forEach((list, place) => {
    if (place === 0) return
    const shared = Math.min(list.length, first.length)
    for (let n = 0; n < shared; n++) {
      if (agree(list[n]!.spec, first[n]!.spec)) continue
      const [mine, other] = [list[n]!, first[n]!]
      wrong(
        mine,
        () =>
          `it is number ${n + 1} of its rank's collectives over '${group.name}', ${said(mine)}, and that of rank ${other.rank.rank} is ${said(other)}: ${callText(other)}`,
      )
      return
    }
    if (list.length === first.length) return
    const longer = list.length > first.length ? list : first
    const extra = longer[shared]!
    const short = longer === list ? group.ranks[0]! : group.ranks[place]!
    wrong(
      extra,
      () =>
        `it is number ${shared + 1} of its rank's collectives over '${group.name}', and rank ${short} issues ${shared}: it waits for that rank for ever`,
    )
  })
  if (lists.every(list => list.length === first.length))
    for (let n = 0; n < first.length; n++) meetings.push(lists.map(list => list[n]!))
}

const meetPairs = (group: Group, meetings: Call[][], wrong: Blame): void => {
  const size = group.ranks.length
  /** Sends and receives, by from · size + to. */
  const sends = new Map<number, Call[]>()
  const receives = new Map<number, Call[]>()
  const put = (into: Map<number, Call[]>, key: number, call: Call): void => {
    const list = into.get(key)
    if (list === undefined) into.set(key, [call])
    else list.push(call)
  }
  for (const calls of group.calls)
    for (const call of calls) {
      const peer = call.spec.peer!
      if (call.spec.kind === 'send') put(sends, call.place * size + peer, call)
      else if (call.spec.kind === 'recv') put(receives, peer * size + call.place, call)
    }
  for (const key of new Set([...sends.keys(), ...receives.keys()])) {
    const out = sends.get(key) ?? []
    const into = receives.get(key) ?? []
    const shared = Math.min(out.length, into.length)
    const [from, to] = [group.ranks[Math.floor(key / size)]!, group.ranks[key % size]!]
    for (let n = 0; n < shared; n++) {
      const [send, receive] = [out[n]!, into[n]!]
      if (send.spec.count === receive.spec.count && send.spec.dtype === receive.spec.dtype) {
        meetings.push([send, receive])
        continue
      }
      wrong(
        receive,
        () => `it takes what ${callText(send)} sends: it is ${said(receive)}, and that is ${said(send)}`,
      )
      break
    }
    const extra = out[shared] ?? into[shared]
    if (extra === undefined) continue
    const what = extra.spec.kind === 'send' ? ['send', 'receives'] : ['receive', 'sends']
    wrong(
      extra,
      () =>
        `it is ${what[0]} number ${shared + 1} from rank ${from} to rank ${to} over '${group.name}', and the other side has ${shared} ${what[1]}: it waits for ever`,
    )
  }
}

const agree = (a: CollectiveSpec, b: CollectiveSpec): boolean =>
  a.kind === b.kind &&
  a.count === b.count &&
  a.dtype === b.dtype &&
  a.how === b.how &&
  a.root === b.root &&
  JSON.stringify(a.pairs) === JSON.stringify(b.pairs)

const said = ({ rank, spec }: Call): string => collectiveName(rank.plan, spec)
