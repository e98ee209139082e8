// What a plan may say of a convolution: nothing that reads or writes outside of its buffers, however large
// its numbers are.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { expect, test } from 'vitest'
import { compile, conv, download, graph, orThrow, tensor, upload } from '../../../dsl/index.js'
import type { ConvDim, ConvSpec } from '../../../dsl/ir/kernel-spec.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { toJSON } from '../../../dsl/ir/text.js'
import { runs } from '../../fixtures/runs.js'
import { placesOf } from '../../oracle/conv.js'

const made = graph({ x: tensor('f16', [2, 6, 9, 8]), w: tensor('f16', [4, 3, 3, 2]) }, flows => ({
  y: flows.x.pipe(
    upload(),
    conv(flows.w.pipe(upload()), { groups: 2, stride: [2, 1], padding: [1, 2], dilation: [1, 3] }),
    download(),
  ),
}))
const plan = orThrow(compile(made))
const node = plan.nodes.findIndex(({ kernel }) => kernel?.kind === 'conv')
const spec = plan.nodes[node]!.kernel as ConvSpec
/** Elements of x, of w and of y. */
const held = [2 * 6 * 9 * 8, 4 * 3 * 3 * 2, 2 * 4 * 5 * 9]

const tagsOf = (kernel: unknown): string[] => {
  const { nodes, ...rest } = JSON.parse(toJSON(plan)) as Plan
  const parsed = parsePlan({ ...rest, nodes: nodes.map((one, i) => (i === node ? { ...one, kernel } : one)) })
  return E.isLeft(parsed) ? parsed.left.map(({ _tag }) => _tag) : []
}
const withDim = (d: number, change: Partial<Record<keyof ConvDim, unknown>>) => ({
  ...spec,
  spatial: spec.spatial.map((dim, i) => (i === d ? { ...dim, ...change } : dim)),
})

test('a plan of compile says what the program said', () => {
  expect(spec).toEqual({
    kind: 'conv',
    batch: 2,
    groups: 2,
    channels: 3,
    filters: 2,
    dtype: 'f16',
    spatial: [
      { input: 9, kernel: 3, stride: 2, dilation: 1, before: 1, after: 1 },
      { input: 8, kernel: 2, stride: 1, dilation: 3, before: 2, after: 2 },
    ],
  })
  expect(tagsOf(spec)).toEqual([])
  expect(orThrow(parsePlan(toJSON(plan))).nodes[node]!.kernel).toEqual(spec)
})

test('numbers that make no convolution are faults', () => {
  for (const key of ['input', 'kernel', 'stride', 'dilation', 'before', 'after'] as const) {
    for (const value of [-1, 0.5, 2 ** 53, '1', null, undefined])
      expect([key, value, tagsOf(withDim(0, { [key]: value }))]).not.toEqual([key, value, []])
    if (key !== 'before' && key !== 'after') expect(tagsOf(withDim(0, { [key]: 0 }))).not.toEqual([])
  }
  expect(tagsOf(withDim(0, { kernel: 12 }))).toContain('BadKernel')
  expect(tagsOf(withDim(1, { dilation: 12 }))).toContain('BadKernel')
  expect(tagsOf(withDim(1, { kernel: 2 ** 53 - 1, dilation: 2 ** 53 - 1 }))).toContain('BadKernel')
  // Of one place, wherever the padding ends: 2^53 elements all the same.
  expect(tagsOf(withDim(0, { before: 2 ** 53 - 1 }))).toContain('BadKernel')
  expect(tagsOf(withDim(0, { before: 2 ** 52, stride: 2 ** 53 - 1 }))).toContain('BadKernel')
  for (const key of ['batch', 'groups', 'channels', 'filters'] as const)
    for (const value of [0, -1, 1.5, 2 ** 53])
      expect([key, value, tagsOf({ ...spec, [key]: value })]).not.toEqual([key, value, []])
  for (const channelsLast of [false, 1, 'last', null])
    expect([channelsLast, tagsOf({ ...spec, channelsLast })]).not.toEqual([channelsLast, []])
  expect(tagsOf({ ...spec, channelsLast: true })).toEqual([])
  for (const dtype of ['i32', 'u8', 'f64']) expect(tagsOf({ ...spec, dtype })).not.toEqual([])
  expect(tagsOf({ ...spec, spatial: [] })).not.toEqual([])
  expect(tagsOf({ ...spec, spatial: [...spec.spatial, ...spec.spatial] })).not.toEqual([])
})

test('more elements than the buffers hold are faults', () => {
  for (const key of ['batch', 'groups', 'channels', 'filters'] as const)
    for (const value of [3 * spec[key], 2 ** 26, 2 ** 44])
      expect([key, value, tagsOf({ ...spec, [key]: value })]).toEqual([
        key,
        value,
        expect.arrayContaining(['Extent']),
      ])
  expect(tagsOf({ ...spec, dtype: 'f32' })).toContain('Extent')
  expect(tagsOf(withDim(0, { after: 3 }))).toContain('Extent')
  expect(tagsOf(withDim(1, { stride: 2, before: 40 }))).toContain('Extent')
  expect(tagsOf(withDim(0, { kernel: 4, after: 3 }))).toContain('Extent')
})

test('what is accepted stays inside of its buffers', () => {
  const small = (least: number, most: number) => fc.integer({ min: least, max: most })
  const dim = fc.record({
    input: small(1, 10),
    kernel: small(1, 4),
    stride: small(1, 3),
    dilation: small(1, 3),
    before: small(0, 3),
    after: small(0, 3),
  })
  let accepted = 0
  fc.assert(
    fc.property(
      fc.record({ batch: small(1, 3), groups: small(1, 3), channels: small(1, 4), filters: small(1, 3) }),
      fc.array(dim, { minLength: 1, maxLength: 3 }),
      (sizes, spatial) => {
        const found = tagsOf({ kind: 'conv', dtype: 'f16', ...sizes, spatial })
        const { batch, groups, channels, filters } = sizes
        const places = placesOf({
          ...sizes,
          last: false,
          size: spatial.map(({ input }) => input),
          kernel: spatial.map(({ kernel }) => kernel),
          stride: spatial.map(({ stride }) => stride),
          dilation: spatial.map(({ dilation }) => dilation),
          pad: spatial.map(({ before, after }) => [before, after] as const),
        })
        const count = (list: readonly number[], from: number) => list.reduce((n, size) => n * size, from)
        const needs = [
          count(
            spatial.map(({ input }) => input),
            batch * groups * channels,
          ),
          count(
            spatial.map(({ kernel }) => kernel),
            groups * filters * channels,
          ),
          count(places, batch * groups * filters),
        ]
        const fits = needs.every((n, i) => n <= held[i]!) && places.every(n => n > 0)
        const wrong = found.filter(tag => tag !== 'Unwritten')
        expect([wrong.length === 0, needs, places]).toEqual([fits, needs, places])
        if (fits) expect(found.includes('Unwritten')).toBe(needs[2]! < held[2]!)
        accepted += fits ? 1 : 0
      },
    ),
    { numRuns: runs(600) },
  )
  expect(accepted).toBeGreaterThan(20)
})
