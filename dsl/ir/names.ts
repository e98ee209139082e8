import type { CollectiveSpec, Plan, PlanNode } from './plan.js'
import { shown } from './show.js'

// A plan from another program may lack the target of an id, or have an empty name: the id then stands for it.
// Its names may have characters that a terminal obeys: all texts take them from here.

export const planName = (plan: Plan): string => shown(plan.name)

export const nodeName = (plan: Plan, node: number): string => shown(plan.nodes[node]?.name || `node ${node}`)

export const bufferName = (plan: Plan, buffer: number): string =>
  shown(plan.buffers[buffer]?.name || `buffer ${buffer}`)

export const laneName = (plan: Plan, lane: number): string => shown(plan.lanes[lane]?.name || `lane ${lane}`)

/** As it stands in the middle of a sentence: `'w[3]'`. */
export const quotedBuffer = (plan: Plan, buffer: number): string =>
  plan.buffers[buffer]?.name ? `'${bufferName(plan, buffer)}'` : bufferName(plan, buffer)

/** `lane 'copy'`. */
export const quotedLane = (plan: Plan, lane: number): string =>
  plan.lanes[lane]?.name ? `lane '${laneName(plan, lane)}'` : laneName(plan, lane)

/** `matmul 'y[3]'`. */
export const quotedNode = (plan: Plan, node: number): string =>
  plan.nodes[node]?.name ? `${shown(plan.nodes[node].op)} '${nodeName(plan, node)}'` : nodeName(plan, node)

/** `w0`, `w0 and w1`, `w0, w1 and 3 more`. */
export const joinNames = (names: readonly string[], most = 4): string => {
  const distinct = [...new Set(names)]
  const shown = distinct.length > most ? distinct.slice(0, most - 1) : distinct
  const rest = distinct.length - shown.length
  const all = rest > 0 ? [...shown, `${rest} more`] : shown
  return all.length < 2 ? (all[0] ?? '') : `${all.slice(0, -1).join(', ')} and ${all[all.length - 1]}`
}

/** The user's line, `examples/x.ts:12:9`; empty where the plan does not give it. */
export const placeOf = (node: PlanNode | undefined): string =>
  node?.at === undefined || node.at === 'unknown' ? '' : shown(node.at)

export const communicatorName = (plan: Plan, id: number): string =>
  shown(plan.communicators?.[id]?.name ?? `communicator ${id}`)

/** `allReduce sum of 1024 f32 over dp`. */
export const collectiveName = (plan: Plan, spec: CollectiveSpec): string => {
  const { kind, how, count, dtype, peer, root, pairs } = spec
  const over = communicatorName(plan, spec.communicator)
  const parts = [
    `${kind}${how === undefined ? '' : ` ${how}`} of ${count} ${dtype} over ${over}`,
    ...(kind === 'send' ? [`to ${peer}`] : kind === 'recv' ? [`from ${peer}`] : []),
    ...(root === undefined ? [] : [`root ${root}`]),
    ...(pairs === undefined ? [] : [pairs.map(pair => pair.join(' to ')).join(', ')]),
  ]
  return parts.join(', ')
}

/** A command as the format writes it, with names in place of ids: `use w[3] by math, e4`. */
export const commandText = (plan: Plan, c: number): string => {
  const command = plan.commands[c]
  const lane = (id: number) => laneName(plan, id)
  const buffer = (id: number) => bufferName(plan, id)
  switch (command?.[0]) {
    case 'alloc':
      return `alloc ${buffer(command[1])} on ${lane(command[2])}`
    case 'free':
      return `free ${buffer(command[1])}`
    case 'run':
      return `run ${nodeName(plan, command[1])} on ${lane(command[2])}`
    case 'record':
      return `record e${command[1]} on ${lane(command[2])}`
    case 'wait':
      return `wait e${command[1]} on ${lane(command[2])}${command[3] === -1 ? ', of the tick before' : ''}`
    case 'use':
      return `use ${buffer(command[1])} by ${lane(command[2])}, e${command[3]}`
    default:
      return 'unknown command'
  }
}
