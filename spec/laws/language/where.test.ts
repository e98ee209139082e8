// The place of a caller: looked for at once, or when somebody asks.
import { describe, expect, it } from 'vitest'
import { here, hereLater } from '../../../dsl/internal.js'

describe('the place of a caller', () => {
  it('is the same whether it is looked for at once or later', () => {
    const [now, later] = [here(), hereLater()]
    expect(String(now)).toMatch(/where\.test\.ts:\d+:\d+$/)
    expect(String(later).replace(/:\d+$/, '')).toBe(String(now).replace(/:\d+$/, ''))
    expect(JSON.stringify([later])).toBe(`["${later}"]`)
  })

  it('is found once, and leaves the settings of stacks as they were', () => {
    const { stackTraceLimit, prepareStackTrace } = Error
    const later = hereLater()
    const first = String(later)
    Error.prepareStackTrace = () => 'somewhere else'
    try {
      expect(String(later)).toBe(first)
      expect(String(hereLater())).toMatch(/where\.test\.ts/)
      expect(new Error('a').stack).toBe('somewhere else')
    } finally {
      Error.prepareStackTrace = prepareStackTrace
    }
    expect([Error.stackTraceLimit, Error.prepareStackTrace]).toEqual([stackTraceLimit, prepareStackTrace])
  })

  it('never throws', () => {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    try {
      expect(String(hereLater())).toMatch(/where\.test\.ts/)
      expect(Error.stackTraceLimit).toBe(0)
    } finally {
      Error.stackTraceLimit = stackTraceLimit
    }
  })
})
