import { commandText } from '../ir/names.js'
import type { CollectiveSpec, Plan } from '../ir/plan.js'
import { type CommandTable, Op } from '../order/command-table.js'

/** One rank's plan. */
export interface Rank {
  readonly rank: number
  readonly plan: Plan
  readonly tables: CommandTable
}

/** A group of ranks that talk to each other under one name. Two ranks mean the same one if they say the same name and the same ranks in the same places. */
export interface Group {
  readonly name: string
  readonly ranks: readonly number[]
  /** What each of its ranks issues on it in a tick, in issue order, by place in the group. */
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

/** What one rank's plan says of its communicators that cannot be. */
export type Complaint = (rank: Rank, command: number, said: () => string) => void

export const worldOf = (ranks: readonly Rank[], complain: Complaint): World => {
  const groups = new Map<string, Group>()
  const calls = ranks.map(rank => {
    const own = groupsOf(rank, ranks.length, groups, complain)
    const { tables, plan } = rank
    const found: Call[] = []
    for (let command = 0; command < tables.commands; command++) {
      if (tables.op[command] !== Op.run) continue
      const spec = plan.nodes[tables.subject[command]!]!.collective
      if (spec === undefined || plan.communicators?.[spec.communicator] === undefined) continue
      const group = own[spec.communicator]
      const { name } = plan.communicators[spec.communicator]!
      if (group === undefined) {
        complain(rank, command, () => `it is over '${name}', and no group of that has rank ${rank.rank}`)
        continue
      }
      const wrong = outside(spec, group.ranks.length)
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

/** By communicator of the rank's plan: the group that has the rank. Groups are shared by the ranks that name them alike. */
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

const outside = ({ kind, root, peer, pairs }: CollectiveSpec, size: number): string | undefined => {
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
