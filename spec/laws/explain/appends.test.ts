// Why rows are appended by a kernel of their own, and not by that of the attention that reads them.
import { expect, it } from 'vitest'
import {
  add,
  after,
  append,
  attention,
  compile,
  type DeviceFlow,
  download,
  explain,
  graph,
  lane,
  mul,
  on,
  orThrow,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'

const [heads, keys, size] = [2, 32, 16]
const cache = tensor('f32', [heads, keys, size])

interface Parts {
  readonly q: DeviceFlow
  readonly k: DeviceFlow
  readonly v: DeviceFlow
  readonly rows: DeviceFlow
  readonly at: DeviceFlow
}
type Wired = (parts: Parts) => Record<string, unknown>

// biome-ignore lint/suspicious/noExplicitAny: values are wired in wrong ways too
const any = (value: unknown): any => value

/** What `explain` says of the appends of a graph with one attention. */
const saysOf = (wire: Wired, queries = 1): string[] => {
  const made = graph(
    'cached',
    { q: tensor('f32', [heads, queries, size]), rows: tensor('f32', [heads, 1, size]) },
    ({ q, rows }) => {
      const s = state({ k: cache, v: cache, length: tensor('i32', []) })
      const parts = { q: q.pipe(upload()), k: s.k, v: s.v, rows: rows.pipe(upload()), at: s.length }
      const { k, v, y, ...more } = wire(parts as unknown as Parts)
      s.next({ k: any(k ?? s.k), v: any(v ?? s.v), length: s.length.pipe(add(1)) })
      return { y: any(y).pipe(download()), ...more }
    },
  )
  const text = explain(orThrow(compile(made as never, { mode: 'graph' })), 'text')
  return text.split('\n').filter(line => /append\[\d\] changes/.test(line))
}

const appended = ({ k, v, rows, at }: Parts) => ({
  k: any(k).pipe(append(any(rows), { axis: 1, at: any(at) })),
  v: any(v).pipe(append(any(rows), { axis: 1, at: any(at) })),
})

it('nothing where attention appends', () => {
  const says = saysOf(parts => {
    const { k, v } = appended(parts)
    return { k, v, y: any(parts.q).pipe(attention(k, v)) }
  })
  expect(says).toHaveLength(2)
  for (const line of says) expect(line).toMatch(/in place, in the kernel of attention\[0\]/)
})

const apart: readonly (readonly [string, Wired, RegExp] | readonly [string, Wired, RegExp, number])[] = [
  [
    'keys alone are appended to',
    parts => {
      const { k } = appended(parts)
      return { k, y: any(parts.q).pipe(attention(k, any(parts.v))) }
    },
    /not both its keys and its values are appended to/,
  ],
  [
    'positions differ',
    parts => {
      const { k } = appended(parts)
      const v = any(parts.v).pipe(append(any(parts.rows), { axis: 1, at: any(parts.at).pipe(mul(1)) }))
      return { k, v, y: any(parts.q).pipe(attention(k, v)) }
    },
    /another number of rows, or another position/,
  ],
  [
    'many queries share the keys',
    parts => {
      const { k, v } = appended(parts)
      return { k, v, y: any(parts.q).pipe(attention(k, v)) }
    },
    /only where few queries share keys/,
    64,
  ],
  [
    'an order is asked for',
    parts => {
      const { k, v } = appended(parts)
      const y = any(parts.q).pipe(attention(k, v))
      return { k, v, y, z: any(parts.rows).pipe(mul(2), after(y), download()) }
    },
    /after\(\) orders one of them/,
  ],
  [
    'the lanes differ',
    parts => {
      const { k, v } = appended({
        ...parts,
        k: any(parts.k).pipe(on(lane('cache'))),
        v: any(parts.v).pipe(on(lane('cache'))),
      })
      return { k, v, y: any(parts.q).pipe(on(lane('math')), attention(k, v)) }
    },
    /another lane/,
  ],
  [
    'something reads the keys before',
    parts => {
      const { k, v } = appended(parts)
      const z = any(k).pipe(mul(2), download())
      return { k, v, y: any(parts.q).pipe(attention(k, v)), z }
    },
    /reads or writes the value/,
  ],
  [
    'the next position is made in between, in its memory',
    parts => {
      const { k, v } = appended(parts)
      return { k, v, y: any(parts.q).pipe(attention(k, v, { length: any(parts.at).pipe(add(1)) })) }
    },
    /changes the rows or their position/,
  ],
]
it.each(apart)('%s', (_, wire, reason, queries = 1) => {
  const says = saysOf(wire, queries)
  expect(says.length).toBeGreaterThan(0)
  for (const line of says) expect(line).toMatch(reason)
})
