import type { Plan } from '../ir/plan.js'

const quoted = (text: string): string => `"${text.replace(/["\\]/g, '\\$&')}"`

/** One cluster a lane, its operations in order; a solid edge for the order of a lane, a dashed one for a wait. */
export const dotOf = (plan: Plan): string => {
  const lines = [`digraph ${quoted(plan.name)} {`, '  rankdir=LR; node [shape=box, fontname="monospace"];']
  const byLane: number[][] = plan.lanes.map(() => [])
  const last = plan.lanes.map(() => -1)
  const mark = new Map<number, number>()
  const edges: string[] = []
  const waits: { readonly event: number; readonly lane: number; readonly to: number; readonly tick: boolean }[] = []
  let pending: { readonly event: number; readonly lane: number; readonly tick: boolean }[] = []
  for (const command of plan.commands) {
    if (command[0] === 'wait') pending.push({ event: command[1], lane: command[2], tick: command[3] === -1 })
    else if (command[0] === 'record') mark.set(command[1], last[command[2]]!)
    else if (command[0] === 'run') {
      const [, node, lane] = command
      byLane[lane]!.push(node)
      if (last[lane]! >= 0) edges.push(`  n${last[lane]} -> n${node};`)
      for (const wait of pending) if (wait.lane === lane) waits.push({ ...wait, to: node })
      pending = pending.filter(wait => wait.lane !== lane)
      last[lane] = node
    }
  }
  for (const { id, name } of plan.lanes) {
    lines.push(`  subgraph cluster_${id} {`, `    label=${quoted(name)};`)
    for (const node of byLane[id]!) lines.push(`    n${node} [label=${quoted(plan.nodes[node]!.name)}];`)
    lines.push('  }')
  }
  lines.push(...edges)
  for (const { event, to, tick } of waits) {
    const from = mark.get(event)
    if (from !== undefined)
      lines.push(
        `  n${from} -> n${to} [style=dashed, constraint=${!tick}, label=${quoted(tick ? `e${event}, next tick` : `e${event}`)}];`,
      )
  }
  return `${[...lines, '}'].join('\n')}\n`
}
