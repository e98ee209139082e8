import type { GraphNode } from '../../ir/graph.js'
import type { BoundSpec } from '../../ir/tensor.js'
import { donatedReads as donationsIn, type KernelAttrs } from '../../language/bound-kernel.js'
import { communicatorOf } from '../../language/communicator.js'
import type { Operator } from '../../language/operators/operator.js'
import { operators } from '../../language/operators/registry.js'

/** Operators that the compiler knows by name; all others go through the registry. */
export const structural: ReadonlySet<string> = new Set([
  'input',
  'param',
  'upload',
  'download',
  'peer',
  'delay',
  'window',
  'every',
  'hold',
  'repeat',
  'kernel',
  'port',
])

export const operatorOf = (name: string): Operator | undefined => operators[name]

/** Whether a value may be the memory of the node's first input: a collective of one rank is its input too. */
export const isView = (node: GraphNode): boolean =>
  operatorOf(node.op)?.mayBeView === true || communicatorOf(node)?.size === 1

export const kernelAttrs = (node: GraphNode): KernelAttrs => node.attrs as unknown as KernelAttrs

/** The reads that a kernel node donates, by index; needs no dimensions. */
export const donatedReads = (node: GraphNode): readonly number[] => donationsIn(kernelAttrs(node))

/** By node: the node whose memory its value is. Views name earlier nodes, so one sweep resolves them all. */
export const ownersOf = (nodes: readonly GraphNode[], specs: readonly BoundSpec[]): Int32Array => {
  const owner = Int32Array.from(nodes, node => node.id)
  for (const node of nodes) {
    if (structural.has(node.op)) continue
    const inputs = node.inputs.map(input => specs[input]!)
    if (operatorOf(node.op)?.lower(inputs, specs[node.id]!, node.attrs).as === 'view')
      owner[node.id] = owner[node.inputs[0]!]!
  }
  return owner
}
