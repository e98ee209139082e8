// Attention over caches that rows are appended to: a fused plan does both in one kernel where nothing between
// needs the caches, and yields what the graph means whatever else reads them.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  append,
  attention,
  compile,
  download,
  explain,
  type Graph,
  graph,
  lane,
  mul,
  on,
  orThrow,
  type Plan,
  slice,
  state,
  sum,
  tensor,
  upload,
} from '../../dsl/index.js'
import { open } from '../../runtime/index.js'
import { smallBodies } from '../bench/model-bodies.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { meantOf, mismatch, outputsOf } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: the shapes are drawn
type Any = any

/** What else the graph does with the caches. */
const others = [
  'nothing',
  'reads the keys before, later',
  'reads the new keys between',
  'reads the new values later',
  'writes the new keys out',
  'reads rows of the cache as queries',
  'appends the values elsewhere',
  'appends once more between',
  'appends on another lane',
] as const

/** Those of them with an output of their own. */
const withZ: readonly string[] = [
  'reads the keys before, later',
  'reads the new keys between',
  'reads the new values later',
  'writes the new keys out',
]

interface Drawn {
  readonly other: (typeof others)[number]
  readonly groups: number
  readonly shared: number
  readonly queries: number
  readonly keys: number
  readonly size: number
  readonly count: number
  readonly valueSize: number
  readonly causal: boolean
  readonly counted: boolean
  readonly places: readonly number[]
  readonly inFlight: number
}

const drawn: fc.Arbitrary<Drawn> = fc.record({
  other: fc.constantFrom(...others),
  groups: fc.integer({ min: 1, max: 3 }),
  shared: fc.integer({ min: 1, max: 2 }),
  queries: fc.integer({ min: 1, max: 3 }),
  keys: fc.integer({ min: 4, max: 20 }),
  size: fc.constantFrom(1, 3, 8),
  count: fc.integer({ min: 1, max: 3 }),
  valueSize: fc.constantFrom(3, 8),
  causal: fc.boolean(),
  counted: fc.boolean(),
  places: fc.array(fc.integer({ min: -2, max: 20 }), { minLength: 1, maxLength: 4 }),
  inFlight: fc.integer({ min: 1, max: 3 }),
})

const values = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => Math.sin(i * 1.7 + seed) * 2)

const sampleOf = (each: Drawn): Sample => {
  const { other, groups, shared, queries, keys, size, valueSize, count, causal, counted, places } = each
  const shapes = {
    q: [groups * shared, queries, size],
    k: [groups, count, size],
    v: [groups, count, valueSize],
  } as const
  const made = graph(
    'cached',
    {
      ...Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, tensor('f32', shape)])),
      at: tensor('i32', []),
    },
    (flows: Any) => {
      const s: Any = state({
        keys: tensor('f32', [groups, keys, size]),
        values: tensor('f32', [groups, keys, valueSize]),
      })
      const [q, k, v, at] = ['q', 'k', 'v', 'at'].map(name => flows[name].pipe(upload()))
      const aside = other === 'appends on another lane' ? [on(lane('aside'))] : []
      let keysNow = s.keys.pipe(...aside, append(k, { axis: 1, at }))
      let valuesNow = s.values.pipe(
        append(v, { axis: 1, at: other === 'appends the values elsewhere' ? at.pipe(add(1)) : at }),
      )
      const more: Record<string, Any> = {}
      if (other === 'reads the new keys between') more['z'] = keysNow.pipe(sum({ axis: 1 }), download())
      if (other === 'appends once more between') {
        keysNow = keysNow.pipe(append(k.pipe(mul(2)), { axis: 1, at: at.pipe(add(1)) }))
        valuesNow = valuesNow.pipe(mul(0.5))
      }
      const queried = other === 'reads rows of the cache as queries' ? keysNow.pipe(slice(1, 0, queries)) : q
      const there = counted ? { length: at.pipe(add(count)) } : {}
      const y = queried.pipe(attention(keysNow, valuesNow, { causal, ...there }))
      if (other === 'reads the keys before, later')
        more['z'] = s.keys.pipe(mul(y.pipe(sum({ axis: [0, 1, 2] }))), download())
      if (other === 'reads the new values later') more['z'] = valuesNow.pipe(sum({ axis: 1 }), download())
      if (other === 'writes the new keys out') more['z'] = keysNow.pipe(download())
      s.next({ keys: keysNow, values: valuesNow })
      return { y: y.pipe(download()), ...more }
    },
  )
  const fed = (shape: readonly number[], seed: number) =>
    places.map((_, tick) =>
      values(
        shape.reduce((a, b) => a * b, 1),
        seed + tick,
      ),
    )
  return {
    graph: made as never,
    params: {},
    dims: {},
    feeds: {
      q: fed(shapes.q, 1),
      k: fed(shapes.k, 2),
      v: fed(shapes.v, 3),
      at: places.map(place => Int32Array.of(place)),
    },
    ticks: places.length,
    inFlight: each.inFlight,
    outputs: { y: 'f32', ...(withZ.includes(other) ? { z: 'f32' } : {}) },
  } as unknown as Sample
}

const kinds = ({ nodes }: Plan): readonly string[] =>
  nodes.flatMap(({ kernel }) => (kernel === undefined || kernel.kind === 'copy' ? [] : [kernel.kind]))

describe.each(present)('attention that appends on %s', device => {
  const law = async (numRuns: number) => {
    const seen = new Map<string, number>()
    await fc.assert(
      fc.asyncProperty(
        drawn,
        fc.constantFrom({}, { storage: 'planned' } as const, { storage: 'planned', mode: 'graph' } as const),
        async (each, compiling) => {
          const made = sampleOf(each)
          const options = { fuse: true, inFlight: each.inFlight, ...compiling }
          const plan = orThrow(compile(made.graph as Graph, options)) as Plan
          if (!kinds(plan).includes('append')) seen.set(each.other, (seen.get(each.other) ?? 0) + 1)
          await using session = orThrow(await open(plan, { device, poison: true })())
          expect(mismatch(made, await meantOf(made), await outputsOf(session as never, made))).toBeUndefined()
        },
      ),
      { numRuns },
    )
    return seen
  }

  it('yields what the graph means', { timeout: 120_000 }, async () => {
    const joined = await law(runs(130))
    expect(joined.get('nothing') ?? 0).toBeGreaterThan(often(1))
    expect(joined.get('reads the keys before, later') ?? 0).toBeGreaterThan(often(0))
    for (const other of [
      'reads the new keys between',
      'reads rows of the cache as queries',
      'appends the values elsewhere',
      'appends once more between',
      'appends on another lane',
    ])
      expect(joined.get(other)).toBeUndefined()
  })
})

it('leaves no append of a token that is decoded', () => {
  const { graph: made } = smallBodies().find(({ kind }) => kind === 'decode')!
  const found = kinds(orThrow(compile(made, { fuse: true })))
  expect(found.filter(kind => kind === 'attention')).toHaveLength(2)
  expect(found).not.toContain('append')
})

it('attention says that it appends', () => {
  const made = graph('cached', { rows: tensor('f32', [2, 1, 4]), at: tensor('i32', []) }, flows => {
    const cache = state({ keys: tensor('f32', [2, 8, 4]), values: tensor('f32', [2, 8, 4]) })
    const [rows, at] = [flows.rows.pipe(upload()), flows.at.pipe(upload())]
    const keys = cache.keys.pipe(append(rows, { axis: 1, at }))
    const values = cache.values.pipe(append(rows, { axis: 1, at }))
    cache.next({ keys, values })
    return { y: rows.pipe(attention(keys, values), download()) }
  })
  const plan = orThrow(compile(made, { fuse: true }))
  expect(kinds(plan)).toEqual(['attention'])
  expect(explain(plan, 'text')).toContain('append[0] changes keys in place, in the kernel of attention[0]')
  expect(kinds(orThrow(compile(made, { fuse: false })))).toEqual(['append', 'append', 'attention'])
})
