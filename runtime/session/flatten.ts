import { exactNumbers } from '../../dsl/ir/json.js'
import type { KernelSpec } from '../../dsl/ir/kernel-spec.js'
import type { Command, Life, Plan, PlanGraph } from '../../dsl/ir/plan.js'
import type { NativeBuffer, NativeProgramSpec } from '../addon.js'

const lifeNumber = { tick: 0, state: 1, param: 2, input: 3, output: 4 } as const satisfies Record<
  Life,
  number
>
const opcode = { alloc: 0, free: 1, run: 2, record: 3, wait: 4, use: 5 } as const

/** A plan as the executor reads it, and for each kernel the first run command that uses it. */
export interface FlatProgram {
  readonly spec: NativeProgramSpec
  readonly kernelRuns: readonly KernelRun[]
}

export interface KernelRun {
  readonly node: number
  readonly reads: readonly number[]
  readonly writes: readonly number[]
}

/**
 * Plan → flat program. `open` has checked that the plan obeys the laws and every node that runs has a kernel.
 * Buffer, lane and node numbers stay; events become dense; equal kernels become one, so each is compiled
 * once.
 */
export const flatten = (plan: Plan): FlatProgram => {
  const events = eventNumbers(plan.commands)
  const { kernels, kernelOf, kernelRuns } = distinctKernels(plan)
  return {
    kernelRuns,
    spec: {
      name: plan.name,
      inFlight: plan.inFlight,
      lanes: plan.lanes.map(({ name, priority, device }) => ({ name, priority, device })),
      buffers: plan.buffers.map((_, id) => flatBuffer(plan, id)),
      kernels,
      nodes: plan.nodes.map(({ name, peerAccess = false }, id) => ({
        name,
        kernel: kernelOf.get(id) ?? 0,
        peerAccess,
      })),
      events: events.size,
      commands: flatWords(plan.commands, events),
      graphs: flatGraphs(plan.graphs ?? []),
      storage: plan.storage,
      enforced: plan.boundKind === 'enforced',
      arenaBytes: each(plan, plan.arena),
      arenas: plan.arenas ?? 1,
      bound: { device: each(plan, plan.bound.device), pinned: plan.bound.pinned },
    },
  }
}

const flatGraphs = (graphs: readonly PlanGraph[]): NativeProgramSpec['graphs'] => {
  const edgeStart = new Int32Array(graphs.length + 1)
  graphs.forEach(({ edges }, i) => {
    edgeStart[i + 1] = edgeStart[i]! + edges.length
  })
  const edges = new Int32Array(2 * edgeStart.at(-1)!)
  let at = 0
  for (const graph of graphs)
    for (const [before, after] of graph.edges) {
      edges[at++] = before
      edges[at++] = after
    }
  return {
    from: Int32Array.from(graphs, ({ from }) => from),
    to: Int32Array.from(graphs, ({ to }) => to),
    edgeStart,
    edges,
  }
}

/** One number for each device of the plan. */
const each = ({ devices }: Plan, sizes: readonly number[] = []): number[] =>
  Array.from({ length: devices }, (_, device) => sizes[device] ?? 0)

/** The buffer that a view lies in (the buffer itself, if it is no view), and the offset. */
export const rootOf = (plan: Plan, id: number): { readonly root: number; readonly offset: number } => {
  const buffer = plan.buffers[id]!
  return buffer.alias === undefined
    ? { root: id, offset: 0 }
    : { root: buffer.alias, offset: buffer.aliasOffset ?? 0 }
}

const flatBuffer = (plan: Plan, id: number): NativeBuffer => {
  const buffer = plan.buffers[id]!
  const { root, offset } = rootOf(plan, id)
  return {
    name: buffer.name,
    bytes: buffer.bytes,
    space: buffer.space === 'device' ? 0 : 1,
    home: buffer.home,
    life: lifeNumber[buffer.life],
    root,
    rootOffset: offset,
    arenaOffset: buffer.offset ?? -1,
    device: buffer.space === 'device' ? buffer.device : 0,
  }
}

const eventNumbers = (commands: readonly Command[]): ReadonlyMap<number, number> => {
  const numbers = new Map<number, number>()
  const see = (event: number): void => void (numbers.has(event) || numbers.set(event, numbers.size))
  for (const command of commands) {
    if (command[0] === 'record' || command[0] === 'wait') see(command[1])
    else if (command[0] === 'use') see(command[3])
  }
  return numbers
}

// The reference of a user's kernel depends on the types of its operands, so operands of other types make
// another kernel. A copy's direction depends on where its operands lie, which the executor looks up run by
// run: one node may copy both ways.
const distinctKernels = (plan: Plan) => {
  const kernels: KernelSpec[] = []
  const kernelRuns: KernelRun[] = []
  const kernelOf = new Map<number, number>()
  const known = new Map<string, number>()
  for (const command of plan.commands) {
    if (command[0] !== 'run') continue
    const [, node, , reads, writes] = command
    const kernel = plan.nodes[node]!.kernel!
    const key = JSON.stringify(
      [kernel.kind === 'cuda' && operandTypes(plan, reads, writes), kernel],
      exactNumbers,
    )
    let index = known.get(key)
    if (index === undefined) {
      index = kernels.push(kernel) - 1
      kernelRuns.push({ node, reads, writes })
      known.set(key, index)
    }
    kernelOf.set(node, index)
  }
  return { kernels, kernelOf, kernelRuns }
}

const operandTypes = (plan: Plan, reads: readonly number[], writes: readonly number[]): unknown =>
  [reads, writes].map(ids =>
    ids.map(id => plan.buffers[id]!).map(({ bytes, dtype, shape }) => [bytes, dtype, shape]),
  )

/**
 * Nodes of users' kernels whose runs differ in the types of their operands: such a node has no single
 * meaning.
 */
export const nodesOfSeveralTypes = (plan: Plan): readonly number[] => {
  const types = new Map<number, string>()
  const mixed = new Set<number>()
  for (const command of plan.commands) {
    if (command[0] !== 'run' || plan.nodes[command[1]]?.kernel?.kind !== 'cuda') continue
    const [, node, , reads, writes] = command
    const own = JSON.stringify(operandTypes(plan, reads, writes))
    if ((types.get(node) ?? own) !== own) mixed.add(node)
    types.set(node, own)
  }
  return [...mixed]
}

const wordCount = (command: Command): number => {
  switch (command[0]) {
    case 'free':
      return 2
    case 'alloc':
    case 'record':
      return 3
    case 'wait':
    case 'use':
      return 4
    case 'run':
      return 5 + command[3].length + command[4].length
  }
}

const flatWords = (commands: readonly Command[], events: ReadonlyMap<number, number>): Int32Array => {
  const flat = new Int32Array(commands.reduce((sum, command) => sum + wordCount(command), 0))
  let at = 0
  for (const command of commands) {
    flat[at++] = opcode[command[0]]
    switch (command[0]) {
      case 'alloc':
        flat[at++] = command[1]
        flat[at++] = command[2]
        break
      case 'free':
        flat[at++] = command[1]
        break
      case 'run':
        flat[at++] = command[1]
        flat[at++] = command[2]
        flat[at++] = command[3].length
        flat[at++] = command[4].length
        for (const read of command[3]) flat[at++] = read
        for (const write of command[4]) flat[at++] = write
        break
      case 'record':
        flat[at++] = events.get(command[1])!
        flat[at++] = command[2]
        break
      case 'wait':
        flat[at++] = events.get(command[1])!
        flat[at++] = command[2]
        flat[at++] = command[3] ?? 0
        break
      case 'use':
        flat[at++] = command[1]
        flat[at++] = command[2]
        flat[at++] = events.get(command[3])!
        break
    }
  }
  return flat
}
