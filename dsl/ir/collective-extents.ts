import type { CollectiveSpec, PlanCommunicator } from './plan.js'
import { elementBytes } from './tensor.js'

/** A rank of a group: how many ranks the group has, at least and at most; and its place, if known. */
export interface Seat {
  readonly least: number
  readonly most: number
  readonly place?: number
}

/** What a plan alone says of its rank's group. Only the plans of all ranks say the place. */
export const seatIn = (communicator: PlanCommunicator | undefined): Seat => {
  const { size, groups } = communicator ?? {}
  const sizes = groups?.map(({ length }) => length) ?? (size === undefined ? [] : [size])
  if (sizes.length === 0) return { least: 1, most: Number.POSITIVE_INFINITY }
  const least = sizes.reduce((a, b) => Math.min(a, b))
  return { least: Math.max(1, least), most: sizes.reduce((a, b) => Math.max(a, b)) }
}

/** Parts of `count` elements: none, one, or one for each rank of the group. */
type Parts = 0 | 1 | 'ranks'

/** In NCCL's terms. `root`: the side on which only the root has parts. */
const parts: Readonly<
  Record<CollectiveSpec['kind'], { reads: Parts; writes: Parts; root?: 'reads' | 'writes' }>
> = {
  allReduce: { reads: 1, writes: 1 },
  allGather: { reads: 1, writes: 'ranks' },
  reduceScatter: { reads: 'ranks', writes: 1 },
  allToAll: { reads: 'ranks', writes: 'ranks' },
  broadcast: { reads: 1, writes: 1, root: 'reads' },
  reduce: { reads: 1, writes: 1, root: 'writes' },
  gather: { reads: 1, writes: 'ranks', root: 'writes' },
  scatter: { reads: 'ranks', writes: 1, root: 'reads' },
  permute: { reads: 1, writes: 1 },
  send: { reads: 1, writes: 0 },
  recv: { reads: 0, writes: 1 },
}

/** Bytes of a buffer, from its first one on. */
export interface CollectiveReach {
  /** What any rank needs, whichever it is. */
  readonly needed: number
  /** What the root, or every rank where there is none, is sure to access; and the most that it may. */
  readonly least: number
  readonly most: number
}

/** The bytes that a rank's call reads of each buffer that it reads, and writes of each that it writes. */
export const collectiveReach = (
  { kind, count, dtype, root }: CollectiveSpec,
  { least, most, place }: Seat,
): { readonly reads: CollectiveReach; readonly writes: CollectiveReach } => {
  const bytes = count * elementBytes[dtype]
  const reach = (side: 'reads' | 'writes'): CollectiveReach => {
    const isRootOnly = parts[kind].root === side
    if (isRootOnly && place !== undefined && place !== root) return { needed: 0, least: 0, most: 0 }
    const times = (ranks: number) =>
      bytes * (parts[kind][side] === 'ranks' ? ranks : Number(parts[kind][side]))
    const needed = isRootOnly && place === undefined ? bytes : times(least)
    return { needed, least: times(least), most: bytes === 0 ? 0 : times(most) }
  }
  return { reads: reach('reads'), writes: reach('writes') }
}
