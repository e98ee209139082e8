import * as E from 'fp-ts/lib/Either.js'
import { concatMap, defer, from, map, type Observable, type ObservableInput, range, zip } from 'rxjs'
import { bindShape, bindSpec, checkDims, fittingDim, showDims } from './bind.js'
import { BraidError } from './fp.js'
import { type Graph, irOf } from './graph.js'
import type { CompileError, GraphIR, GraphNode } from './ir/graph.js'
import { type BoundSpec, elements, showSpec, tensorBytes } from './ir/tensor.js'
import { type KernelAttrs, kernelDims, runReference } from './kernel.js'
import { initLength } from './operators/delay.js'
import type { HostArray } from './operators/operator.js'
import { operators } from './operators/registry.js'
import type { ParamValues } from './param.js'
import { show } from './show.js'
import type { HostArrayOf, Ports } from './tensor.js'
import { hostArray, writer } from './values.js'

export interface InterpretOptions {
  readonly params?: ParamValues
  readonly dims?: Readonly<Record<string, number>>
  /** How many ticks a graph without inputs runs; default 1. Feeds end the others. */
  readonly ticks?: number
}

export type HostFeeds<I extends Ports> = { readonly [K in keyof I]: ObservableInput<HostArrayOf<I[K]>> }
export type HostValues<O extends Ports> = { readonly [K in keyof O]: HostArrayOf<O[K]> }

const fault = (error: CompileError): BraidError => new BraidError([error])

/** A graph whose every spec is bound, with what one tick computes in order and when each value was read for the last time. */
interface Bound {
  readonly ir: GraphIR
  /** The nodes that some output depends on, in this tick or a later one; and every input, which its feed gives anyway. */
  readonly nodes: readonly GraphNode[]
  readonly dims: Readonly<Record<string, number>>
  readonly specs: readonly BoundSpec[]
  readonly dead: readonly (readonly number[])[]
}

const alive = ({ nodes, outputs }: GraphIR): readonly GraphNode[] => {
  const seen = new Set<number>()
  const visit = outputs.map(({ node }) => node)
  for (let id = visit.pop(); id !== undefined; id = visit.pop())
    if (!seen.has(id)) {
      seen.add(id)
      visit.push(...nodes[id]!.inputs)
    }
  return nodes.filter(({ id, op }) => op === 'input' || seen.has(id))
}

const bound = (ir: GraphIR, dims: Readonly<Record<string, number>>): Bound => {
  const problems = [...ir.problems, ...checkDims(ir, dims)]
  if (problems.length > 0) throw new BraidError(problems)
  const specs: BoundSpec[] = []
  for (const node of ir.nodes) {
    const operator = operators[node.op]
    const at = node.at.toString()
    if (operator === undefined) {
      const spec = bindSpec(node, dims)
      const init = node.op === 'delay' ? initLength(node.attrs['init'], spec) : undefined
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
    for (const input of inputs) last[input] = op === 'delay' ? Number.POSITIVE_INFINITY : Math.max(last[input]!, id)
  for (const { node } of ir.outputs) last[node] = Number.POSITIVE_INFINITY
  const dead: number[][] = ir.nodes.map(() => [])
  for (const [id, reader] of last.entries()) dead[reader]?.push(id)
  return { ir, nodes: alive(ir), dims, specs, dead }
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

const paramValue = async (node: GraphNode, spec: BoundSpec, params: ParamValues): Promise<HostArray> => {
  const given = Object.hasOwn(params, node.name) ? params[node.name] : undefined
  if (typeof given !== 'function') return checked(given, spec, node, 'the parameter').slice()
  const bytes = new Uint8Array(tensorBytes(spec))
  await given(bytes, { name: node.name, dtype: spec.dtype, shape: spec.shape, bytes: bytes.length })
  const value = hostArray(spec.dtype, elements(spec.shape))
  new Uint8Array(value.buffer).set(bytes)
  return value
}

const initial = ({ attrs }: GraphNode, spec: BoundSpec): HostArray => {
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
    return donated >= 0 ? reads[donated]!.slice() : hostArray(spec.dtype, elements(bindShape(spec.shape, dims)))
  })
  runReference(
    attrs,
    reads.map(read => read.slice()),
    writes,
    dims,
  )
  return writes
}

/** One tick: each node's `reference` in turn. `state` holds what delays remember, and is moved on. */
const tick = (
  graph: Bound,
  params: ReadonlyMap<number, HostArray>,
  state: Map<number, HostArray>,
  fed: Readonly<Record<string, unknown>>,
): Record<string, HostArray> => {
  const { ir, nodes, specs, dead } = graph
  const values: (HostArray | undefined)[] = []
  const writes = new Map<number, HostArray[]>()
  for (const node of nodes) {
    const { id, op, inputs } = node
    const spec = specs[id]!
    const read = inputs.map(input => values[input]!)
    if (op === 'input') values[id] = checked(fed[node.name], spec, node, 'the input').slice()
    else if (op === 'param') values[id] = params.get(id)!
    else if (op === 'upload' || op === 'download') values[id] = read[0]!
    else if (op === 'delay') values[id] = state.get(id)!
    else if (op === 'kernel') {
      const all = kernelWrites(graph, node, read)
      writes.set(id, all)
      values[id] = all[0]!
    } else if (op === 'port') values[id] = writes.get(inputs[0]!)![node.attrs['index'] as number]!
    else
      values[id] = operators[op]!.reference(
        read,
        inputs.map(input => specs[input]!),
        spec,
        node.attrs,
      )
    for (const gone of dead[id]!) values[gone] = undefined
  }
  // All at once: a delay that feeds a delay hands on what it had, not what it gets.
  for (const { id, op, inputs } of nodes) if (op === 'delay') state.set(id, values[inputs[0]!]!)
  return Object.fromEntries(ir.outputs.map(({ name, node }) => [name, values[node]!.slice()]))
}

/**
 * A graph's meaning: plain RxJS over typed arrays, one operator's `reference` at a time. Ends with the shortest feed; every
 * subscription starts with fresh state. A graph with mistakes, a feed of a wrong size, and a feed's own error are the Observable's
 * error, a `BraidError` in the first two cases.
 */
export const interpret =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretOptions = {}) =>
  (feeds: HostFeeds<I>): Observable<HostValues<O>> =>
    defer(() => {
      const ready = bound(irOf(graph), options.dims ?? {})
      const { nodes } = ready
      const inputs = nodes.filter(({ op }) => op === 'input')
      const given: Readonly<Record<string, ObservableInput<unknown> | undefined>> = feeds ?? {}
      const missing = inputs.find(({ name }) => given[name] === undefined || given[name] === null)
      if (missing)
        throw fault({
          _tag: 'BadOption',
          at: missing.at.toString(),
          subject: missing.name,
          wanted: 'a feed for every input',
          found: show(given[missing.name]),
          next: `give feeds { ${missing.name}: … }`,
        })
      const rows: Observable<unknown[]> =
        inputs.length > 0
          ? zip(inputs.map(({ name }) => from(given[name]!)))
          : range(options.ticks ?? 1).pipe(map(() => []))
      const load = async (): Promise<ReadonlyMap<number, HostArray>> => {
        const values = new Map<number, HostArray>()
        for (const node of nodes)
          if (node.op === 'param')
            values.set(node.id, await paramValue(node, ready.specs[node.id]!, options.params ?? {}))
        return values
      }
      const state = new Map<number, HostArray>()
      for (const node of nodes) if (node.op === 'delay') state.set(node.id, initial(node, ready.specs[node.id]!))
      return from(load()).pipe(
        concatMap(params =>
          rows.pipe(
            map(row => tick(ready, params, state, Object.fromEntries(inputs.map(({ name }, i) => [name, row[i]])))),
          ),
        ),
      ) as unknown as Observable<HostValues<O>>
    })
