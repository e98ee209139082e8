import { collectiveName, commandText } from '../ir/names.js'
import type { CollectiveSpec, Plan } from '../ir/plan.js'
import { type CommandTable, Op } from '../order/command-table.js'

/** One rank's plan. */
export interface Rank {
  readonly rank: number
  readonly plan: Plan
  readonly table: CommandTable
}

/**
 * A group of ranks of one communicator: the same for two ranks where their plans give the same name and the
 * same ranks in the same places.
 */
export interface Group {
  readonly name: string
  readonly ranks: readonly number[]
  /** By place in the group: the calls that its rank issues in a tick, in issue order. */
  readonly calls: readonly Call[][]
}

/** One collective, send or receive, as one rank issues it. */
export interface Call {
  readonly rank: Rank
  readonly command: number
  readonly group: Group
  /** The rank's place in the group. */
  readonly place: number
  readonly spec: CollectiveSpec
}

export interface World {
  readonly ranks: readonly Rank[]
  readonly groups: readonly Group[]
  /** By rank, in issue order. */
  readonly calls: readonly Call[][]
}

/** Reports an error in one rank's communicators. */
export type Complaint = (rank: Rank, command: number, sentence: () => string) => void

export const worldOf = (ranks: readonly Rank[], complain: Complaint): World => {
  const groups = new Map<string, Group>()
  const calls = ranks.map(rank => {
    const own = groupsOf(rank, ranks.length, groups, complain)
    const { table, plan } = rank
    const found: Call[] = []
    for (let command = 0; command < table.commands; command++) {
      if (table.op[command] !== Op.run) continue
      const spec = plan.nodes[table.subject[command]!]!.collective
      if (spec === undefined || plan.communicators?.[spec.communicator] === undefined) continue
      const group = own[spec.communicator]
      const { name } = plan.communicators[spec.communicator]!
      if (group === undefined) {
        complain(rank, command, () => `it is over '${name}', and no group of that has rank ${rank.rank}`)
        continue
      }
      const wrong = errorOf(spec, group.ranks.length)
      if (wrong !== undefined) {
        complain(
          rank,
          command,
          () => `${wrong}, and the group of '${name}' has places 0 to ${group.ranks.length - 1}`,
        )
        continue
      }
      const call = { rank, command, group, place: group.ranks.indexOf(rank.rank), spec }
      found.push(call)
      group.calls[call.place]!.push(call)
    }
    return found
  })
  return { ranks, groups: [...groups.values()], calls }
}

/** By communicator of the rank's plan: the group that has the rank. Ranks of one group share the object. */
const groupsOf = (
  rank: Rank,
  world: number,
  groups: Map<string, Group>,
  complain: Complaint,
): (Group | undefined)[] => {
  const seen = new Set<string>()
  return (rank.plan.communicators ?? []).map(({ name, groups: given, size }) => {
    const whole = given === undefined
    const all = Array.from({ length: whole ? world : 0 }, (_, r) => r)
    const own = whole ? all : given.find(group => group.includes(rank.rank))
    const beyond = (whole ? [] : given).flat().find(r => !(Number.isInteger(r) && r >= 0 && r < world))
    if (whole && size !== undefined && size !== world)
      complain(
        rank,
        -1,
        () =>
          `its communicator '${name}' is of ${size} ranks, and there are plans of ranks 0 to ${world - 1}`,
      )
    if (seen.has(name)) complain(rank, -1, () => `it has two communicators of the name '${name}'`)
    else if (beyond !== undefined)
      complain(
        rank,
        -1,
        () => `its communicator '${name}' has rank ${beyond}, and there are plans of ranks 0 to ${world - 1}`,
      )
    else if (twice(whole ? [] : given.flat()))
      complain(
        rank,
        -1,
        () => `its communicator '${name}' has a rank at two places: its groups are to be disjoint`,
      )
    else if (own !== undefined) {
      seen.add(name)
      const key = JSON.stringify([name, own])
      let group = groups.get(key)
      if (group === undefined) groups.set(key, (group = { name, ranks: own, calls: own.map(() => []) }))
      return group
    }
    seen.add(name)
    return undefined
  })
}

const twice = (list: readonly number[]): boolean => new Set(list).size < list.length

/** A place that the group does not have. */
const errorOf = ({ kind, root, peer, pairs }: CollectiveSpec, size: number): string | undefined => {
  const is = (place: number | undefined) => Number.isInteger(place) && place! >= 0 && place! < size
  if (kind === 'send' || kind === 'recv') return is(peer) ? undefined : `its peer is ${peer}`
  if (root !== undefined && !is(root)) return `its root is ${root}`
  const stray = pairs?.flat().find(place => !is(place))
  return stray === undefined ? undefined : `its pairs name ${stray}`
}

export const isPaired = ({ spec }: Call): boolean => spec.kind === 'send' || spec.kind === 'recv'

/** `commands[17] of rank 1 (run reduce[3] on comm)`. */
export const callText = ({ rank, command }: Call): string =>
  `commands[${command}] of rank ${rank.rank} (${commandText(rank.plan, command)})`

/** Reports an error in one call. */
export type Blame = (call: Call, sentence: () => string) => void

/** Calls of several ranks that begin and end together. */
export type Match = readonly Call[]

/**
 * L8 of several ranks, which calls match: the n-th collectives of all ranks of a group, and the n-th send
 * from one place to another with the n-th receive there. Matching calls agree in kind, count, element type,
 * reduction and root. Undefined where some call has no match or does not agree with it; of each rank and
 * group only the first such call is reported, since all that follow are one off.
 */
export const matchesOf = (world: World, blame: Blame): readonly Match[] | undefined => {
  const matches: Match[] = []
  let agreed = true
  const wrong: Blame = (call, sentence) => {
    agreed = false
    blame(call, sentence)
  }
  for (const group of world.groups) {
    matchCollectives(group, matches, wrong)
    matchPairs(group, matches, wrong)
  }
  return agreed ? matches : undefined
}

const matchCollectives = (group: Group, matches: Match[], wrong: Blame): void => {
  const lists = group.calls.map(calls => calls.filter(call => !isPaired(call)))
  // Each rank's list is compared with that of the first rank.
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
          `it is number ${n + 1} of its rank's collectives over '${group.name}', ${specText(mine)}, ` +
          `and that of rank ${other.rank.rank} is ${specText(other)}: ${callText(other)}`,
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
        `it is number ${shared + 1} of its rank's collectives over '${group.name}', ` +
        `and rank ${short} issues ${shared}: it waits for that rank for ever`,
    )
  })
  if (lists.every(list => list.length === first.length))
    for (let n = 0; n < first.length; n++) matches.push(lists.map(list => list[n]!))
}

const matchPairs = (group: Group, matches: Match[], wrong: Blame): void => {
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
        matches.push([send, receive])
        continue
      }
      wrong(
        receive,
        () =>
          `it takes what ${callText(send)} sends: it is ${specText(receive)}, and that is ${specText(send)}`,
      )
      break
    }
    const extra = out[shared] ?? into[shared]
    if (extra === undefined) continue
    const what = extra.spec.kind === 'send' ? ['send', 'receives'] : ['receive', 'sends']
    wrong(
      extra,
      () =>
        `it is ${what[0]} number ${shared + 1} from rank ${from} to rank ${to} over '${group.name}', ` +
        `and the other side has ${shared} ${what[1]}: it waits for ever`,
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

const specText = ({ rank, spec }: Call): string => collectiveName(rank.plan, spec)
