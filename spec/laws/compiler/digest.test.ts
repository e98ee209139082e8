// What the passes between the graph and the plan make of a few large graphs, to the byte: they may be made
// faster, not different. Lanes and order are as written, so that the digests say nothing of how those are
// chosen.
import { createHash } from 'node:crypto'
import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { describe, expect, test } from 'vitest'
import type { Lowered, Ordered } from '../../../dsl/compiler/analysis/ir.js'
import { bound } from '../../../dsl/compiler/passes/bound.js'
import { check } from '../../../dsl/compiler/passes/check.js'
import { draft, emit } from '../../../dsl/compiler/passes/emit.js'
import { lifetimes } from '../../../dsl/compiler/passes/lifetimes.js'
import { lower } from '../../../dsl/compiler/passes/lower.js'
import { rates } from '../../../dsl/compiler/passes/rates.js'
import { simplify } from '../../../dsl/compiler/passes/simplify.js'
import { synchronize } from '../../../dsl/compiler/passes/synchronize.js'
import {
  abs,
  add,
  delay,
  download,
  type Flow,
  graph,
  kernel,
  lane,
  on,
  relu,
  slice,
  type Tensor,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { GraphIR } from '../../../dsl/ir/graph.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { generated } from '../../fixtures/graphs/generated.js'
import { graphOf, tasksOf } from '../../fixtures/graphs/of-tasks.js'

const digestOf = (rows: readonly unknown[]): string => {
  const hash = createHash('sha256')
  for (const row of rows) hash.update(JSON.stringify(row))
  return hash.digest('hex').slice(0, 16)
}

const rowsOf = ({ operations, buffers }: Lowered): unknown[] => [
  ...operations.map(
    ({ op, name, kernel, flops, movedBytes, reads, writes, after, kind, lane, workspace, tolerance }) => [
      [op, name, kernel ?? null, flops, movedBytes, reads, writes],
      [[...new Set(after)].sort((a, b) => a - b), kind, lane?.name ?? '', workspace, tolerance],
    ],
  ),
  ...buffers.map(({ name, bytes, space, life, root, offset, dtype, shape, init }) => [
    [name, bytes, space, life, root, offset, dtype, shape, init ?? null],
  ]),
]

const planRowsOf = ({ bound, lanes, buffers, nodes, commands, tolerance }: Plan): unknown[] => [
  [bound, lanes, tolerance],
  ...buffers.map(({ id, name, bytes, home, life, alias, aliasOffset }) => [
    [id, name, bytes, home, life, alias ?? -1, aliasOffset ?? -1],
  ]),
  ...nodes.map(({ id, op, name, kernel, flops, movedBytes }) => [
    id,
    op,
    name,
    kernel ?? null,
    flops,
    movedBytes,
  ]),
  ...commands,
]

/** Issued as the operations stand, each on the lane that the user gave it, else on one of its kind. */
const asWritten = (ir: Lowered): Ordered => {
  const names = ir.operations.map(({ lane, kind }) => lane?.name ?? kind)
  const lanes = [...new Set(names)]
  return {
    ...ir,
    lanes: lanes.map((name, id) => ({ id, name, device: 0, priority: 0 })),
    laneOf: Int32Array.from(names, name => lanes.indexOf(name)),
    windows: [],
    keep: true,
  }
}

const digestsOf = (ir: GraphIR, inFlight: number): readonly [string, string] => {
  const lowered = pipe(check({ inFlight })(ir), E.chain(simplify), E.chain(rates), E.chain(lower))
  if (E.isLeft(lowered)) throw new Error(JSON.stringify(lowered.left))
  const plan = pipe(
    synchronize(asWritten(lowered.right)),
    E.chain(lifetimes),
    E.chain(bound),
    E.map(draft),
    E.map(emit),
  )
  if (E.isLeft(plan)) throw new Error(JSON.stringify(plan.left))
  return [digestOf(rowsOf(lowered.right)), digestOf(planRowsOf(plan.right))]
}

const of = (family: 'cholesky' | 'layered', nodes: number, lanes: number) => (): GraphIR =>
  graphOf(family, tasksOf(family, nodes), lanes)

type Row = Tensor<'f32', readonly [1, 64]>

const inPlace = kernel({
  name: 'twice',
  cuda: 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }',
  reads: { x: tensor('f32', [1, 64]) },
  writes: { y: tensor('f32', [1, 64]) },
  donates: { y: 'x' },
  launch: { grid: 1, block: 64 },
  reference: ({ x }, { y }) =>
    void x.forEach((value, i) => {
      y[i] = 2 * value
    }),
})

/**
 * Rows of a batch through state, a view and a kernel that takes its read's memory, each on two lanes of
 * eight.
 */
const stateful = (rows: number): GraphIR => {
  const lanes = Array.from({ length: 8 }, (_, i) => lane(`lane${i}`))
  const { ir } = graph('stateful', { x: tensor('f32', [rows, 64]) }, ({ x }) => {
    const all = x.pipe(upload(lanes[0]!))
    return Object.fromEntries(
      Array.from({ length: rows }, (_, i) => {
        const here = lanes[i % 8]!
        const row = all.pipe(slice(0, i, i + 1), on(here), relu())
        const sum = row.pipe(on(lanes[(3 * i + 1) % 8]!), add(row.pipe(on(here), delay(i))))
        const doubled = inPlace({ x: sum.pipe(on(here), abs()) as Flow<'device', Row> }).y
        return [`y${i}`, doubled.pipe(download(lanes[i % 2]!))]
      }),
    )
  })
  return ir
}

const kept: readonly (readonly [string, () => GraphIR, number, string, string])[] = [
  ['cholesky of 2,600 tasks on 2 lanes', of('cholesky', 2_600, 2), 2, '30f571bbfb48553c', '4c723c32f9e7b1ff'],
  ['cholesky of 2,600 tasks on 8 lanes', of('cholesky', 2_600, 8), 2, '4e2fee869788f32a', '083ac66405e9170e'],
  [
    'cholesky of 2,600 tasks on 32 lanes, one tick in flight',
    of('cholesky', 2_600, 32),
    1,
    'dca454cf8f18147e',
    '0bfc9e38a7a5f5eb',
  ],
  ['layered, 4,000 tasks on 4 lanes', of('layered', 4_000, 4), 2, '96ee10008b9ae92b', '38ccdf342bcf5d12'],
  [
    'layered, 4,000 tasks on 8 lanes, three ticks in flight',
    of('layered', 4_000, 8),
    3,
    'dec6e12471aebcab',
    'dde8613d7aa7e507',
  ],
  ['layered, 4,000 tasks on 32 lanes', of('layered', 4_000, 32), 2, '5edef5e956bec965', 'e6e9ce203bcdc67c'],
  [
    'two operands each, 8,000 nodes on 4 lanes',
    () => generated({ shape: 'layered', nodes: 8_000, lanes: 4 }),
    2,
    '3d006d4de93ca4e9',
    '2f9857507bf1449d',
  ],
  [
    'chains, 8,000 nodes on 8 lanes',
    () => generated({ shape: 'chains', nodes: 8_000, lanes: 8 }),
    2,
    '5a3a2792cb5b1570',
    '57aa6a03399feb70',
  ],
  [
    'state, views and donation, 300 rows on 8 lanes',
    () => stateful(300),
    2,
    '1dc0abc1b2723be3',
    'e9fce1020f7edfdf',
  ],
]

describe('the passes make the same of', () => {
  for (const [name, ir, inFlight, lowered, plan] of kept)
    test(name, () => expect(digestsOf(ir(), inFlight)).toEqual([lowered, plan]))
})
