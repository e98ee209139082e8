import * as E from 'fp-ts/lib/Either.js'
import type { MatmulSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type Dim,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, hostArray, numbers, roundoff, writer } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isFloat } from './elementwise.js'
import type { Attrs, Operator } from './operator.js'
import type { Device, Floats, Invalid, SameDim, SameDType, Shape } from './types.js'

/**
 * Workspace that a large product offers to the library, one buffer a lane: as much as cuBLASLt's heuristics
 * use on Hopper.
 */
export const workspaceBytes = 32 * 1024 * 1024
const wantsWorkspace = 2 ** 33

export interface MatmulOptions {
  /** Take the weight as [n, k]: y = x · wᵀ. */
  readonly transpose?: boolean
}

const isTransposed = (attrs: Attrs): boolean => attrs['transpose'] === true

const sameShape = (a: readonly Dim[], b: readonly Dim[]): boolean =>
  a.length === b.length && a.every((size, d) => size === b[d])

const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const [x, w] = inputs as readonly [TensorSpec, TensorSpec]
  const found = `${showSpec(x)} and ${showSpec(w)}${isTransposed(attrs) ? ', transposed' : ''}`
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
  const [rows, inner] = x.shape.slice(-2) as [Dim, Dim]
  const [first, second] = w.shape.slice(-2) as [Dim, Dim]
  const [own, columns] = isTransposed(attrs) ? [second, first] : [first, second]
  if (inner !== own)
    return E.left(
      shapeMismatch(
        `equal inner dimensions: ${inner} columns of x, so ${isTransposed(attrs) ? 'columns' : 'rows'} of w`,
        found,
        isTransposed(attrs)
          ? `give a weight of shape [n, ${inner}]`
          : `give a weight of shape [${inner}, n], or say { transpose: true } for one of [n, k]`,
      ),
    )
  const lead = x.shape.slice(0, -2)
  const batch = w.shape.slice(0, -2)
  if (lead.length > 0 && batch.length > 0 && !sameShape(lead, batch))
    return E.left(shapeMismatch('equal batch dimensions, or none on one side', found, 'reshape one of them'))
  return E.right({ dtype: x.dtype, shape: [...(lead.length > 0 ? lead : batch), rows, columns] })
}

/**
 * The product as the devices compute it: leading dimensions of x are rows where the weight is shared, a batch
 * where it is not.
 */
export const matmulSpec = (x: BoundSpec, w: BoundSpec, transposed: boolean): MatmulSpec => {
  const [rows, k] = x.shape.slice(-2) as [number, number]
  const n = w.shape[w.shape.length - (transposed ? 2 : 1)]!
  const batched = w.shape.length > 2
  const lead = elements(x.shape.slice(0, -2))
  const batch = batched ? elements(w.shape.slice(0, -2)) : 1
  const m = batched ? rows : lead * rows
  const sharedX = batched && x.shape.length === 2
  const { dtype } = x
  return {
    kind: 'matmul',
    m,
    n,
    k,
    batch,
    transposeB: transposed,
    a: { dtype, batchStride: batch === 1 || sharedX ? 0 : m * k },
    b: { dtype, batchStride: batch === 1 ? 0 : k * n },
    c: { dtype, batchStride: batch === 1 ? 0 : m * n },
    workspace: 2 * batch * m * n * k >= wantsWorkspace ? workspaceBytes : 0,
  }
}

const reference = (
  inputs: readonly HostArray[],
  specs: readonly BoundSpec[],
  output: BoundSpec,
  attrs: Attrs,
): HostArray => {
  const [xSpec, wSpec] = specs as readonly [BoundSpec, BoundSpec]
  const { m, n, k, batch, transposeB, a, b } = matmulSpec(xSpec, wSpec, isTransposed(attrs))
  const x = numbers(inputs[0]!, xSpec.dtype)
  const w = numbers(inputs[1]!, wSpec.dtype)
  const result = hostArray(output.dtype, elements(output.shape))
  const write = writer(output.dtype)
  const [stepK, stepN] = transposeB ? [1, k] : [n, 1]
  // Sums in f64, rounded once: every order of f32 additions is close to that.
  const row = new Float64Array(n)
  for (let i = 0; i < batch; i++)
    for (let r = 0; r < m; r++) {
      row.fill(0)
      for (let q = 0; q < k; q++) {
        const left = x[i * a.batchStride + r * k + q]!
        const base = i * b.batchStride + q * stepK
        for (let c = 0; c < n; c++) row[c]! += left * w[base + c * stepN]!
      }
      for (let c = 0; c < n; c++) result[(i * m + r) * n + c] = write(Math.fround(row[c]!))
    }
  return result
}

/** x · w, accumulated in f32 for every element type; see `matmul`. */
export const matmulOperator: Operator = {
  name: 'matmul',
  infer,
  lower: (inputs, output, attrs) => {
    const [x, w] = inputs as readonly [BoundSpec, BoundSpec]
    const kernel = matmulSpec(x, w, isTransposed(attrs))
    return {
      as: 'run',
      kernel,
      flops: 2 * kernel.batch * kernel.m * kernel.n * kernel.k,
      movedBytes: tensorBytes(x) + tensorBytes(w) + tensorBytes(output),
      workspace: kernel.workspace,
    }
  },
  reference,
  // k products added in f32 in any order, each addition rounded, and one rounding to the type, which may go
  // the other way on a device.
  tolerance: (output, inputs) =>
    (inputs[0]?.shape.at(-1) ?? 1) * roundoff.f32 + (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype]),
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

export type ProductShape<S extends Shape, W extends Shape, T> = S extends readonly [infer M extends Dim, Dim]
  ? W extends readonly [...infer L extends Shape, Dim, Dim]
    ? readonly [...L, M, WeightN<W, T>]
    : Shape
  : S extends readonly [...infer L extends Shape, infer M extends Dim, Dim]
    ? readonly [...L, M, WeightN<W, T>]
    : Shape

/**
 * The matrix product x · w of floats, accumulated in f32: x is [..., m, k]; w is [k, n], or [n, k] with
 * `transpose: true`, shared by all of x's leading dimensions or with leading dimensions equal to them. The
 * result has x's element type.
 */
export const matmul = <E extends DType, W extends Shape, const O extends MatmulOptions = MatmulOptions>(
  w: Device<E, W>,
  options?: O,
) => {
  const at = here()
  const product = (x: unknown): unknown =>
    apply(matmulOperator, at, x, [['the weight', w]], () => {
      const transpose: unknown = options?.transpose ?? false
      return typeof transpose === 'boolean'
        ? E.right({ transpose })
        : E.left(badAttribute('transpose: true or false', show(transpose), 'give a boolean'))
    })
  return product as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & SameDType<D, E> & MatmulFits<S, W, Transposed<O>>,
  ) => Device<D, ProductShape<S, W, Transposed<O>>>
}
