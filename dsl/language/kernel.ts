// Over 300 lines as one thing: what a user's kernel is at the rim (definition, its mistakes, its types) and what the compiler takes from it.

import type { CompileErrorTag, Where } from '../ir/graph.js'
import type { CudaSpec } from '../ir/kernel-spec.js'
import { show } from '../ir/show.js'
import { type BoundSpec, type Dim, showSpec, type TensorSpec } from '../ir/tensor.js'
import { builderOf, type FlowValue } from './builder.js'
import type { Flow } from './flow.js'
import { type AnyTensor, type HostArrayOf, type Ports, soundSpec, type Tensor } from './tensor.js'
import type { HostArray } from './values.js'
import { here } from './where.js'

/** How a kernel is launched. Grid and block default to 1 where a dimension is left out; `shared` is bytes of dynamic shared memory. */
export interface Launch {
  readonly grid: number | readonly [number, number?, number?]
  readonly block: number | readonly [number, number?, number?]
  readonly shared?: number
  readonly scalars?: readonly KernelScalar[]
}

export type KernelScalar = { readonly i32: number } | { readonly f32: number }
export type Dims = Readonly<Record<string, number>>
type Arrays<R extends Ports> = { readonly [K in keyof R]: HostArrayOf<R[K]> }

export interface KernelDefinition<R extends Ports, W extends Ports> {
  /** The name of the `extern "C" __global__` function in `cuda`. */
  readonly name: string
  /** CUDA C++. Arguments: a pointer for each read, then one for each write (a donated one's is its read's), then the scalars. */
  readonly cuda: string
  readonly reads: R
  readonly writes: W
  /** `{ y: 'x' }`: the write y takes the memory of the read x, which nobody may read afterwards. */
  readonly donates?: { readonly [K in keyof W]?: keyof R & string }
  /** Fixed, or worked out from the bound dimensions (the kernel's symbols, by name). */
  readonly launch: Launch | ((dims: Dims) => Launch)
  /** The meaning: fills `writes`. A donated write holds its read's values already. */
  readonly reference: (reads: Arrays<R>, writes: Arrays<W>, dims: Dims) => void
  /** The largest relative error that a device may show against `reference`; default 1e-5. */
  readonly tolerance?: number
}

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

export interface KernelMistake {
  readonly _tag: CompileErrorTag
  readonly wanted: string
  readonly found: string
  readonly next: string
}

const unify = (
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

const binding =
  <D extends Dim>(known: Record<string, D>) =>
  (symbol: string, size: Dim): boolean => {
    if (!Object.hasOwn(known, symbol)) known[symbol] = size as D
    return known[symbol] === size
  }

/** The kernel's symbols, bound by what it reads and writes. */
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

const scalarProblem = (value: unknown): boolean => {
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
  if (scalars !== undefined && (!Array.isArray(scalars) || scalars.some(scalarProblem)))
    return { found: `scalars ${show(scalars)}` }
  return { launch: launch as Launch }
}

/** What is wrong with a kernel once its dimensions are bound; undefined where it can be lowered. */
export const checkKernel = (
  attrs: KernelAttrs,
  dims: Dims,
  reads: readonly BoundSpec[],
  writes: readonly BoundSpec[],
): KernelMistake | undefined => {
  const { found } = launchOf(attrs, { ...dims, ...kernelDims(attrs, reads, writes) })
  return found === undefined
    ? undefined
    : {
        _tag: 'BadAttribute',
        wanted:
          'a launch: { grid, block, shared?, scalars? } that CUDA can make (a block of at most 1,024 threads)',
        found,
        next: 'correct launch, or what it works out from the dimensions',
      }
}

/**
 * The kernel as data, its launch worked out. `dims` are those of `compile`; the kernel's own symbols come from the bound specs.
 * A launch that cannot be is a 1 × 1 launch here: `checkKernel` reports it, and is asked first.
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

// ---- the public function ------------------------------------------------------------------------------------------------------

type Loose<S extends readonly Dim[]> = { readonly [K in keyof S]: S[K] extends string ? Dim : S[K] }
type Takes<R extends Ports> = {
  readonly [K in keyof R]: Flow<'device', Tensor<R[K]['dtype'], Loose<R[K]['shape']>>>
}
type BindShape<P extends readonly Dim[], S extends readonly Dim[]> = P extends readonly [
  infer A,
  ...infer PR extends readonly Dim[],
]
  ? S extends readonly [infer B, ...infer SR extends readonly Dim[]]
    ? (A extends string ? { readonly [K in A]: B } : unknown) & BindShape<PR, SR>
    : unknown
  : unknown
type Every<U> = (U extends unknown ? (u: U) => void : never) extends (i: infer I) => void ? I : never
type Bindings<R extends Ports, F> = Every<
  {
    [K in keyof R & keyof F]: F[K] extends Flow<'device', infer A extends AnyTensor>
      ? BindShape<R[K]['shape'], A['shape']>
      : unknown
  }[keyof R & keyof F]
>
type Substitute<S extends readonly Dim[], B> = {
  readonly [K in keyof S]: S[K] extends keyof B ? (B[S[K]] extends Dim ? B[S[K]] : Dim) : S[K]
}
type Yields<W extends Ports, B> = {
  readonly [K in keyof W]: Flow<'device', Tensor<W[K]['dtype'], Substitute<W[K]['shape'], B>>>
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null

const portsOf = (value: unknown, note: (mistake: KernelMistake) => void): KernelPort[] =>
  Object.entries(isRecord(value) ? value : {}).map(([name, given]) => {
    const { spec, problem } = soundSpec(given)
    if (problem)
      note({
        _tag: problem.tag,
        wanted: `${problem.wanted} for ${name}`,
        found: problem.found,
        next: problem.next,
      })
    return { name, spec }
  })

const donationProblem = (
  [write, read]: readonly [string, unknown],
  reads: readonly KernelPort[],
  writes: readonly KernelPort[],
): string | undefined => {
  const from = reads.find(({ name }) => name === read)
  const to = writes.find(({ name }) => name === write)
  if (!from || !to) return `${write}: ${show(read)}`
  return showSpec(from.spec) === showSpec(to.spec)
    ? undefined
    : `${showSpec(to.spec)} from ${showSpec(from.spec)}`
}

/** The definition as sound attributes, and what was wrong with it. */
const sound = (
  definition: unknown,
): { readonly attrs: KernelAttrs; readonly mistakes: readonly KernelMistake[] } => {
  const mistakes: KernelMistake[] = []
  const note = (mistake: KernelMistake) => void mistakes.push(mistake)
  const given = isRecord(definition) ? definition : {}
  const want = (holds: boolean, wanted: string, found: unknown, next: string) =>
    holds || note({ _tag: 'BadAttribute', wanted, found: show(found), next })
  const { name, cuda, launch, reference, tolerance = 1e-5 } = given
  const named = typeof name === 'string' && /^[A-Za-z_]\w*$/.test(name)
  want(named, 'a name that C can have', name, 'name the extern "C" __global__ function of the source')
  want(typeof cuda === 'string' && cuda.length > 0, 'CUDA C++ as cuda', cuda, 'give the source as a string')
  want(isRecord(given['reads']), 'reads by name', given['reads'], "as in { x: tensor('f32', ['n']) }")
  want(
    isRecord(given['writes']) && Object.keys(given['writes']).length > 0,
    'at least one write by name',
    given['writes'],
    "as in { y: tensor('f32', ['n']) }",
  )
  want(
    isRecord(launch) || typeof launch === 'function',
    'a launch',
    launch,
    'as in { grid: 1, block: 256 }, or a function of the dimensions',
  )
  want(
    typeof reference === 'function',
    'a reference in TypeScript',
    reference,
    'as in ({ x }, { y }) => { y.set(x) }',
  )
  want(
    typeof tolerance === 'number' && tolerance >= 0,
    'a tolerance from 0',
    tolerance,
    'leave it out for 1e-5',
  )
  const reads = portsOf(given['reads'], note)
  const written = portsOf(given['writes'], note)
  const writes =
    written.length > 0
      ? written
      : [{ name: 'y', spec: reads[0]?.spec ?? { dtype: 'f32' as const, shape: [] } }]
  const wanted = isRecord(given['donates']) ? Object.entries(given['donates']) : []
  const donates: Record<string, string> = {}
  for (const entry of wanted) {
    const found = donationProblem(entry, reads, writes)
    const twice = Object.values(donates).includes(entry[1] as string)
    if (found === undefined && !twice) donates[entry[0]] = entry[1] as string
    else
      note({
        _tag: 'BadAttribute',
        wanted: 'donations of a write from a read of the same type, each read once',
        found: found ?? `${show(entry[1])} twice`,
        next: "as in { donates: { y: 'x' } }",
      })
  }
  const attrs = {
    name: named ? name : 'kernel',
    cuda: typeof cuda === 'string' ? cuda : '',
    reads,
    writes,
    donates,
    launch: launch as KernelAttrs['launch'],
    reference: reference as KernelAttrs['reference'],
    tolerance: typeof tolerance === 'number' ? tolerance : 0,
  }
  return { attrs: Object.freeze(attrs), mistakes }
}

const call = (
  attrs: KernelAttrs,
  mistakes: readonly KernelMistake[],
  given: unknown,
  at: Where,
): Record<string, FlowValue> => {
  const args = isRecord(given) ? given : {}
  const builder = builderOf(attrs.reads.map(({ name }) => args[name]).find(flow => flow !== undefined))
  for (const mistake of mistakes) builder.problem(at, attrs.name, mistake)
  for (const extra of Object.keys(args).filter(name => !attrs.reads.some(read => read.name === name)))
    builder.problem(at, attrs.name, {
      _tag: 'BadAttribute',
      wanted: `the reads ${attrs.reads.map(({ name }) => name).join(', ')}`,
      found: extra,
      next: 'give flows under the names of the reads',
    })
  const reads = attrs.reads.map(({ name, spec }) =>
    builder.take(args[name], 'device', at, attrs.name, `the read ${name}`, spec),
  )
  const dims: Record<string, Dim> = {}
  const misfit = unify(
    attrs.reads,
    reads.map(({ spec }) => spec),
    binding(dims),
  )
  if (misfit >= 0)
    builder.problem(at, attrs.name, {
      _tag: reads[misfit]!.spec.dtype === attrs.reads[misfit]!.spec.dtype ? 'ShapeMismatch' : 'DTypeMismatch',
      wanted: `${showSpec(attrs.reads[misfit]!.spec)} as the read ${attrs.reads[misfit]!.name}${
        Object.keys(dims).length
          ? `, where ${Object.entries(dims)
              .map(([symbol, size]) => `${symbol} is ${size}`)
              .join(', ')}`
          : ''
      }`,
      found: showSpec(reads[misfit]!.spec),
      next: 'give a flow of this type, or correct the kernel',
    })
  const hint = reads.find(flow => flow.hint)?.hint
  const bound = ({ dtype, shape }: TensorSpec): TensorSpec => ({
    dtype,
    shape: shape.map(size => (typeof size === 'string' ? (dims[size] ?? size) : size)),
  })
  const [first, ...ports] = attrs.writes as readonly [KernelPort, ...KernelPort[]]
  const inputs = reads.map(({ id }) => id)
  const place = 'device' as const
  const main = builder.flow(
    {
      op: 'kernel',
      name: builder.counted(attrs.name),
      inputs,
      attrs: { ...attrs },
      spec: bound(first.spec),
      place,
      lane: hint,
      at,
    },
    hint,
  )
  const result: Record<string, FlowValue> = { [first.name]: main }
  ports.forEach(({ name, spec }, i) => {
    result[name] = builder.flow(
      { op: 'port', inputs: [main.id], attrs: { index: i + 1 }, spec: bound(spec), place, lane: hint, at },
      hint,
    )
  })
  return result
}

/**
 * A CUDA C++ kernel with declared accesses and a meaning in TypeScript, as a function from flows to flows by name. Symbols in
 * its reads fit any size; in its writes they stand for the same. Nothing is compiled until the plan is opened.
 */
export const kernel = <const R extends Ports, const W extends Ports>(definition: KernelDefinition<R, W>) => {
  const { attrs, mistakes } = sound(definition)
  return <const F extends Takes<R>>(reads: F): Yields<W, Bindings<R, F>> =>
    call(attrs, mistakes, reads, here()) as never
}
