// What chains, rows and models are predicted to take, beside what an H200 took
// (spec/bench/results/models.md).
import { describe, expect, test } from 'vitest'
import { compile, orThrow, simulate } from '../../../dsl/index.js'
import { demandOf } from '../../../dsl/machine/cost.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { type Body, bodies } from '../../bench/model-bodies.js'

/** Milliseconds a tick of f32 and of bf16, as measured. */
const measured: Readonly<Record<string, readonly [f32: number | undefined, bf16: number]>> = {
  '6 operations': [0.03318, 0.0317],
  '12 operations': [0.03353, 0.0318],
  '20 operations': [0.04002, 0.03277],
  '6 operations, then the sum of each row': [0.01695, 0.01494],
  '12 operations, then the sum of each row': [0.02485, 0.01839],
  '20 operations, then the sum of each row': [0.03671, 0.02696],
  'softmax of 128': [0.257, 0.2534],
  'softmax of 1024': [0.2554, 0.2562],
  'softmax of 8192': [0.2551, 0.2585],
  'softmax of 65536': [0.2675, 0.282],
  'layerNorm of 128': [0.2577, 0.2535],
  'layerNorm of 1024': [0.2558, 0.2552],
  'layerNorm of 8192': [0.2528, 0.2584],
  'layerNorm of 65536': [0.3196, 0.3043],
  'rmsNorm of 128': [0.257, 0.253],
  'rmsNorm of 1024': [0.2551, 0.2557],
  'rmsNorm of 8192': [0.2569, 0.2584],
  'rmsNorm of 65536': [0.3061, 0.2706],
  'layerNorm, then softmax of 128': [0.2575, 0.2628],
  'layerNorm, then softmax of 1024': [0.2562, 0.255],
  'layerNorm, then softmax of 8192': [0.285, 0.2893],
  'layerNorm, then softmax of 65536': [0.3887, 0.529],
  'byte-level GPT, forward': [undefined, 3.04],
  'byte-level GPT, training step': [undefined, 11.93],
  'byte-level GPT, one token': [undefined, 0.31],
}

/** In the modes in which they are measured. */
const predicted = ({ graph, kind }: Body): number => {
  const options =
    kind === 'chain' || kind === 'rows'
      ? { inFlight: 16, mode: 'auto' as const }
      : { inFlight: 3, mode: 'auto' as const }
  return simulate(orThrow(compile(graph, { fuse: true, ...options })), 'h200').tickMs
}

const kernelOf = ({ graph }: Body): number => {
  const { nodes } = orThrow(compile(graph, { fuse: true }))
  return demandOf(nodes.find(({ kernel }) => kernel?.kind === 'map')!, h200).nanoseconds
}

describe('a tick takes what was measured, within 15 %', () => {
  const rows = bodies().flatMap(body => {
    const time = measured[body.name]?.[body.dtype === 'f32' ? 0 : 1]
    return time === undefined ? [] : [{ body, time, key: `${body.name} ${body.dtype}` }]
  })

  test('of each body that the bench measures', () => {
    expect(rows.length).toBe(bodies().length)
  })

  test.each(rows.map(row => [row.key, row] as const))('%s', (_, { body, time }) => {
    const ratio = predicted(body) / time
    expect(Math.abs(ratio - 1), `${ratio} of the measured`).toBeLessThan(0.15)
  })
})

test('arithmetic of 16-bit floats that are rounded after each operation takes half of what it takes in f32', () => {
  const timeOf = (dtype: string): number =>
    kernelOf(bodies().find(body => body.name === '20 operations' && body.dtype === dtype)!)
  // Twice as many elements in as many bytes; a tanh is the processor's own, and no polynomial.
  expect(timeOf('bf16')).toBeLessThan(1.1 * timeOf('f32'))
})
