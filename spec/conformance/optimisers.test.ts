// Generated optimisers: states of several shapes and element types, updated element by element from a gradient,
// several by one kernel. Each is updated in its memory, fused or not, and holds what `interpret` says.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  cast,
  compile,
  download,
  type Graph,
  graph,
  mul,
  orThrow,
  program,
  sqrt,
  state,
  sub,
  sum,
  tensor,
  upload,
} from '../../dsl/index.js'
import type { HostArray } from '../../dsl/language/values.js'
import { verify } from '../../dsl/verify/verify.js'
import { check } from '../../runtime/cli/check.js'
import { open, type Session } from '../../runtime/index.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { outputsOf } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: the graphs here are of every shape and element type
type Anything = any

interface Optimiser {
  readonly shapes: readonly (readonly number[])[]
  readonly dtype: 'f32' | 'bf16'
  /** What a weight has beside itself: nothing, a momentum, or two moments. */
  readonly moments: 0 | 1 | 2
  /** The axis along which the gradient is summed, as that of a bias is; or none. */
  readonly summed: 0 | 1 | undefined
  readonly crossed: boolean
}

const optimiser: fc.Arbitrary<Optimiser> = fc.record({
  shapes: fc.array(fc.array(fc.constantFrom(1, 3, 4, 17, 64), { minLength: 1, maxLength: 3 }), {
    minLength: 1,
    maxLength: 3,
  }),
  dtype: fc.constantFrom('f32', 'bf16'),
  moments: fc.constantFrom(0, 1, 2),
  summed: fc.constantFrom(undefined, undefined, 0, 1),
  crossed: fc.boolean(),
})

const trained = ({ shapes, dtype, moments, summed, crossed }: Optimiser): Graph =>
  graph('optimiser', { x: tensor('f32', [1]) }, ({ x }) => {
    const scale: Anything = x.pipe(upload())
    for (const [i, shape] of shapes.entries()) {
      const w: Anything = state({ [`w${i}`]: tensor(dtype, shape) } as never, 0.5 as never)
      const m: Anything = state({ [`m${i}`]: tensor('f32', shape), [`v${i}`]: tensor('f32', shape) } as never)
      const before = w[`w${i}`].pipe(cast('f32'))
      const wide = summed === undefined ? undefined : shape.toSpliced(summed, 0, 5)
      const last =
        wide === undefined || summed! > shape.length
          ? undefined
          : (state({ [`s${i}`]: tensor('f32', wide) } as never, 0.25 as never) as Anything)
      const by = last === undefined ? before.pipe(mul(scale)) : last[`s${i}`].pipe(sum(summed!), mul(scale))
      last?.next({ [`s${i}`]: last[`s${i}`] })
      const first = m[`m${i}`].pipe(mul(0.9), add(by.pipe(mul(0.1))))
      const second = m[`v${i}`].pipe(mul(0.99), add(by.pipe(mul(by), mul(0.01))))
      const step = moments === 0 ? by : moments === 1 ? first : first.pipe(mul(second.pipe(add(1), sqrt())))
      // Each of the two moments may be the next value of the other.
      if (crossed) m.next({ [`m${i}`]: second, [`v${i}`]: first })
      else m.next({ [`m${i}`]: first, [`v${i}`]: second })
      const next = before.pipe(sub(step.pipe(mul(0.01))))
      w.next({ [`w${i}`]: dtype === 'f32' ? next : next.pipe(cast(dtype)) })
    }
    return { y: scale.pipe(mul(2), download()) }
  }) as Anything

describe.each(present)('optimisers on %s', device => {
  it('update states in their memory, in each mode, to what the graph means', async () => {
    const x = [1, -0.5, 2].map(value => Float32Array.of(value))
    const run = async (made: Optimiser, mode: 'eager' | 'graph', fuse: boolean) => {
      const net = trained(made)
      const plan = orThrow(compile(net, { mode, fuse }))
      expect(verify(plan)).toEqual([])
      await using session = orThrow(await open(plan, { device: device as 'host', poison: true })())
      const got = await outputsOf(session as unknown as Session, { feeds: { x } } as Anything)
      const states: Record<string, HostArray> = {}
      for (const name of session.state.names) states[name] = await session.state.read(name)
      const of = program({ graph: net, feeds: {} } as Anything)
      const { ok, faults, states: compared } = await check(of, plan, new Map([['x', x]]), got, { states })
      expect([ok, faults]).toEqual([true, []])
      expect(compared).toBe(Object.keys(states).length)
      return plan.nodes.filter(({ op }) => op === 'store').map(({ name }) => name)
    }
    await fc.assert(
      fc.asyncProperty(
        optimiser,
        fc.constantFrom('eager', 'graph'),
        fc.boolean(),
        async (made, mode, fuse) => {
          const stored = await run(made, mode, fuse)
          // Of crossed moments a later kernel reads one where nothing is fused.
          if (!made.crossed) expect(stored).toEqual([])
        },
      ),
      { numRuns: runs(24) },
    )
  })
})
