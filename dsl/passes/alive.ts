import type { Plan, PlanBuffer } from '../ir/plan.js'

/** Buffers of one device that are in memory when command `at` has been issued: those that live on, and what the tick has allocated. */
export const aliveAt = (plan: Plan, at: number, device = 0): readonly PlanBuffer[] => {
  const live = new Set<number>()
  for (const { id, life, alias } of plan.buffers)
    if (alias === undefined && (life === 'state' || life === 'param')) live.add(id)
  for (const command of plan.commands.slice(0, at + 1))
    if (command[0] === 'alloc') live.add(command[1])
    else if (command[0] === 'free') live.delete(command[1])
  return [...live].map(id => plan.buffers[id]!).filter(buffer => buffer.space === 'device' && buffer.device === device)
}
