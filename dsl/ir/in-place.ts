import { needsOf } from './extents.js'
import type { KernelSpec, MapSpec } from './kernel-spec.js'
import { hasRows, rowAxis } from './map-rows.js'
import type { CollectiveSpec } from './plan.js'
import { elementBytes } from './tensor.js'

/** A read and a write of one run that share bytes. */
export interface Overlap {
  /** Their places among the reads and among the writes of the run. */
  readonly read: number
  readonly write: number
  /** From the first byte of the written buffer to the first byte of the read one. */
  readonly distance: number
  /** Bytes of the two buffers. */
  readonly readBytes: number
  readonly writtenBytes: number
}

/** By write of a user's kernel: the read whose memory it is. */
export type Donations = ReadonlyMap<number, number>

/**
 * A map reads all operands of a point before it writes any result of it. So a result may lie over an operand
 * whose element at each point is at the place that is written, where both element types have one size.
 *
 * A kernel that reduces rows reads elements in several passes, and writes results of points in the last of
 * them. A thread reads the same points in each pass, which no other one writes. So a result of points may lie
 * over an operand of points. One number a row is read by all threads of the row, at any time: it is written
 * over only where all results are numbers of rows. Then only the thread that writes has to have read.
 */
const readsWhereItWrites = (kernel: MapSpec, { read, write, distance }: Overlap): boolean => {
  const { shape, operands, results } = kernel
  const [operand, result] = [operands[read], results[write]]
  if (operand === undefined || result === undefined) return false
  const isOfRow = result.row === true
  if (isOfRow && results.some(({ row }) => row !== true)) return false
  const { dtype, offset, strides, indexed } = operand
  // Of two types, the kernel's compiler might take the read and the write for those of different memory.
  if (!isOfRow && hasRows(kernel) && dtype !== result.dtype) return false
  const along = isOfRow ? rowAxis(kernel) : -1
  let dense = 1
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1 && strides[d] !== (d === along ? 0 : dense)) return false
    if (d !== along) dense *= shape[d]!
  }
  const bytes = elementBytes[dtype]
  return indexed === undefined && distance + offset * bytes === 0 && bytes === elementBytes[result.dtype]
}

/** The write is the memory of the read of the same number, by what the kernel is. */
const isSameMemory = (kernel: KernelSpec, { read, write, distance }: Overlap): boolean =>
  read === write && distance === 0 && needsOf(kernel)?.inPlace?.includes(write) === true

const isDonated = (
  { read, write, distance, readBytes, writtenBytes }: Overlap,
  donates: Donations,
): boolean => distance === 0 && readBytes === writtenBytes && donates.get(write) === read

const never = (): boolean => false

// Of a copy not even equal ranges may overlap. Each of the others reads elements after it has written some.
const promises: {
  readonly [Kind in KernelSpec['kind']]: (
    kernel: Extract<KernelSpec, { readonly kind: Kind }>,
    overlap: Overlap,
    donates: Donations,
  ) => boolean
} = {
  copy: never,
  map: readsWhereItWrites,
  matmul: never,
  attention: isSameMemory,
  conv: never,
  reduce: never,
  scan: never,
  gather: never,
  scatterAdd: never,
  append: isSameMemory,
  join: never,
  random: never,
  // Its author has promised it, or not.
  cuda: (_kernel, overlap, donates) => isDonated(overlap, donates),
}

/**
 * Whether a kernel yields the same where a write lies over a read so. The compiler asks before it writes in
 * place, and a plan that does so is accepted on this answer alone. `donates` are those of the node.
 */
export const mayOverwrite = (kernel: KernelSpec, overlap: Overlap, donates: Donations = new Map()): boolean =>
  (promises[kernel.kind] as (...given: unknown[]) => boolean)(kernel, overlap, donates)

/**
 * Of collectives NCCL allows it where what is sent and received begin at one byte. Those that send or receive
 * several parts need a place that depends on the rank, and one plan may be of all ranks.
 */
export const mayReceiveOver = ({ kind }: CollectiveSpec, { distance }: Overlap): boolean =>
  distance === 0 && (kind === 'allReduce' || kind === 'reduce' || kind === 'broadcast')
