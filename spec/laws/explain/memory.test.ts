import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compile, orThrow } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { heldAtPeak } from '../../../dsl/memory/held.js'
import { peakOf } from '../../../dsl/memory/peak.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { planOf } from '../../fixtures/plans/by-hand.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { runs } from '../../fixtures/runs.js'

/** The parts of each memory add up to the peak of L9, to the byte; none is `rest`. */
const comesToThePeak = (plan: Plan): void => {
  const peak = peakOf(plan)
  const held = heldAtPeak(plan)
  const said = [...peak.device, peak.pinned].map((_, memory) => {
    const of = held.find(({ space, device }) =>
      memory < plan.devices ? space === 'device' && device === memory : space === 'pinned',
    )
    return of?.parts.reduce((sum, { bytes }) => sum + bytes, 0) ?? 0
  })
  expect(said).toEqual([...peak.device, peak.pinned])
  if (!peak.exact) return
  for (const { parts } of held)
    for (const part of parts) {
      expect(part.why).not.toBe('rest')
      expect(part.bytes).toBeGreaterThan(0)
      expect(part.because, JSON.stringify(part)).not.toMatch(/^$|( after| by) ?$/)
    }
}

describe('what keeps each byte of the peak alive', () => {
  test('adds up to the peak of plans from elsewhere, pooled and planned', () => {
    fc.assert(
      fc.property(recipes(8), recipe => comesToThePeak(planFrom(recipe))),
      { numRuns: runs(60) },
    )
  })

  test('adds up to the peak of compiled plans', () => {
    fc.assert(
      fc.property(
        sample({ steps: 10 }),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.constantFrom('pooled' as const, 'planned' as const),
        ({ graph, dims, inFlight }, memory, storage) =>
          comesToThePeak(orThrow(compile(graph, { mode: 'eager', dims, inFlight, memory, storage })) as Plan),
      ),
      { numRuns: runs(100) },
    )
  })

  test('lists any number of buffers', () => {
    const each = Array.from({ length: 150_000 }, (_, i) => i)
    const plan = planOf({
      name: 'many',
      lanes: ['one'],
      buffers: each.map(i => ({ name: `b${i}`, bytes: 512 })),
      commands: [
        ...each.map(i => ['alloc', i, 0] as const),
        ...each.map(i => ['run', i, 0, [], [i]] as const),
        ...each.map(i => ['free', i] as const),
      ],
    })
    expect(heldAtPeak(plan)[0]!.parts).toHaveLength(each.length)
  })

  // Quadratic, it would not end in the time of a test.
  test.each(['pooled', 'planned'] as const)('of 150,000 buffers that one run writes, %s', storage => {
    const each = Array.from({ length: 150_000 }, (_, i) => i)
    const planned = storage === 'planned'
    const plan = planOf({
      name: 'wide',
      lanes: ['one'],
      buffers: each.map(i => ({ name: `b${i}`, bytes: 512, ...(planned ? { offset: 512 * i } : {}) })),
      ...(planned ? { arena: 512 * each.length } : {}),
      commands: [
        ...(planned ? [] : each.map(i => ['alloc', i, 0] as const)),
        ['run', 0, 0, [], each],
        ['run', 1, 0, each, []],
        ...(planned ? [] : each.map(i => ['free', i] as const)),
      ],
    })
    const { parts } = heldAtPeak(plan)[0]!
    expect(parts).toHaveLength(each.length)
    expect(new Set(parts.map(({ because }) => because)).size).toBe(1)
  })

  test('names bytes in use, kept by a window, and waiting for a lane', () => {
    const under = orThrow(compile(streamed(6, 1), { mode: 'eager', memory: streamedLeast(1) })) as Plan
    comesToThePeak(under)
    const free = orThrow(compile(streamed(6, 1), { mode: 'eager', memory: 'fast' })) as Plan
    comesToThePeak(free)
    const [device] = heldAtPeak(under)
    expect(device!.parts.filter(({ name }) => /^w\d$/.test(name)).map(({ why }) => why)).toEqual([
      'used',
      'used',
    ])
    expect(device!.parts.find(({ name }) => name === 'x')).toMatchObject({ why: 'lasting' })
  })
})
