// The place of a caller: looked for at once, or when somebody asks.
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { compile, download, graph, lane, on, relu, tensor, upload } from '../../../dsl/index.js'
import { here, hereLater } from '../../../dsl/internal.js'

const compiled = (net: Parameters<typeof compile>[0]) => {
  const plan = compile(net)
  return isLeft(plan) ? plan.left : []
}

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

  it('of a lane that was taken before is that of its pipe', () => {
    const math = lane('math')
    const other = lane('math', { priority: 'high' })
    const x = { x: tensor('f32', [4]) }
    const used = (first: typeof math, second: typeof math) =>
      graph(x, ({ x }) => ({
        y: x.pipe(upload(), on(first), relu(), on(second), relu(), download()),
      }))
    expect(compiled(used(math, math))).toEqual([])
    expect(compiled(used(other, other))).toEqual([])
    // Both were taken, each by a graph of its own; in one graph they are two lanes of one name.
    const [problem] = compiled(used(math, other))
    expect(problem).toMatchObject({ subject: 'on', at: expect.stringMatching(/where\.test\.ts:\d+:\d+$/) })
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
