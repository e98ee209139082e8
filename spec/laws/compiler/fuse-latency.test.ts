// The pass `fuse` takes no kernels by which a tick would be longer: neither from tick to tick, nor from the
// start to the end of a tick that has the device for itself, which is its critical path.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { latencyOf, tickOf } from '../../../dsl/compiler/search/choose-arenas.js'
import {
  add,
  compile,
  download,
  type Graph,
  graph,
  lane,
  map,
  on,
  orThrow,
  type Plan,
  param,
  slice,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { machines } from '../../../dsl/machine/load.js'
import { largeGraph } from '../../fixtures/graphs/large.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

const machine = { machine: machines['h200']!, profile: new Map() }

const planned = (made: Graph, options: object): Plan => orThrow(compile(made, options)) as Plan

const expectNoLonger = (made: Graph, options: object): void => {
  const [fused, plain] = [true, false].map(fuse => planned(made, { ...options, fuse })) as [Plan, Plan]
  for (const of of [tickOf, latencyOf]) {
    const [after, before] = [of(fused, machine), of(plain, machine)]
    expect(after).toBeLessThanOrEqual(before * 1.01)
  }
}

/** Rows of a kernel a column, each of which reads its column and the next one in the row above. */
const lattice = (columns: number, rows: number, size: number): Graph =>
  graph('lattice', {}, () => {
    const x = param('x', tensor('i32', [columns, size]), { on: 'host' }).pipe(upload())
    const lanes = Array.from({ length: columns }, (_, c) => lane(`column ${c}`))
    // biome-ignore lint/suspicious/noExplicitAny: shapes are numbers that no type knows
    let values: any[] = lanes.map((_, c) => x.pipe(slice(0, c, c + 1)))
    for (let row = 0; row < rows; row++)
      values = values.map((value, c) =>
        value.pipe(
          on(lanes[c]!),
          map((a, b) => a.add(b.mul(2)), values[(c + 1) % columns]),
        ),
      )
    return { y: values.reduce((all, value) => all.pipe(add(value))).pipe(download()) }
  }) as unknown as Graph

describe.each(['eager', 'graph'] as const)('a fused plan in %s mode has no longer ticks', mode => {
  test('of generated graphs', () => {
    fc.assert(
      fc.property(sample({ steps: 14, kernels: false }), ({ graph: made, dims, inFlight }) => {
        expectNoLonger(made as Graph, { dims, inFlight, mode })
      }),
      { numRuns: runs(20) },
    )
  })

  test('of lattices, on a lane a column', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 5 }),
        fc.integer({ min: 1, max: 30 }),
        fc.constantFrom(64, 65536),
        (columns, rows, size) => expectNoLonger(lattice(columns, rows, size), { inFlight: 3, mode }),
      ),
      { numRuns: runs(10) },
    )
  })

  test('of layers whose weights are streamed', () => {
    expectNoLonger(largeGraph('streamed', 20, 4), { inFlight: 3, mode })
  })
})
