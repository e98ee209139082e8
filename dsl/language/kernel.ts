import type { Where } from '../ir/graph.js'
import { show } from '../ir/show.js'
import { type Dim, showSpec, type TensorSpec } from '../ir/tensor.js'
import { binding, type Dims, type KernelAttrs, type KernelPort, type Launch, unify } from './bound-kernel.js'
import { builderOf, type FlowValue } from './builder.js'
import type { Flow } from './flow.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from './messages.js'
import { lateFunction, referenceForm } from './reference.js'
import { type AnyTensor, type HostArrayOf, type Ports, type Tensor, validSpec } from './tensor.js'
import { here } from './where.js'

type Arrays<R extends Ports> = { readonly [K in keyof R]: HostArrayOf<R[K]> }

export interface KernelDefinition<R extends Ports, W extends Ports> {
  /** The name of the `extern "C" __global__` function in `cuda`. */
  readonly name: string
  /**
   * CUDA C++. Arguments: a pointer for each read, then one for each write (a donated one's is its read's),
   * then the scalars.
   */
  readonly cuda: string
  readonly reads: R
  readonly writes: W
  /**
   * `{ y: 'x' }`: the write y takes the memory of the read x, which no other operation may read afterwards.
   */
  readonly donates?: { readonly [K in keyof W]?: keyof R & string }
  /**
   * Fixed, or worked out from the bound dimensions (the kernel's symbols, by name). A kernel is not launched
   * where none of its writes has elements; a read or write without elements has an address all the same.
   */
  readonly launch: Launch | ((dims: Dims) => Launch)
  /** The meaning: fills `writes`. A donated write holds its read's values already. */
  readonly reference: (reads: Arrays<R>, writes: Arrays<W>, dims: Dims) => void
  /** The largest relative error that a device may show against `reference`; default 1e-5. */
  readonly tolerance?: number
  /**
   * `false`: in graph mode it is launched by itself, such as a kernel that launches others. Default: true.
   */
  readonly graph?: boolean
}

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
// All bindings at once: the one argument that each of these functions takes. (A union of the bindings
// themselves would be `unknown` as soon as one read has no symbol.)
type Bindings<R extends Ports, F> = {
  [K in keyof R & keyof F]: F[K] extends Flow<'device', infer A extends AnyTensor>
    ? (bound: BindShape<R[K]['shape'], A['shape']>) => void
    : never
}[keyof R & keyof F] extends (bound: infer B) => void
  ? B
  : never
type Substitute<S extends readonly Dim[], B> = {
  readonly [K in keyof S]: S[K] extends keyof B ? (B[S[K]] extends Dim ? B[S[K]] : Dim) : S[K]
}
type Yields<W extends Ports, B> = {
  readonly [K in keyof W]: Flow<'device', Tensor<W[K]['dtype'], Substitute<W[K]['shape'], B>>>
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null

const portsOf = (value: unknown, report: (error: UnplacedError) => void): KernelPort[] =>
  Object.entries(isRecord(value) ? value : {}).map(([name, given]) => {
    const { spec, problem } = validSpec(given)
    if (problem) report({ ...problem, wanted: `${problem.wanted} for ${name}` })
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

const fields = ['name', 'cuda', 'reads', 'writes', 'donates', 'launch', 'reference', 'tolerance', 'graph']

/** The definition as well-formed attributes, and its errors. */
const attributesOf = (
  definition: unknown,
): { readonly attrs: KernelAttrs; readonly errors: readonly UnplacedError[] } => {
  const errors: UnplacedError[] = []
  const report = (error: UnplacedError) => void errors.push(error)
  const given = isRecord(definition) ? definition : {}
  const want = (holds: boolean, wanted: string, found: unknown, next: string) =>
    holds || report(badAttribute(wanted, show(found), next))
  const unknownKey = Object.keys(given).find(field => !fields.includes(field))
  if (unknownKey !== undefined)
    report(badAttribute(`no more than ${fields.join(', ')}`, unknownKey, 'correct its name, or leave it out'))
  const { name, cuda, launch, reference, tolerance = 1e-5, graph = true } = given
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
  const late = lateFunction(reference)
  if (late !== undefined) report(badAttribute(referenceForm.wanted, late, referenceForm.next))
  want(
    typeof tolerance === 'number' && tolerance >= 0,
    'a tolerance from 0',
    tolerance,
    'leave it out for 1e-5',
  )
  want(typeof graph === 'boolean', 'true or false as graph', graph, 'leave it out for true')
  const reads = portsOf(given['reads'], report)
  const written = portsOf(given['writes'], report)
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
      report(
        badAttribute(
          'donations of a write from a read of the same type, each read once',
          found ?? `${show(entry[1])} twice`,
          "as in { donates: { y: 'x' } }",
        ),
      )
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
    graph: graph !== false,
  }
  return { attrs: Object.freeze(attrs), errors }
}

const call = (
  attrs: KernelAttrs,
  errors: readonly UnplacedError[],
  given: unknown,
  at: Where,
): Record<string, FlowValue> => {
  const args = isRecord(given) ? given : {}
  const builder = builderOf(attrs.reads.map(({ name }) => args[name]).find(flow => flow !== undefined))
  for (const error of errors) builder.report(at, attrs.name, error)
  for (const extra of Object.keys(args).filter(name => !attrs.reads.some(read => read.name === name)))
    builder.report(
      at,
      attrs.name,
      badAttribute(
        `the reads ${attrs.reads.map(({ name }) => name).join(', ')}`,
        extra,
        'give flows under the names of the reads',
      ),
    )
  const reads = attrs.reads.map(({ name, spec }) =>
    builder.take(args[name], 'device', at, attrs.name, `the read ${name}`, spec),
  )
  const dims: Record<string, Dim> = {}
  const wrong = unify(
    attrs.reads,
    reads.map(({ spec }) => spec),
    binding(dims),
  )
  if (wrong >= 0) {
    const { name, spec } = attrs.reads[wrong]!
    const found = reads[wrong]!.spec
    const sizes = Object.entries(dims).map(([symbol, size]) => `${symbol} is ${size}`)
    builder.report(
      at,
      attrs.name,
      (found.dtype === spec.dtype ? shapeMismatch : dtypeMismatch)(
        `${showSpec(spec)} as the read ${name}${sizes.length > 0 ? `, where ${sizes.join(', ')}` : ''}`,
        showSpec(found),
        'give a flow of this type, or correct the kernel',
      ),
    )
  }
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
 * A CUDA C++ kernel with declared accesses and a meaning in TypeScript, as a function from flows to flows by
 * name. Symbols in its reads fit any size; its writes have the same sizes. Nothing is compiled until the plan
 * is opened.
 */
export const kernel = <const R extends Ports, const W extends Ports>(definition: KernelDefinition<R, W>) => {
  const { attrs, errors } = attributesOf(definition)
  return <const F extends Takes<R>>(reads: F): Yields<W, Bindings<R, F>> =>
    call(attrs, errors, reads, here()) as never
}
