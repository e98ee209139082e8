import type { BraidError } from '../ir/braid-error.js'
import type { GraphNode } from '../ir/graph.js'
import { joinNames } from '../ir/names.js'
import { show } from '../ir/show.js'
import { type BoundSpec, elements, isEmpty, showSpec, tensorBytes } from '../ir/tensor.js'
import { fittingDim, showDims } from '../language/bind.js'
import type { BoundKernel } from '../language/bound-kernel.js'
import { communicatorOf, groupsOf, isShared } from '../language/communicator.js'
import { initialValue } from '../language/initial-value.js'
import { operators } from '../language/operators/registry.js'
import type { ParamValues } from '../language/param.js'
import { lateResult, referenceForm } from '../language/reference.js'
import { type HostArray, hostArray } from '../language/values.js'
import { fault, type Prepared } from './prepare.js'
import { unrepeatable } from './repeatable.js'

/** What takes the place of a node's value, given what the node read, and what computes the value. */
export type Disturb = (node: GraphNode, reads: readonly HostArray[], value: () => HostArray) => HostArray

/** One rank during one tick: its values by node, and their sources. */
export interface Rank {
  /** Its name in errors, where there are several ranks: ` of rank 3`. */
  readonly label: string
  readonly params: ReadonlyMap<number, HostArray>
  /** By delay and hold: its next value. */
  readonly state: Map<number, HostArray>
  readonly values: (HostArray | undefined)[]
  /** By kernel node: all of its writes. */
  readonly writes: Map<number, HostArray[]>
  /** Absent: values are those of the operators' references. */
  readonly disturb?: Disturb | undefined
  /** Whether each user's kernel is computed twice, which refuses one that yields something else then. */
  readonly repeats?: boolean | undefined
}

const constructorOf = (spec: BoundSpec): string => hostArray(spec.dtype, 0).constructor.name

// Feeds and parameters come from outside, so their values are checked; all other values have the type of
// their node.
export const checked = (value: unknown, spec: BoundSpec, node: GraphNode, role: string): HostArray => {
  const wanted = elements(spec.shape)
  const hasType = ArrayBuffer.isView(value) && value.constructor.name === constructorOf(spec)
  if (hasType && (value as HostArray).length === wanted) return value as HostArray
  const symbols = node.spec.shape.filter(size => typeof size === 'string')
  const fitting = hasType ? fittingDim(node.spec, spec.shape, (value as HostArray).length) : undefined
  const dims = fitting ?? Object.fromEntries(symbols.map(symbol => [symbol, '…' as const]))
  throw fault({
    _tag: hasType ? 'ShapeMismatch' : 'DTypeMismatch',
    at: node.at.toString(),
    subject: node.name,
    wanted: `a ${constructorOf(spec)} of ${wanted} elements for ${role} ${showSpec(spec)}`,
    found: hasType ? `${(value as HostArray).length} elements` : show(value),
    next:
      symbols.length > 0
        ? `give another array, or bind ${symbols.join(', ')}: interpret(graph, { dims: ${showDims(dims)} })`
        : 'give another array',
  })
}

/** `given`: the parameters that the caller gave; one of them may be a misspelling of this one. */
const missingParam = (node: GraphNode, spec: BoundSpec, given: ParamValues, label: string): BraidError => {
  const names = Object.keys(given)
  return fault({
    _tag: 'MissingParam',
    at: node.at.toString(),
    subject: node.name,
    wanted: `a value of ${showSpec(spec)} for the parameter${label}`,
    found: names.length === 0 ? 'none' : `none, but ${joinNames(names, 8)}`,
    next: `interpret(graph, { params: { ${JSON.stringify(node.name)}: … } }): a typed array, or a function that fills the bytes`,
  })
}

/** The values of the parameters, from arrays or from the functions that fill their bytes. */
export const loadParams = async (
  { nodes, specs }: Prepared,
  params: ParamValues,
  label: string,
): Promise<ReadonlyMap<number, HostArray>> => {
  const values = new Map<number, HostArray>()
  for (const node of nodes) {
    if (node.op !== 'param') continue
    const spec = specs[node.id]!
    const given = Object.hasOwn(params, node.name) ? params[node.name] : undefined
    if (typeof given === 'function') {
      const bytes = new Uint8Array(tensorBytes(spec))
      await given(bytes, { name: node.name, dtype: spec.dtype, shape: spec.shape, bytes: bytes.length })
      const value = hostArray(spec.dtype, elements(spec.shape))
      new Uint8Array(value.buffer).set(bytes)
      values.set(node.id, value)
    } else if (given === undefined) throw missingParam(node, spec, params, label)
    else values.set(node.id, checked(given, spec, node, `the parameter${label}`).slice())
  }
  return values
}

/** The first value of a delay or hold. */
export const initial = ({ attrs, name }: GraphNode, spec: BoundSpec): HostArray =>
  initialValue(attrs['init'] as Parameters<typeof initialValue>[0], spec, name)

/**
 * The writes of a user's kernel. A donated write starts with its read's values, as it does in the read's
 * memory.
 */
const kernelWrites = (graph: Prepared, node: GraphNode, reads: readonly HostArray[]): HostArray[] => {
  const { writes, donates, reference } = graph.kernels.get(node.id)!
  if (writes.every(isEmpty)) return writes.map(({ dtype }) => hostArray(dtype, 0))
  const filled = writes.map(({ dtype, shape }, i) => {
    const donated = donates[i]
    return donated === undefined ? hostArray(dtype, elements(shape)) : reads[donated]!.slice()
  })
  const late = lateResult(
    reference(
      reads.map(read => read.slice()),
      filled,
    ),
  )
  if (late === undefined) return filled
  const { wanted, next } = referenceForm
  throw fault({
    _tag: 'BadAttribute',
    at: node.at.toString(),
    subject: node.name,
    wanted,
    found: late,
    next,
  })
}

const bytesIn = ({ buffer, byteOffset, byteLength }: HostArray): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

/** Refuses a reference that yields something else of the same values: what it means cannot be compared. */
const refuseOther = (
  { at, name }: GraphNode,
  all: readonly HostArray[],
  again: readonly HostArray[],
  { writes }: BoundKernel,
): void => {
  for (const [i, { dtype }] of writes.entries()) {
    const [first, later] = [bytesIn(all[i]!), bytesIn(again[i]!)]
    const error = unrepeatable(at.toString(), name, 'a reference', first, later, dtype)
    if (error !== undefined) throw fault(error)
  }
}

const computed = (graph: Prepared, rank: Rank, node: GraphNode, fed: unknown): HostArray => {
  const { id, op, inputs } = node
  const { specs } = graph
  const read = inputs.map(input => rank.values[input]!)
  switch (op) {
    case 'input':
      return checked(fed, specs[id]!, node, `the input${rank.label}`).slice()
    case 'param':
      return rank.params.get(id)!
    case 'upload':
    case 'download':
    case 'every':
    case 'repeat':
      return read[0]!
    case 'delay':
    case 'hold':
      return rank.state.get(id)!
    case 'kernel': {
      const all = kernelWrites(graph, node, read)
      if (rank.repeats === true)
        refuseOther(node, all, kernelWrites(graph, node, read), graph.kernels.get(id)!)
      rank.writes.set(id, all)
      return all[0]!
    }
    case 'port':
      return rank.writes.get(inputs[0]!)![node.attrs['index'] as number]!
    default:
      if (isEmpty(specs[id]!)) return hostArray(specs[id]!.dtype, 0)
      return operators[op]!.reference(
        read,
        inputs.map(input => specs[input]!),
        specs[id]!,
        node.attrs,
      )
  }
}

const exchanged = (
  { specs }: Prepared,
  ranks: readonly Rank[],
  { id, op, inputs, attrs }: GraphNode,
): readonly HostArray[] => {
  const [input] = inputs
  const { dtype } = specs[id]!
  if (isEmpty(specs[id]!)) return ranks.map(() => hostArray(dtype, 0))
  const results = new Array<HostArray>(ranks.length)
  for (const group of groupsOf(communicatorOf({ attrs })!)) {
    const given = group.map(rank => ranks[rank]!.values[input!]!)
    const got = operators[op]!.exchange!(given, specs[input!]!, specs[id]!, attrs)
    for (const [place, rank] of group.entries()) results[rank] = got[place]!
  }
  return results
}

/**
 * The value of a node on each rank: by the operator's `reference` on each rank's inputs, or, for a
 * collective, by its `exchange` among the ranks of each group.
 */
export const valuesOf = (
  graph: Prepared,
  ranks: readonly Rank[],
  node: GraphNode,
  fed: (rank: number) => unknown,
): readonly HostArray[] =>
  isShared(node)
    ? exchanged(graph, ranks, node)
    : ranks.map((rank, r) => {
        const { disturb, values } = rank
        const value = () => computed(graph, rank, node, fed(r))
        if (disturb === undefined) return value()
        const reads = node.inputs.map(input => values[input]!)
        return disturb(node, reads, value)
      })
