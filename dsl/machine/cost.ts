import {
  type AttentionSpec,
  attentionProducts,
  attentionYields,
  type ConvSpec,
  convOutput,
  type KernelSpec,
  type MapSpec,
  type MatmulSpec,
} from '../ir/kernel-spec.js'
import { differsAlong, hasRows, rowAxis } from '../ir/map-rows.js'
import { type DType, elementBytes, elements, type FloatType, isFloat } from '../ir/tensor.js'
import type { CollectiveModel, CopyModel, Machine } from './machine.js'
import { mapWork, operationsOf } from './map-cost.js'
import { timeOfPositions } from './positions.js'
import { type RowKernel, warpRow } from './row-kernels.js'

/**
 * The resource that bounds a run: arithmetic, device memory, a direction of copying, the link between devices
 * or between ranks, or the host.
 */
export type Resource = 'tensor' | 'bandwidth' | 'h2d' | 'd2h' | 'peer' | 'link' | 'host'

/** The work of a run. The compiler's `Operation`s and a plan's nodes have this form. */
export interface Work {
  readonly op: string
  readonly name?: string
  /**
   * `upload`, `download`, `peer`, `collective` or `host`; anything else is a kernel. Where it is absent, `op`
   * decides.
   */
  readonly kind?: string
  /** Floating-point operations. */
  readonly flops?: number | undefined
  /** Bytes of memory read and written: of a copy, twice its bytes. */
  readonly movedBytes?: number | undefined
  /** Bytes in use around a kernel, which decide whether its own lie in the cache. Absent: its own. */
  readonly workingBytes?: number | undefined
  readonly kernel?: KernelSpec | undefined
  /** Of a kernel whose spec is not made yet: its rows, where it reduces along them. */
  readonly rows?: Rows | undefined
  /**
   * Of a collective: the elements that each rank gives, or gets where the ranks share out a result, as in a
   * plan's node.
   */
  readonly collective?:
    | { readonly kind: string; readonly count: number; readonly dtype: DType; readonly ranks?: number }
    | undefined
  /** Ranks that take part; absent: all ranks of the machine. */
  readonly ranks?: number | undefined
}

/** The rows that a kernel reduces: how many, their elements, and how many lie side by side (absent: 1). */
export interface Rows {
  readonly count: number
  readonly length: number
  readonly inner?: number
}

export interface Cost {
  readonly resource: Resource
  /** From start to end, without concurrent runs. */
  readonly nanoseconds: number
}

/**
 * A run without concurrent runs: its latency, its work, and the parts of the device that the work occupies.
 */
export interface Demand extends Cost {
  /** The first part of `nanoseconds`, which occupies nothing. */
  readonly latency: number
  /**
   * The fractions of the device's multiprocessors, arithmetic, memory bandwidth and bus that the work
   * occupies, each at most 1.
   */
  readonly multiprocessors: number
  readonly arithmetic: number
  readonly bandwidth: number
  /** Of the bandwidth that both directions of copying share. */
  readonly bus: number
  /** Nanoseconds at the device's whole sustained power. */
  readonly energy: number
}

/** Times by name of node, in nanoseconds: a measured time takes precedence over the model. */
export type MeasuredTimes = ReadonlyMap<string, number>

type Rate = Exclude<keyof CollectiveModel, 'latency' | 'multiprocessors'>

/** By kind: the rate that it uses, and whether its larger side is the contributions of all ranks together. */
const collectives: Readonly<Record<string, { readonly rate: Rate; readonly all: boolean }>> = {
  allgather: { rate: 'allGather', all: true },
  reducescatter: { rate: 'reduceScatter', all: true },
  allreduce: { rate: 'allReduce', all: false },
  alltoall: { rate: 'allToAll', all: true },
  gather: { rate: 'allToAll', all: true },
  scatter: { rate: 'allToAll', all: true },
  broadcast: { rate: 'broadcast', all: false },
  reduce: { rate: 'broadcast', all: false },
  permute: { rate: 'sendReceive', all: false },
  send: { rate: 'sendReceive', all: false },
  recv: { rate: 'sendReceive', all: false },
  receive: { rate: 'sendReceive', all: false },
}

const kindOf = (name: string): (typeof collectives)[string] | undefined => {
  const plain = name.toLowerCase().replace(/[-_.\s]/g, '')
  return Object.hasOwn(collectives, plain) ? collectives[plain] : undefined
}

/**
 * Names of collectives in any spelling: `allGather`, `all-gather`, `all_gather`. Not `reduce`, `gather`,
 * `scatter` and `permute`, which are kernels.
 */
const byName = new RegExp(
  `^(${Object.keys(collectives)
    .filter(name => !/^(reduce|gather|scatter|permute)$/.test(name))
    .map(name => [...name].join('[-_.\\s]*'))
    .join('|')})$`,
  'i',
)

/** Whether a run exchanges data with other ranks. */
export const isCollective = ({ op, collective }: Pick<Work, 'op' | 'collective'>): boolean =>
  collective !== undefined || byName.test(op)

/** The least bytes that one rank sends or receives in a collective whose larger side has `bytes`. */
const wireBytes = (rate: Rate, bytes: number, ranks: number): number => {
  if (ranks <= 1) return 0
  if (rate === 'allReduce') return (2 * bytes * (ranks - 1)) / ranks
  return rate === 'broadcast' || rate === 'sendReceive' ? bytes : (bytes * (ranks - 1)) / ranks
}

/** Bytes of the larger side: as given, else from the bytes that the run reads and writes. */
const largerSide = (
  { collective, movedBytes = 0 }: Work,
  { rate, all }: (typeof collectives)[string],
  ranks: number,
): number => {
  if (collective !== undefined) return collective.count * elementBytes[collective.dtype] * (all ? ranks : 1)
  return rate === 'allGather' || rate === 'reduceScatter'
    ? (movedBytes * ranks) / (ranks + 1)
    : movedBytes / 2
}

const alone = (
  resource: Resource,
  latency: number,
  work: number,
  { multiprocessors = 0, arithmetic = 0, bandwidth = 0, bus = 0, energy = 0 }: Partial<Demand> = {},
): Demand => ({
  resource,
  nanoseconds: latency + work,
  latency,
  multiprocessors,
  arithmetic,
  bandwidth,
  bus,
  energy,
})

const seconds = 1e9
const share = (part: number, whole: number): number => (whole > 0 ? Math.min(1, part / whole) : 0)

const copy = (
  resource: 'h2d' | 'd2h' | 'peer',
  model: CopyModel,
  bytes: number,
  { device }: Pick<Machine, 'device'>,
): Demand =>
  alone(resource, model.latency, (bytes / model.rate) * seconds, {
    bandwidth: share(model.rate, device.bandwidth),
    bus: resource === 'peer' ? 0 : share(model.rate, device.bus),
  })

const collective = (work: Work, machine: Machine): Demand => {
  const { device, collectives: model } = machine
  const how = kindOf(work.collective?.kind ?? work.op) ?? { rate: 'sendReceive', all: false }
  const ranks = work.ranks ?? work.collective?.ranks ?? machine.ranks
  const larger = largerSide(work, how, ranks)
  const moved = work.movedBytes ?? 2 * larger
  const bytes = wireBytes(how.rate, larger, ranks)
  if (bytes === 0) return kernel({ op: 'copy', movedBytes: moved }, machine)
  const time = (bytes / model[how.rate]) * seconds
  return alone('link', model.latency, time, {
    multiprocessors: share(model.multiprocessors, device.multiprocessors),
    bandwidth: share((moved / device.bandwidth) * seconds, time),
  })
}

/** Nanoseconds to move bytes through device memory, or through its cache where those in use fit. */
const throughMemory = (
  bytes: number,
  { bandwidth, cache, cacheBandwidth }: Machine['device'],
  inUse = bytes,
): number => {
  const kept = Math.max(0, Math.min(1, 2 - (2 * inUse) / cache))
  const fast = Math.max(cacheBandwidth, bandwidth)
  return bytes * ((cache > 0 ? kept : 0) / fast + (1 - (cache > 0 ? kept : 0)) / bandwidth) * seconds
}

/**
 * The tiles among which a library chooses, relative to the machine's: rows, columns, and the part of the full
 * rate that they reach.
 */
const tiles: readonly (readonly [rows: number, columns: number, reach: number])[] = [
  ...[1, 1.125, 1.25, 1.375, 1.5, 1.75, 2].flatMap(long => [[1, long, 1] as const, [long, 1, 1] as const]),
  [0.5, 1, 0.8],
  [1, 0.5, 0.8],
]

/**
 * How a product is divided: the number of `rounds` of tiles, in the last of which multiprocessors may be
 * idle, and the product's operations as a part of those that the device could do meanwhile. The tile size
 * that takes least time.
 */
const cut = (batch: number, m: number, n: number, { tile, multiprocessors }: Machine['device']) => {
  let best = { used: 1, stretch: Number.POSITIVE_INFINITY }
  for (const [rows, columns, reach] of tiles) {
    const [height, width] = [Math.max(1, tile * rows), Math.max(1, tile * columns)]
    const blocks = batch * Math.ceil(m / height) * Math.ceil(n / width)
    const rounds = Math.ceil(blocks / multiprocessors)
    const stretch = (rounds * multiprocessors * height * width) / (batch * m * n * reach)
    if (stretch < best.stretch) best = { used: blocks / (rounds * multiprocessors), stretch }
  }
  return best
}

/** The latest product: of thousands of layers in a graph most have the sizes of the one before. */
let latest = {
  batch: 0,
  m: 0,
  n: 0,
  device: undefined as Machine['device'] | undefined,
  is: { used: 1, stretch: 1 },
}

const cutOf = ({ batch, m, n }: MatmulSpec, device: Machine['device']) => {
  if (latest.batch !== batch || latest.m !== m || latest.n !== n || latest.device !== device)
    latest = { batch, m, n, device, is: cut(batch, m, n, device) }
  return latest.is
}

/**
 * Slow-down of accesses to elements of four bytes in a kernel that also has narrower ones: each thread
 * handles eight of both, so its accesses to the wider ones leave gaps.
 */
const widened = 1.84

/** Bytes that take as long as a fused kernel's accesses. */
const mapBytes = ({ shape, operands, results }: MapSpec, movedBytes: number): number => {
  const all = [...operands, ...results].map(({ dtype }) => elementBytes[dtype])
  if (Math.min(...all) >= 4) return movedBytes
  const wide =
    results.filter(({ dtype, row }) => elementBytes[dtype] >= 4 && row !== true).length +
    operands.filter(isWideAndWhole(shape, operands)).length
  return movedBytes + Math.min(movedBytes, 4 * wide * elements(shape)) * (widened - 1)
}

const isWideAndWhole =
  (shape: readonly number[], operands: MapSpec['operands']) =>
  (operand: MapSpec['operands'][number]): boolean =>
    elementBytes[operand.dtype] >= 4 &&
    shape.every((size, d) => size === 1 || differsAlong(operand, operands, d))

/** The cost of an activation of a product, in instructions. */
const activationSlots = { relu: 1, gelu: 16 } as const

/**
 * Nanoseconds of a product that are not its tiles' products: a tile that is done is scaled, gets its residual
 * and its activation, and is written, and meanwhile its multiprocessor multiplies nothing.
 */
const endOfTiles = ({ m, n, batch, c, epilogue }: MatmulSpec, device: Machine['device']): number => {
  const elements = batch * m * n
  const bytes = elements * elementBytes[c.dtype] * (epilogue?.residual === true ? 2 : 1)
  const { activation } = epilogue ?? {}
  const each = activation === undefined ? 0 : activationSlots[activation]
  return throughMemory(bytes, device) + (operationsOf(elements, each) / device.flops.vector) * seconds
}

const floats = (dtype: DType): FloatType => (isFloat(dtype) ? dtype : 'f32')

/**
 * Of the rate of a library's products what products of one warp reach, which attention and convolutions are
 * made of: 62.9 % of the vendor's figure (Luo et al., arXiv 2402.13499), where libraries reach 89 %.
 */
const ofOneWarp = 0.7
/**
 * Of that, what the kernels of attention's gradients reach, whose registers leave two or three blocks of four
 * warps on a multiprocessor: on an H200, of bf16 and 96 heads of 1,024 rows of 64 (results/models.md).
 */
const ofGradients = 0.47
/**
 * The cost of a score between the two products: scaled, compared, exp, summed, rounded; a sum of values
 * scaled.
 */
const scoreSlots = 11
/** Queries whose scores of a tile of keys are computed even where the causal order hides them. */
const hidden = 64

/** Floating-point operations of products and of everything else that take as long as attention. */
const attentionOperations = (
  spec: AttentionSpec,
  flops: number,
): { readonly products: number; readonly others: number } => {
  const { batch, heads, queries, causal } = spec
  const seen = flops / (2 * attentionProducts(spec))
  const scores = seen + (causal ? Math.min(seen, batch * heads * queries * hidden) : 0)
  return { products: (flops * scores) / (seen || 1), others: operationsOf(scores, scoreSlots) }
}

/** Thread blocks of attention: by rows of the result, or, of few queries, by parts of the keys. */
const blocksOfAttention = (spec: AttentionSpec): number => {
  const { batch, heads, groups, queries, result } = spec
  const together = (heads / groups) * queries
  if (result === undefined && together <= 16) return 8 * batch * groups * Math.ceil(together / 4)
  const [of, rows] = attentionYields(spec)
  return batch * of * Math.ceil(rows / 64)
}

/** Filters in a group for which a thread makes an element of a convolution by itself. */
const fewFilters = 2
/** Channels, and filters, in a group that a thread has at once, and the elements of its kernel at most. */
const [mostGrouped, mostTaps] = [8, 64]
/**
 * How native/cuda/sources/conv.cc divides a convolution: a thread has one element of the result; or all of a
 * group at two places; or tiles are multiplied.
 */
const wayOfConv = ({ channels, filters, spatial, channelsLast }: ConvSpec): 'element' | 'group' | 'tiles' => {
  const taps = spatial.reduce((count, { kernel }) => count * kernel, 1)
  const isGrouped = Math.max(channels, filters) <= mostGrouped && taps <= mostTaps
  if (isGrouped && (channelsLast === true || filters > fewFilters)) return 'group'
  return filters <= fewFilters ? 'element' : 'tiles'
}
/** Of the rate of plain arithmetic, what the first two reach: on an H200, of bf16 (results/libraries.md). */
const ofThreads = { element: 0.08, group: 0.25 } as const

/** Thread blocks of a convolution. */
const blocksOfConv = (spec: ConvSpec): number => {
  const { batch, groups, filters, spatial } = spec
  const places = spatial.reduce((count, dim) => count * convOutput(dim), batch)
  const way = wayOfConv(spec)
  if (way === 'tiles') return groups * Math.ceil(filters / 64) * Math.ceil(places / 128)
  return Math.ceil((groups * places * (way === 'element' ? filters : 0.5)) / 256)
}

const rowsOf = (spec: KernelSpec | undefined): Rows | undefined => {
  if (spec?.kind === 'reduce' && spec.inner === 1) return { count: spec.outer, length: spec.length }
  if (spec?.kind !== 'map' || !hasRows(spec)) return undefined
  const { shape } = spec
  const axis = rowAxis(spec)
  const length = shape[axis] ?? 1
  return { count: elements(shape) / length, length, inner: elements(shape.slice(axis + 1)) }
}

/** The element type that decides how wide the accesses of a kernel are: its narrowest. */
const narrowestOf = (spec: KernelSpec | undefined): DType =>
  spec?.kind !== 'map'
    ? 'f32'
    : [...spec.operands, ...spec.results].reduce<DType>(
        (least, { dtype }) => (elementBytes[dtype] < elementBytes[least] ? dtype : least),
        'f32',
      )

/** Columns side by side that a block of threads has of a reduction that goes across them: 32 accesses. */
export const columnsTogether = (inner: number, dtype: DType): number => {
  const width = Math.min(8, 16 / elementBytes[dtype])
  return Math.min(inner, inner % width === 0 ? 32 * width : 32)
}

/** Columns that a block of threads has of a running sum. */
export const columnsOfScan = 256

/**
 * Thread blocks of a kernel with rows: each has a long row, as many short ones as it has groups of threads,
 * or the rows that its threads read side by side.
 */
const blocksOfRows = ({ count, length, inner = 1 }: Rows, dtype: DType): number => {
  if (inner > 1) return (count / inner) * Math.ceil(inner / columnsTogether(inner, dtype))
  return length > warpRow ? count : Math.ceil((count * Math.min(32, Math.max(8, length / 16))) / 128)
}

/** What a block of threads waits for the first of its row, and at barriers. Nanoseconds. */
const blockLatency = 1350
/** Instructions of fewer warps of a multiprocessor take so much longer: each waits for its own before. */
const [enoughWarps, ofFewWarps] = [32, 1.25]
/** Reads alone take less of the cache than the reads and writes by which its rate was measured. */
const readAlone = 1.3
const paceOf = (kernel: RowKernel | undefined): number =>
  kernel !== undefined && (kernel.together * kernel.block) / 32 < enoughWarps ? ofFewWarps : 1

/**
 * Nanoseconds of rows that have a block of threads each. A block reads its row, computes and goes on to the
 * next while its last writes are on their way; only the other blocks of its multiprocessor fill its pauses.
 * What does not stay in registers or shared memory, and operands that each row reads, come from the cache;
 * where a block has a multiprocessor to itself these come after the row.
 */
const timeOfBlocks = (
  { shape, code, operands }: MapSpec,
  { rows, length, group, together, passes, held, near, isRow, computed, computedAgain }: RowKernel,
  arithmetic: number,
  { bandwidth, cacheBandwidth, multiprocessors }: Machine['device'],
): number => {
  if (length <= warpRow || group === 0) return 0
  let first = 0
  let again = 0
  let operand = 0
  code.forEach(([what, of], j) => {
    if (what !== 'operand' || isRow[j]) return
    const read = operands[of]!
    const bytes = elementBytes[read.dtype] * length
    const isShared = shape.slice(0, -1).every((_, d) => !differsAlong(read, operands, d))
    const times = computedAgain.filter(own => own[j]).length
    const once = computed.some(own => own[j]) ? 1 : 0
    const stays = isShared ? held : near
    const readings = stays * once + (1 - stays) * times
    if (isShared) {
      again += readings * bytes
      operand += once * bytes
    } else {
      first += bytes
      again += Math.max(0, readings - once) * bytes
    }
  })
  const inTurn = multiprocessors * together
  const [own, cached] = [bandwidth / multiprocessors, cacheBandwidth / multiprocessors]
  const reading = (first / own) * seconds
  const computing = (arithmetic * multiprocessors) / rows + reading
  const fromCache = (bytes: number) => (passes < 2 ? 0 : (bytes / (readAlone * cached)) * seconds)
  const after = together === 1 ? reading + fromCache(operand) : 0
  const row = blockLatency + Math.max(computing, fromCache(again), after)
  // The last of the rounds counts whole.
  return Math.ceil(rows / inTurn) * row
}

/**
 * Of the bandwidth, what a kernel reaches whose rows lie side by side, of elements of 4 bytes and of narrower
 * ones (results/models.md).
 */
const acrossReach = { wide: 0.75, narrow: 0.6 } as const
/** The same where a block has a multiprocessor to itself, and so reads while it does not write. */
const aloneReach = 0.95

const kernel = (
  { kernel: spec, flops = 0, movedBytes = 0, workingBytes, rows }: Work,
  { device }: Machine,
): Demand => {
  const { multiprocessors, bytesPerBlock } = device
  const bytes = spec?.kind === 'map' ? mapBytes(spec, movedBytes) + (mapWork(spec).again ?? 0) : movedBytes
  const memory = throughMemory(bytes, device, workingBytes)
  if (spec?.kind === 'matmul') {
    const { used, stretch } = cutOf(spec, device)
    const arithmetic = (flops / device.flops[floats(spec.a.dtype)]) * seconds
    const products = Math.max(arithmetic * stretch + endOfTiles(spec, device), memory)
    const work = products + Math.max(0, device.productLatency - device.kernelLatency)
    const latency = Math.min(device.productLatency, device.kernelLatency)
    return alone(arithmetic * stretch >= memory ? 'tensor' : 'bandwidth', latency, work, {
      multiprocessors: used,
      arithmetic: share(arithmetic, work),
      bandwidth: share(memory, work),
      // Filling pipelines draws power at every clock; the rate that power allows was measured with tiles'
      // ends.
      energy: arithmetic / device.power.products + work - products,
    })
  }
  const reduced = rows ?? rowsOf(spec)
  const isAcross = (reduced?.inner ?? 1) > 1 || (spec?.kind === 'reduce' && spec.inner > 1)
  const narrowest = spec?.kind === 'reduce' ? spec.input : narrowestOf(spec)
  const reach = elementBytes[narrowest] < 4 ? acrossReach.narrow : acrossReach.wide
  const rowsWorked = spec?.kind === 'map' ? mapWork(spec).kernel : undefined
  const isAlone = rowsWorked?.together === 1
  const moving = isAcross ? memory / reach : isAlone ? memory / aloneReach : memory
  const most = reduced === undefined ? Number.POSITIVE_INFINITY : blocksOfRows(reduced, narrowest)
  const used = share(Math.min(most, blocksOf(spec, movedBytes, bytesPerBlock)), multiprocessors)
  // Fewer blocks than multiprocessors occupy proportionally less of the bandwidth and the arithmetic.
  const fast = Math.max(used, 1 / multiprocessors)
  const arithmetic = (arithmeticOf(spec, flops, device) * paceOf(rowsWorked)) / fast
  const inBlocks =
    rowsWorked === undefined ? 0 : timeOfBlocks(spec as MapSpec, rowsWorked, arithmetic * fast, device)
  const positions = spec?.kind === 'reduce' ? timeOfPositions(spec, multiprocessors) : 0
  const work = Math.max(arithmetic, moving / fast, inBlocks, positions)
  return alone(arithmetic > moving / fast ? 'tensor' : 'bandwidth', device.kernelLatency, work, {
    multiprocessors: used,
    bandwidth: share(memory, work),
    energy: used * work * device.power.memory,
  })
}

/** Nanoseconds of the arithmetic of a kernel that fills the device and is no product. */
const arithmeticOf = (
  spec: KernelSpec | undefined,
  flops: number,
  { flops: rates }: Machine['device'],
): number => {
  if (spec?.kind === 'conv') {
    const way = wayOfConv(spec)
    if (way !== 'tiles') return (flops / (rates.vector * ofThreads[way])) * seconds
    if (spec.dtype !== 'f32') return (flops / (rates[spec.dtype] * ofOneWarp)) * seconds
  }
  if (spec?.kind !== 'attention' || spec.dtype === 'f32')
    return ((spec?.kind === 'map' ? operationsOf(mapWork(spec).slots, 1) : flops) / rates.vector) * seconds
  const { products, others } = attentionOperations(spec, flops)
  const reached = ofOneWarp * (spec.result === undefined ? 1 : ofGradients)
  return (products / (rates[spec.dtype] * reached) + others / rates.vector) * seconds
}

/** Thread blocks of any other kernel. A kernel without figures fills the device. */
const blocksOf = (spec: KernelSpec | undefined, movedBytes: number, bytesPerBlock: number): number => {
  if (spec?.kind === 'cuda') return spec.grid[0] * spec.grid[1] * spec.grid[2]
  if (spec?.kind === 'attention') return blocksOfAttention(spec)
  if (spec?.kind === 'conv') return blocksOfConv(spec)
  if (spec?.kind === 'reduce' && spec.inner > 1)
    return spec.outer * Math.ceil(spec.inner / columnsTogether(spec.inner, spec.input))
  if (spec?.kind === 'scan' && spec.inner > 1) return Math.ceil((spec.outer * spec.inner) / columnsOfScan)
  if (spec?.kind === 'scan') return Math.ceil(spec.outer / (spec.length > warpRow ? 1 : 8))
  return movedBytes > 0 ? Math.ceil(movedBytes / bytesPerBlock) : Number.POSITIVE_INFINITY
}

const modelled = (work: Work, machine: Machine): Demand => {
  const { op, kind = op, movedBytes = 0 } = work
  const bytes = work.kernel?.kind === 'copy' ? work.kernel.bytes : movedBytes / 2
  switch (kind) {
    case 'upload':
      return copy('h2d', machine.device.h2d, bytes, machine)
    case 'download':
      return copy('d2h', machine.device.d2h, bytes, machine)
    case 'peer':
      return copy('peer', machine.peer, bytes, machine)
    case 'host':
      return alone('host', machine.host.callback, (movedBytes / machine.host.bandwidth) * seconds)
  }
  return isCollective(work) ? collective(work, machine) : kernel(work, machine)
}

/**
 * The time of a run without concurrent runs, and its demands. A measured time scales its work; its latency
 * stays as far as it fits.
 */
export const demandOf = (work: Work, machine: Machine, measured?: MeasuredTimes): Demand => {
  const model = modelled(work, machine)
  const time = work.name === undefined ? undefined : measured?.get(work.name)
  if (time === undefined || !(time >= 0)) return model
  const latency = Math.min(model.latency, time)
  // The same bytes and operations in another time occupy another part of the device.
  const pace = time > latency ? (model.nanoseconds - model.latency) / (time - latency) : 1
  const { arithmetic, bandwidth, bus, energy } = model
  return {
    ...model,
    nanoseconds: time,
    latency,
    arithmetic: Math.min(1, arithmetic * pace),
    bandwidth: Math.min(1, bandwidth * pace),
    bus: Math.min(1, bus * pace),
    energy: Math.min(energy, time),
  }
}

/** A run's demand where it is a node of a graph: a kernel starts sooner after the one before it. */
export const asNode = (demand: Demand, { device }: Machine): Demand => {
  const { resource, latency, nanoseconds } = demand
  if (resource !== 'tensor' && resource !== 'bandwidth') return demand
  const sooner = Math.max(0, latency - device.nodeLatency)
  return { ...demand, latency: latency - sooner, nanoseconds: nanoseconds - sooner }
}

/** The resource that bounds a run, and its time without concurrent runs, in nanoseconds. */
export const costOf = (work: Work, machine: Machine, measured?: MeasuredTimes): Cost => {
  const { resource, nanoseconds } = demandOf(work, machine, measured)
  return { resource, nanoseconds }
}

/** Nanoseconds of the issuing thread to start a run. */
export const callOf = ({ kernel }: Pick<Work, 'kernel'>, { resource }: Cost, { host }: Machine): number => {
  if (kernel?.kind === 'matmul') return host.product
  if (resource === 'h2d' || resource === 'd2h' || resource === 'peer') return host.copy
  return resource === 'link' ? host.collective : host.launch
}
