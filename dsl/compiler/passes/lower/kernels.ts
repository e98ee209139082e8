import type { GraphNode } from '../../../ir/graph.js'
import { tensorBytes } from '../../../ir/tensor.js'
import { boundKernel } from '../../../language/bound-kernel.js'
import { communicatorOf } from '../../../language/communicator.js'
import type { CollectiveLowering, RunLowering } from '../../../language/operators/operator.js'
import { fusedAttrs } from '../../analysis/fused.js'
import type { Collective } from '../../analysis/ir.js'
import { donatedReads, kernelAttrs, operatorOf } from '../../analysis/operators.js'
import type { TakenMemory } from '../../analysis/taken-memory.js'
import type { Lowering } from './lowering.js'

export const compute = (low: Lowering, node: GraphNode): void => {
  const operator = operatorOf(node.op)!
  const inputs = low.specs(node.inputs)
  const output = low.spec(node.id)
  const lowered = operator.lower(inputs, output, node.attrs)
  if (lowered.as === 'view') {
    const [of] = node.inputs
    low.yields(
      node.id,
      low.view(node.name, output, low.buffer[of!]!, lowered.offsetBytes),
      low.maker(of!),
      of!,
    )
    low.passOn(node.id, of!)
    return
  }
  const tolerance = operator.tolerance(output, inputs, node.attrs)
  const taken = low.taken.get(node.id)
  if (taken !== undefined && lowered.as === 'run') {
    takingMemory(low, node, taken, { ...lowered, tolerance })
    return
  }
  const target = low.fresh(node.name, output, 'tick', 'device')
  if (lowered.as === 'collective') {
    low.yields(node.id, target, collective(low, node, target, lowered, tolerance))
    return
  }
  const { kernel, flops, movedBytes, workspace } = lowered
  low.yields(
    node.id,
    target,
    low.operation(node, node.inputs, [target], { kernel, flops, movedBytes, workspace, tolerance }),
  )
}

/** A kernel that changes its first input in its memory, or a copy of it where the value is read later. */
const takingMemory = (
  low: Lowering,
  node: GraphNode,
  { copied }: TakenMemory,
  { kernel, flops, movedBytes, tolerance }: RunLowering & { readonly tolerance: number },
): void => {
  const [value, ...others] = node.inputs as [number, ...number[]]
  const spec = low.spec(node.id)
  const work = { kernel, flops, movedBytes, tolerance }
  if (copied === undefined) {
    const target = low.view(node.name, spec, low.buffer[value]!, 0)
    low.yields(node.id, target, low.operation(node, node.inputs, [target], work))
    return
  }
  const name = `copy(${low.ir.nodes[value]!.name})`
  const own = low.fresh(name, spec, 'tick', 'device')
  const copy = low.copy(node, [value], own, 'compute', { op: 'copy', name })
  const target = low.view(node.name, spec, own, 0)
  const reads = [own, ...others.map(input => low.buffer[input]!)]
  const id = low.operation(node, others, [target], { ...work, reads })
  low.operations.delay(id, [copy])
  low.yields(node.id, target, id)
}

/** A collective has no kernel: its kind, communicator and counts are all of it. */
const collective = (
  low: Lowering,
  node: GraphNode,
  target: number,
  { as: _, movedBytes, kind, ...spec }: CollectiveLowering,
  tolerance: number,
): number => {
  const world = communicatorOf(node)!
  const call: Collective = { kind, communicator: low.communicator(world), ...spec, ranks: world.size }
  const ahead = node.attrs['ahead'] as number | undefined
  return low.operation(node, node.inputs, [target], {
    kind: 'collective',
    collective: call,
    movedBytes,
    tolerance,
    ahead,
  })
}

/** By kernel node: the buffers of its writes, for its ports. */
export type Writes = Map<number, readonly number[]>

/** A region of the pass `fuse`: one kernel, whose further results are ports. */
export const fusedKernel = (low: Lowering, node: GraphNode, writes: Writes): void => {
  const { kernel, flops, movedBytes, workspace = 0, tolerance, results } = fusedAttrs(node)
  const targets = [{ name: node.name, spec: low.spec(node.id) }, ...results].map(({ name, spec }) =>
    low.fresh(name, spec, 'tick', 'device'),
  )
  const work = { kernel, flops, movedBytes, workspace, tolerance }
  const id = low.operation(node, node.inputs, targets, work)
  low.yields(node.id, targets[0]!, id)
  writes.set(node.id, targets)
}

export const userKernel = (low: Lowering, node: GraphNode, writes: Writes): void => {
  const bound = boundKernel(
    kernelAttrs(node),
    node.inputs.map(input => low.spec(input)),
    Object.fromEntries(low.ir.settings.dims),
  )
  const { kernel, writes: specs, donates, tolerance } = bound
  const targets = specs.map((spec, i) => {
    const name = i === 0 ? node.name : `${node.name}.${i}`
    const donated = donates[i]
    return donated === undefined
      ? low.fresh(name, spec, 'tick', 'device')
      : low.view(name, spec, low.buffer[node.inputs[donated]!]!, 0)
  })
  const movedBytes = [
    ...node.inputs.map(input => tensorBytes(low.spec(input))),
    ...specs.map(tensorBytes),
  ].reduce((a, b) => a + b, 0)
  const id = low.operation(node, node.inputs, targets, { kernel, movedBytes, tolerance, user: bound })
  low.yields(node.id, targets[0]!, id)
  writes.set(node.id, targets)
}

/**
 * A kernel that takes a read's memory comes after all other readers, which are known once every node is
 * lowered.
 */
export const donationHazards = (low: Lowering): void => {
  for (const { node, copied } of low.taken.values()) {
    if (copied !== undefined) continue
    const taker = low.maker(node)
    for (const reader of low.readersOf(low.ir.nodes[node]!.inputs[0]!))
      if (reader !== taker) low.operations.delay(taker, [reader])
  }
  for (const node of low.ir.nodes) {
    if (node.op !== 'kernel') continue
    const donor = low.maker(node.id)
    for (const index of donatedReads(node))
      for (const reader of low.readersOf(node.inputs[index]!))
        if (reader !== donor) low.operations.delay(donor, [reader])
  }
}
