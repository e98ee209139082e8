// What kernels with rows are predicted to take, beside what an H200 took (spec/bench/results/models.md).
import { describe, expect, test } from 'vitest'
import { compile, orThrow, type Plan, simulate } from '../../../dsl/index.js'
import { demandOf } from '../../../dsl/machine/cost.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { bodies } from '../../bench/model-bodies.js'

const rows = bodies().filter(({ kind }) => kind === 'rows')
const planOf = (name: string, dtype: string): Plan =>
  orThrow(compile(rows.find(body => body.name === name && body.dtype === dtype)!.graph, { fuse: true }))

const timeOf = (name: string, dtype: string): number => {
  const { nodes } = planOf(name, dtype)
  return demandOf(nodes.find(({ kernel }) => kernel?.kind === 'map')!, h200).nanoseconds
}

describe('rows', () => {
  test.each([
    [128, 0.2563],
    [65_536, 0.377],
  ])('of %i elements of bf16 take what was measured, within 15 %%', (length, measured) => {
    const plan = orThrow(
      compile(rows.find(({ name, dtype }) => name === `layerNorm of ${length}` && dtype === 'bf16')!.graph, {
        fuse: true,
        inFlight: 3,
        mode: 'auto',
      }),
    )
    expect(Math.abs(simulate(plan, 'h200').tickMs / measured - 1)).toBeLessThan(0.15)
  })

  test.each(['softmax', 'layerNorm', 'rmsNorm'])(
    'of %s take no less where they are longer and fewer',
    norm => {
      for (const dtype of ['f32', 'bf16']) {
        const times = [128, 1024, 8192, 65_536].map(length => timeOf(`${norm} of ${length}`, dtype))
        expect(times).toEqual([...times].sort((a, b) => a - b))
        // What one block reads, computes and writes in turn takes longer than blocks that share a multiprocessor.
        expect(times[3]!).toBeGreaterThan(1.15 * times[2]!)
      }
    },
  )
})
