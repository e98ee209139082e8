import type { HostArray } from '../dsl/index.js'
import { fittingDim, showDims } from '../dsl/internal.js'
import { type DType, elements, showSpec, type TensorSpec } from '../dsl/ir/tensor.js'

interface HostArrayType {
  readonly name: string
  readonly BYTES_PER_ELEMENT: number
  new (buffer: ArrayBuffer, byteOffset: number, length: number): HostArray
}

const arrayTypes: Readonly<Record<DType, HostArrayType>> = {
  u8: Uint8Array,
  i32: Int32Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  f32: Float32Array,
}

/**
 * The contents of a port or parameter, as messages write them: bytes where a plan from elsewhere names no
 * element type.
 */
export interface ValueSpec {
  readonly name: string
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly bytes: number
  /** The shape as the user wrote it, where it has symbols. */
  readonly written?: TensorSpec
}

/** A typed array over part of a buffer. */
export const arrayOver = (buffer: ArrayBuffer, offset: number, spec: ValueSpec): HostArray =>
  new arrayTypes[spec.dtype](buffer, offset, elements(spec.shape))

/** The error of a value; the caller adds its place. */
export interface Mismatch {
  readonly wanted: string
  readonly found: string
  readonly next: string
}

const grouped = (value: number): string => value.toLocaleString('en-US')

/** A size as messages write it, exact and readable: `2,097,152 bytes (2.0 MiB)`. */
export const size = (bytes: number): string =>
  bytes >= 2 ** 20
    ? `${grouped(bytes)} bytes (${(bytes / 2 ** 20).toFixed(1)} MiB)`
    : `${grouped(bytes)} bytes`

const boundSymbols = (spec: ValueSpec): string => {
  const symbols = new Map<string, number>()
  spec.written?.shape.forEach((dim, axis) => {
    if (typeof dim === 'string') symbols.set(dim, spec.shape[axis]!)
  })
  return [...symbols].map(([name, size]) => `${name} = ${size}`).join(', ')
}

const wantedOf = (spec: ValueSpec): string => {
  const symbols = boundSymbols(spec)
  const shape = showSpec(spec.written ?? spec)
  const bound = symbols === '' ? '' : ` with ${symbols}`
  return `${arrayTypes[spec.dtype].name} of ${grouped(elements(spec.shape))} elements, ${shape}${bound}`
}

// The next step: where one symbol explains the given length, the size to bind it to.
const nextOf = (spec: ValueSpec, count: number | undefined): string => {
  const { written, shape } = spec
  const symbols = (written?.shape ?? []).filter(dim => typeof dim === 'string')
  if (count === undefined) return `give a ${arrayTypes[spec.dtype].name}, or its bytes in an ArrayBuffer`
  if (written === undefined)
    return (
      'give a value of that type and length; ' +
      'where the graph names a dimension, its size is the option of compile(graph, { dims })'
    )
  if (symbols.length === 0) return 'give a value of that length'
  const fitting = fittingDim(written, shape, count)
  const dims = fitting ?? Object.fromEntries(symbols.map(symbol => [symbol, '…' as const]))
  const size = fitting ? 'this one' : 'another size'
  return `give a value of that length, or compile for ${size}: compile(graph, { dims: ${showDims(dims)} })`
}

/** A caller's value as text for a message. Never throws. */
export const describe = (value: unknown): string => {
  try {
    return described(value)
  } catch {
    return 'a value that cannot be shown'
  }
}

/**
 * Whether a caller's value is a promise. Reading it may run the caller's code: one that throws is treated as
 * a value.
 */
export const isThenable = (value: unknown): value is PromiseLike<unknown> => {
  try {
    return (
      typeof value === 'object' &&
      value !== null &&
      typeof (value as PromiseLike<unknown>).then === 'function'
    )
  } catch {
    return false
  }
}

/** A thrown value as text for a message. */
export const thrown = (cause: unknown): string => {
  try {
    return cause instanceof Error && cause.message !== '' ? String(cause.message) : describe(cause)
  } catch {
    return describe(cause)
  }
}

const described = (value: unknown): string => {
  if (value === null || value === undefined) return String(value)
  if (ArrayBuffer.isView(value)) {
    const length = (value as { length?: number }).length ?? value.byteLength
    const gone = value.byteLength === 0 ? ' (empty: given back or detached?)' : ''
    return `${value.constructor.name} of ${grouped(length)} elements${gone}`
  }
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer)
    return `${value.constructor.name} of ${grouped(value.byteLength)} bytes`
  if (Array.isArray(value)) return `a plain array of ${grouped(value.length)} elements`
  if (typeof value === 'object') return `an object (${value.constructor?.name ?? 'no prototype'})`
  if (typeof value === 'function') return value.name ? `the function ${value.name}` : 'a function'
  return typeof value === 'string'
    ? `the string ${JSON.stringify(value.slice(0, 40))}`
    : `${typeof value} ${String(value)}`
}

// Read from the array itself: a subclass or an own property may say something else.
type Reader<T> = (this: unknown) => T
const getter = <T>(prototype: object, name: string): Reader<T> =>
  Object.getOwnPropertyDescriptor(prototype, name)!.get as Reader<T>
const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object
const lengthOf = getter<number>(typedArray, 'length')
const bytesOver = (value: object, prototype: object): Uint8Array =>
  new Uint8Array(
    getter<ArrayBuffer>(prototype, 'buffer').call(value),
    getter<number>(prototype, 'byteOffset').call(value),
    getter<number>(prototype, 'byteLength').call(value),
  )

// Buffers and ArrayBuffers carry bytes, not elements: only their number of bytes can be checked.
const asBytes = (value: unknown): Uint8Array | undefined => {
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value)
  if (Buffer.isBuffer(value)) return bytesOver(value, typedArray)
  if (value instanceof DataView) return bytesOver(value, DataView.prototype)
  const float16 = (globalThis as { Float16Array?: new () => ArrayBufferView }).Float16Array
  if (float16 && value instanceof float16) return bytesOver(value, typedArray)
  return undefined
}

/**
 * A copy of a caller's array, of its type; or of its bytes, where the value carries bytes. `slice` of a
 * Buffer makes no copy: it shares the memory.
 */
export const copied = (value: HostArray): HostArray => {
  const bytes = asBytes(value)
  return bytes === undefined ? value.slice() : (Buffer.from(bytes) as Uint8Array<ArrayBuffer>)
}

/** Copies a caller's value into `into`, or yields its error. Without `into` it only checks. */
export const fill = (
  target: HostArray | undefined,
  value: unknown,
  spec: ValueSpec,
): Mismatch | undefined => {
  try {
    return filled(target, value, spec)
  } catch {
    // Reading a caller's value may run the caller's code, as of a proxy or a getter.
    return { wanted: wantedOf(spec), found: describe(value), next: nextOf(spec, undefined) }
  }
}

const filled = (target: HostArray | undefined, value: unknown, spec: ValueSpec): Mismatch | undefined => {
  const type = arrayTypes[spec.dtype]
  const count = elements(spec.shape)
  const same =
    (value instanceof type && (spec.dtype === 'u8' || !Buffer.isBuffer(value))) ||
    (spec.dtype === 'u8' && value instanceof Uint8ClampedArray)
  const length = same ? lengthOf.call(value) : undefined
  if (length === count) {
    target?.set(value as HostArray)
    return undefined
  }
  const bytes = same ? undefined : asBytes(value)
  if (bytes?.byteLength === count * type.BYTES_PER_ELEMENT) {
    if (target) new Uint8Array(target.buffer, target.byteOffset, target.byteLength).set(bytes)
    return undefined
  }
  const given = same ? length : bytes && bytes.byteLength / type.BYTES_PER_ELEMENT
  return { wanted: wantedOf(spec), found: describe(value), next: nextOf(spec, given) }
}
