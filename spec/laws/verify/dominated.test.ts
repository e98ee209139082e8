// Waits that add nothing, in plans too large to drop each wait in turn.
import { expect, test } from 'vitest'
import type { Command } from '../../../dsl/ir/plan.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { Replay } from '../../../dsl/order/replay.js'
import { dominatedWaits } from '../../../dsl/verify/dominated-waits.js'
import { verify } from '../../../dsl/verify/verify.js'
import { choleskyOf, largePlan, layeredOf } from '../../fixtures/plans/of-tasks.js'

for (const [name, graph] of [
  ['Cholesky', choleskyOf(3000)],
  ['layered', layeredOf(3000)],
] as const)
  for (const inFlight of [1, 2, 4])
    test(`${name}, ${inFlight} in flight: no wait is redundant, and every law holds`, () => {
      const plan = { ...largePlan(name, graph, 8), inFlight }
      expect(dominatedWaits(new Replay(commandTableOf(plan)))).toBeUndefined()
      expect(verify(plan)).toEqual([])
    })

test('a repeated wait is redundant', () => {
  const plan = largePlan('twice', layeredOf(500), 4)
  const at = plan.commands.findIndex(([op]) => op === 'wait')
  const commands = plan.commands.toSpliced(at, 0, plan.commands[at]!)
  const dominated = dominatedWaits(new Replay(commandTableOf({ ...plan, commands })))!
  expect([dominated[at], dominated[at + 1]]).toEqual([1, 1])
})

test('more waits than one group holds', () => {
  const plan = largePlan('many lanes', layeredOf(500), 4)
  const lanes = Array.from({ length: 1024 }, (_, id) => ({ ...plan.lanes[0]!, id, name: `lane ${id}` }))
  const at = plan.commands.findLastIndex(([op]) => op === 'wait')
  const more = new Array<Command>(9_000).fill(plan.commands[at]!)
  const waiting = { ...plan, lanes, commands: plan.commands.toSpliced(at, 0, ...more) }
  // Any one of them could go, the plan's own among them.
  const dominated = dominatedWaits(new Replay(commandTableOf(waiting)))!
  expect(dominated.reduce((sum, one) => sum + one, 0)).toBe(9_001)
  expect(new Set(verify(waiting).map(({ law }) => law))).toEqual(new Set(['L6']))
})

test('a buffer that no command names breaks no law', () => {
  const plan = largePlan('idle', layeredOf(500), 4)
  const idle = { ...plan.buffers[0]!, id: plan.buffers.length, name: 'idle' }
  expect(verify({ ...plan, buffers: [...plan.buffers, idle] })).toEqual([])
})
