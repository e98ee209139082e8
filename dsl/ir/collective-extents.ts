import type { CollectiveSpec, PlanCommunicator } from './plan.js'

/** A rank of a group: how many ranks the group has, and the rank's place, where it is known. */
export interface Seat {
  /** At least so many. */
  readonly size: number
  readonly isExact: boolean
  readonly place?: number
}

/**
 * What a plan alone says of its rank's group: the number of ranks where all groups have one, else the least.
 * Only the plans of all ranks say the place.
 */
export const seatIn = (communicator: PlanCommunicator | undefined): Seat => {
  const { size, groups } = communicator ?? {}
  if (groups === undefined) return { size: size ?? 1, isExact: size !== undefined }
  const sizes = groups.map(({ length }) => length)
  const least = sizes.reduce((a, b) => Math.min(a, b), sizes[0] ?? 1)
  return { size: Math.max(1, least), isExact: sizes.every(size => size === least) }
}

/** The elements that a rank's call reads from its first buffer on, and writes. */
export interface CollectiveReach {
  readonly reads: number
  readonly writes: number
  /** Whether it is known that it writes no more: else it may write all of a buffer. */
  readonly isExact: boolean
}

/**
 * The bytes of each kind, in NCCL's terms: `count` is one rank's part. A part for each rank is read by
 * `reduceScatter` and `allToAll` and at the root of a `scatter`; it is written by `allGather` and `allToAll`
 * and at the root of a `gather`. Of a root whose place is unknown the least is asked that any rank needs.
 */
export const collectiveReach = ({ kind, count, root }: CollectiveSpec, seat: Seat): CollectiveReach => {
  const { size, isExact, place } = seat
  const all = count * size
  const isRoot = place === root
  /** At the root only, and elsewhere nothing. */
  const atRoot = (elements: number): number => (place === undefined ? count : isRoot ? elements : 0)
  const isPlaced = place !== undefined
  switch (kind) {
    case 'allGather':
      return { reads: count, writes: all, isExact }
    case 'allToAll':
      return { reads: all, writes: all, isExact }
    case 'reduceScatter':
      return { reads: all, writes: count, isExact: true }
    case 'scatter':
      return { reads: atRoot(all), writes: count, isExact: true }
    case 'gather':
      return { reads: count, writes: atRoot(all), isExact: isExact && isPlaced }
    case 'reduce':
      return { reads: count, writes: atRoot(count), isExact: true }
    case 'broadcast':
      return { reads: atRoot(count), writes: count, isExact: true }
    case 'send':
      return { reads: count, writes: 0, isExact: true }
    case 'recv':
      return { reads: 0, writes: count, isExact: true }
    case 'allReduce':
    case 'permute':
      return { reads: count, writes: count, isExact: true }
  }
}
