import type { DType, FloatType } from './tensor.js'

/**
 * The work of a `run` command as data: the instruction set that every device implements. An operator's
 * `lower` makes one; `native/kernels/` reads it. Reads and writes are those of the command, in its order.
 */
export type KernelSpec =
  | CopySpec
  | MapSpec
  | MatmulSpec
  | AttentionSpec
  | ConvSpec
  | ReduceSpec
  | ScanSpec
  | GatherSpec
  | ScatterAddSpec
  | AppendSpec
  | JoinSpec
  | RandomSpec
  | CudaSpec

/**
 * reads [source …], writes [target]: `bytes` bytes, in whichever direction their spaces ask for. Of several
 * sources, which all lie in one space, each gives the same number of bytes, one after the other.
 */
export interface CopySpec {
  readonly kind: 'copy'
  readonly bytes: number
  /** How many sources; absent: one. */
  readonly parts?: number
}

/**
 * One fused elementwise kernel over `shape`. Operand i is read at the element offset `offset + Σ index[d] ·
 * strides[d]` (stride 0 broadcasts, other strides make slices), or, where it is `indexed`, further on from
 * there; every result is written densely, row-major.
 *
 * `code` is in single assignment: instruction j yields value j, arguments name earlier values. All values are
 * f32 when `compute` is `f32`, and i32 when it is `i32`; loads widen, stores narrow (f16/bf16 round to
 * nearest even; f32 → u8/i32 truncates toward zero and saturates, NaN → 0; i32 → u8 saturates; i32 → float is
 * done by a `f32` map: loads of i32/u8 convert).
 *
 * A row are the elements along one dimension of `shape`: `axis`, or the last one. `rowSum`, `rowMean`, `rowMax` and `rowMin` are
 * one number a row, and so is what is computed of such numbers, of constants and of operands that are the
 * same along the row; elsewhere it stands for each element of the row. Sums are of f32 (i32, which wraps); on
 * `host` from the first element to the last. No more than 64 reductions follow from one another.
 */
export interface MapSpec {
  readonly kind: 'map'
  readonly shape: readonly number[]
  /** The dimension along which rows lie; absent: the last one. */
  readonly axis?: number
  readonly compute: 'f32' | 'i32'
  readonly operands: readonly MapOperand[]
  readonly code: readonly MapInstruction[]
  /** The value written to each write of the command, and its element type. */
  readonly results: readonly MapResult[]
}

export interface MapResult {
  readonly value: number
  readonly dtype: DType
  /** The value is one number a row and is written once a row: densely, over the other dimensions. */
  readonly row?: true
}

export interface MapOperand {
  readonly dtype: DType
  readonly offset: number
  readonly strides: readonly number[]
  readonly indexed?: MapIndex
}

/**
 * The element lies `i · step` further on, where i is what operand `by` has at this point: one of i32, which
 * is not indexed itself. Where i is outside of 0 to length − 1 the value is 0, and nothing is read.
 */
export interface MapIndex {
  readonly by: number
  readonly length: number
  readonly step: number
}

/** What a value is once it has been stored as this element type and loaded again. */
const mapRoundings = ['f16', 'bf16', 'i32', 'u8'] as const
export type MapRounding = (typeof mapRoundings)[number]

export const mapUnary = [
  'neg',
  'abs',
  'exp',
  'log',
  'sqrt',
  'rsqrt',
  'tanh',
  'erf',
  'sigmoid',
  'sin',
  'cos',
  'floor',
  'ceil',
  'round',
  ...mapRoundings,
] as const
export type MapUnary = (typeof mapUnary)[number]

export const mapRowReductions = ['rowSum', 'rowMean', 'rowMax', 'rowMin'] as const
export type MapRowReduction = (typeof mapRowReductions)[number]

export const mapBinary = [
  'add',
  'sub',
  'mul',
  'div',
  'min',
  'max',
  'pow',
  'floorDiv',
  'mod',
  'lt',
  'le',
  'eq',
] as const
export type MapBinary = (typeof mapBinary)[number]

/**
 * `floorDiv` is the quotient rounded down, and `mod` what remains, with the sign of the divisor; of whole numbers
 * divided by 0 both are 0.
 * `index` is the index of the element along a dimension of `shape`. `select` takes its second argument where
 * the first is not 0, else its third. Comparisons yield 1 or 0.
 */
export type MapInstruction =
  | readonly ['operand', number]
  | readonly ['const', number]
  | readonly ['index', number]
  | readonly [MapUnary | MapRowReduction, number]
  | readonly [MapBinary, number, number]
  | readonly ['select', number, number, number]

/**
 * reads [a, b], then the bias and the residual where the epilogue has them, writes [c], then the auxiliary
 * output where the epilogue has one, then the workspace where there is one: c[i] = a[i] · b[i] for i < batch,
 * row-major, accumulated in f32. a is m × k (k × m when `transposeA`), b is k × n (n × k when `transposeB`),
 * c is m × n.
 */
export interface MatmulSpec {
  readonly kind: 'matmul'
  readonly m: number
  readonly n: number
  readonly k: number
  readonly batch: number
  /** Absent: false. */
  readonly transposeA?: boolean
  readonly transposeB: boolean
  readonly a: MatmulOperand
  readonly b: MatmulOperand
  readonly c: { readonly dtype: DType; readonly batchStride: number }
  /** Bytes of scratch that the last write offers to the library; 0: there is no such write. */
  readonly workspace: number
  /** Absent: c is the product. */
  readonly epilogue?: MatmulEpilogue
}

/** Where the matrices of an operand lie, in elements. */
export interface MatmulOperand {
  readonly dtype: DType
  /** From one matrix to the next; 0 shares one. */
  readonly batchStride: number
  /** From one row, as it lies in memory, to the next, at least a row's elements; absent: as many. */
  readonly rowStride?: number
  /** The first element; absent: 0. */
  readonly offset?: number
}

/** Elements of an operand of `rows` × `columns` as they lie in memory: the first, and one beyond the last. */
export const matmulReach = (
  { batchStride, rowStride, offset = 0 }: MatmulOperand,
  batch: number,
  [rows, columns]: readonly [number, number],
): readonly [number, number] => [
  offset,
  offset + (batch - 1) * batchStride + (rows - 1) * (rowStride ?? columns) + columns,
]

/**
 * c is activation(scale · product + bias) + residual, computed in f32 and rounded once. The residual is not
 * combined with an activation. Both have the element type of c.
 */
export interface MatmulEpilogue {
  /** Absent: 1. */
  readonly scale?: number
  /** n elements, one for each column. */
  readonly bias?: true
  /** `gelu` is its form by tanh. */
  readonly activation?: 'relu' | 'gelu'
  /**
   * What the activation is computed of is written too: laid out and rounded as c, and aligned to
   * `auxiliaryAlignment` bytes. On a device that computes the activation apart, it is computed of what was
   * rounded.
   */
  readonly auxiliary?: true
  /** Laid out as c. */
  readonly residual?: true
}

export const auxiliaryAlignment = 16

/**
 * What a kernel of attention yields for its gradients: the logarithm of the sum of exp(score) of each query,
 * or the gradient of the queries, the keys or the values.
 */
export const attentionResults = ['logSumExp', 'byQueries', 'byKeys', 'byValues'] as const
export type AttentionResult = (typeof attentionResults)[number]

/**
 * reads [q, k, v], then the mask and the length where the spec has them, writes [y]: softmax(q · kᵀ · scale)
 * · v, scores and softmax in f32. q is batch × heads × queries × size, k batch × groups × keys × size, v
 * batch × groups × keys × valueSize and y batch × heads × queries × valueSize, each row dense and each at
 * strides of its own, so that views need no copy. heads / groups heads after one another read one group.
 *
 * A query sees a key whose mask is not 0. The `length` is one i32: only as many keys, the first ones, are
 * seen. With `causal` the last query sees the last of these, the query before it one fewer. A query that sees
 * no key is NaN. The values of keys that no query sees are finite, or not read.
 *
 * With a `result` that is a gradient three more reads follow: dy, the gradient of the attended values, which
 * lies as the spec says; and for each query, dense and of f32, the logarithm that `logSumExp` yields and the
 * sum of dy · y. A query that sees no key adds nothing. The logarithms are dense too, and of f32.
 */
export interface AttentionSpec {
  readonly kind: 'attention'
  readonly batch: number
  readonly heads: number
  readonly groups: number
  readonly queries: number
  readonly keys: number
  readonly size: number
  readonly valueSize: number
  readonly causal: boolean
  readonly scale: number
  /** Of q, k, v and y. */
  readonly dtype: FloatType
  readonly q: AttentionOperand
  readonly k: AttentionOperand
  readonly v: AttentionOperand
  readonly y: AttentionOperand
  /** Absent: the attended values. `y` lies over groups and keys where it is the gradient of these. */
  readonly result?: AttentionResult
  /** Where the result is a gradient. */
  readonly dy?: AttentionOperand
  /** After y the logarithms are written, which `logSumExp` yields. With neither a result nor `appended`. */
  readonly logs?: true
  /** With the result `byKeys`: after y the gradient of the values is written, which lies so. */
  readonly dv?: AttentionOperand
  /** Strides over batch, heads, queries and keys, in elements; 0 broadcasts. Absent: every key is seen. */
  readonly mask?: {
    readonly dtype: 'u8' | 'i32'
    readonly strides: readonly [number, number, number, number]
  }
  /** Absent: all keys are there. */
  readonly length?: true
  /**
   * So many rows are written into the keys and values first, as by two `append`s. Then the last reads are the
   * rows of the keys, batch × groups × appended × size, those of the values, and their position, one i32; and
   * the writes are [y, k, v], the latter two the memory of reads 1 and 2. Only where at most `mostSharing`
   * queries share keys, of at most `mostAppended` elements a row. Absent: none.
   */
  readonly appended?: number
  /** Bytes of scratch that the last write offers to the library; absent: there is no such write. */
  readonly workspace?: number
}

/** The sizes of what attention yields: heads, rows and elements of a row in each batch. */
export const attentionYields = ({
  result,
  heads,
  groups,
  queries,
  keys,
  size,
  valueSize,
}: AttentionSpec): readonly [heads: number, rows: number, row: number] => {
  if (result === 'byKeys') return [groups, keys, size]
  if (result === 'byValues') return [groups, keys, valueSize]
  return [heads, queries, result === 'logSumExp' ? 1 : result === 'byQueries' ? size : valueSize]
}

/** Multiplications for each score of a query by a key. */
export const attentionProducts = ({ result, size, valueSize, dv }: AttentionSpec): number => {
  if (result === 'logSumExp') return size
  const more = result === 'byQueries' || result === 'byKeys' ? size : 0
  return size + valueSize + more + (dv === undefined ? 0 : valueSize)
}

export const isAttentionGradient = ({ result }: AttentionSpec): boolean =>
  result !== undefined && result !== 'logSumExp'

/** Of attention that appends rows: queries that share keys, and elements of a row, at most. */
export const mostSharing = 16
export const mostAppended = 256

/** Whether the kernel of attention can append so many rows. */
export const canAppend = (
  { heads, groups, queries, keys, size, valueSize }: AttentionSpec,
  appended: number,
): boolean =>
  (heads / groups) * queries <= mostSharing && Math.max(size, valueSize) <= mostAppended && appended <= keys

/** The first element, and the strides over batch, heads (or groups) and rows, in elements. */
export interface AttentionOperand {
  readonly offset: number
  readonly strides: readonly [batch: number, head: number, row: number]
}

/**
 * reads [x, w], writes [y], all row-major: the cross-correlation of x with the filters w, accumulated in f32.
 * x is batch × (groups · channels) × each `input`, w is (groups · filters) × channels × each `kernel`, and y
 * is batch × (groups · filters) × each size that `convOutput` yields. With one spatial dimension
 *
 *   y[b, g · filters + f, o] = Σ over c < channels and t < kernel of
 *     x[b, g · channels + c, o · stride + t · dilation − before] · w[g · filters + f, c, t],
 *
 * where an element of x outside of 0 to input − 1 is 0, and is not read; with several each has an o and a t
 * of its own. Where `channelsLast` the channels of x, w and y are their last dimension.
 */
export interface ConvSpec {
  readonly kind: 'conv'
  readonly batch: number
  /** Parts of the channels that have filters of their own. */
  readonly groups: number
  /** Of x, in each group. */
  readonly channels: number
  /** Channels of y, in each group. */
  readonly filters: number
  /** Of x, w and y. */
  readonly dtype: FloatType
  /** The spatial dimensions, from the outermost: one to three. */
  readonly spatial: readonly ConvDim[]
  readonly channelsLast?: true
  /** Bytes of scratch that the last write offers to the library; absent: there is no such write. */
  readonly workspace?: number
}

/** One spatial dimension of a convolution; all in elements. */
export interface ConvDim {
  /** The sizes of x and of w. */
  readonly input: number
  readonly kernel: number
  /** From one place of the kernel to the next. */
  readonly stride: number
  /** From one element of the kernel to the next, in x. */
  readonly dilation: number
  /** Zeros before the first element and after the last one. */
  readonly before: number
  readonly after: number
}

/**
 * Elements of a group of channels of x with the zeros around them; at most as many as a number holds exactly.
 */
export const paddedOf = (channels: number, spatial: readonly ConvDim[]): number =>
  spatial.reduce((count, { before, input, after }) => count * (before + input + after), channels)

/** Spatial dimensions, at most. */
export const mostSpatial = 3

/** Places of the kernel along a dimension; below 1 where it is larger than the padded input. */
export const convOutput = ({ input, kernel, stride, dilation, before, after }: ConvDim): number =>
  Math.floor((before + input + after - dilation * (kernel - 1) - 1) / stride) + 1

/**
 * reads [x] as outer × length × inner, writes [y] as outer × inner. Accumulates in f32 (i32 for i32 and u8).
 * `argmax` and `argmin` yield the position along the length, as i32, of the first of equal elements; a NaN is
 * larger and smaller than every number. With a `count` they write outer × count × inner: the positions of the
 * `count` best elements, best first.
 */
export interface ReduceSpec {
  readonly kind: 'reduce'
  readonly how: 'sum' | 'mean' | 'max' | 'min' | 'argmax' | 'argmin'
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly input: DType
  readonly output: DType
  /** Of `argmax` and `argmin`, at most the length; absent: one. */
  readonly count?: number
}

/**
 * reads [x], writes [y], both outer × length × inner: each element is the sum of those along the length up to
 * its own place. Accumulates in f32 (i32, which wraps, for i32 and u8).
 */
export interface ScanSpec {
  readonly kind: 'scan'
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly input: DType
  readonly output: DType
}

/**
 * reads [x, indices], writes [y]: x is outer × length × inner, indices are `count` of i32, y is outer × count
 * × inner, y[o, j] = x[o, indices[j]]. With `along` the indices are outer × count × inner, and y[o, j, i] =
 * x[o, indices[o, j, i], i]. An index outside of 0 to length − 1 takes zeros, and nothing is read.
 */
export interface GatherSpec {
  readonly kind: 'gather'
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly count: number
  readonly dtype: DType
  /** An index for each element; absent: one for each row. */
  readonly along?: true
}

/**
 * reads [x, indices, order], writes [y]: x is outer × count × inner, indices are `count` of i32, y is outer ×
 * length × inner, y[o, n] = the sum of all x[o, j] with indices[j] = n; floats are added in f64, i32 and u8
 * wrap in i32. `order` are the places 0 to count − 1 of the indices, the smallest index first and of equal
 * ones the first place; another order is no error, and leaves out rows.
 */
export interface ScatterAddSpec {
  readonly kind: 'scatterAdd'
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly count: number
  readonly input: DType
  readonly output: DType
}

/**
 * reads [x, rows, at], writes [x]: x is outer × length × inner, rows are outer × count × inner, `at` is one
 * i32. x[o, at + j] = rows[o, j], for each j whose place is inside of x. The write is the memory of the first
 * read, of which all else stays.
 */
export interface AppendSpec {
  readonly kind: 'append'
  readonly outer: number
  readonly length: number
  readonly inner: number
  readonly count: number
  readonly dtype: DType
}

/**
 * reads [source …], writes [y]: y is outer × (the lengths of all pieces) × inner, its pieces one after the
 * other. A piece is a source of outer × length × inner, or the number `fill`.
 */
export interface JoinSpec {
  readonly kind: 'join'
  readonly outer: number
  readonly inner: number
  readonly dtype: DType
  readonly pieces: readonly JoinPiece[]
}

export interface JoinPiece {
  readonly length: number
  /** Absent: the piece is the next source. */
  readonly fill?: number
}

/**
 * reads [any, counter], writes [y] of `count` elements: random numbers by Philox4x32-10 (Salmon et al., SC
 * 2011). Elements 4b to 4b + 3 are the four words of the counter (b mod 2^32, b / 2^32, the i32 that is read,
 * `stream`) under the key `seed`. As f32, f16 and bf16 they are the first 24, 11 and 8 bits of the word, in
 * [0, 1); as i32 the whole word. Of the first read nothing is used.
 */
export interface RandomSpec {
  readonly kind: 'random'
  readonly count: number
  readonly seed: number
  readonly stream: number
  readonly dtype: FloatType | 'i32'
}

/**
 * A user's kernel. `source` is CUDA C++ with `extern "C" __global__ void name(...)`; its arguments are a
 * pointer for each read, a pointer for each write (a donated write's pointer is its read's), then `scalars`
 * in order. On `host` the kernel's TypeScript reference computes it; the reference accompanies the plan and
 * is not in it.
 */
export interface CudaSpec {
  readonly kind: 'cuda'
  readonly name: string
  readonly source: string
  readonly grid: readonly [number, number, number]
  readonly block: readonly [number, number, number]
  readonly sharedBytes: number
  readonly scalars: readonly ({ readonly i32: number } | { readonly f32: number })[]
  /** `false`: its runs are in no executable graph. */
  readonly graph?: false
}
