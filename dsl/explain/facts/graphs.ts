import { provenanceOf } from '../../compiler/analysis/provenance.js'
import { laneName, nodeName, placeOf } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { ownBytesFrom } from '../../memory/arenas.js'
import { whyNoNode } from '../../order/graph-nodes.js'
import { plural, sizeOf, timeOf } from './names.js'

/** One executable graph of a plan. */
export interface GraphFacts {
  readonly nodes: number
  readonly edges: number
  /** The lane that it is launched on, and the other lanes whose work is in it. */
  readonly lane: string
  readonly others: readonly string[]
  /** Whose operations are in it. */
  readonly devices: readonly number[]
  /** Why the next operation is not in it; empty where it is the tick's last. */
  readonly ends: string
  /** The user's source position of that operation. */
  readonly at: string
}

/** What is launched as executable graphs, and what is not. */
export interface Graphs {
  readonly graphs: readonly GraphFacts[]
  /** Operations that are issued by themselves, each with the reason. */
  readonly eager: readonly { readonly name: string; readonly because: string; readonly at: string }[]
  /** How ticks in flight follow each other on the device. */
  readonly ticks: string
  /** Where opening divides graphs; empty where each has operations of one device only. */
  readonly devices: string
}

/**
 * Under `mode: 'auto'`, of a plan that this process compiled: the predictions of both modes, and why graph
 * mode was not taken; empty where the mode was not the compiler's choice.
 */
export const modeOf = (plan: Plan): string => {
  const modes = provenanceOf(plan)?.decisions.modes
  if (modes === undefined) return ''
  const us = (nanoseconds: number): string => timeOf(nanoseconds / 1e3)
  const [own, other] =
    plan.graphs === undefined ? (['eager', 'graph'] as const) : (['graph', 'eager'] as const)
  const why = modes.against === '' ? '' : `: ${modes.against}`
  return `${own}: a tick of ${us(modes[own])} by the machine's figures, ${us(modes[other])} in mode ${other}${why}`
}

/** How ticks in flight follow each other on the device, and why they have so many arenas. */
const ticksOf = (plan: Plan): string => {
  const { inFlight, arenas = 1 } = plan
  if (inFlight === 1) return 'one tick in flight: the host waits for its end'
  const chosen = provenanceOf(plan)?.decisions.arenas
  const us = (nanoseconds: number): string => timeOf(nanoseconds / 1e3)
  const figures =
    chosen?.ticks === undefined
      ? ''
      : ` (${us(chosen.ticks.several)} a tick with ${inFlight} arenas, ${us(chosen.ticks.one)} with one)`
  const why = chosen === undefined ? '' : `${chosen.because}${figures}`
  if (arenas > 1) {
    const each = `${plural(inFlight, 'tick')} in flight have an arena each, ${bytesText(plan)}, and lanes each`
    return why === '' ? each : `${each}: ${why}`
  }
  return (
    `${plural(inFlight, 'tick')} in flight share one arena: what a tick launches on a lane comes after what the ` +
    `tick before launched there${why === '' ? '' : `; ${why}`}`
  )
}

const devicesOf = (graphs: readonly GraphFacts[]): string =>
  graphs.some(({ devices }) => devices.length > 1)
    ? 'a graph over several devices is one launch; opening the plan divides it before operations of another device ' +
      "where a copy or a kernel needs memory that its device cannot reach, and with a trace, whose events are each one device's"
    : ''

const bytesText = (plan: Plan): string => {
  const own = Array.from({ length: plan.devices }, (_, d) => (plan.arena?.[d] ?? 0) - ownBytesFrom(plan, d))
  return `${own.map(sizeOf).join(', ')} each beside what they share`
}

/** The graphs of a plan; undefined where it has none. */
export const graphsOf = (plan: Plan): Graphs | undefined => {
  const { commands, nodes, lanes, graphs } = plan
  if (graphs === undefined) return undefined
  const isInside = new Uint8Array(commands.length)
  const facts = graphs.map(({ from, to, edges }): GraphFacts => {
    const runs: number[] = []
    const used = new Set<number>()
    for (let c = from; c < to; c++) {
      const command = commands[c]!
      used.add(command[2] as number)
      if (command[0] !== 'run') continue
      runs.push(command[2])
      isInside[c] = 1
    }
    const next = commands.slice(to).find(command => command[0] === 'run')
    const node = next?.[0] === 'run' ? nodes[next[1]] : undefined
    const device = lanes[next?.[2] as number]?.device
    // The compiler ends no graph for the device, but plans from elsewhere may.
    const other =
      (plan.arenas ?? 1) > 1
        ? 'what accesses states is a graph of its own, so that the rest of ticks overlaps'
        : `it runs on device ${device}`
    const ends = node && `${nodeName(plan, node.id)}: ${whyNoNode(node) ?? other}`
    const others = [...used].filter(lane => lane !== runs[0]).map(lane => laneName(plan, lane))
    return {
      nodes: runs.length,
      edges: edges.length,
      lane: laneName(plan, runs[0] ?? -1),
      others,
      devices: [...new Set(runs.map(lane => lanes[lane]!.device))].sort((a, b) => a - b),
      ends: ends ?? '',
      at: placeOf(node),
    }
  })
  const eager = commands.flatMap((command, c) => {
    if (command[0] !== 'run' || isInside[c] === 1) return []
    const node = nodes[command[1]]!
    return [{ name: nodeName(plan, command[1]), because: whyNoNode(node) ?? '', at: placeOf(node) }]
  })
  return { graphs: facts, eager, ticks: ticksOf(plan), devices: devicesOf(facts) }
}
