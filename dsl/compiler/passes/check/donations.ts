import type { CompileError, GraphNode } from '../../../ir/graph.js'
import type { BoundSpec } from '../../../ir/tensor.js'
import { fault } from '../../analysis/faults.js'
import { donatedReads, ownersOf } from '../../analysis/operators.js'

// A donated read gives its memory to the kernel's write. Every other reader of the value must come before the
// kernel, which a reader that depends on the kernel cannot.

/** Needs sound types: operators decide by them whether they are views. */
export const donationFaults = (
  nodes: readonly GraphNode[],
  specs: readonly BoundSpec[],
): readonly CompileError[] => {
  const donors = nodes.filter(node => node.op === 'kernel' && donatedReads(node).length > 0)
  if (donors.length === 0) return []
  const owner = ownersOf(nodes, specs)
  const readers = new Map<number, GraphNode[]>()
  const consumers: number[][] = nodes.map(() => [])
  for (const node of nodes)
    for (const input of node.op === 'delay' ? [] : node.inputs) {
      consumers[input]!.push(node.id)
      if (owner[node.id] !== node.id) continue
      const others = readers.get(owner[input]!)
      if (others === undefined) readers.set(owner[input]!, [node])
      else others.push(node)
    }
  const takes = (kernel: GraphNode, value: number): boolean =>
    kernel.op === 'kernel' && donatedReads(kernel).some(index => owner[kernel.inputs[index]!] === value)

  const faults: CompileError[] = []
  const reached = new Int32Array(nodes.length).fill(-1)
  const reach = (donor: GraphNode): void => {
    const stack = [donor.id]
    while (stack.length > 0)
      for (const consumer of consumers[stack.pop()!]!)
        if (reached[consumer] !== donor.id) {
          reached[consumer] = donor.id
          stack.push(consumer)
        }
  }
  for (const donor of donors)
    for (const index of donatedReads(donor)) {
      const value = nodes[owner[donor.inputs[index]!]!]!
      const give = (node: GraphNode, found: string, next: string): void => {
        faults.push(
          fault(
            'UseAfterDonate',
            node.at,
            node.name,
            `no use of '${value.name}' after ${donor.name} took its memory`,
            found,
            next,
          ),
        )
      }
      if (value.op === 'param')
        give(
          donor,
          `'${value.name}' is a parameter, which the next tick reads again`,
          'do not donate it, or copy it first',
        )
      const others = readers.get(value.id)!.filter(reader => reader !== donor)
      if (donor.inputs.some((input, i) => i !== index && owner[input] === value.id))
        give(donor, `${donor.name} reads '${value.name}' twice`, 'donate a value that the kernel reads once')
      if (others.length > 0 && reached[donor.id] !== donor.id) reach(donor)
      for (const reader of others)
        if (reached[reader.id] === donor.id)
          give(
            reader,
            `${reader.name} reads it and depends on ${donor.name}`,
            `read it before ${donor.name}, or do not donate it`,
          )
        else if (reader.id > donor.id && takes(reader, value.id))
          give(reader, `${reader.name} takes it too`, 'donate it to one kernel only')
    }
  return faults
}
