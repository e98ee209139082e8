import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import type { Plan } from '../../dsl/ir/plan.js'
import { verify } from '../../dsl/ir/verify.js'
import { compile } from '../../dsl/compile.js'
import { sample } from '../support/generate.js'
import { mutations } from '../support/mutations.js'
import { oracle } from '../support/oracle.js'
import { planFrom, recipes } from '../support/plan-generator.js'
import { singleLane, twoLanes, weightStreaming } from '../support/plans.js'

/** Fewest rejected mutants of a kind: a kind that the generated plans leave no place for would test nothing. */
const fewest = 5

// One set of plans for all kinds: making one minimal is what takes time, and each kind is applied at several places of each.
const sampled: readonly Plan[] = [
  singleLane,
  twoLanes,
  weightStreaming,
  ...fc.sample(recipes(7), { numRuns: 70, seed: 20_240_611 }).map(planFrom),
]

// The compiler's own plans too, those that the oracle can judge in time.
const compiled: readonly Plan[] = fc.sample(sample(), { numRuns: 40, seed: 7 }).flatMap(({ graph }) => {
  const plan = compile(graph)
  return E.isRight(plan) && plan.right.commands.length <= 60 ? [plan.right as Plan] : []
})

test('the compiler makes plans that the oracle accepts', () => {
  expect(compiled.length).toBeGreaterThan(5)
  for (const plan of compiled) {
    expect(verify(plan)).toEqual([])
    expect([...oracle(plan)]).toEqual([])
  }
})

describe('every mutant is rejected by its law, or proved equal by the oracle', () => {
  for (const mutation of mutations) {
    test(mutation.name, () => {
      let rejected = 0
      fc.assert(
        fc.property(fc.constantFrom(...sampled, ...compiled), fc.infiniteStream(fc.nat()), (plan, choices) => {
          const mutant = mutation.apply(plan, count => choices.next().value! % count)
          if (mutant === undefined) return
          const violations = verify(mutant.plan)
          if (violations.length === 0) {
            expect([...oracle(mutant.plan)]).toEqual([])
            return
          }
          rejected++
          const blamed = violations.find(
            ({ law, command, buffer }) =>
              mutation.laws.includes(law) &&
              (mutant.command === undefined || mutant.command === command) &&
              (mutant.buffer === undefined || mutant.buffer === buffer),
          )
          expect(blamed, violations.map(({ message }) => message).join('\n')).toBeDefined()
          const { law, command, buffer, message } = blamed!
          expect(message.startsWith(`${law}: `)).toBe(true)
          if (command >= 0) expect(message).toContain(`commands[${command}]`)
          if (buffer !== undefined) expect(message).toContain(`'${mutant.plan.buffers[buffer]!.name}'`)
        }),
        { numRuns: 150 },
      )
      expect(rejected).toBeGreaterThanOrEqual(fewest)
    })
  }
})

describe('commands that name what the plan does not have, and sizes that no buffer has', () => {
  const without = (plan: Plan, c: number, word: number, id: number): Plan => ({
    ...plan,
    commands: plan.commands.map((command, i) => (i === c ? (command.with(word, id as never) as never) : command)),
  })

  test('an unknown buffer, lane, node or event is a violation of its command', () => {
    twoLanes.commands.forEach((command, c) => {
      for (let word = 1; word < Math.min(command.length, 4); word++) {
        if (typeof command[word] !== 'number') continue
        for (const id of [99, -1, 0.5, Number.NaN]) {
          const broken = without(twoLanes, c, word, id)
          expect(
            verify(broken).some(
              violation =>
                violation.command === c || violation.law === 'L7' || violation.law === 'L6' || violation.law === 'L4',
            ),
          ).toBe(true)
        }
      }
    })
  })

  test('a negative or absurd size', () => {
    for (const bytes of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      const broken = {
        ...twoLanes,
        buffers: twoLanes.buffers.map(buffer => (buffer.id === 1 ? { ...buffer, bytes } : buffer)),
      }
      expect(verify(broken)).not.toEqual([])
    }
  })
})

describe('with safety alone', () => {
  test('what is merely wasteful passes', () => {
    const wasteful = { ...twoLanes, commands: twoLanes.commands.toSpliced(3, 0, ['wait', 0, 0]) }
    expect(verify(wasteful).map(({ law }) => law)).toContain('L6')
    expect(verify(wasteful, { safety: true })).toEqual([])
  })
})
