// The pass `fuse`: rows and chains of the sizes that `bench models` measures are one kernel, in the cache and
// out of it, in every mode.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  compile,
  download,
  type Graph,
  graph,
  layerNorm,
  logSoftmax,
  orThrow,
  type Plan,
  rmsNorm,
  softmax,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { bodies, decode, gpt } from '../../bench/model-bodies.js'
import { runs } from '../../fixtures/runs.js'

const kernelsOf = (made: Graph<never, never>, options: object = {}): readonly string[] =>
  (orThrow(compile(made, { fuse: true, ...options })) as Plan).nodes
    .filter(({ kernel }) => kernel !== undefined && kernel.kind !== 'copy')
    .map(({ op }) => op)

const norms = { softmax, logSoftmax, layerNorm, rmsNorm }

describe('fuse', () => {
  test('makes one kernel of rows whether or not they fit the cache', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...(Object.keys(norms) as (keyof typeof norms)[])),
        fc.constantFrom('f32' as const, 'bf16' as const),
        fc.integer({ min: 2 ** 12, max: 2 ** 15 }),
        fc.integer({ min: 2 ** 5, max: 2 ** 12 }),
        (how, dtype, count, length) => {
          // The body is that of either element type.
          const rows = tensor(dtype as 'f32', [count, length])
          const made = graph({ x: rows }, ({ x }) => ({ y: x.pipe(upload(), norms[how](), download()) }))
          expect(kernelsOf(made as never)).toHaveLength(1)
        },
      ),
      { numRuns: runs(30), examples: [['layerNorm', 'bf16', 8192, 768]] },
    )
  })

  const all = bodies().filter(({ kind }) => kind === 'rows' || kind === 'chain')
  test.each(all)('makes one kernel of a body that is measured: $name, $dtype', body => {
    expect(kernelsOf(body.graph)).toEqual(['fused'])
  })

  const chains = all.filter(({ steps }) => steps.length >= 20)
  test.each(chains)('makes one kernel of a chain in every mode: $name, $dtype', ({ graph }) => {
    for (const mode of ['auto', 'graph']) expect(kernelsOf(graph, { mode, inFlight: 3 })).toEqual(['fused'])
  })

  test('leaves seven kernels of a layer of a GPT, of which the first one embeds: two norms, four products, attention', () => {
    const made = gpt({ batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers: 1 })
    const layer = ['fused', 'matmul', 'fused', 'matmul', 'fused', 'matmul', 'matmul']
    expect(kernelsOf(made.graph, { storage: 'planned' })).toEqual([...layer, 'fused', 'matmul'])
  })

  test('holds no more for a token that is decoded, in an order that the memory allows', () => {
    const sizes = { cached: 1024, length: 1000, vocabulary: 256, width: 768, heads: 12, layers: 3 }
    const { graph } = decode(sizes)
    const layer = ['fused', 'matmul', 'attention', 'matmul', 'fused', 'matmul', 'matmul']
    // The length is counted up, and the token is known when the one before has been chosen.
    const others = ['add', 'add', 'fused', 'matmul', 'fused']
    const all = [...others, ...Array.from({ length: sizes.layers }, () => layer).flat()]
    expect([...kernelsOf(graph)].sort()).toEqual(all.sort())
    const [plain, fused] = [false, true].map(fuse => orThrow(compile(graph, { fuse })) as Plan)
    expect(fused!.bound.device[0]).toBeLessThanOrEqual(plain!.bound.device[0]!)
  })
})
