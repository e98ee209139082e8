// The JSON Schema in spec/ and the loader state one format: they accept the same files.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  add,
  append,
  argmax,
  attention,
  compile,
  concat,
  conv,
  cumsum,
  download,
  embedding,
  every,
  gather,
  gelu,
  gradients,
  graph,
  kernel,
  matmul,
  mul,
  orThrow,
  pad,
  param,
  reshape,
  scatterAdd,
  slice,
  state,
  sum,
  tensor,
  topK,
  upload,
  window,
} from '../../../dsl/index.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import type { PlanFault } from '../../../dsl/ir/reader.js'
import { toJSON } from '../../../dsl/ir/text.js'
import {
  singleLane,
  twoLanes,
  weightStreaming,
  withCollectives,
  withKernels,
} from '../../fixtures/plans/by-hand.js'
import { conforms, edited, fieldNames, type Holder, type Path, places } from '../../fixtures/plans/fields.js'
import { often, runs } from '../../fixtures/runs.js'

// With inputs and outputs of a rate, and a copy of several sources.
const rates = orThrow(
  compile(
    graph({ x: tensor('f32', [2]) }, ({ x }) => ({
      y: x.pipe(every(2), window(2), upload(), download()),
      z: x.pipe(every(2), upload(), download()),
    })),
  ),
)
// Two graphs, and a kernel that is in none.
const launches = kernel({
  name: 'launches',
  cuda: 'extern "C" __global__ void launches(const float* x, float* y) { y[0] = x[0]; }',
  reads: { x: tensor('f32', [2]) },
  writes: { y: tensor('f32', [2]) },
  launch: { grid: 1, block: 1 },
  reference: ({ x }, { y }) => y.set(x),
  graph: false,
})
const graphs = orThrow(
  compile(
    graph({ x: tensor('f32', [2]) }, ({ x }) => ({
      y: launches({ x: x.pipe(upload()) }).y.pipe(download()),
    })),
    { mode: 'graph' },
  ),
)
// Kernels of every other kind, with and without the fields that may be absent.
const kinds = orThrow(
  compile(
    graph({ x: tensor('f32', [3, 4]) }, ({ x }) => {
      const at = x.pipe(upload())
      const { values, indices } = at.pipe(topK({ k: 2 }))
      const heads = at.pipe(reshape([1, 3, 4]))
      const mask = heads.pipe(argmax({ axis: 2 }), reshape([1, 1, 3]))
      const length = indices.pipe(argmax({ axis: 0 }), argmax({ axis: 0 }))
      const joined = at.pipe(pad({ axis: 1, after: 1, value: Number.NEGATIVE_INFINITY }), cumsum({ axis: 0 }))
      return {
        y: joined.pipe(concat([values], { axis: 1 }), download()),
        grown: at.pipe(
          append(at.pipe(slice(0, 0, 2)), {
            axis: 0,
            at: indices.pipe(slice(0, 0, 1), slice(1, 0, 1), reshape([1])),
          }),
          download(),
        ),
        z: at.pipe(gather(indices, { axis: 0 }), argmax({ axis: 1 }), download()),
        c: heads.pipe(conv(heads.pipe(reshape([2, 3, 2])), { stride: 2, padding: 1 }), download()),
        s: at.pipe(scatterAdd(at.pipe(argmax({ axis: 1 })), { axis: 0, size: 5 }), download()),
        l: heads.pipe(conv(heads.pipe(reshape([1, 3, 4])), { channels: 'last' }), download()),
        a: heads.pipe(attention(heads, heads, { causal: true, mask, length }), download()),
      }
    }),
  ),
)
// Products with epilogues; their operands are on the device already, so that no upload decides what is fused.
const products = orThrow(
  compile(
    graph({ x: tensor('bf16', [3, 4]) }, flows => {
      const [x, w, b] = [
        flows.x.pipe(upload()),
        param('w', tensor('bf16', [4, 3])),
        param('b', tensor('bf16', [3])),
      ]
      const [s, r] = [param('s', tensor('bf16', [3, 3])), param('r', tensor('bf16', [3, 3]))]
      const y = x.pipe(matmul(w), mul(2), add(b), gelu({ approximate: 'tanh' }))
      return { y: y.pipe(matmul(s), add(r), download()) }
    }),
    { fuse: true },
  ),
)
// Kernels that offer scratch to a library.
const scratched = orThrow(
  compile(
    graph({ x: tensor('bf16', [1, 64, 1024]), w: tensor('bf16', [64, 64, 129]) }, flows => {
      const x = flows.x.pipe(upload())
      const heads = x.pipe(reshape([4, 256, 64]))
      return {
        a: heads.pipe(attention(heads, heads, { causal: true }), download()),
        c: x.pipe(conv(flows.w.pipe(upload()), { padding: 'same' }), download()),
      }
    }),
  ),
)
// Attention that appends to what it reads.
const appends = orThrow(
  compile(
    graph({ x: tensor('f32', [2, 1, 4]), at: tensor('i32', []) }, flows => {
      const cache = state({ keys: tensor('f32', [2, 8, 4]), values: tensor('f32', [2, 8, 4]) })
      const [x, at] = [flows.x.pipe(upload()), flows.at.pipe(upload())]
      const keys = cache.keys.pipe(append(x, { axis: 1, at }))
      const values = cache.values.pipe(append(x, { axis: 1, at }))
      cache.next({ keys, values })
      return { y: x.pipe(attention(keys, values, { length: at }), download()) }
    }),
    { fuse: true },
  ),
)
// Attention and its gradients, with a second result and without.
const ways = [true, false].map(fuse =>
  orThrow(
    compile(
      graph({ x: tensor('f32', [2, 3, 4]) }, flows => {
        const x = flows.x.pipe(upload())
        const [q, k, v] = [x.pipe(mul(2)), x.pipe(mul(3)), x.pipe(mul(4))]
        const by = gradients(q.pipe(attention(k, v, { causal: true }), sum()), { q, k, v })
        return { q: by.q.pipe(download()), k: by.k.pipe(download()), v: by.v.pipe(download()) }
      }),
      { fuse },
    ),
  ),
)
// A kernel that reads rows of a table.
const rows = orThrow(
  compile(
    graph({ at: tensor('i32', [3]) }, ({ at }) => ({
      y: at.pipe(upload(), embedding(param('table', tensor('f32', [5, 4]))), mul(2), download()),
    })),
    { fuse: true },
  ),
)
// A kernel whose rows lie side by side.
const columns = orThrow(
  compile(
    graph({ x: tensor('f32', [8, 16]) }, ({ x }) => ({
      y: x.pipe(upload(), mul(2), sum({ axis: 0 }), download()),
    })),
    { fuse: true },
  ),
)
// Values without elements of every life.
const empty = orThrow(
  compile(
    graph({ x: tensor('f32', [0, 4]), y: tensor('f32', [4]) }, flows => {
      const s = state({ acc: tensor('f32', [0, 4]) }, { acc: [] })
      const acc = s.acc.pipe(add(flows.x.pipe(upload())), add(param('p', tensor('f32', [0, 4]))))
      s.next({ acc })
      return { acc: acc.pipe(download()), acc2: acc, y: flows.y.pipe(upload(), mul(2), download()) }
    }),
  ),
)
const plans = [
  empty,
  rows,
  columns,
  ...ways,
  appends,
  scratched,
  products,
  singleLane,
  twoLanes,
  weightStreaming,
  withKernels,
  withCollectives,
  rates,
  graphs,
  kinds,
]
const bases = plans.map(plan => JSON.parse(toJSON(plan)) as object)

test('a plan is written with every field of the schema', () => {
  const all = Object.fromEntries(fieldNames.map(name => [name, 0]))
  const written = JSON.parse(toJSON({ ...all, ...singleLane, nodes: [all] } as never)) as Plan
  expect(fieldNames.length).toBeGreaterThan(100)
  expect(fieldNames.filter(name => !(name in written.nodes[0]!) && !(name in written))).toEqual([])
})

test('know every field of every kernel: what was written is read', () => {
  for (const plan of plans)
    expect(orThrow(parsePlan(toJSON(plan))).nodes.map(({ kernel }) => kernel)).toEqual(
      plan.nodes.map(({ kernel }) => kernel),
    )
  const tables = rows.nodes.flatMap(({ kernel }) => (kernel?.kind === 'map' ? kernel.operands : []))
  expect(tables.filter(({ indexed }) => indexed).length).toBe(1)
  expect(columns.nodes.filter(({ kernel }) => kernel?.kind === 'map' && kernel.axis === 0).length).toBe(1)
  expect(appends.nodes.some(({ kernel }) => kernel?.kind === 'attention' && kernel.appended === 1)).toBe(true)
  const attended = ways.map(({ nodes }) =>
    nodes.flatMap(({ kernel }) => (kernel?.kind === 'attention' ? [kernel.result ?? 'attended'] : [])),
  )
  expect(attended.map(results => [...results].sort())).toEqual([
    ['attended', 'byKeys', 'byQueries'],
    ['attended', 'byKeys', 'byQueries', 'byValues', 'logSumExp'],
  ])
  expect(products.nodes.filter(({ kernel }) => kernel?.kind === 'matmul' && kernel.epilogue).length).toBe(2)
  const scratch = scratched.nodes.flatMap(({ kernel }) =>
    kernel?.kind === 'attention' || kernel?.kind === 'conv' ? [kernel.workspace] : [],
  )
  expect(scratch).toEqual([256, 2 * (2 * 64 * 1024 + 64 * 64 * 129) + 4096])
})

const sites = bases.flatMap(base => places(base).flatMap(path => (path.length === 0 ? [] : [{ base, path }])))

/**
 * JSON values for a field: some of the right type and out of range, some at the limits, some of another type.
 */
const wrong: readonly unknown[] = [
  null,
  true,
  false,
  -1,
  0,
  1,
  0.5,
  2,
  3,
  63,
  64,
  65,
  1000,
  1001,
  -1001,
  1024,
  1025,
  4096,
  2 ** 22 - 1,
  2 ** 22,
  2 ** 31,
  2 ** 53 - 1,
  2 ** 53,
  1e300,
  '',
  'run',
  'free',
  'wait',
  'NaN',
  'Infinity',
  'f16',
  'u8',
  'i32',
  'f64',
  'tick',
  'state',
  'param',
  'pinned',
  'planned',
  'pooled',
  'copy',
  'map',
  'cuda',
  'x'.repeat(4096),
  'x'.repeat(4097),
  [],
  [0],
  [-1],
  [1, 1, 1],
  [0, 0, 0],
  {},
  { kind: 'copy', bytes: 4 },
  { i32: 1 },
  { f32: 'NaN' },
]

type Edit = { readonly kind: 'drop' | 'set' | 'extra' | 'push'; readonly value: unknown }

const edits: fc.Arbitrary<Edit> = fc.record({
  kind: fc.constantFrom('drop', 'set', 'set', 'set', 'set', 'extra', 'push'),
  value: fc.constantFrom(...wrong),
})

const applied = (base: object, path: Path, { kind, value }: Edit): unknown =>
  edited(base, path, (holder, last) => {
    const inner = holder[last]
    if (kind === 'drop') {
      if (Array.isArray(holder)) holder.splice(last as number, 1)
      else delete holder[last]
    } else if (kind === 'set') holder[last] = value
    else if (kind === 'push' && Array.isArray(inner)) inner.push(value)
    else if (typeof inner === 'object' && inner !== null && !Array.isArray(inner))
      (inner as Holder)['unheardOf'] = value
  })

/**
 * The checks that only the loader can make, since they relate one field to others: ids against the lists that
 * they index, views against their roots, what a run writes against what it reads, sizes against shapes and
 * types, names of ports, kernels against the buffers that they run on, one size for each device, offsets
 * where storage is planned, rows that attention appends against its sizes, the kernel of a convolution against its padded input, and that against memory, an indexed operand
 * against the one that has its indices, the results of a batch against one another, and rows, with their
 * dimension, against the shape.
 */
const deep = (fault: PlanFault): boolean =>
  fault._tag === 'UnknownId' ||
  fault._tag === 'BadAlias' ||
  fault._tag === 'Extent' ||
  fault._tag === 'Unwritten' ||
  fault._tag === 'Overwrite' ||
  fault._tag === 'DuplicateName' ||
  (fault._tag === 'BadKernel' &&
    /\.(strides|batchStride|parts|count|groups|appended|kernel|spatial|indexed|axis|results\[\d+\])$/.test(
      fault.at,
    )) ||
  (fault._tag === 'BadKernel' && fault.at.endsWith('.shape') && fault.found === 'none') ||
  (fault._tag === 'OutOfRange' &&
    /^plan\.(bound\.device|arena|buffers)$|\.init$|^buffers\[\d+\]\.(rate|shape)$/.test(fault.at)) ||
  (fault._tag === 'OutOfRange' && fault.wanted.startsWith('a multiple of')) ||
  (fault._tag === 'OutOfRange' && /^graphs\[\d+\]\.(from|to)$/.test(fault.at)) ||
  (fault._tag === 'Missing' && /^buffers\[\d+\]\.offset$/.test(fault.at))

describe('the schema and the loader', () => {
  test('answer alike to one wrong field, wherever it is', () => {
    let rejected = 0
    let accepted = 0
    fc.assert(
      fc.property(fc.constantFrom(...sites), edits, ({ base, path }, edit) => {
        const value = applied(base, path, edit)
        const parsed = parsePlan(value)
        const faults = E.isLeft(parsed) ? parsed.left : []
        const schema = conforms(value)
        const text = JSON.stringify({ path, edit, faults, errors: conforms.errors?.slice(-3) })
        if (faults.length === 0) {
          accepted++
          expect(schema, text).toBe(true)
        } else if (!faults.every(deep)) {
          rejected++
          expect(schema, text).toBe(false)
        }
      }),
      { numRuns: runs(4000) },
    )
    expect(rejected).toBeGreaterThan(often(1000))
    expect(accepted).toBeGreaterThan(often(300))
  })
})
