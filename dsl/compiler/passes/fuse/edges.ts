import type { Checked } from '../../analysis/ir.js'
import { isView } from '../../analysis/operators.js'
import type { Fusion, Stored, WhyStored } from '../../analysis/provenance.js'
import type { Regions } from './regions.js'
import { Values } from './values.js'

// For `explain`: why each value that one kernel makes and another one reads is stored. The reasons are those
// that the pass had where it decided: `Values.apart`, `Epilogues.apart` and `Regions.refused`.

/** Entries of the lists for `explain`, at most. */
export const mostListed = 4096

/** A value that a kernel makes and another one reads. */
interface Edge {
  /** Of a kernel of the program the kernel stands for all of its values. */
  readonly value: number
  /** The node of the kernel that makes it, of which the value may be one of several results. */
  readonly kernel: number
  readonly reader: number
  /** The views and windows between the value and its reader. */
  readonly views: readonly number[]
}

function* edgesOf({ nodes }: Checked, values: Values): Generator<Edge> {
  const isKernel = (id: number): boolean =>
    values.elementwise[id] !== undefined || values.apart[id] !== undefined
  for (const { id: reader, op, inputs } of nodes) {
    if (!isKernel(reader) || op === 'delay') continue
    const met = new Set<number>()
    const open = inputs.map(from => ({ from, views: [] as readonly number[] }))
    for (const { from, views } of open) {
      const node = nodes[from]!
      const { op } = node
      if (!isKernel(from) && (op === 'window' || op === 'after' || isView(node))) {
        const sources = op === 'window' ? node.inputs : node.inputs.slice(0, 1)
        for (const source of sources) open.push({ from: source, views: [...views, from] })
        continue
      }
      const kernel = op === 'port' ? node.inputs[0]! : from
      const value = nodes[kernel]!.op === 'kernel' ? kernel : from
      if (isKernel(kernel) && !met.has(value)) yield { value, kernel, reader, views }
      met.add(value)
    }
  }
}

/** Why a kernel that is no candidate takes in none of those whose values it reads. */
const byReader = ({ apart }: Values, reader: number): WhyStored => {
  const own = apart[reader]!
  return own === 'changed memory' ? own : `read by: ${own}`
}

/** Why one of two kernels takes no other in at all. */
const byKind = (values: Values, { kernel, reader }: Edge): WhyStored | undefined => {
  const made = values.apart[kernel]
  if (made === undefined) return values.apart[reader] && byReader(values, reader)
  return made === 'changed memory' || values.apart[reader] === 'changed memory'
    ? 'changed memory'
    : `made by: ${made}`
}

/** Why a view between two candidates is not read through. */
const byView = ({ nodes }: Checked, { viewFrom }: Values, { views }: Edge): WhyStored | undefined => {
  const ops = views.map(view => nodes[view]!.op)
  if (ops.includes('window')) return 'window'
  if (ops.includes('keep')) return 'keep'
  if (ops.includes('after')) return 'after'
  return views.some(view => viewFrom[view]! < 0) ? 'changed memory' : undefined
}

/**
 * The values that are stored between the kernels of a graph. `products`: by name, why a product takes no more
 * in.
 */
export const storedBetween = (
  ir: Checked,
  regions: Regions,
  products: ReadonlyMap<string, WhyStored>,
): readonly Stored[] => {
  const { of, refused, values } = regions
  const why = (edge: Edge): WhyStored => {
    const { value, reader } = edge
    const product = products.get(ir.nodes[value]!.name)
    if (product === 'read by several' && values.apart[reader] !== undefined) return byReader(values, reader)
    const known = product ?? byKind(values, edge) ?? byView(ir, values, edge)
    if (known !== undefined) return known
    if (values.elementwise[reader]!.isIndexed) return 'indexed'
    const refusal = refused[value]
    return refusal !== undefined && of[refusal.by] === of[reader] ? refusal.because : 'read by several'
  }
  const stored: Stored[] = []
  const seen = new Set<number>()
  for (const edge of edgesOf(ir, values)) {
    const { value, kernel, reader } = edge
    if (of[reader] !== undefined && of[kernel] === of[reader]) continue
    const key = value * ir.nodes.length + (of[reader]?.members[0] ?? reader)
    if (seen.has(key)) continue
    seen.add(key)
    if (stored.push(storedOf(ir, edge, why(edge))) === mostListed) break
  }
  return stored
}

const storedOf = ({ nodes }: Checked, { value, reader }: Edge, because: WhyStored): Stored => {
  const { name, at } = nodes[value]!
  return { name, reader: nodes[reader]!.name, because, at }
}

/** The same of a graph that is left as it is: what was fused in it is given up. */
export const storedWithout = (ir: Checked, fusion: Pick<Fusion, 'regions' | 'apart'>): readonly Stored[] => {
  const values = new Values(ir)
  const known = new Map(fusion.apart.map(({ name, reader, because }) => [`${name} ${reader}`, because]))
  const regionOf = new Map(
    fusion.regions.flatMap(({ members }, i) => members.map(name => [name, i] as const)),
  )
  const stored: Stored[] = []
  for (const edge of edgesOf(ir, values)) {
    const [name, reader] = [ir.nodes[edge.value]!.name, ir.nodes[edge.reader]!.name]
    const isFused = regionOf.has(name) && regionOf.get(name) === regionOf.get(reader)
    const because = isFused ? 'worse plan' : (known.get(`${name} ${reader}`) ?? byKind(values, edge))
    if (stored.push(storedOf(ir, edge, because ?? 'worse plan')) === mostListed) break
  }
  return stored
}
