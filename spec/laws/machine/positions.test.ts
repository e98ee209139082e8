// What many positions along lines are predicted to take, beside what an H200 took: within a factor of 1.5.
import { expect, it } from 'vitest'
import { compile, graph, orThrow, param, simulate, tensor, topK } from '../../../dsl/index.js'

it.each([
  [1, 8192, 8192, 0.0386],
  [1, 65_536, 65_536, 0.3143],
  [64, 128_256, 50, 0.0777],
  [1024, 1024, 1024, 0.0515],
  [4096, 64, 32, 0.0191],
])('%i lines of %i elements, of which %i are chosen', (lines, length, k, measured) => {
  const net = graph('positions', {}, () => ({
    y: param('x', tensor('f32', [lines, length])).pipe(topK({ k })).indices,
  }))
  const { tickMs } = simulate(orThrow(compile(net, { inFlight: 3, mode: 'graph' })), 'h200')
  expect(tickMs / measured).toBeGreaterThan(1 / 1.5)
  expect(tickMs / measured).toBeLessThan(1.5)
})
