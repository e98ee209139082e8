// The pass `fuse`: which gathers are part of the kernels that read them, and what those kernels read.
import fc from 'fast-check'
import { lastValueFrom } from 'rxjs'
import { describe, expect, test } from 'vitest'
import {
  type AnyTensor,
  add,
  cast,
  compile,
  cumsum,
  type DeviceFlow,
  download,
  embedding,
  type Graph,
  gather,
  gelu,
  graph,
  interpret,
  keep,
  lane,
  layerNorm,
  linear,
  mul,
  neg,
  on,
  orThrow,
  type Plan,
  param,
  relu,
  slice,
  sum,
  takeAlong,
  tensor,
  transpose,
  upload,
} from '../../../dsl/index.js'
import type { MapSpec } from '../../../dsl/ir/kernel-spec.js'
import { runMap } from '../../../dsl/language/operators/map-reference.js'
import type { HostArray } from '../../../dsl/language/values.js'
import { verify } from '../../../dsl/verify/verify.js'
import { indexed, indexedSample } from '../../fixtures/graphs/indexed.js'
import { runs } from '../../fixtures/runs.js'

const kernels = ({ nodes }: Plan) =>
  nodes.filter(({ kernel }) => kernel !== undefined && kernel.kind !== 'copy')
const opsOf = (plan: Plan) => kernels(plan).map(({ op }) => op)
const fused = (made: unknown, options: object = {}): Plan =>
  orThrow(compile(made as Graph, { fuse: true, ...options })) as Plan

const tokens = tensor('i32', [4, 16])
const words = tensor('bf16', [100, 64])
const table = () => param('table', words)
type Tokens = DeviceFlow<typeof tokens>

const planOf = (body: (at: Tokens) => DeviceFlow<AnyTensor>): Plan =>
  fused(graph({ at: tokens }, ({ at }) => ({ y: body(at.pipe(upload())).pipe(download()) })))

describe('fuse', () => {
  test.each<[string, (at: Tokens) => DeviceFlow<AnyTensor>, number]>([
    ['an embedding and what reads it', at => at.pipe(embedding(table()), mul(8)), 1],
    ['an embedding and its norm', at => at.pipe(embedding(table()), layerNorm()), 1],
    [
      'tokens and positions',
      at => {
        const rows = table()
        return at.pipe(embedding(rows), add(param('places', tensor('i32', [16])).pipe(embedding(rows))))
      },
      1,
    ],
    ['a slice of a table', at => at.pipe(embedding(table().pipe(slice(0, 3, 90))), relu()), 1],
    ['an embedding that is transposed', at => at.pipe(embedding(table()), transpose([2, 0, 1]), neg()), 1],
    ['columns', at => table().pipe(gather(at, { axis: 1 }), mul(2)), 1],
    ['elements', at => at.pipe(takeAlong(at, { axis: 1 }), mul(2), sum(1)), 1],
    ['rows of rows', at => at.pipe(embedding(table()), gather(at, { axis: 0 }), mul(2)), 2],
    ['a table that is computed', at => at.pipe(embedding(table().pipe(mul(2))), mul(2)), 2],
    ['indices that are computed', at => at.pipe(add(1), embedding(table()), mul(2)), 2],
  ])('makes a gather part of the kernel that reads it: %s', (_, body, count) => {
    const plan = planOf(body)
    expect(verify(plan)).toEqual([])
    expect(kernels(plan)).toHaveLength(count)
    expect(kernels(plan).at(-1)!.kernel).toMatchObject({ kind: 'map' })
  })

  test.each<[string, (at: Tokens) => DeviceFlow<AnyTensor>, readonly string[]]>([
    ['that nothing but an output reads', at => at.pipe(embedding(table())), ['gather']],
    ['that keep() names', at => at.pipe(embedding(table()), keep(), mul(2)), ['gather', 'mul']],
    ['of another lane', at => at.pipe(embedding(table()), on(lane('other')), mul(2)), ['gather', 'mul']],
    ['that a scan reads', at => at.pipe(embedding(table()), cumsum({ axis: 0 })), ['gather', 'cumsum']],
    [
      'of whole numbers that are cast',
      at => at.pipe(embedding(param('ids', tensor('i32', [100, 64]))), cast('f32')),
      ['gather', 'cast'],
    ],
    [
      'that a product reads',
      // One row of a table, which is no copy of the first one.
      () =>
        param('at', tensor('i32', [2])).pipe(
          slice(0, 0, 1),
          embedding(table()),
          linear(param('w', tensor('bf16', [8, 64]))),
        ),
      ['gather', 'matmul'],
    ],
    [
      'of a product, which is no epilogue of it',
      () => {
        const x = param('x', tensor('bf16', [1, 64])).pipe(linear(param('w', tensor('bf16', [64, 64]))))
        return x.pipe(gather(param('at', tensor('i32', [1])), { axis: 0 }), gelu())
      },
      ['matmul', 'fused'],
    ],
  ])('leaves a gather alone %s', (_, body, ops) => {
    const plan = planOf(body)
    expect(opsOf(plan)).toEqual(ops)
    expect(verify(plan)).toEqual([])
  })

  test('reads by plain indices that are read as values too', () => {
    const plan = planOf(at => at.pipe(takeAlong(at, { axis: 1 }), add(at)))
    const { operands, code } = kernels(plan)[0]!.kernel as MapSpec
    const by = operands.findIndex(({ indexed }) => indexed === undefined)
    expect(operands).toHaveLength(2)
    expect(operands[1 - by]!.indexed).toEqual({ by, length: 16, step: 1 })
    expect(code.filter(([op]) => op === 'operand')).toHaveLength(2)
  })

  test('never takes a result of the kernel itself for a table or for indices', () => {
    // Both kernels read x, and the first one computes what the other one gathers from or by, at the same
    // points.
    for (const isTable of [true, false]) {
      const made = graph({ at: tensor('i32', [16]) }, ({ at }) => {
        const x = at.pipe(upload())
        const next = x.pipe(add(1))
        const other = param('other', tensor('i32', [16]))
        const taken = isTable ? next.pipe(gather(other, { axis: 0 })) : other.pipe(gather(next, { axis: 0 }))
        const y = taken.pipe(mul(3), add(x))
        return { next: next.pipe(download()), y: y.pipe(download()) }
      })
      const plan = fused(made)
      expect(verify(plan)).toEqual([])
      expect(opsOf(plan)).toEqual(['add', 'fused'])
    }
  })

  test('counts the rows that are read of a table, not all of it', () => {
    const bytesOf = (count: number): number => {
      const made = graph({ at: tensor('i32', [count]) }, ({ at }) => ({
        y: at.pipe(upload(), embedding(table()), mul(2), download()),
      }))
      return kernels(fused(made))[0]!.movedBytes!
    }
    const row = 64 * 2
    expect(bytesOf(10)).toBe(10 * row + 10 * 4 + 10 * row)
    expect(bytesOf(1000)).toBe(100 * row + 1000 * 4 + 1000 * row)
  })

  test('holds no memory for what is gathered', () => {
    const made = graph({ at: tokens }, ({ at }) => ({
      y: at.pipe(upload(), embedding(table()), mul(2), download()),
    }))
    const held = [false, true].map(fuse => {
      const { buffers } = orThrow(compile(made, { fuse })) as Plan
      return buffers.filter(({ life, bytes }) => life === 'tick' && bytes === 4 * 16 * 64 * 2).length
    })
    expect(held).toEqual([2, 1])
  })

  test('means what a gather apart means', async () => {
    await fc.assert(
      fc.asyncProperty(indexed, async drawn => {
        const { graph: made, params, feeds } = indexedSample({ ...drawn, leaves: false })
        const plan = fused(made)
        fc.pre(kernels(plan).length === 1)
        const [{ id, kernel }] = kernels(plan) as [Plan['nodes'][number]]
        fc.pre(kernel?.kind === 'map')
        const run = plan.commands.find(([what, node]) => what === 'run' && node === id)!
        const reads = (run[3] as readonly number[]).map(buffer => {
          const { alias = buffer, aliasOffset = 0, bytes } = plan.buffers[buffer]!
          const whole = params[plan.buffers[alias]!.name] ?? feeds['at']![0]!
          const size = whole.BYTES_PER_ELEMENT
          return whole.subarray(aliasOffset / size, (aliasOffset + bytes) / size) as HostArray
        })
        const [y] = runMap(kernel as MapSpec, reads)
        const ticks = interpret(made, { params } as never)({ at: [feeds['at']![0]!] } as never)
        const meant = ((await lastValueFrom(ticks)) as { readonly y: HostArray }).y
        // Rows and sums are rounded in another order.
        if (drawn.then === 'elements' || drawn.then === 'turned') expect(y).toEqual(meant)
        else expect(y!.length).toBe(meant.length)
      }),
      { numRuns: runs(80) },
    )
  })
})
