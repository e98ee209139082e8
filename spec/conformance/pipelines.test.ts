// The pipelines of the benches `pipelines` and `graphs`, small: what they yield is what they mean, issued
// call by call and as graphs, so that no bench times a wrong answer.
import { describe, expect, it } from 'vitest'
import { compile, orThrow } from '../../dsl/index.js'
import { open } from '../../runtime/index.js'
import { pipelineOf, type Shapes } from '../bench/pipeline-shapes.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { present } from './devices.js'
import { expectMeant, outputsOf } from './meant.js'

const small: Shapes = {
  branches: { width: 8, count: 3, depth: 2 },
  diamonds: { width: 8, count: 3 },
  ensemble: { rows: 16, features: 8, classes: 4 },
  offload: { width: 8, rows: 16, layers: 7 },
  decode: { rows: 2, width: 8, hidden: 32, layers: 3 },
  towers: { rows: 4, width: 8, count: 5, depth: 2 },
  wide: { rows: 16, size: 32 },
  lattice: { columns: 4, rows: 9, size: 32 },
}

describe.each(present)('a pipeline of the benches on %s', device => {
  it.each(Object.keys(small) as (keyof Shapes)[])('%s yields what it means', async name => {
    const { graph, values } = pipelineOf(name, small)
    const params = values()
    const dtype = name === 'lattice' ? 'i32' : 'bf16'
    for (const mode of ['eager', 'graph'] as const) {
      const plan = orThrow(compile(graph, { mode }))
      const ends = plan.buffers.filter(({ life }) => life === 'output').map(({ name }) => [name, dtype])
      const outputs = Object.fromEntries(ends)
      const made: Sample = { graph, dims: {}, inFlight: 2, params, feeds: {}, ticks: 3, outputs, text: '' }
      await using session = orThrow(await open(plan, { device, params: params as never, poison: true })())
      const got = await outputsOf(session, made)
      expect(Object.keys(got[0]!).length).toBe(ends.length)
      await expectMeant(made, got)
    }
  })
})
