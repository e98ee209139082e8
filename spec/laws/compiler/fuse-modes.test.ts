// The pass `fuse` in each mode: where `auto` takes a graph it is the plan of `mode: 'graph'`, no fused plan holds
// more than the one that fuses nothing, and `small` holds no more than `fast`. The graphs are of sizes at which
// the search looks at fewer plans, 256 operations and 2,048 nodes, and few, since each is compiled several times.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { tickOf } from '../../../dsl/compiler/search/choose-arenas.js'
import { type CompileOptions, compile, type Graph, orThrow, type Plan, toJSON } from '../../../dsl/index.js'
import { machines } from '../../../dsl/machine/load.js'
import { training } from '../../bench/model-bodies.js'
import { largeGraph } from '../../fixtures/graphs/large.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

const machine = { machine: machines['h200']!, profile: new Map() }

const planned = (made: Graph, options: CompileOptions): Plan => orThrow(compile(made, options)) as Plan

const heldBy = ({ bound }: Plan): number => bound.device[0]!

const kernelsOf = ({ commands }: Plan): number => commands.filter(([op]) => op === 'run').length

const shapes = ['cholesky', 'layered', 'chains', 'streamed', 'stencil', 'fft', 'transformer'] as const

/** Large graphs are compiled in seconds: a counterexample of them is not made smaller. */
const few = (cases: number) => ({ numRuns: runs(cases), endOnFailure: true })

/** A graph of `from` to `to` tasks or layers. */
const large = (from: number, to: number, lanes: readonly number[] = [2, 4, 8]) =>
  fc.record({
    shape: fc.constantFrom(...shapes),
    nodes: fc.integer({ min: from, max: to }),
    lanes: fc.constantFrom(...lanes),
    inFlight: fc.constantFrom(1, 2, 3),
  })

type Large = ReturnType<typeof large> extends fc.Arbitrary<infer A> ? A : never

const graphOf = ({ shape, nodes, lanes }: Large): Graph => largeGraph(shape, nodes, lanes)

/** In graph mode: by `auto`, by its name, and with nothing fused. Returns the latter two. */
const expectAlike = (made: Graph, options: CompileOptions): { graph: Plan; plain: Plan } => {
  const by = (more: CompileOptions): Plan => planned(made, { ...options, ...more, memory: 'fast' })
  const [auto, graph, plain] = [by({}), by({ mode: 'graph' }), by({ mode: 'graph', fuse: false })]
  if (auto.graphs !== undefined) expect(toJSON(auto) === toJSON(graph)).toBe(true)
  expect(heldBy(graph)).toBeLessThanOrEqual(heldBy(plain))
  expect(tickOf(graph, machine)).toBeLessThanOrEqual(tickOf(plain, machine) * 1.01)
  return { graph, plain }
}

describe('graph mode is fused as `auto` fuses it, and holds no more than without', () => {
  test('of generated graphs', () => {
    fc.assert(
      fc.property(sample({ steps: 14 }), ({ graph: made, dims, inFlight }) => {
        expectAlike(made as Graph, { dims, inFlight })
      }),
      { numRuns: runs(8) },
    )
  })

  test('of graphs of thousands of operations', () => {
    fc.assert(
      fc.property(large(1900, 2200, [2, 4]), made => {
        expectAlike(graphOf(made), { inFlight: made.inFlight })
      }),
      { ...few(1), examples: [[{ shape: 'stencil', nodes: 2200, lanes: 4, inFlight: 3 }]] },
    )
  })

  // The order of its fused kernels holds 0.7 % more than that of single operations, and another one does not.
  test('of the training step of a GPT of twelve layers', () => {
    const sizes = { batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers: 12 }
    const { graph: made } = training(sizes)
    const { graph: fused, plain } = expectAlike(made as Graph, { inFlight: 3 })
    expect(kernelsOf(fused)).toBeLessThan(kernelsOf(plain) / 2)
  })
})

describe('eager mode, of graphs of hundreds of operations and more', () => {
  test('a fused plan holds no more, by a bound of the same kind', () => {
    fc.assert(
      fc.property(large(700, 1500), made => {
        const [fused, plain] = [true, false].map(fuse =>
          planned(graphOf(made), { inFlight: made.inFlight, mode: 'eager', fuse }),
        )
        expect(heldBy(fused!)).toBeLessThanOrEqual(heldBy(plain!))
        // Only a plan of few commands has a bound that L9's count of bytes is in.
        if (plain!.boundKind !== undefined) expect(fused!.boundKind).toBeDefined()
      }),
      few(2),
    )
  })

  // Its pool comes to less, and L9's count of bytes to more, than the pool of the plan that fuses nothing.
  test('a fused plan is not given up for bytes that are counted otherwise', () => {
    const [fused, plain] = [true, false].map(fuse =>
      planned(largeGraph('cholesky', 2400, 2), { inFlight: 2, mode: 'eager', fuse }),
    )
    expect(kernelsOf(fused!)).toBeLessThan(kernelsOf(plain!))
  })
})

describe.each(['eager', 'graph'] as const)('small holds no more than fast and the default, %s', mode => {
  test('of graphs of hundreds of operations', () => {
    fc.assert(
      fc.property(large(260, 400, [2, 4]), fc.boolean(), (made, fuse) => {
        const [small, ...others] = (['small', 'fast', undefined] as const).map(memory =>
          planned(graphOf(made), {
            ...{ inFlight: made.inFlight, mode, fuse },
            ...(memory === undefined ? {} : { memory }),
          }),
        )
        for (const other of others) expect(heldBy(small!)).toBeLessThanOrEqual(heldBy(other))
      }),
      {
        ...few(3),
        examples: [[{ shape: 'cholesky', nodes: 400, lanes: 8, inFlight: 3 }, false]],
      },
    )
  })
})
