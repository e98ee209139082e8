import type { Plan, PlanGraph } from '../../dsl/ir/plan.js'

interface Costs {
  /** Bytes for each executable, each of its nodes, and each lane after the first. */
  readonly executable: number
  readonly node: number
  readonly lane: number
}

const KiB = 1024

/**
 * What the driver takes for an executable graph; no driver call reports it. On CUDA bytes of the device,
 * measured as its free bytes before and after 64 instantiations and first launches of one graph in a process
 * of their own (H200, driver 580.159, CUDA 13.0; 1 to 4,096 nodes on 1, 2 and 8 branches): 96 KiB, 2.6 KiB
 * for a kernel or a copy within the device, less for fills and copies from the host, and at most 576 KiB for
 * each branch beside the first. The driver keeps a destroyed executable's memory for later ones. On `host`
 * bytes of the process, 240 to 450 for a node.
 */
const costs: Readonly<Record<'cuda' | 'host', Costs>> = {
  cuda: { executable: 96 * KiB, node: 2.6 * KiB, lane: 576 * KiB },
  host: { executable: 0, node: 512, lane: 0 },
}

/**
 * Bytes that a plan's executable graphs take: one for each slot where the graph touches what slots have of
 * their own.
 */
export const graphBytes = (plan: Plan, device: 'cuda' | 'host'): number =>
  (plan.graphs ?? []).reduce((sum, graph) => sum + bytesOf(plan, graph, costs[device]), 0)

const bytesOf = ({ commands, buffers, inFlight }: Plan, { from, to }: PlanGraph, of: Costs): number => {
  const lanes = new Set<number>()
  let nodes = 0
  let bySlot = false
  for (const command of commands.slice(from, to)) {
    if (command[0] !== 'run') continue
    const [, , lane, reads, writes] = command
    nodes++
    lanes.add(lane)
    bySlot ||= [...reads, ...writes].some(id => {
      const { life, offset } = buffers[buffers[id]!.alias ?? id]!
      return offset === undefined && (life === 'input' || life === 'output')
    })
  }
  if (nodes === 0) return 0
  const each = of.executable + of.node * nodes + of.lane * (lanes.size - 1)
  return Math.ceil(each) * (bySlot ? inFlight : 1)
}
