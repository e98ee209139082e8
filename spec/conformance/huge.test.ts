// Tensors of more than 2^31 elements: every index of a kernel beyond what an i32 holds.
import { describe, expect, it } from 'vitest'
import {
  add,
  cast,
  concat,
  download,
  embedding,
  type Graph,
  graph,
  keep,
  matmul,
  max,
  param,
  reshape,
  slice,
  sum,
  tensor,
  transpose,
} from '../../dsl/index.js'
import { numbers } from '../../dsl/language/values.js'
import { devices } from '../../runtime/index.js'
import { opened, present } from './devices.js'
import { outputsOf } from './meant.js'

const rows = 32_769
const columns = 65_537
const total = rows * columns
const near = 2 ** 31 - 4

// The host device has 4 GiB, and its kernels would take minutes.
const large = present.find(
  name => name !== 'host' && devices().some(({ device, freeBytes }) => device === name && freeBytes > 40e9),
)

const row = Uint8Array.from({ length: rows }, (_, i) => (i * 31) % 97)
const column = Uint8Array.from({ length: columns }, (_, j) => (j * 17) % 131)
const meant = (i: number, j: number): number => row[i]! + column[j]!

const body = graph('huge', {}, () => {
  const y = param('row', tensor('u8', [rows, 1])).pipe(add(param('column', tensor('u8', [columns]))), keep())
  const last = param('last', tensor('i32', [3]))
  return {
    sums: y.pipe(sum({ axis: 1 }), download()),
    most: y.pipe(max({ axis: 0 }), download()),
    ends: y.pipe(slice(0, rows - 2, rows), download()),
    middle: y.pipe(reshape([total]), slice(0, near, near + 8), download()),
    gathered: last.pipe(embedding(y), slice(1, columns - 3, columns), download()),
    turned: y.pipe(transpose([1, 0]), keep(), slice(0, columns - 1, columns), download()),
    twice: y.pipe(concat([y], { axis: 0 }), slice(0, 2 * rows - 1, 2 * rows), download()),
    product: y.pipe(cast('bf16'), matmul(param('ones', tensor('bf16', [columns, 8]))), download()),
  }
}) as unknown as Graph

describe.skipIf(large === undefined)(`2^31 elements on ${large ?? 'cuda:0'}`, () => {
  it.each(['eager', 'graph'] as const)('are what they mean, mode %s', { timeout: 120_000 }, async mode => {
    const params = {
      row,
      column,
      last: Int32Array.from([rows - 1, 0, rows - 2]),
      ones: new Uint16Array(columns * 8).fill(0x3f80),
    }
    await using session = await opened(body as never, large!, { compile: { mode }, params: params as never })
    const [got] = await outputsOf(session as never, { feeds: {}, ticks: 1 })
    const { sums, most, ends, middle, gathered, turned, twice, product } = got!
    const all = column.reduce((sum, value) => sum + value, 0)
    expect(sums).toEqual(Int32Array.from(row, value => value * columns + all))
    expect(most).toEqual(column.map(value => value + 96))
    const lastRow = column.map((_, j) => meant(rows - 1, j))
    expect(ends!.slice(columns)).toEqual(lastRow)
    expect(ends!.slice(0, columns)).toEqual(column.map((_, j) => meant(rows - 2, j)))
    expect([...middle!]).toEqual(
      Array.from({ length: 8 }, (_, e) => meant(Math.floor((near + e) / columns), (near + e) % columns)),
    )
    expect([...gathered!]).toEqual(
      [rows - 1, 0, rows - 2].flatMap(i => [3, 2, 1].map(before => meant(i, columns - before))),
    )
    expect(turned).toEqual(row.map((_, i) => meant(i, columns - 1)))
    expect(twice).toEqual(lastRow)
    const products = numbers(product!, 'bf16')
    for (const i of [0, 1, 16_000, rows - 1])
      expect(Math.abs(products[8 * i + 7]! / (row[i]! * columns + all) - 1)).toBeLessThan(2 ** -7)
  })
})
