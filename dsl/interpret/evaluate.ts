import * as E from 'fp-ts/lib/Either.js'
import { BraidError } from '../ir/braid-error.js'
import type { CompileError, GraphIR, GraphNode } from '../ir/graph.js'
import { show } from '../ir/show.js'
import { type BoundSpec, elements, showSpec, tensorBytes } from '../ir/tensor.js'
import { bindShape, bindSpec, checkDims, fittingDim, showDims } from '../language/bind.js'
import { type KernelAttrs, kernelDims, runReference } from '../language/bound-kernel.js'
import { communicatorOf, groupsOf, isShared } from '../language/communicator.js'
import { liveNodes } from '../language/live.js'
import { initLength } from '../language/operators/delay.js'
import { operators } from '../language/operators/registry.js'
import type { ParamValues } from '../language/param.js'
import { type Rates, ratesOf } from '../language/rates.js'
import { type HostArray, hostArray, writer } from '../language/values.js'

export const fault = (error: CompileError): BraidError => new BraidError([error])

/** A graph whose every spec is bound, with what one tick computes in order and when each value was read for the last time. */
export interface Bound {
  readonly ir: GraphIR
  /** The nodes that some output depends on, in this tick or a later one; and every input, which its feed gives anyway. */
  readonly nodes: readonly GraphNode[]
  readonly dims: Readonly<Record<string, number>>
  readonly specs: readonly BoundSpec[]
  readonly dead: readonly (readonly number[])[]
  /** How often each flow comes in a tick; undefined: once each. */
  readonly rates: Rates | undefined
}

/** What a delay or a hold knows is what came before: state. */
export const remembers = ({ op }: GraphNode): boolean => op === 'delay' || op === 'hold'

export const bound = (ir: GraphIR, dims: Readonly<Record<string, number>>): Bound => {
  const problems = [...ir.problems, ...checkDims(ir, dims)]
  if (problems.length > 0) throw new BraidError(problems)
  const specs: BoundSpec[] = []
  for (const node of ir.nodes) {
    const operator = operators[node.op]
    const at = node.at.toString()
    if (operator === undefined) {
      const spec = bindSpec(node, dims)
      const init = remembers(node) ? initLength(node.attrs['init'], spec) : undefined
      if (init) throw fault({ ...init, at, subject: node.name })
      specs.push(spec)
    } else {
      const inferred = operator.infer(
        node.inputs.map(input => specs[input]!),
        node.attrs,
      )
      if (E.isLeft(inferred)) throw fault({ ...inferred.left, at, subject: node.name })
      specs.push(inferred.right as BoundSpec)
    }
  }
  const last = ir.nodes.map(({ id }) => id)
  for (const { id, inputs, op } of ir.nodes)
    for (const input of inputs)
      last[input] = op === 'delay' ? Number.POSITIVE_INFINITY : Math.max(last[input]!, id)
  for (const { node } of ir.outputs) last[node] = Number.POSITIVE_INFINITY
  const dead: number[][] = ir.nodes.map(() => [])
  for (const [id, reader] of last.entries()) dead[reader]?.push(id)
  const rates = ratesOf(ir)
  if (E.isLeft(rates)) throw new BraidError(rates.left)
  return { ir, nodes: liveNodes(ir), dims, specs, dead, rates: rates.right }
}

const constructorOf = (spec: BoundSpec): string => hostArray(spec.dtype, 0).constructor.name

// Feeds and parameters come from outside: the one place where a value's type and length are not known to be right.
const checked = (value: unknown, spec: BoundSpec, node: GraphNode, role: string): HostArray => {
  const wanted = elements(spec.shape)
  const sound = ArrayBuffer.isView(value) && value.constructor.name === constructorOf(spec)
  if (sound && (value as HostArray).length === wanted) return value as HostArray
  const symbols = node.spec.shape.filter(size => typeof size === 'string')
  const fitting = sound ? fittingDim(node.spec, spec.shape, (value as HostArray).length) : undefined
  const dims = fitting ?? Object.fromEntries(symbols.map(symbol => [symbol, '…' as const]))
  throw fault({
    _tag: sound ? 'ShapeMismatch' : 'DTypeMismatch',
    at: node.at.toString(),
    subject: node.name,
    wanted: `a ${constructorOf(spec)} of ${wanted} elements for ${role} ${showSpec(spec)}`,
    found: sound ? `${(value as HostArray).length} elements` : show(value),
    next:
      symbols.length > 0
        ? `give another array, or bind ${symbols.join(', ')}: interpret(graph, { dims: ${showDims(dims)} })`
        : 'give another array',
  })
}

export const paramValue = async (
  node: GraphNode,
  spec: BoundSpec,
  params: ParamValues,
  whose: string,
): Promise<HostArray> => {
  const given = Object.hasOwn(params, node.name) ? params[node.name] : undefined
  if (typeof given !== 'function') return checked(given, spec, node, `the parameter${whose}`).slice()
  const bytes = new Uint8Array(tensorBytes(spec))
  await given(bytes, { name: node.name, dtype: spec.dtype, shape: spec.shape, bytes: bytes.length })
  const value = hostArray(spec.dtype, elements(spec.shape))
  new Uint8Array(value.buffer).set(bytes)
  return value
}

export const initial = ({ attrs }: GraphNode, spec: BoundSpec): HostArray => {
  const init = attrs['init'] as number | readonly number[]
  const write = writer(spec.dtype)
  const value = hostArray(spec.dtype, elements(spec.shape))
  for (let i = 0; i < value.length; i++) value[i] = write(typeof init === 'number' ? init : init[i]!)
  return value
}

/** Every write of a kernel, from its reads. A donated write starts as its read's values, as it does in the read's memory. */
const kernelWrites = (graph: Bound, node: GraphNode, reads: readonly HostArray[]): HostArray[] => {
  const attrs = node.attrs as unknown as KernelAttrs
  const specs = node.inputs.map(input => graph.specs[input]!)
  const dims = { ...graph.dims, ...kernelDims(attrs, specs) }
  const writes = attrs.writes.map(({ name, spec }) => {
    const donated = attrs.reads.findIndex(port => port.name === attrs.donates[name])
    return donated >= 0
      ? reads[donated]!.slice()
      : hostArray(spec.dtype, elements(bindShape(spec.shape, dims)))
  })
  runReference(
    attrs,
    reads.map(read => read.slice()),
    writes,
    dims,
  )
  return writes
}

/** Values by node of one rank, and what they are computed from. */
export interface Running {
  readonly graph: Bound
  /** `of rank 3`, where there are several. */
  readonly whose: string
  readonly params: ReadonlyMap<number, HostArray>
  /** What delays remember, and holds hold. */
  readonly state: Map<number, HostArray>
  readonly values: (HostArray | undefined)[]
  readonly writes: Map<number, HostArray[]>
}

const resultOf = (
  { graph, whose, params, state, values, writes }: Running,
  node: GraphNode,
  fed: unknown,
): HostArray => {
  const { id, op, inputs } = node
  const { specs } = graph
  const read = inputs.map(input => values[input]!)
  switch (op) {
    case 'input':
      return checked(fed, specs[id]!, node, `the input${whose}`).slice()
    case 'param':
      return params.get(id)!
    case 'upload':
    case 'download':
    case 'every':
      return read[0]!
    case 'delay':
    case 'hold':
      return state.get(id)!
    case 'kernel': {
      const all = kernelWrites(graph, node, read)
      writes.set(id, all)
      return all[0]!
    }
    case 'port':
      return writes.get(inputs[0]!)![node.attrs['index'] as number]!
    default:
      return operators[op]!.reference(
        read,
        inputs.map(input => specs[input]!),
        specs[id]!,
        node.attrs,
      )
  }
}

/** What the ranks of each group get of a collective whose input they all have. */
const exchanged = (ranks: readonly Running[], { id, op, inputs, attrs }: GraphNode): readonly HostArray[] => {
  const [input] = inputs
  const { specs } = ranks[0]!.graph
  const results = new Array<HostArray>(ranks.length)
  for (const group of groupsOf(communicatorOf({ attrs })!)) {
    const given = group.map(rank => ranks[rank]!.values[input!]!)
    const got = operators[op]!.exchange!(given, specs[input!]!, specs[id]!, attrs)
    for (const [place, rank] of group.entries()) results[rank] = got[place]!
  }
  return results
}

/** The values of a node whose inputs have theirs, by rank: its `reference` on each; of a collective, what each group makes of all that its ranks have. */
export const resultsOf = (
  ranks: readonly Running[],
  node: GraphNode,
  fed: (rank: number) => unknown,
): readonly HostArray[] =>
  isShared(node) ? exchanged(ranks, node) : ranks.map((running, rank) => resultOf(running, node, fed(rank)))
