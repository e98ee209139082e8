import { laneName, nodeName, placeOf, planName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { linksOf, runsOf } from '../facts/runs.js'
import { Waits } from '../facts/why-wait.js'

// A newline would end a line of DOT, and DOT reads HTML entities.
const quoted = (text: string): string =>
  `"${text.replace(/["\\]/g, '\\$&').replace(/\r?\n/g, '\\n').replace(/&/g, '&amp;')}"`

/**
 * A cluster for each lane with its operations in order; a solid edge for the order of a lane, a dashed one
 * for a wait, labelled with its event and purpose. An edge from the previous tick points back, so it does not
 * constrain the layout.
 */
export const dotOf = (plan: Plan): string => {
  const runs = runsOf(plan)
  const { marks, next, held } = linksOf(plan, runs)
  const waits = new Waits(plan, runs)
  const number = new Map(runs.map((run, i) => [run, i]))
  const lines = [
    `digraph ${quoted(planName(plan))} {`,
    '  rankdir=LR; compound=true; fontname="sans-serif"; ' +
      'node [shape=box, style=rounded, fontname="sans-serif", fontsize=11]; ' +
      'edge [fontname="sans-serif", fontsize=9];',
  ]
  for (const { id } of plan.lanes) {
    lines.push(
      `  subgraph cluster_${id} {`,
      `    label=${quoted(laneName(plan, id))}; style=rounded; color=gray;`,
    )
    runs.forEach(({ node, lane }, i) => {
      if (lane !== id) return
      const at = placeOf(plan.nodes[node])
      const tooltip = at === '' ? '' : `, tooltip=${quoted(at)}`
      lines.push(`    n${i} [label=${quoted(nodeName(plan, node))}${tooltip}];`)
    })
    lines.push('  }')
  }
  const last = plan.lanes.map(() => -1)
  runs.forEach(({ lane }, i) => {
    if (last[lane]! >= 0) lines.push(`  n${last[lane]} -> n${i};`)
    last[lane] = i
  })
  plan.commands.forEach((command, at) => {
    if (command[0] !== 'wait') return
    const [marked, to] = [marks.get(command[1]), held.get(at)]
    const ticks = command[3] === -1
    const { for: why, because, node, start } = waits.why(at, marked, next.get(command[1]), to, 0, ticks)
    const from = start === true ? runs.find(run => run.node === node) : marked
    if (from === undefined || to === undefined) return
    const label = quoted(
      `e${command[1]}: ${why}${start === true ? ', its start' : ticks ? ', next tick' : ''}`,
    )
    const attributes = `style=dashed, constraint=${!ticks}, label=${label}, tooltip=${quoted(because)}`
    lines.push(`  n${number.get(from)} -> n${number.get(to)} [${attributes}];`)
  })
  return `${[...lines, '}'].join('\n')}\n`
}
