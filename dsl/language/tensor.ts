import { show } from '../ir/show.js'
import { type Dim, type DType, elementBytes, type TensorSpec } from '../ir/tensor.js'
import { badAttribute, type UnplacedError } from './messages.js'

/**
 * The type of a value: element type and row-major shape. Dimensions are literals or symbols such as
 * `'batch'`.
 */
export interface Tensor<out D extends DType = DType, out S extends readonly Dim[] = readonly Dim[]> {
  readonly dtype: D
  readonly shape: S
}

export type AnyTensor = Tensor<DType, readonly Dim[]>

/** The type of an output that is left on the device. */
export type OnDevice<A extends AnyTensor = AnyTensor> = A & { readonly place: 'device' }

/** Tensors by port name. */
export type Ports = Readonly<Record<string, AnyTensor>>

/** What a value of an element type is on the host; `f16` and `bf16` are their 16 bits. */
export interface HostArrays {
  readonly u8: Uint8Array
  readonly i32: Int32Array
  readonly f16: Uint16Array
  readonly bf16: Uint16Array
  readonly f32: Float32Array
}

export type HostArrayOf<A extends AnyTensor> = HostArrays[A['dtype']]

/**
 * A tensor's type: `tensor('f32', ['batch', 784])`. `[]` is a scalar; a dimension of 0 makes a tensor without
 * elements. A symbol is bound by `compile(graph, { dims })`, and is 1 where it is not. Never throws: an
 * invalid shape is reported by `compile` where the tensor is used.
 */
export const tensor = <D extends DType, const S extends readonly Dim[]>(dtype: D, shape: S): Tensor<D, S> =>
  Object.freeze({ dtype, shape: Array.isArray(shape) ? (Object.freeze([...shape]) as unknown as S) : shape })

/** More dimensions than any kernel indexes. */
export const maxRank = 8

export const isDType = (value: unknown): value is DType =>
  typeof value === 'string' && Object.hasOwn(elementBytes, value)

/** The error of a dimension; undefined where it is valid. */
const dimensionProblem = (size: unknown): string | undefined => {
  if (typeof size === 'string') return /^[A-Za-z_]\w*$/.test(size) ? undefined : `the symbol ${show(size)}`
  return Number.isSafeInteger(size) && (size as number) >= 0 ? undefined : show(size)
}

const shapeProblem = (dtype: DType, shape: readonly unknown[]): string | undefined => {
  if (shape.length > maxRank) return `${shape.length} dimensions`
  const bad = shape.findIndex(size => dimensionProblem(size) !== undefined)
  if (bad >= 0) return `${dimensionProblem(shape[bad])} as dimension ${bad} of ${show(shape)}`
  const bytes = shape.reduce<number>(
    (n, size) => n * (typeof size === 'number' ? Math.max(1, size) : 1),
    elementBytes[dtype],
  )
  return bytes > Number.MAX_SAFE_INTEGER ? `${show(shape)}, ${bytes} bytes` : undefined
}

/**
 * A value used as a tensor's type. Where it is none, `problem` is the error and `spec` a valid replacement.
 */
export const validSpec = (
  value: unknown,
): { readonly spec: TensorSpec; readonly problem?: UnplacedError } => {
  const { dtype, shape } = (typeof value === 'object' && value !== null ? value : {}) as Partial<TensorSpec>
  const type: DType = isDType(dtype) ? dtype : 'f32'
  if (!isDType(dtype) || !Array.isArray(shape)) {
    const valid = Array.isArray(shape) && shape.every(size => dimensionProblem(size) === undefined)
    const found =
      typeof value === 'object' && value !== null ? `dtype ${show(dtype)}, shape ${show(shape)}` : show(value)
    return {
      spec: { dtype: type, shape: valid ? (shape as readonly Dim[]) : [] },
      problem: badAttribute(
        "a tensor type such as tensor('f32', [64, 64])",
        found,
        `use one of the element types ${Object.keys(elementBytes).join(', ')} and an array of dimensions`,
      ),
    }
  }
  const found = shapeProblem(type, shape)
  // A copy: the user may change the array later.
  if (found === undefined) return { spec: { dtype: type, shape: [...shape] } }
  const within = shape.slice(0, maxRank).map(size => (dimensionProblem(size) === undefined ? size : 1))
  return {
    // Where each size is valid but their product is too large, every size is 1.
    spec: { dtype: type, shape: shapeProblem(type, within) === undefined ? within : within.map(() => 1) },
    problem: {
      _tag: 'BadDimension',
      wanted:
        `at most ${maxRank} dimensions, each a whole number from 0 or a symbol such as 'batch', ` +
        'and under 2^53 bytes in all',
      found,
      next: 'correct the shape',
    },
  }
}
