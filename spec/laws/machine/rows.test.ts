// What chains, rows and models are predicted to take, beside what an H200 took
// (spec/bench/results/models.md).
import { describe, expect, test } from 'vitest'
import { compile, orThrow, simulate } from '../../../dsl/index.js'
import { demandOf } from '../../../dsl/machine/cost.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { type Body, bodies } from '../../bench/model-bodies.js'

/** Milliseconds a tick of f32 and of bf16, as measured. */
const measured: Readonly<Record<string, readonly [f32: number | undefined, bf16: number]>> = {
  '6 operations': [0.0331, 0.0338],
  '12 operations': [0.0345, 0.0335],
  '20 operations': [0.0413, 0.0345],
  '6 operations, then the sum of each row': [0.0189, 0.0167],
  '12 operations, then the sum of each row': [0.0269, 0.0208],
  '20 operations, then the sum of each row': [0.0383, 0.0281],
  'softmax of 128': [0.2643, 0.2571],
  'softmax of 1024': [0.2622, 0.2591],
  'softmax of 8192': [0.2602, 0.261],
  'softmax of 65536': [0.2713, 0.3426],
  'layerNorm of 128': [0.2651, 0.2574],
  'layerNorm of 1024': [0.262, 0.2588],
  'layerNorm of 8192': [0.2582, 0.2617],
  'layerNorm of 65536': [0.318, 0.3018],
  'rmsNorm of 128': [0.2631, 0.2558],
  'rmsNorm of 1024': [0.2628, 0.2581],
  'rmsNorm of 8192': [0.2634, 0.262],
  'rmsNorm of 65536': [0.3026, 0.2683],
  'layerNorm, then softmax of 128': [0.2649, 0.3319],
  'layerNorm, then softmax of 1024': [0.265, 0.3106],
  'layerNorm, then softmax of 8192': [0.2903, 0.346],
  'layerNorm, then softmax of 65536': [0.3839, 0.5976],
  'byte-level GPT, forward': [undefined, 3.131],
  'byte-level GPT, one token': [undefined, 0.312],
}

/** Rows that the model misses, and the part of the measured time that it says. */
const missed: Readonly<Record<string, number>> = {
  'rmsNorm of 65536 f32': 0.84,
}

/** In the modes in which they are measured. */
const predicted = ({ graph, kind }: Body): number => {
  const options =
    kind === 'chain' ? { inFlight: 8, mode: 'graph' as const } : { inFlight: 3, mode: 'auto' as const }
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

  test.each(rows.map(row => [row.key, row] as const))('%s', (key, { body, time }) => {
    const ratio = predicted(body) / time
    const known = missed[key]
    if (known === undefined) expect(Math.abs(ratio - 1), `${ratio} of the measured`).toBeLessThan(0.15)
    // A row that the model has learned is no longer listed.
    else expect(Math.abs(ratio - known), `${ratio} of the measured`).toBeLessThan(0.02)
  })
})

test('arithmetic of 16-bit floats that are rounded after each operation takes half of what it takes in f32', () => {
  const timeOf = (dtype: string): number =>
    kernelOf(bodies().find(body => body.name === '20 operations' && body.dtype === dtype)!)
  // Twice as many elements in as many bytes; a tanh is the processor's own, and no polynomial.
  expect(timeOf('bf16')).toBeLessThan(1.1 * timeOf('f32'))
})
