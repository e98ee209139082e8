import type { GraphNode } from '../ir/graph.js'
import { limits } from '../ir/limits.js'
import { show } from '../ir/show.js'
import { badAttribute, type UnplacedError } from './messages.js'

/**
 * The ranks of a collective, made by `communicator`: disjoint groups of `size` ranks each. A collective
 * exchanges values within each group and never between groups. A rank's *place* is where its group lists it,
 * from 0.
 */
export interface Communicator<out Size extends number = number> {
  /** Two communicators of one name are the same communicator. */
  readonly name: string
  /** Ranks in a group. */
  readonly size: Size
  /** Absent: one group, of ranks 0 to `size` - 1 in order. */
  readonly groups?: readonly (readonly number[])[]
}

type Groups = readonly (readonly number[])[]
type SizeOf<G extends Groups> = G extends readonly [infer First extends readonly number[], ...Groups]
  ? First['length']
  : number

interface CommunicatorOf {
  <const N extends number>(name: string, size: N): Communicator<N>
  <const G extends Groups>(name: string, of: { readonly groups: G }): Communicator<SizeOf<G>>
}

/**
 * A communicator by name: `communicator('world', 8)` is one group of ranks 0 to 7; `communicator('tensor', {
 * groups: [[0, 1], [2, 3]] })` is two groups of two, as `MPI_Comm_split` and `ncclCommSplit` make them. One
 * graph serves all ranks, so every rank from 0 on is in exactly one group of each communicator: a rank in no
 * group could not run the collectives of its own graph. Communicators of one graph therefore have the same
 * ranks, except a communicator of a single rank, whose collectives exchange nothing and which may be used
 * with any number of ranks.
 *
 * Never throws: an invalid argument (no name, a size that is not a whole number from 1 to 65,536, groups that
 * overlap, differ in size or leave a rank out) is a `BadAttribute` of `compile` where the communicator is
 * used.
 */
export const communicator: CommunicatorOf = (name: string, of: unknown): Communicator<never> => {
  const groups: unknown =
    typeof of === 'object' && of !== null ? (of as { readonly groups?: unknown }).groups : undefined
  if (!Array.isArray(groups)) return Object.freeze({ name, size: of as never })
  const own = Object.freeze(groups.map(group => (Array.isArray(group) ? Object.freeze([...group]) : group)))
  return Object.freeze({ name, size: (Array.isArray(own[0]) ? own[0].length : 0) as never, groups: own })
}

/** The groups of a communicator, each by place. */
export const groupsOf = ({ size, groups }: Communicator): Groups =>
  groups ?? [Array.from({ length: size }, (_, rank) => rank)]

/** The number of ranks in all groups of a communicator. */
export const ranksOf = ({ size, groups }: Communicator): number => size * (groups?.length ?? 1)

/** The communicator of a node; undefined where the node is no collective. */
export const communicatorOf = ({ attrs }: Pick<GraphNode, 'attrs'>): Communicator | undefined =>
  attrs['communicator'] as Communicator | undefined

/** Whether a node exchanges values with other ranks: a collective of a single rank does not. */
export const isShared = (node: Pick<GraphNode, 'attrs'>): boolean => (communicatorOf(node)?.size ?? 1) > 1

export const sameGroups = (a: Communicator, b: Communicator): boolean => {
  if (a.size !== b.size || ranksOf(a) !== ranksOf(b)) return false
  const [x, y] = [groupsOf(a), groupsOf(b)]
  return x.every((group, g) => group.every((rank, place) => rank === y[g]![place]))
}

/** `'tensor' of [0, 1] and [2, 3]`, or `'world' of 8 ranks`. */
export const showCommunicator = ({ name, size, groups }: Communicator): string =>
  groups === undefined
    ? `${show(name)} of ${size} ${size === 1 ? 'rank' : 'ranks'}`
    : `${show(name)} of ${groups.slice(0, 4).map(show).join(' and ')}` +
      (groups.length > 4 ? ' and others' : '')

const isSize = (size: unknown): boolean =>
  Number.isSafeInteger(size) && (size as number) >= 1 && (size as number) <= limits.ranks

const groupsProblem = (groups: readonly unknown[]): string | undefined => {
  const odd = groups.find(group => !Array.isArray(group) || group.length === 0)
  if (odd !== undefined) return `the group ${show(odd)}`
  const lists = groups as readonly (readonly unknown[])[]
  const size = lists[0]?.length ?? 0
  const other = lists.find(group => group.length !== size)
  if (size === 0) return 'no group'
  if (other !== undefined) return `groups of ${size} and of ${other.length}`
  const count = size * lists.length
  if (count > limits.ranks) return `${count} ranks`
  const seen = new Set<number>()
  for (const rank of lists.flat() as readonly number[]) {
    if (!Number.isSafeInteger(rank) || rank < 0) return `the rank ${show(rank)}`
    if (rank >= count) return `the rank ${rank}, where the groups have ${count} ranks`
    if (seen.has(rank)) return `the rank ${rank} twice`
    seen.add(rank)
  }
  return undefined
}

/** The error of a value used as a communicator, made by `communicator` or by hand. */
export const communicatorProblem = (value: unknown): UnplacedError | undefined => {
  const wrong = (wanted: string, found: string): UnplacedError =>
    badAttribute(
      wanted,
      found,
      "make one with communicator('world', 8), or communicator('tensor', { groups: [[0, 1], [2, 3]] })",
    )
  if (typeof value !== 'object' || value === null || !('name' in value && 'size' in value))
    return wrong('a communicator', show(value))
  const { name, size, groups } = value as { readonly [K in keyof Communicator]: unknown }
  if (typeof name !== 'string' || name === '' || name.length > limits.name)
    return wrong('a communicator with a name', `a communicator named ${show(name)}`)
  if (groups === undefined)
    return isSize(size)
      ? undefined
      : wrong(
          `a size from 1 to ${limits.ranks}, or groups`,
          `${show(size)} as the size of the communicator ${show(name)}`,
        )
  const found = Array.isArray(groups)
    ? (groupsProblem(groups) ?? (size === groups[0].length ? undefined : `the size ${show(size)}`))
    : show(groups)
  return found === undefined
    ? undefined
    : wrong(
        `groups of one size in which every rank from 0 on is once, ${limits.ranks} ranks at most`,
        `${found} in the communicator ${show(name)}`,
      )
}

export const otherGroups = (known: Communicator, given: Communicator): UnplacedError =>
  badAttribute(
    `the communicator ${showCommunicator(known)}, as before in this graph`,
    showCommunicator(given),
    'communicators of one name are one communicator: give both the same groups, or another name',
  )

export const otherRanks = (known: Communicator, given: Communicator): UnplacedError =>
  badAttribute(
    `a communicator of the ${ranksOf(known)} ranks that ${showCommunicator(known)} has`,
    `${showCommunicator(given)}: ${ranksOf(given)} ranks`,
    'one graph serves all ranks: put each of them into one group of every communicator',
  )
