import type { GraphNode } from '../../../ir/graph.js'
import { isEmpty } from '../../../ir/tensor.js'
import { isShared } from '../../../language/communicator.js'
import type { Output } from '../../analysis/ir.js'
import type { Lowering } from './lowering.js'

/** The node whose bytes a host value has: those of a download are still on the device. */
const contentOf = (low: Lowering, id: number): number => {
  const { op, inputs } = low.ir.nodes[id]!
  return op === 'download' ? inputs[0]! : id
}

/** An output without elements, which nothing writes. */
const emptyOutput = (low: Lowering, { name, node, parts }: Output): void => {
  const stays = low.ir.nodes[node]!.place === 'device'
  const rate = parts === undefined || parts.rate === 1 ? undefined : { rate: parts.rate }
  if (stays) low.begin(node)
  low.fresh(name, parts?.spec ?? low.spec(node), 'output', stays ? 'device' : 'pinned', rate)
}

/**
 * An output that stays on its device is written into its slot by the operation that makes it, where it can
 * be.
 */
export const outputs = (low: Lowering): void => {
  const byNode = new Map<number, string[]>()
  for (const output of low.ir.outputs) {
    const { name, node, parts } = output
    if (isEmpty(low.spec(node))) emptyOutput(low, output)
    else if (parts === undefined) byNode.set(node, [...(byNode.get(node) ?? []), name])
    else stacked(low, name, parts)
  }
  const viewed = new Set(low.buffers.flatMap(({ root }, id) => (root === id ? [] : [root])))
  for (const [id, names] of byNode)
    for (const [i, name] of names.entries()) {
      const node = low.ir.nodes[id]!
      const stays = node.place === 'device'
      if (stays) low.begin(id)
      if (i === 0 && stays && isOwn(low, node, viewed)) {
        const buffer = low.buffer[id]!
        low.buffers[buffer] = { ...low.buffers[buffer]!, name, life: 'output' }
        continue
      }
      const target = low.fresh(name, low.spec(id), 'output', stays ? 'device' : 'pinned')
      leave(low, node, target, name)
    }
}

/** Whether one operation of this device makes the whole value, in memory that nothing else has a view of. */
const isOwn = (low: Lowering, node: GraphNode, viewed: ReadonlySet<number>): boolean => {
  const buffer = low.buffer[node.id]!
  const { root, life, space, device } = low.buffers[buffer]!
  return (
    root === buffer &&
    life === 'tick' &&
    space === 'device' &&
    device === (low.ir.deviceOf?.[node.id] ?? 0) &&
    low.maker(node.id) >= 0 &&
    !viewed.has(buffer) &&
    !isShared(node)
  )
}

/** Copies a value to where it leaves the tick: to the host, or to a slot on its own device. */
const leave = (low: Lowering, node: GraphNode, target: number, name: string): void => {
  const from = contentOf(low, node.id)
  const stays = node.place === 'device'
  const across = (low.buffers[low.buffer[from]!]!.device ?? 0) !== (low.buffers[target]!.device ?? 0)
  const kind = !stays ? 'download' : across ? 'peer' : 'compute'
  low.copy(node, [from], target, kind, { op: stays ? 'copy' : 'download', name })
}

/** An output of several values: each is copied to its own part of it. */
const stacked = (low: Lowering, name: string, { nodes, spec, rate }: NonNullable<Output['parts']>): void => {
  const stays = low.ir.nodes[nodes[0]!]!.place === 'device'
  if (stays) low.begin(nodes[0]!)
  const whole = low.fresh(
    name,
    spec,
    'output',
    stays ? 'device' : 'pinned',
    rate === 1 ? undefined : { rate },
  )
  let offset = 0
  nodes.forEach((id, i) => {
    const part = low.view(`${name}[${i}]`, low.spec(id), whole, offset)
    leave(low, low.ir.nodes[id]!, part, `${name}[${i}]`)
    offset += low.buffers[part]!.bytes
  })
}

export const upload = (low: Lowering, node: GraphNode): void => {
  // A value that comes straight back from a download never left the device.
  const back = low.ir.nodes[node.inputs[0]!]!.op === 'download'
  const inputs = node.inputs.map(input => contentOf(low, input))
  const ahead = node.attrs['ahead'] as number | undefined
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  const across = (low.buffers[low.buffer[inputs[0]!]!]!.device ?? 0) !== (low.buffers[target]!.device ?? 0)
  const kind = !back ? 'upload' : across ? 'peer' : 'compute'
  low.yields(node.id, target, low.copy(node, inputs, target, kind, { ahead }))
}

export const peer = (low: Lowering, node: GraphNode): void => {
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  low.yields(node.id, target, low.copy(node, node.inputs, target, 'peer'))
}

/** Gathers values in one buffer, by one copy of all of them. */
export const window = (low: Lowering, node: GraphNode): void => {
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  low.yields(node.id, target, low.copy(node, node.inputs, target, 'compute'))
}

/** A part of a host value: a view of some of its bytes. */
export const part = (low: Lowering, node: GraphNode): void => {
  const [of] = node.inputs
  const offset = node.attrs['offsetBytes'] as number
  low.yields(node.id, low.view(node.name, low.spec(node.id), low.buffer[of!]!, offset), low.maker(of!), of!)
}
