import type { Plan, PlanBuffer } from '../ir/plan.js'

/**
 * Buffers of one device that are in memory when command `at` has been issued: those that live on, and what the tick has allocated. With planned
 * storage nothing is: then those between their first access and their last at the command where they come to the most bytes.
 */
export const aliveAt = (plan: Plan, at: number, device = 0): readonly PlanBuffer[] => {
  const live = new Set<number>()
  for (const { id, life, alias } of plan.buffers)
    if (alias === undefined && (life === 'state' || life === 'param')) live.add(id)
  if (plan.storage === 'planned') for (const id of mostAtOnce(plan, device)) live.add(id)
  for (const command of plan.commands.slice(0, at + 1))
    if (command[0] === 'alloc') live.add(command[1])
    else if (command[0] === 'free') live.delete(command[1])
  return [...live].map(id => plan.buffers[id]!).filter(buffer => buffer.space === 'device' && buffer.device === device)
}

const mostAtOnce = ({ buffers, commands }: Plan, device: number): readonly number[] => {
  const first = new Map<number, number>()
  const last = new Map<number, number>()
  const arriving: number[][] = commands.map(() => [])
  commands.forEach((command, c) => {
    if (command[0] !== 'run') return
    for (const id of [...command[3], ...command[4]]) {
      const root = buffers[id]!.alias ?? id
      const { life, space, device: own } = buffers[root]!
      if (life !== 'tick' || space !== 'device' || own !== device) continue
      if (!first.has(root)) {
        first.set(root, c)
        arriving[c]!.push(root)
      }
      last.set(root, c)
    }
  })
  const leaving: number[][] = commands.map(() => [])
  for (const [root, c] of last) leaving[c]!.push(root)
  let bytes = 0
  let most = 0
  let at = -1
  for (let c = 0; c < commands.length; c++) {
    for (const root of arriving[c]!) bytes += buffers[root]!.bytes
    if (bytes > most) {
      most = bytes
      at = c
    }
    for (const root of leaving[c]!) bytes -= buffers[root]!.bytes
  }
  return [...first.keys()].filter(root => first.get(root)! <= at && at <= last.get(root)!)
}
