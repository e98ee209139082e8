// A user's kernel with its dimensions bound: what the compiler and `interpret` take from it.

import type { CudaSpec } from '../ir/kernel-spec.js'
import { show } from '../ir/show.js'
import { type BoundSpec, type Dim, isEmpty, sameSpec, showSpec, type TensorSpec } from '../ir/tensor.js'
import { badAttribute, shapeMismatch, type UnplacedError } from './messages.js'
import type { HostArray } from './values.js'

/**
 * How a kernel is launched. Grid and block default to 1 where a dimension is left out; `shared` is bytes of
 * dynamic shared memory.
 */
export interface Launch {
  readonly grid: number | readonly [number, number?, number?]
  readonly block: number | readonly [number, number?, number?]
  readonly shared?: number
  readonly scalars?: readonly KernelScalar[]
}

export type KernelScalar = { readonly i32: number } | { readonly f32: number }
export type Dims = Readonly<Record<string, number>>

export interface KernelPort {
  readonly name: string
  /** With the kernel's own symbols. */
  readonly spec: TensorSpec
}

/** Attributes of a `kernel` node; ports in the order of the CUDA arguments. */
export interface KernelAttrs {
  readonly name: string
  readonly cuda: string
  readonly reads: readonly KernelPort[]
  readonly writes: readonly KernelPort[]
  readonly donates: Readonly<Record<string, string>>
  readonly launch: Launch | ((dims: Dims) => Launch)
  readonly reference: (
    reads: Readonly<Record<string, HostArray>>,
    writes: Readonly<Record<string, HostArray>>,
    dims: Dims,
  ) => void
  readonly tolerance: number
  readonly graph: boolean
}

/**
 * Binds the symbols of ports to the sizes of `specs`. Yields the first port that does not fit; -1: all fit.
 */
export const unify = (
  ports: readonly KernelPort[],
  specs: readonly TensorSpec[],
  bind: (symbol: string, size: Dim) => boolean,
): number =>
  ports.findIndex(({ spec }, i) => {
    const found = specs[i]
    return (
      found !== undefined &&
      (found.dtype !== spec.dtype ||
        found.shape.length !== spec.shape.length ||
        !spec.shape.every((size, d) =>
          typeof size === 'string' ? bind(size, found.shape[d]!) : size === found.shape[d],
        ))
    )
  })

/** Binds each symbol once; false where it is bound to another size. */
export const binding =
  <D extends Dim>(known: Record<string, D>) =>
  (symbol: string, size: Dim): boolean => {
    if (!Object.hasOwn(known, symbol)) known[symbol] = size as D
    return known[symbol] === size
  }

/** The three sizes of a launch's grid or block. */
export const launchSizes = (value: unknown): readonly [number, number, number] => {
  const given = Array.isArray(value) ? value : [value]
  return [given[0] as number, (given[1] as number | undefined) ?? 1, (given[2] as number | undefined) ?? 1]
}

const within = (value: unknown, least: number, most: number): boolean =>
  typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most

const isBadScalar = (value: unknown): boolean => {
  if (typeof value !== 'object' || value === null) return true
  const { i32, f32 } = value as { i32?: unknown; f32?: unknown }
  if (i32 !== undefined) return f32 !== undefined || !within(i32, -(2 ** 31), 2 ** 31 - 1)
  return typeof f32 !== 'number' || !Number.isFinite(Math.fround(f32))
}

/** A launch that CUDA can make; or what was found instead, in words. */
export const checkedLaunch = (launch: unknown): { readonly launch?: Launch; readonly found?: string } => {
  if (typeof launch !== 'object' || launch === null) return { found: show(launch) }
  const { grid, block, shared, scalars } = launch as Launch
  const [x, y, z] = launchSizes(block)
  const sizes = [x, y, z]
  if (!launchSizes(grid).every((size, d) => within(size, 1, d === 0 ? 2 ** 31 - 1 : 65535)))
    return { found: `grid ${show(grid)}` }
  if (!sizes.every((size, d) => within(size, 1, d === 2 ? 64 : 1024)) || x * y * z > 1024)
    return { found: `block ${show(block)}` }
  if (shared !== undefined && !within(shared, 0, 2 ** 28)) return { found: `shared ${show(shared)}` }
  if (scalars !== undefined && (!Array.isArray(scalars) || scalars.some(isBadScalar)))
    return { found: `scalars ${show(scalars)}` }
  return { launch: launch as Launch }
}

const launchOf = (attrs: KernelAttrs, dims: Dims): { readonly launch?: Launch; readonly found?: string } => {
  let launch: unknown = attrs.launch
  if (typeof launch === 'function') {
    try {
      launch = launch(dims)
    } catch (error) {
      return { found: `a launch that threw: ${error instanceof Error ? error.message : show(error)}` }
    }
  }
  return checkedLaunch(launch)
}

/** Which read's memory each write takes, by index; undefined: fresh memory. */
const donationsOf = ({ reads, writes, donates }: KernelAttrs): readonly (number | undefined)[] =>
  writes.map(({ name }) => {
    const read = reads.findIndex(port => Object.hasOwn(donates, name) && port.name === donates[name])
    return read < 0 ? undefined : read
  })

/** The reads whose memory a write takes, by index. */
export const donatedReads = (attrs: KernelAttrs): readonly number[] =>
  donationsOf(attrs).filter(read => read !== undefined)

/** A user's kernel with every dimension bound. */
export interface BoundKernel {
  readonly kernel: CudaSpec
  readonly reads: readonly BoundSpec[]
  readonly writes: readonly BoundSpec[]
  /** For each write, the read that it overwrites; undefined: fresh memory. */
  readonly donates: readonly (number | undefined)[]
  readonly tolerance: number
  /**
   * Fills `writes`; a donated one holds its read's values already. Yields what the user's function yields.
   */
  readonly reference: (reads: readonly HostArray[], writes: readonly HostArray[]) => unknown
}

/** The kernel's symbols, bound by its reads, and the writes' types. `dims` bind what the reads do not. */
const bindPorts = (attrs: KernelAttrs, reads: readonly BoundSpec[], dims: Dims) => {
  const own: Record<string, number> = {}
  unify(attrs.reads, reads, binding(own))
  const bind = ({ spec: { dtype, shape } }: KernelPort): BoundSpec => ({
    dtype,
    shape: shape.map(dim => {
      if (typeof dim === 'number') return dim
      if (Object.hasOwn(own, dim)) return own[dim]!
      return Object.hasOwn(dims, dim) ? dims[dim]! : 1
    }),
  })
  const writes = attrs.writes.map(bind)
  unify(attrs.writes, writes, binding(own))
  return { reads: attrs.reads.map(bind), writes, all: { ...dims, ...own } }
}

/**
 * The kernel on reads of these types. `dims` are those of `compile`; the kernel's own symbols take
 * precedence. `kernelError` has already reported a launch that CUDA cannot make; such a launch is 1 × 1 here.
 */
export const boundKernel = (attrs: KernelAttrs, reads: readonly BoundSpec[], dims: Dims): BoundKernel => {
  const { writes, all } = bindPorts(attrs, reads, dims)
  const { launch } = launchOf(attrs, all)
  const named = (ports: readonly KernelPort[], arrays: readonly HostArray[]) =>
    Object.fromEntries(ports.map(({ name }, i) => [name, arrays[i]!]))
  return {
    kernel: {
      kind: 'cuda',
      name: attrs.name,
      source: attrs.cuda,
      grid: launchSizes(launch?.grid ?? 1),
      block: launchSizes(launch?.block ?? 1),
      sharedBytes: launch?.shared ?? 0,
      // The user's objects may be changed later.
      scalars: (launch?.scalars ?? []).map(scalar => ({ ...scalar })),
      ...(attrs.graph ? {} : { graph: false as const }),
    },
    reads,
    writes,
    donates: donationsOf(attrs),
    tolerance: attrs.tolerance,
    reference: (from, to) => attrs.reference(named(attrs.reads, from), named(attrs.writes, to), all),
  }
}

/** The error of a kernel on reads of these types: of its ports, its donations or its launch. */
export const kernelError = (
  attrs: KernelAttrs,
  given: readonly BoundSpec[],
  dims: Dims,
): UnplacedError | undefined => {
  const { reads, writes, all } = bindPorts(attrs, given, dims)
  const wrong = reads.findIndex((read, i) => !sameSpec(read, given[i]!))
  if (wrong >= 0)
    return shapeMismatch(
      `${showSpec(reads[wrong]!)} as the read ${attrs.reads[wrong]!.name}`,
      showSpec(given[wrong]!),
      'bind the symbols of its reads so that they agree',
    )
  for (const [write, read] of donationsOf(attrs).entries())
    if (read !== undefined && !sameSpec(writes[write]!, given[read]!))
      return shapeMismatch(
        'a donated write of the type of its read',
        attrs.writes[write]!.name,
        'do not donate it',
      )
  // Without a result that has elements it is not launched.
  if (writes.every(isEmpty)) return undefined
  const { found } = launchOf(attrs, all)
  if (found === undefined) return undefined
  return badAttribute(
    'a launch: { grid, block, shared?, scalars? } that CUDA can make (a block of at most 1,024 threads)',
    found,
    'correct launch, or what it works out from the dimensions',
  )
}
