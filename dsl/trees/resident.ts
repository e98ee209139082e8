import * as E from 'fp-ts/lib/Either.js'
import { heap } from '../collections/scratch-arena.js'
import type { Command, Plan, PlanBuffer, PlanGraph, PlanNode } from '../ir/plan.js'
import { commandTableOf } from '../order/command-table.js'
import { graphEdgesOf } from '../order/graph-edges.js'
import { notPlanned, type TreeFault, unknownPort, unsupported } from './messages.js'

/** Ports of a plan whose values lie in the tree's arena, by name. */
export interface Resident {
  readonly inputs: ReadonlySet<string>
  readonly outputs: ReadonlySet<string>
}

/** A plan whose resident ports lie on the device: the buffers that hold them, by name. */
export interface ResidentPlan {
  readonly plan: Plan
  readonly inputs: ReadonlyMap<string, number>
  readonly outputs: ReadonlyMap<string, number>
}

//   x (pinned) · copy x → u · relu u → y · copy y → out (pinned), with x and out resident
//   → x (device) · relu x → out (device)
//
// A plan takes its inputs from the host and gives its outputs to the host. Where a value stays in a tree, its
// port is memory of the device, and the copy from or to it is left out wherever nobody could tell: the value
// and its copy have the same bytes for as long as both are there. Else it stays, as a copy on the device.

export const residentPlan = (
  plan: Plan,
  resident: Resident,
): E.Either<readonly TreeFault[], ResidentPlan> => {
  const inputs = portsOf(plan, 'input', resident.inputs)
  const outputs = portsOf(plan, 'output', resident.outputs)
  const faults = [...unfit(plan), ...inputs.faults, ...outputs.faults]
  if (faults.length > 0) return E.left(faults)
  const moving = new Moving(plan)
  for (const port of [...inputs.found.values(), ...outputs.found.values()]) moving.toDevice(port)
  for (const port of inputs.found.values()) moving.skipUpload(port)
  for (const port of outputs.found.values()) moving.skipDownload(port)
  return E.right({ plan: moving.plan(), inputs: inputs.found, outputs: outputs.found })
}

const unfit = (plan: Plan): readonly TreeFault[] => [
  ...(plan.storage === 'planned' ? [] : [notPlanned(plan.name, plan.storage)]),
  ...(plan.devices === 1
    ? []
    : [
        unsupported(
          plan.name,
          'a plan for one device, since a tree has one arena',
          `a plan for ${plan.devices} devices`,
          'open it by itself, or make a tree for each device',
        ),
      ]),
]

const portsOf = (plan: Plan, life: 'input' | 'output', names: ReadonlySet<string>) => {
  const all = plan.buffers.filter(buffer => buffer.life === life && buffer.alias === undefined)
  const found = new Map(all.filter(({ name }) => names.has(name)).map(({ name, id }) => [name, id] as const))
  const known = all.map(({ name }) => name)
  const faults = [...names]
    .filter(name => !found.has(name))
    .map(name => unknownPort(plan.name, life, name, known))
  return { found, faults }
}

type After = NonNullable<PlanNode['after']>
type Run = Extract<Command, readonly ['run', ...unknown[]]>

class Moving {
  private readonly buffers: PlanBuffer[]
  private readonly dropped = new Set<Command>()
  /** By node that was left out: what comes after it comes after these. */
  private readonly instead = new Map<number, After>()
  private readonly runs: readonly Run[]

  constructor(private readonly source: Plan) {
    this.buffers = source.buffers.map(buffer => ({ ...buffer }))
    this.runs = source.commands.filter((command): command is Run => command[0] === 'run')
  }

  plan(): Plan {
    const { graphs, arenas: _, ...source } = this.source
    const plan: Plan = {
      ...source,
      buffers: this.buffers,
      // One launch comes after the other, on every lane, in the one arena of the tree: also where each tick
      // in flight would have an arena, and lanes, of its own.
      inFlight: 1,
      nodes: source.nodes.map(node => this.withOrders(node)),
      commands: source.commands.filter(command => !this.dropped.has(command)),
    }
    return graphs === undefined ? plan : { ...plan, graphs: this.graphs(plan, graphs) }
  }

  /**
   * The same graphs without the copies that were left out: what came before a copy comes before what follows
   * it.
   */
  private graphs(plan: Plan, given: readonly PlanGraph[]): readonly PlanGraph[] {
    const kept = new Int32Array(this.source.commands.length + 1)
    this.source.commands.forEach((command, c) => {
      kept[c + 1] = kept[c]! + (this.dropped.has(command) ? 0 : 1)
    })
    const ranges = given
      .map(({ from, to }) => ({ from: kept[from]!, to: kept[to]! }))
      .filter(({ from, to }) => plan.commands.slice(from, to).some(([kind]) => kind === 'run'))
    const { commands, lanes, events, op, lane, subject } = commandTableOf(plan)
    const { edgeStart, edges } = graphEdgesOf(
      { commands, lanes, events, op, lane, event: subject },
      { from: Int32Array.from(ranges, ({ from }) => from), to: Int32Array.from(ranges, ({ to }) => to) },
      heap,
    )
    return ranges.map((range, g) => ({
      ...range,
      edges: Array.from(
        { length: edgeStart[g + 1]! - edgeStart[g]! },
        (_, e) => [edges[2 * (edgeStart[g]! + e)]!, edges[2 * (edgeStart[g]! + e) + 1]!] as const,
      ),
    }))
  }

  /** A node that comes after one that was left out comes after what that one came after. */
  private withOrders(node: PlanNode): PlanNode {
    const { after, ...rest } = node
    if (after === undefined || !after.some(([id]) => this.instead.has(id))) return node
    const found = new Map<string, After[number]>()
    const put = (order: After[number]): void => {
      const instead = this.instead.get(order[0])
      if (instead === undefined) found.set(`${order}`, order)
      else instead.forEach(put)
    }
    after.forEach(put)
    return found.size === 0 ? rest : { ...rest, after: [...found.values()] }
  }

  private leaveOut(run: Run, instead: After): void {
    const [, node] = run
    this.dropped.add(run)
    this.instead.set(node, [...instead, ...(this.source.nodes[node]!.after ?? [])])
  }

  private root(id: number): number {
    return this.buffers[id]!.alias ?? id
  }

  private touches(ids: readonly number[], root: number): boolean {
    return ids.some(id => this.root(id) === root)
  }

  private live(): readonly Run[] {
    return this.runs.filter(run => !this.dropped.has(run))
  }

  toDevice(port: number): void {
    const first = this.runs.find(([, , , reads, writes]) => this.touches([...reads, ...writes], port))
    const home = first?.[2] ?? 0
    this.buffers.forEach((buffer, id) => {
      if (this.root(id) === port) this.buffers[id] = { ...buffer, space: 'device', device: 0, home }
    })
  }

  /** Whether a run copies all of one buffer to another one, and does nothing else. */
  private copies([, node, , reads, writes]: Run, from: number, to: number): boolean {
    const kernel = this.source.nodes[node]!.kernel
    return (
      kernel?.kind === 'copy' &&
      reads.length === 1 &&
      reads[0] === from &&
      writes[0] === to &&
      kernel.bytes === this.buffers[from]!.bytes &&
      kernel.bytes === this.buffers[to]!.bytes
    )
  }

  private isTick(id: number): boolean {
    const { life, space, alias } = this.buffers[id]!
    return life === 'tick' && space === 'device' && alias === undefined
  }

  /** The readers of an upload read the input itself, unless another node writes over the copy. */
  skipUpload(input: number): void {
    const users = this.live().filter(([, , , reads, writes]) => this.touches([...reads, ...writes], input))
    const [upload] = users
    const copy = upload?.[4][0]
    if (upload === undefined || copy === undefined || users.length > 1) return
    if (!this.copies(upload, input, copy) || !this.isTick(copy)) return
    if (this.live().some(run => run !== upload && this.touches(run[4], copy))) return
    this.merge(copy, input)
    this.leaveOut(upload, [])
  }

  /**
   * The maker of an output's value writes the output itself, unless the value is written again afterwards.
   */
  skipDownload(output: number): void {
    const live = this.live()
    const users = live.filter(([, , , reads, writes]) => this.touches([...reads, ...writes], output))
    const [download] = users
    const value = download?.[3][0]
    if (download === undefined || value === undefined || users.length > 1) return
    if (!this.copies(download, value, output) || !this.isTick(value)) return
    const at = live.indexOf(download)
    if (live.some((run, i) => i > at && this.touches(run[4], value))) return
    const maker = live.slice(0, at).findLast(run => this.touches(run[4], value))
    this.merge(value, output)
    this.leaveOut(download, maker === undefined ? [] : [[maker[1], 'finish']])
  }

  /** Makes a buffer, and its views, views of another one of the same length. */
  private merge(id: number, into: number): void {
    this.buffers.forEach((buffer, view) => {
      if (this.root(view) !== id) return
      const { life, home } = this.buffers[into]!
      const { aliasOffset = 0 } = buffer
      this.buffers[view] = { ...buffer, life, home, alias: into, aliasOffset }
    })
  }
}
