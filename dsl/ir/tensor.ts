/**
 * Element types. `f16` and `bf16` are stored as 16 bits and computed in f32; `u8` and `i32` are computed in
 * i32.
 */
export type DType = (typeof dtypes)[number]
export const dtypes = ['u8', 'i32', 'f16', 'bf16', 'f32'] as const

/** The element types of numbers with a fraction. */
export const floatTypes = ['f32', 'f16', 'bf16'] as const
export type FloatType = (typeof floatTypes)[number]

export const isFloat = (dtype: DType): dtype is FloatType => floatTypes.some(type => type === dtype)

/**
 * A dimension from 0: a literal, or a symbol (`'batch'`) bound by `compile(graph, { dims })`; an unbound
 * symbol is 1.
 */
export type Dim = number | string

/** What a value is, apart from where it lies. The shape is row-major; `[]` is a scalar. */
export interface TensorSpec {
  readonly dtype: DType
  readonly shape: readonly Dim[]
}

/** A spec whose every dimension is bound. */
export interface BoundSpec {
  readonly dtype: DType
  readonly shape: readonly number[]
}

/** Bytes of one element. */
export const elementBytes: Readonly<Record<DType, number>> = { u8: 1, i32: 4, f16: 2, bf16: 2, f32: 4 }

/** Number of elements; 1 for a scalar. */
export const elements = (shape: readonly number[]): number =>
  shape.reduce((product, size) => product * size, 1)

/** Whether a value of this shape has no element. A symbol may be bound to 0, and is not looked at. */
export const isEmpty = ({ shape }: TensorSpec): boolean => shape.includes(0)

/** Bytes of the whole tensor. */
export const tensorBytes = (spec: BoundSpec): number => elements(spec.shape) * elementBytes[spec.dtype]

/** Whether two types are the same. */
export const sameSpec = (a: TensorSpec, b: TensorSpec): boolean =>
  a === b ||
  (a.dtype === b.dtype &&
    a.shape.length === b.shape.length &&
    a.shape.every((size, axis) => size === b.shape[axis]))

/** `f32[6144, 8192]`, as every message and text form writes it. */
export const showSpec = (spec: TensorSpec): string => `${spec.dtype}[${spec.shape.join(', ')}]`
