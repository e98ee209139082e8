import type { Plan } from '../../dsl/ir/plan.js'

export interface Figures {
  readonly run: number
  readonly wait: number
  readonly record: number
  readonly use: number
  readonly alloc: number
  /**
   * Pairs of a tick buffer and a foreign lane that accesses it, without a use, because another order covers
   * it.
   */
  readonly elided: number
  /** Graph mode: executable graphs, and their edges. Waits and records inside them are not issued. */
  readonly graphs?: number
  readonly edges?: number
}

export const figuresOf = (plan: Plan): Figures => {
  const count = { run: 0, wait: 0, record: 0, use: 0, alloc: 0, free: 0 }
  const foreign = new Set<string>()
  for (const command of plan.commands) {
    count[command[0]]++
    if (command[0] !== 'run' || plan.storage === 'planned') continue
    const [, , lane, reads, writes] = command
    for (const id of [...reads, ...writes]) {
      const root = plan.buffers[plan.buffers[id]!.alias ?? id]!
      if (root.life === 'tick' && root.home !== lane) foreign.add(`${root.id} ${lane}`)
    }
  }
  const { run, wait, record, use, alloc } = count
  const elided = Math.max(0, foreign.size - use)
  const figures = { run, wait, record, use, alloc, elided }
  if (plan.graphs === undefined) return figures
  const edges = plan.graphs.reduce((sum, graph) => sum + graph.edges.length, 0)
  return { ...figures, graphs: plan.graphs.length, edges }
}
