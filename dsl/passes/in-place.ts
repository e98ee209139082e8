import type { GraphNode } from '../ir/graph.js'
import { tensorBytes } from '../ir/tensor.js'
import type { Checked } from './ir.js'
import { operatorOf } from './vocabulary.js'

/** Where a value is made: so many bytes into the buffer of a window. */
export interface Berth {
  readonly window: number
  readonly offset: number
}

/** What the libraries and vector loads of every device want of a pointer. */
const alignment = 16

/**
 * Values that are made where their window wants them, by node, so that nothing gathers it: those of windows each of whose values nobody else reads, and
 * is made on one lane that the user named. Other lanes would each have to wait for the buffer's allocation, and readers of one value for the
 * makers of the next.
 */
export const berthsOf = ({ nodes, specs, unrolled }: Checked): ReadonlyMap<number, Berth> => {
  const berths = new Map<number, Berth>()
  if (unrolled !== true) return berths
  const lane = new Map<number, string>()
  const readers = new Int32Array(nodes.length)
  for (const { inputs } of nodes) for (const input of inputs) readers[input]!++
  /** The lane of a value that can be made anywhere; undefined: it cannot, or the compiler chooses its lane. */
  const laneOf = (id: number): string | undefined => {
    const known = lane.get(id)
    if (known !== undefined || !canBeAnywhere(nodes[id]!)) return known
    // A lane without a name is any lane of its device.
    return nodes[id]!.lane?.name || undefined
  }
  const canBeAnywhere = (node: GraphNode): boolean => {
    if (node.op === 'window' || node.op === 'kernel') return !donates(node)
    if (node.op === 'upload') return node.attrs['ahead'] === undefined
    const inputs = node.inputs.map(input => specs[input]!)
    return operatorOf(node.op)?.lower(inputs, specs[node.id]!, node.attrs).as === 'run'
  }
  /** The maker of a window's value, through reshapes; undefined where somebody else reads it. */
  const makerOf = (input: number): number | undefined => {
    let id = input
    while (readers[id] === 1 && nodes[id]!.op === 'reshape') id = nodes[id]!.inputs[0]!
    return readers[id] === 1 ? id : undefined
  }
  for (const { id, op, inputs } of nodes) {
    if (op !== 'window' || inputs.length < 2) continue
    const bytes = tensorBytes(specs[inputs[0]!]!)
    const makers = inputs.map(makerOf)
    const lanes = new Set(makers.map(maker => (maker === undefined ? undefined : laneOf(maker))))
    const [name] = lanes
    if (bytes % alignment !== 0 || lanes.size > 1 || name === undefined) continue
    lane.set(id, name)
    makers.forEach((maker, i) => {
      berths.set(maker!, { window: id, offset: i * bytes })
    })
  }
  return berths
}

// A donated write lies where its read lies.
const donates = ({ op, attrs }: GraphNode): boolean =>
  op === 'kernel' && Object.keys((attrs['donates'] as object | undefined) ?? {}).length > 0
