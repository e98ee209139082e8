// A user's kernel with its dimensions bound: what the compiler and `interpret` take from it.

import type { CudaSpec } from '../ir/kernel-spec.js'
import { show } from '../ir/show.js'
import type { BoundSpec, Dim, TensorSpec } from '../ir/tensor.js'
import { badAttribute, type UnplacedError } from './messages.js'
import type { HostArray } from './values.js'

/** How a kernel is launched. Grid and block default to 1 where a dimension is left out; `shared` is bytes of dynamic shared memory. */
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
}

/** Binds the symbols of ports to the sizes of `specs`. Yields the first port that does not fit; -1: all fit. */
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

/** The kernel's symbols, bound by the types of its operands. */
export const kernelDims = (
  attrs: KernelAttrs,
  reads: readonly BoundSpec[],
  writes: readonly BoundSpec[] = [],
): Dims => {
  const dims: Record<string, number> = {}
  unify(attrs.reads, reads, binding(dims))
  unify(attrs.writes, writes, binding(dims))
  return dims
}

const triple = (value: unknown): readonly [number, number, number] => {
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

const launchOf = (attrs: KernelAttrs, dims: Dims): { readonly launch?: Launch; readonly found?: string } => {
  let launch: unknown = attrs.launch
  if (typeof launch === 'function') {
    try {
      launch = launch(dims)
    } catch (error) {
      return { found: `a launch that threw: ${error instanceof Error ? error.message : show(error)}` }
    }
  }
  if (typeof launch !== 'object' || launch === null) return { found: show(launch) }
  const { grid, block, shared, scalars } = launch as Launch
  const [x, y, z] = triple(block)
  const sizes = [x, y, z]
  if (!triple(grid).every((size, d) => within(size, 1, d === 0 ? 2 ** 31 - 1 : 65535)))
    return { found: `grid ${show(grid)}` }
  if (!sizes.every((size, d) => within(size, 1, d === 2 ? 64 : 1024)) || x * y * z > 1024)
    return { found: `block ${show(block)}` }
  if (shared !== undefined && !within(shared, 0, 2 ** 28)) return { found: `shared ${show(shared)}` }
  if (scalars !== undefined && (!Array.isArray(scalars) || scalars.some(isBadScalar)))
    return { found: `scalars ${show(scalars)}` }
  return { launch: launch as Launch }
}

/** What is wrong with a kernel once its dimensions are bound; undefined where it can be lowered. */
export const checkKernel = (
  attrs: KernelAttrs,
  dims: Dims,
  reads: readonly BoundSpec[],
  writes: readonly BoundSpec[],
): UnplacedError | undefined => {
  const { found } = launchOf(attrs, { ...dims, ...kernelDims(attrs, reads, writes) })
  if (found === undefined) return undefined
  return badAttribute(
    'a launch: { grid, block, shared?, scalars? } that CUDA can make (a block of at most 1,024 threads)',
    found,
    'correct launch, or what it works out from the dimensions',
  )
}

/**
 * The kernel as data, its launch worked out. `dims` are those of `compile`; the kernel's own symbols come from the bound
 * specs. `checkKernel` comes first and reports a launch that CUDA cannot make, which is 1 × 1 here.
 */
export const lowerKernel = (
  attrs: KernelAttrs,
  dims: Dims,
  reads: readonly BoundSpec[],
  writes: readonly BoundSpec[],
): CudaSpec => {
  const { launch } = launchOf(attrs, { ...dims, ...kernelDims(attrs, reads, writes) })
  return {
    kind: 'cuda',
    name: attrs.name,
    source: attrs.cuda,
    grid: triple(launch?.grid ?? 1),
    block: triple(launch?.block ?? 1),
    sharedBytes: launch?.shared ?? 0,
    scalars: launch?.scalars ?? [],
  }
}

/** Which read's memory each donated write takes: index of the write → index of the read. */
export const donationsOf = (attrs: KernelAttrs): ReadonlyMap<number, number> =>
  new Map(
    Object.entries(attrs.donates).map(([write, read]) => [
      attrs.writes.findIndex(({ name }) => name === write),
      attrs.reads.findIndex(({ name }) => name === read),
    ]),
  )

/** Runs a kernel's meaning on arrays in the order of its ports; donated writes must hold their read's values. */
export const runReference = (
  attrs: KernelAttrs,
  reads: readonly HostArray[],
  writes: readonly HostArray[],
  dims: Dims,
): void => {
  const named = (ports: readonly KernelPort[], arrays: readonly HostArray[]) =>
    Object.fromEntries(ports.map(({ name }, i) => [name, arrays[i]!]))
  attrs.reference(named(attrs.reads, reads), named(attrs.writes, writes), dims)
}
