import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile } from '../../dsl/compile.js'
import { orThrow } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { poolPeakOf } from '../../dsl/ir/pool.js'
import { verify } from '../../dsl/ir/verify.js'
import { xorshift } from '../support/families.js'
import { sample } from '../support/generate.js'
import { mutations } from '../support/mutations.js'
import { comparable, oracle } from '../support/oracle.js'
import { planFrom, recipes } from '../support/plan-generator.js'
import { singleLane, twoLanes, weightStreaming } from '../support/plans.js'
import { streamed, streamedLeast } from '../support/streamed.js'

/** Fewest rejected mutants of a kind: a kind that the generated plans leave no place for would test nothing. */
const fewest = 5

// One set of plans for all kinds: making one minimal is what takes time, and each kind is applied at several places of each.
const sampled: readonly Plan[] = [
  singleLane,
  twoLanes,
  weightStreaming,
  ...fc.sample(recipes(7), { numRuns: 70, seed: 20_240_611 }).map(planFrom),
]

// The compiler's own plans too: as they come, and with the waits that fit them into the least memory; those that the oracle can judge in time.
const made: readonly Plan[] = [
  ...fc
    .sample(sample(), { numRuns: 25, seed: 7 })
    .flatMap(({ graph: net }) => [compile(net), compile(net, { memory: 'small', inFlight: 3 })])
    .flatMap(plan => (E.isRight(plan) ? [plan.right as Plan] : [])),
  ...[1, 2].map((ahead): Plan => orThrow(compile(streamed(4, ahead), { memory: streamedLeast(ahead) })) as Plan),
]
const compiled = made.filter(({ commands }) => commands.length <= 64)

const fits = (plan: Plan): boolean => poolPeakOf(plan).device.every((bytes, d) => bytes <= plan.bound.device[d]!)

test('the compiler makes plans that the oracle accepts', () => {
  expect(compiled.length).toBeGreaterThan(20)
  expect(compiled.filter(plan => plan.commands.some(command => command[3] === -1)).length).toBeGreaterThan(2)
  for (const plan of compiled) {
    expect(verify(plan)).toEqual([])
    expect([...oracle(plan)]).toEqual([])
  }
})

test('there are 25 ways to break a plan, or more', () => {
  expect(new Set(mutations.map(({ name }) => name)).size).toBeGreaterThanOrEqual(25)
})

/** Whether a few choices find something to change: some kinds need planned storage, or a param, or a -1 wait. */
const canApply = (mutation: (typeof mutations)[number], plan: Plan): boolean => {
  const next = xorshift(7)
  for (let attempt = 0; attempt < 12; attempt++)
    if (mutation.apply(plan, count => Math.floor(next() * count)) !== undefined) return true
  return false
}

describe('every mutant is rejected by its law, at the command and for the buffer that the oracle names, or proved equal by it', () => {
  for (const mutation of mutations) {
    test(mutation.name, () => {
      let rejected = 0
      const open = [...sampled, ...compiled].filter(plan => canApply(mutation, plan))
      fc.assert(
        fc.property(fc.constantFrom(...open), fc.infiniteStream(fc.nat()), (plan, choices) => {
          const mutant = mutation.apply(plan, count => choices.next().value! % count)
          if (mutant === undefined) return
          const violations = verify(mutant.plan)
          const keys = violations.map(({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`)
          // The expectation that shares no code with verify: which laws, at which commands, for which buffers.
          expect(comparable(mutant.plan, keys)).toEqual(comparable(mutant.plan, [...oracle(mutant.plan)]))
          if (violations.length === 0) return
          const blamed = violations.find(
            ({ law, command, buffer }) =>
              mutation.laws.includes(law) &&
              (mutant.command === undefined || mutant.command === command) &&
              (mutant.buffer === undefined || mutant.buffer === buffer) &&
              (mutant.names === undefined || buffer !== undefined),
          )
          // The second half of L9, what the session's pool takes, is asked by L6 and open: a wait may serve it alone.
          if (blamed === undefined && mutant.names && fits(plan) && !fits(mutant.plan)) return
          rejected++
          expect(blamed, violations.map(({ message }) => message).join('\n')).toBeDefined()
          const { law, command, buffer, message } = blamed!
          expect(message.startsWith(`${law}: `)).toBe(true)
          if (command >= 0) expect(message).toContain(`commands[${command}]`)
          if (buffer !== undefined) expect(message).toContain(`'${mutant.plan.buffers[buffer]!.name}'`)
        }),
        { numRuns: 70 },
      )
      expect(rejected).toBeGreaterThanOrEqual(fewest)
    })
  }
})

describe('nothing can be left out of a plan that the compiler made', () => {
  /** Each wait and use in turn is dropped, and what is left judged as any other plan is. */
  const eachIsNeeded = (plan: Plan): void => {
    expect(verify(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] !== 'wait' && command[0] !== 'use') return
      const rest = { ...plan, commands: plan.commands.toSpliced(c, 1) }
      const broken = verify(rest, { safety: true })
      if (command[0] === 'use') {
        const free = rest.commands.findIndex(other => other[0] === 'free' && other[1] === command[1])
        expect(broken).toContainEqual(
          expect.objectContaining({ law: 'L4', command: free, buffer: command[1], lane: command[2] }),
        )
      } else if (broken.length > 0) {
        for (const { law, buffer } of broken)
          expect([law, typeof buffer]).toEqual([expect.stringMatching(/^L[12349]$/), 'number'])
      } else expect(poolPeakOf(rest).device[0], `commands[${c}] of ${plan.name}`).toBeGreaterThan(plan.bound.device[0]!)
    })
  }

  test('generated graphs, under any memory', () => {
    fc.assert(
      fc.property(
        sample({ steps: 12 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        ({ graph: net, dims, inFlight }, at) => {
          const roomy = orThrow(compile(net, { dims, inFlight })) as Plan
          if (roomy.commands.length > 300) return
          eachIsNeeded(roomy)
          const most = roomy.bound.device[0]!
          const least = orThrow(compile(net, { dims, inFlight, memory: 'small' })).bound.device[0]!
          const memory = Math.max(1, Math.floor(Math.min(least, most) + at * Math.abs(most - least)))
          eachIsNeeded(orThrow(compile(net, { dims, inFlight, memory })) as Plan)
        },
      ),
      { numRuns: 40 },
    )
  })

  test.each([
    [6, 1],
    [12, 1],
    [12, 2],
    [20, 3],
  ])('%i streamed layers, %i ahead, in the least memory and in plenty', (layers, ahead) => {
    const tight = orThrow(compile(streamed(layers, ahead), { memory: streamedLeast(ahead) })) as Plan
    expect(tight.commands.filter(([op]) => op === 'wait').length).toBeGreaterThan(layers)
    eachIsNeeded(tight)
    eachIsNeeded(orThrow(compile(streamed(layers, ahead))) as Plan)
  })
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
