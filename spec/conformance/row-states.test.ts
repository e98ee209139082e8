// The law of the project with states whose next values are made by kernels that reduce rows too: in the memory of
// the state, where the kernel reads each point before it writes it, and else by way of a copy.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  type DeviceFlow,
  download,
  explain,
  type Graph,
  graph,
  max,
  mean,
  mul,
  type Ports,
  type Shape,
  softmax,
  state,
  sub,
  tensor,
  upload,
} from '../../dsl/index.js'
import { hasRows } from '../../dsl/ir/map-rows.js'
import { valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { meantOf, mismatch, outputsOf } from './meant.js'

const ops = ['add', 'sub', 'half', 'centre', 'below', 'softmax', 'byRow'] as const

interface Made {
  readonly rows: number
  readonly columns: number
  /** Each makes a value of two of those before: of the states m and v, of x, or of an earlier step. */
  readonly steps: readonly { readonly op: (typeof ops)[number]; readonly a: number; readonly b: number }[]
  readonly axis: 0 | 1
  readonly seed: number
}

const made: fc.Arbitrary<Made> = fc.record({
  rows: fc.constantFrom(1, 3, 6),
  columns: fc.constantFrom(1, 5, 40, 1100),
  steps: fc.array(fc.record({ op: fc.constantFrom(...ops), a: fc.nat(9), b: fc.nat(9) }), {
    minLength: 3,
    maxLength: 7,
  }),
  axis: fc.constantFrom(0, 1),
  seed: fc.integer({ min: 1, max: 1e6 }),
})

/** m, v and r have a next value each: of points, of points, and one number a row. */
const sampleOf = ({ rows, columns, steps, axis, seed }: Made) => {
  const type = tensor('f32', [rows, columns] as Shape)
  const rowType = tensor('f32', (axis === 1 ? [rows, 1] : [1, columns]) as Shape)
  const one = { axis, keepDims: true } as never
  type Flow = DeviceFlow<typeof type>
  const body = graph('rows', { x: type }, ({ x }) => {
    const s = state({ m: type, v: type, r: rowType }, { m: 1, v: -2, r: 3 })
    const values = [s.m, s.v, x.pipe(upload())] as Flow[]
    for (const { op, a, b } of steps) {
      const [first, second] = [values[a % values.length]!, values[b % values.length]!]
      values.push(
        {
          add: () => first.pipe(add(second)),
          sub: () => first.pipe(sub(second)),
          half: () => first.pipe(mul(0.5)),
          centre: () => first.pipe(sub(second.pipe(mean(one)) as Flow)),
          below: () => first.pipe(sub(second.pipe(max(one)) as Flow)),
          softmax: () => first.pipe(softmax({ axis } as never)),
          byRow: () => first.pipe(add(s.r as Flow)),
        }[op]() as Flow,
      )
    }
    const [last, before] = [values.at(-1)!, values.at(-2)!]
    const r = last.pipe(max(one), add(s.r as Flow), mul(0.25)) as Flow
    s.next({ m: last, v: before, r } as never)
    return { y: last.pipe(sub(before), download()), z: r.pipe(mul(2), download()) }
  })
  const feeds = { x: [0, 1, 2].map(tick => valuesOf('f32', rows * columns, seed + tick)) }
  return {
    graph: body as unknown as Graph<Ports, Ports>,
    ...{ params: {}, dims: {}, feeds, ticks: 3, inFlight: 2, outputs: { y: 'f32', z: 'f32' } },
  } as unknown as Parameters<typeof meantOf>[0]
}

describe.each(present)('states of kernels that reduce rows on %s', device => {
  it('have the values that interpret gives them, in place and copied', { timeout: 60_000 }, async () => {
    const seen = { inPlace: 0, copied: 0 }
    await fc.assert(
      fc.asyncProperty(
        made,
        fc.constantFrom(
          { mode: 'eager' } as const,
          { mode: 'eager', storage: 'planned' } as const,
          { storage: 'planned', mode: 'graph' } as const,
        ),
        async (one, compiling) => {
          const sample = sampleOf(one)
          const compile = { inFlight: 2, fuse: true, ...compiling }
          await using session = await opened(sample.graph, device, { compile })
          const { nodes, buffers, commands } = session.plan
          for (const command of commands) {
            if (command[0] !== 'run') continue
            const { kernel } = nodes[command[1]]!
            if (kernel?.kind !== 'map' || !hasRows(kernel)) continue
            const memory = (id: number): number => buffers[id]!.alias ?? id
            const reads = new Set(command[3].map(memory))
            if (command[4].some(id => reads.has(memory(id)))) seen.inPlace++
          }
          if (/the next \w is a copy/.test(explain(session.plan, 'text'))) seen.copied++
          expect(
            mismatch(sample, await meantOf(sample), await outputsOf(session as never, sample)),
          ).toBeUndefined()
        },
      ),
      { numRuns: runs(50) },
    )
    expect(seen.inPlace).toBeGreaterThan(often(5))
    expect(seen.copied).toBeGreaterThan(often(1))
  })
})
