import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SteadyState } from '../../../dsl/memory/steady-state.js'

/**
 * Steps until a state is one of before: the first `transient` states come once, the next `period` again and
 * again.
 */
const stepsUntil = (state: SteadyState, transient: number, period: number, width: number): number => {
  for (let step = 0; ; step++) {
    const number = step < transient ? step : transient + ((step - transient) % period)
    state.begin()
    for (let i = 0; i < width; i++) state.put(number + i)
    if (state.isReached()) return step
  }
}

describe('a steady state', () => {
  const cases = [fc.nat(300), fc.integer({ min: 1, max: 100 }), fc.integer({ min: 1, max: 5 })] as const

  test('is found at the first state that was seen before', () => {
    fc.assert(
      fc.property(...cases, (transient, period, width) => {
        expect(stepsUntil(new SteadyState(), transient, period, width)).toBe(transient + period)
      }),
    )
  })

  test('is found later, and never too early, where the states do not fit the memory', () => {
    fc.assert(
      fc.property(...cases, fc.nat(200), (transient, period, width, kept) => {
        const found = stepsUntil(new SteadyState(kept), transient, period, width)
        const first = Math.floor(kept / width)
        expect(found).toBeGreaterThanOrEqual(transient + period)
        expect(found).toBeLessThanOrEqual(first + 3 * (transient + period) + 2)
      }),
    )
  })
})
