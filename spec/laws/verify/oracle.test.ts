import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Plan } from '../../../dsl/ir/plan.js'
import { peakOf } from '../../../dsl/memory/peak.js'
import { verify } from '../../../dsl/verify/verify.js'
import * as handwritten from '../../fixtures/plans/by-hand.js'
import { plans } from '../../fixtures/plans/random.js'
import { often, runs } from '../../fixtures/runs.js'
import { comparable, oracle, oraclePeak } from '../../oracle/oracle.js'

const keys = (plan: Plan, safety: boolean): string[] =>
  [
    ...new Set(
      verify(plan, { safety }).map(({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`),
    ),
  ].sort()

describe('verify and the oracle', () => {
  for (const plan of Object.values(handwritten).filter((value): value is Plan => typeof value === 'object')) {
    test(`agree on the plan written by hand: ${plan.name}`, () => {
      expect(verify(plan)).toEqual([])
      expect([...oracle(plan)]).toEqual([])
    })
  }

  test('accept every generated plan', () => {
    fc.assert(
      fc.property(plans(), plan => {
        expect(verify(plan)).toEqual([])
        expect([...oracle(plan)]).toEqual([])
      }),
      { numRuns: runs(100) },
    )
  })

  test('find the same peak', () => {
    fc.assert(
      fc.property(plans(), plan => {
        const { device, pinned, exact } = peakOf(plan)
        expect(exact).toBe(true)
        expect([...device, pinned]).toEqual(oraclePeak(plan).bytes)
      }),
      { numRuns: runs(60) },
    )
  })

  test('a doubled wait is needed where the pool takes more without it', () => {
    const plan = handwritten.planOf({
      name: 'doubled wait',
      lanes: ['l0', 'l1'],
      buffers: [
        { name: 'x', life: 'input' },
        { name: 'p', life: 'param' },
        { name: 's', life: 'state', init: 0 },
        { name: 'b3', bytes: 2048 },
        { name: 'b4', bytes: 3072, home: 1 },
        { name: 'y', life: 'output' },
        { name: 'b6', home: 1 },
      ],
      commands: [
        ['wait', 3, 0, -1],
        ['alloc', 3, 0],
        ['run', 0, 0, [2], [3]],
        ['record', 0, 0],
        ['wait', 0, 1],
        ['alloc', 4, 1],
        ['run', 1, 1, [3, 0], [4]],
        ['record', 1, 1],
        ['use', 3, 1, 1],
        ['free', 3],
        ['free', 4],
        ['run', 2, 0, [0], [5]],
        ['alloc', 6, 1],
        ['run', 3, 1, [2, 0], [6]],
        ['record', 3, 1],
        ['free', 6],
      ],
    })
    const doubled = { ...plan, commands: plan.commands.toSpliced(4, 0, plan.commands[0]!) }
    for (const one of [plan, doubled])
      expect(comparable(one, keys(one, false))).toEqual(comparable(one, [...oracle(one)]))
  })

  test('find the same violations when commands are dropped, doubled, moved or redirected at random', () => {
    fc.assert(
      fc.property(
        plans(6),
        fc.array(fc.tuple(fc.nat(4), fc.nat(), fc.nat()), { minLength: 1, maxLength: 3 }),
        (plan, edits) => {
          const commands = [...plan.commands]
          for (const [kind, x, y] of edits) {
            if (commands.length === 0) break
            const from = x % commands.length
            const command = commands[from]!
            if (kind === 0) commands.splice(from, 1)
            else if (kind === 1) commands.splice(y % commands.length, 0, command)
            else if (kind === 2) commands.splice(y % commands.length, 0, ...commands.splice(from, 1))
            else if (kind === 3 && command[0] !== 'free')
              commands[from] = command.with(2, y % plan.lanes.length) as never
            else
              commands[from] = command.with(
                1,
                y %
                  (command[0] === 'run'
                    ? plan.nodes.length
                    : command[0] === 'record' || command[0] === 'wait'
                      ? 9
                      : plan.buffers.length),
              ) as never
          }
          const mutant = { ...plan, commands }
          expect(comparable(mutant, keys(mutant, false))).toEqual(comparable(mutant, [...oracle(mutant)]))
          expect(keys(mutant, true).length > 0).toBe(oracle(mutant, false).size > 0)
        },
      ),
      { numRuns: runs(250) },
    )
  })

  test('find the same violations in plans with orders without data', () => {
    let kept = 0
    let broken = 0
    const edge = fc.tuple(fc.nat(), fc.nat(), fc.constantFrom('start' as const, 'finish' as const))
    fc.assert(
      fc.property(
        plans(6),
        fc.array(edge, { minLength: 1, maxLength: 3 }),
        fc.nat(),
        fc.boolean(),
        (plan, edges, x, waits) => {
          const nodes = [...plan.nodes]
          for (const [later, earlier, when] of edges) {
            const at = later % nodes.length
            nodes[at] = {
              ...nodes[at]!,
              after: [...(nodes[at]!.after ?? []), [earlier % nodes.length, when]],
            }
          }
          // With another event, recorded somewhere and waited for somewhere later.
          const from = x % plan.commands.length
          const lane = x % plan.lanes.length
          const to = from + 1 + ((x >> 3) % (plan.commands.length - from))
          const more = plan.commands
            .toSpliced(from, 0, ['record', 999, lane])
            .toSpliced(to, 0, ['wait', 999, (lane + 1) % plan.lanes.length])
          const given: Plan = { ...plan, nodes, commands: waits ? more : plan.commands }
          const found = keys(given, false)
          expect(comparable(given, found)).toEqual(comparable(given, [...oracle(given)]))
          if (found.some(key => key.startsWith('L10'))) broken++
          else kept++
        },
      ),
      { numRuns: runs(160) },
    )
    expect(Math.min(kept, broken)).toBeGreaterThan(often(5))
  })
})
