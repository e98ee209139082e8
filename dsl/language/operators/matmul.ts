import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { MatmulEpilogue, MatmulOperand, MatmulSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type Dim,
  type DType,
  elements,
  isFloat,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, numbers, roundoff, stored } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { expandOperator } from './expand.js'
import type { Attrs, Operator } from './operator.js'
import { withOptions } from './options.js'
import { broadcast } from './shapes.js'
import type { Broadcast, Device, Floats, Invalid, SameDim, SameDType, Shape } from './types.js'

/**
 * Workspace that a large product offers to the library, one buffer a lane: as much as cuBLASLt's heuristics
 * use on Hopper. A convolution offers no more.
 */
export const workspaceBytes = 32 * 1024 * 1024
const wantsWorkspace = 2 ** 33

export interface MatmulOptions {
  /** Take the weight as [n, k]: y = x · wᵀ. */
  readonly transpose?: boolean
}

/** Which operands are read with their last two axes in the other order. */
interface MatmulAttrs {
  readonly transpose: boolean
  /** Absent: false. */
  readonly transposeX?: true
  /** The element type of the result; absent: that of the operands. */
  readonly to?: DType
  /** Of a node that the pass `fuse` made: its further inputs are the bias and the residual. */
  readonly epilogue?: MatmulEpilogue
  /** Likewise: operands of these shapes that lie in what the inputs are. */
  readonly reads?: readonly (MatmulRead | null)[]
}

/** A matrix that is read where it lies in another value, whether or not it lies there transposed. */
export interface MatmulRead {
  readonly shape: readonly number[]
  readonly transposed: boolean
  readonly lies: Pick<MatmulOperand, 'batchStride' | 'rowStride' | 'offset'>
}

const attrsFrom = (attrs: Attrs): MatmulAttrs => attrs as unknown as MatmulAttrs

/** The last two sizes of a matrix, and of one that is read transposed in the other order. */
const lastTwo = <D extends Dim>(shape: readonly D[], transposed: boolean): readonly [D, D] => {
  const [first, second] = shape.slice(-2) as [D, D]
  return transposed ? [second, first] : [first, second]
}

const areOnes = (shape: readonly Dim[]): boolean => shape.every(size => size === 1)

/** The leading dimensions of the product; undefined where they do not fit. */
const leading = (x: readonly Dim[], w: readonly Dim[]): readonly Dim[] | undefined => {
  const both = broadcast([x, w])
  const fits = (own: readonly Dim[]): boolean =>
    areOnes(own) || (own.length === both?.length && own.every((size, d) => size === both[d]))
  return both !== undefined && fits(x) && fits(w) ? both : undefined
}

const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const [x, w] = inputs as readonly [TensorSpec, TensorSpec]
  const { transpose, transposeX = false } = attrsFrom(attrs)
  const found = `${showSpec(x)}${transposeX ? ', transposed,' : ''} and ${showSpec(w)}${transpose ? ', transposed' : ''}`
  if (!isFloat(x.dtype))
    return E.left(dtypeMismatch('floats: f32, f16 or bf16', found, "cast first: pipe(cast('f32'))"))
  if (x.dtype !== w.dtype)
    return E.left(
      dtypeMismatch(
        'operands of one element type',
        found,
        `cast one of them, as in pipe(cast('${x.dtype}'))`,
      ),
    )
  if (x.shape.length < 2 || w.shape.length < 2)
    return E.left(
      shapeMismatch('matrices: at least two dimensions each', found, 'reshape a vector to [1, k] or [k, 1]'),
    )
  const [rows, inner] = lastTwo(x.shape, transposeX)
  const [own, columns] = lastTwo(w.shape, transpose)
  if (inner !== own)
    return E.left(
      shapeMismatch(
        `equal inner dimensions: ${inner} columns of x, so ${transpose ? 'columns' : 'rows'} of w`,
        found,
        transpose
          ? `give a weight of shape [n, ${inner}]`
          : `give a weight of shape [${inner}, n], or say { transpose: true } for one of [n, k]`,
      ),
    )
  const lead = leading(x.shape.slice(0, -2), w.shape.slice(0, -2))
  return lead === undefined
    ? E.left(
        shapeMismatch(
          'leading dimensions that broadcast: equal, 1 or missing, and numbers where an operand is to be repeated',
          found,
          'reshape one of them',
        ),
      )
    : E.right({ dtype: attrsFrom(attrs).to ?? x.dtype, shape: [...lead, rows, columns] })
}

/**
 * The product as the devices compute it: leading dimensions of x are rows where the weight is shared, a batch
 * where it is not.
 */
export const matmulSpec = (given: BoundSpec, givenW: BoundSpec, attrs: Attrs): MatmulSpec => {
  const { transpose, transposeX = false, to = given.dtype, epilogue, reads = [] } = attrsFrom(attrs)
  const [x, w] = [given, givenW].map((spec, i) => ({ ...spec, shape: reads[i]?.shape ?? spec.shape })) as [
    BoundSpec,
    BoundSpec,
  ]
  const [rows, k] = lastTwo(x.shape, transposeX)
  const [, n] = lastTwo(w.shape, transpose)
  const [ofX, ofW] = [elements(x.shape.slice(0, -2)), elements(w.shape.slice(0, -2))]
  // Matrices whose rows follow one another are one matrix of more rows.
  const tall = ofW === 1 && !transposeX
  const m = tall ? ofX * rows : rows
  const batch = tall ? 1 : Math.max(ofX, ofW)
  const { dtype } = x
  const [a, b] = reads
  return {
    kind: 'matmul',
    m,
    n,
    k,
    batch,
    ...((a?.transposed ?? transposeX) ? { transposeA: true } : {}),
    transposeB: b?.transposed ?? transpose,
    a: { dtype, batchStride: batch === 1 || ofX === 1 ? 0 : m * k, ...a?.lies },
    b: { dtype, batchStride: batch === 1 || ofW === 1 ? 0 : k * n, ...b?.lies },
    c: { dtype: to, batchStride: batch === 1 ? 0 : m * n },
    workspace: 2 * batch * m * n * k >= wantsWorkspace ? workspaceBytes : 0,
    ...(epilogue === undefined ? {} : { epilogue }),
  }
}

type Numbers = HostArray | Float32Array

const reference = (
  inputs: readonly HostArray[],
  specs: readonly BoundSpec[],
  output: BoundSpec,
  attrs: Attrs,
): HostArray => {
  const [xSpec, wSpec] = specs as readonly [BoundSpec, BoundSpec]
  const { m, n, k, batch, transposeA, transposeB, a, b } = matmulSpec(xSpec, wSpec, attrs)
  const x = numbers(inputs[0]!, xSpec.dtype)
  const w = numbers(inputs[1]!, wSpec.dtype)
  const [stepR, stepQ] = transposeA ? [1, m] : [k, 1]
  // Sums in f64, rounded once: every order of f32 additions is close to that.
  const sums = new Float64Array(elements(output.shape))
  const left = new Float64Array(k)
  for (let i = 0; i < batch; i++) {
    const right = w.subarray(i * b.batchStride, i * b.batchStride + k * n)
    for (let r = 0; r < m; r++) {
      for (let q = 0; q < k; q++) left[q] = x[i * a.batchStride + r * stepR + q * stepQ]!
      const row = sums.subarray((i * m + r) * n, (i * m + r + 1) * n)
      if (transposeB) addColumns(row, left, right)
      else addRows(row, left, right)
    }
  }
  return stored(sums, output.dtype)
}

/** row[c] += Σ left[q] · rows[q, c], in order of q. Four rows at a time, so that a sum is loaded once for four. */
const addRows = (row: Float64Array, left: Float64Array, rows: Numbers): void => {
  const [n, k] = [row.length, left.length]
  let q = 0
  for (; q + 4 <= k; q += 4) {
    const [a, b, c, d] = [q * n, (q + 1) * n, (q + 2) * n, (q + 3) * n]
    const [p, r, s, t] = [left[q]!, left[q + 1]!, left[q + 2]!, left[q + 3]!]
    for (let i = 0; i < n; i++)
      row[i] = row[i]! + p * rows[a + i]! + r * rows[b + i]! + s * rows[c + i]! + t * rows[d + i]!
  }
  for (; q < k; q++) for (let i = 0; i < n; i++) row[i]! += left[q]! * rows[q * n + i]!
}

/** row[c] += Σ left[q] · columns[c, q], in order of q. Four columns at a time: four sums do not wait for one another. */
const addColumns = (row: Float64Array, left: Float64Array, columns: Numbers): void => {
  const [n, k] = [row.length, left.length]
  let i = 0
  for (; i + 4 <= n; i += 4) {
    const [a, b, c, d] = [i * k, (i + 1) * k, (i + 2) * k, (i + 3) * k]
    let [p, r, s, t] = [row[i]!, row[i + 1]!, row[i + 2]!, row[i + 3]!]
    for (let q = 0; q < k; q++) {
      const each = left[q]!
      p += each * columns[a + q]!
      r += each * columns[b + q]!
      s += each * columns[c + q]!
      t += each * columns[d + q]!
    }
    row[i] = p
    row[i + 1] = r
    row[i + 2] = s
    row[i + 3] = t
  }
  for (; i < n; i++) for (let q = 0; q < k; q++) row[i]! += left[q]! * columns[i * k + q]!
}

/** x · w, accumulated in f32 for every element type; see `matmul`. */
export const matmulOperator: Operator = {
  name: 'matmul',
  infer,
  lower: (inputs, output, attrs) => {
    const [x, w] = inputs as readonly [BoundSpec, BoundSpec]
    const kernel = matmulSpec(x, w, attrs)
    const { reads = [] } = attrsFrom(attrs)
    return {
      as: 'run',
      kernel,
      flops: 2 * kernel.batch * kernel.m * kernel.n * kernel.k,
      movedBytes: inputs.reduce(
        (sum, { dtype, shape }, i) => sum + tensorBytes({ dtype, shape: reads[i]?.shape ?? shape }),
        tensorBytes(output),
      ),
      workspace: kernel.workspace,
    }
  },
  withEmpty: () => 0,
  reference,
  // k products added in f32 in any order, each addition rounded, and one rounding to the type, which may go
  // the other way on a device.
  tolerance: (output, [x, w], attrs) =>
    (x && w ? matmulSpec(x, w, attrs).k : 1) * roundoff.f32 +
    (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype]),
  scale: ([x, w]) => (x ?? 0) * (w ?? 0),
}

type Transposed<O> = O extends { readonly transpose: true } ? true : false
type WeightK<W extends Shape, T> = W extends readonly [...Shape, infer A extends Dim, infer B extends Dim]
  ? T extends true
    ? B
    : A
  : Dim
type WeightN<W extends Shape, T> = W extends readonly [...Shape, infer A extends Dim, infer B extends Dim]
  ? T extends true
    ? A
    : B
  : Dim

export type MatmulFits<S extends Shape, W extends Shape, T> = S extends readonly [
  ...Shape,
  infer _M extends Dim,
  infer K extends Dim,
]
  ? SameDim<K, WeightK<W, T>> extends true
    ? unknown
    : Invalid<'the inner dimensions of matmul differ', readonly [K, WeightK<W, T>]>
  : number extends S['length']
    ? unknown
    : Invalid<'matmul wants at least two dimensions', S>

/** The leading dimensions of the product: those of one side, where the other has none. */
type Lead<A extends Shape, B extends Shape> = A extends readonly []
  ? B
  : B extends readonly []
    ? A
    : Broadcast<A, B>

export type ProductShape<S extends Shape, W extends Shape, T> = S extends readonly [
  ...infer A extends Shape,
  infer M extends Dim,
  Dim,
]
  ? W extends readonly [...infer B extends Shape, Dim, Dim]
    ? readonly [...Lead<A, B>, M, WeightN<W, T>]
    : Shape
  : Shape

/** The value of which a flow is the transpose in its last two axes; undefined where it is none. */
const untransposed = (flow: unknown): FlowValue | undefined => {
  if (!(flow instanceof FlowValue)) return undefined
  const { builder, id, place, hint } = flow
  const { op, attrs, inputs } = builder.nodes[id]!
  const axes = op === 'transpose' ? (attrs['axes'] as readonly number[] | undefined) : undefined
  const last = (axes?.length ?? 0) - 2
  const swapped = (axis: number, d: number) => axis === (d < last ? d : d === last ? last + 1 : last)
  return last >= 0 && axes?.every(swapped)
    ? new FlowValue(builder, inputs[0]!, builder.nodes[inputs[0]!]!.spec, place, hint)
    : undefined
}

/**
 * Both operands, each repeated along the leading dimensions of the other where that takes more than to share
 * one matrix or to pair them.
 */
const withLeading = (at: Where, x: unknown, w: unknown): readonly [unknown, unknown] => {
  if (!(x instanceof FlowValue && w instanceof FlowValue)) return [x, w]
  const [ofX, ofW] = [x.spec.shape.slice(0, -2), w.spec.shape.slice(0, -2)]
  const both = broadcast([ofX, ofW])
  const isKnown = both?.every(size => typeof size === 'number') && x.builder === w.builder
  if (both === undefined || !isKnown || leading(ofX, ofW) !== undefined) return [x, w]
  const repeated = (flow: FlowValue, own: readonly Dim[]): FlowValue =>
    areOnes(own) || (own.length === both.length && own.every((size, d) => size === both[d]))
      ? flow
      : apply(expandOperator, at, flow, [], { shape: [...both, ...flow.spec.shape.slice(-2)] })
  return [repeated(x, ofX), repeated(w, ofW)]
}

/**
 * The matrix product x · w of floats, accumulated in f32: x is [..., m, k]; w is [..., k, n], or [..., n, k]
 * with `transpose: true`. Leading dimensions broadcast (numpy.matmul, torch.matmul); where one side has none,
 * or ones, its matrix is shared by all, else an operand may be repeated for it. The result has x's element
 * type. An operand that is a `transpose` of its last two axes is read where it lies.
 */
export const matmul = <E extends DType, W extends Shape, const O extends MatmulOptions = MatmulOptions>(
  w: Device<E, W>,
  options?: O,
) => {
  const at = here()
  const product = (x: unknown): unknown => {
    const [left, right] = [untransposed(x), untransposed(w)]
    const [a, b] = withLeading(at, left ?? x, right ?? w)
    return apply(
      matmulOperator,
      at,
      a,
      [['the weight', b]],
      withOptions(options, ['transpose'], (): E.Either<UnplacedError, Attrs> => {
        const transpose: unknown = options?.transpose ?? false
        return typeof transpose === 'boolean'
          ? E.right({
              transpose: right === undefined ? transpose : !transpose,
              ...(left === undefined ? {} : { transposeX: true }),
            })
          : E.left(badAttribute('transpose: true or false', show(transpose), 'give a boolean'))
      }),
    )
  }
  return product as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & SameDType<D, E> & MatmulFits<S, W, Transposed<O>>,
  ) => Device<D, ProductShape<S, W, Transposed<O>>>
}
