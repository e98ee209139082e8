import type { GraphNode } from '../../../ir/graph.js'
import type { Output } from '../../analysis/ir.js'
import type { Lowering } from './lowering.js'

/** The node whose bytes a host value has: those of a download are still on the device. */
const contentOf = (low: Lowering, id: number): number => {
  const { op, inputs } = low.ir.nodes[id]!
  return op === 'download' ? inputs[0]! : id
}

export const outputs = (low: Lowering): void => {
  const byNode = new Map<number, string[]>()
  for (const { name, node, parts } of low.ir.outputs)
    if (parts === undefined) byNode.set(node, [...(byNode.get(node) ?? []), name])
    else stacked(low, name, parts)
  for (const [id, names] of byNode)
    for (const name of names) {
      const target = low.fresh(name, low.spec(id), 'output', 'pinned')
      low.copy(low.ir.nodes[id]!, [contentOf(low, id)], target, 'download', { op: 'download', name })
    }
}

/** An output of several values: each is copied to its own part of it. */
const stacked = (low: Lowering, name: string, { nodes, spec, rate }: NonNullable<Output['parts']>): void => {
  const whole = low.fresh(name, spec, 'output', 'pinned', rate === 1 ? undefined : { rate })
  let offset = 0
  nodes.forEach((id, i) => {
    const part = low.view(`${name}[${i}]`, low.spec(id), whole, offset)
    low.copy(low.ir.nodes[id]!, [contentOf(low, id)], part, 'download', {
      op: 'download',
      name: `${name}[${i}]`,
    })
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
