// What many positions along lines are predicted to take, beside what an H200 took: within a factor of two.
import { expect, it } from 'vitest'
import { compile, graph, orThrow, param, simulate, tensor, topK } from '../../../dsl/index.js'

it.each([
  [1, 8192, 8192, 0.0472],
  [1, 65_536, 65_536, 0.3734],
  [64, 128_256, 50, 0.0718],
  [1024, 1024, 1024, 0.0523],
  [4096, 64, 32, 0.0199],
])('%i lines of %i elements, of which %i are chosen', (lines, length, k, measured) => {
  const net = graph('positions', {}, () => ({
    y: param('x', tensor('f32', [lines, length])).pipe(topK({ k })).indices,
  }))
  const { tickMs } = simulate(orThrow(compile(net, { inFlight: 3, mode: 'graph' })), 'h200')
  expect(tickMs / measured).toBeGreaterThan(0.5)
  expect(tickMs / measured).toBeLessThan(2)
})
