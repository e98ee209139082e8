import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  compile,
  download,
  embedding,
  graph,
  matmul,
  mul,
  orThrow,
  param,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { KernelSpec, MapSpec } from '../../../dsl/ir/kernel-spec.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import { resultElements } from '../../../dsl/ir/map-rows.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { toJSON } from '../../../dsl/ir/text.js'
import { verify } from '../../../dsl/verify/verify.js'
import {
  singleLane,
  twoLanes,
  weightStreaming,
  withCollectives,
  withKernels,
} from '../../fixtures/plans/by-hand.js'
import { conforms } from '../../fixtures/plans/fields.js'
import { plans } from '../../fixtures/plans/random.js'
import { runs } from '../../fixtures/runs.js'

const tags = (plan: unknown): string[] => {
  const parsed = parsePlan(plan)
  return E.isLeft(parsed) ? parsed.left.map(fault => `${fault._tag} ${fault.at}`) : []
}

describe('a plan survives its file', () => {
  const roundTrip = (plan: Plan): void => {
    const text = toJSON(plan)
    const parsed = parsePlan(text)
    expect(parsed).toEqual(E.right(plan))
    expect(toJSON((parsed as E.Right<Plan>).right)).toBe(text)
    expect(conforms(JSON.parse(text)), JSON.stringify(conforms.errors)).toBe(true)
  }

  test('those written by hand, infinities and the sign of zero included', () => {
    for (const plan of [singleLane, twoLanes, weightStreaming, withKernels]) roundTrip(plan)
    expect(verify(withKernels)).toEqual([])
  })

  test('those that are generated', () => {
    fc.assert(fc.property(plans(5), roundTrip), { numRuns: runs(40) })
  })

  test('whatever the order of its fields', () => {
    const reversed = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(reversed)
      if (typeof value !== 'object' || value === null) return value
      return Object.fromEntries(
        Object.entries(value)
          .reverse()
          .map(([key, inner]) => [key, reversed(inner)]),
      )
    }
    expect(toJSON(reversed(withKernels) as Plan)).toBe(toJSON(withKernels))
  })
})

describe('what the schema and the loader both reject', () => {
  const base = JSON.parse(toJSON(twoLanes)) as Record<string, unknown>
  const buffers = base.buffers as Record<string, unknown>[]
  const first = (change: Record<string, unknown>) => ({
    ...base,
    buffers: [{ ...buffers[0], ...change }, ...buffers.slice(1)],
  })
  const command = (words: unknown) => ({ ...base, commands: [words] })
  const malformed: Record<string, unknown> = {
    'another version': { ...base, plan: 2 },
    'a negative size': first({ bytes: -1 }),
    'a buffer of the tick without bytes': first({ bytes: 0, life: 'tick' }),
    'a view without bytes': first({ bytes: 0, life: 'input', alias: 1 }),
    'a fractional size': first({ bytes: 0.5 }),
    'a size as text': first({ bytes: '1024' }),
    'a size beyond 2^53': first({ bytes: 2 ** 60 }),
    'an unknown life': first({ life: 'forever' }),
    'an unknown space': first({ space: 'disk' }),
    'an unknown command': command(['jump', 0]),
    'a command that is too short': command(['alloc', 0]),
    'a command that is too long': command(['free', 0, 0]),
    'a wait of two ticks ago': command(['wait', 0, 0, -2]),
    'reads that are no list': command(['run', 0, 0, 0, []]),
    'a rate of what does not come': first({ life: 'tick', rate: 2 }),
    'a rate of none': first({ life: 'input', space: 'pinned', rate: 0 }),
    'an odd place in the arena': first({ offset: 8 }),
    'planned storage without an arena': { ...base, storage: 'planned' },
    'no ticks in flight': { ...base, inFlight: 0 },
    'lanes that are no list': { ...base, lanes: {} },
    'a null': null,
    'a list': [],
  }
  for (const key of Object.keys(base)) {
    const { [key]: _, ...rest } = base
    malformed[`no ${key}`] = rest
  }
  for (const [name, value] of Object.entries(malformed)) {
    test(name, () => {
      expect(conforms(value)).toBe(false)
      expect(tags(value)).not.toEqual([])
    })
  }
})

describe('what only the loader can see', () => {
  test('all faults at once, each where it is', () => {
    const broken = {
      ...JSON.parse(toJSON(twoLanes)),
      inFlight: 'two',
      storage: 'heap',
      commands: [['free', 77], ['alloc', 1, 9], 5],
    }
    expect(tags(broken)).toEqual([
      'WrongType plan.inFlight',
      'WrongType plan.storage',
      'UnknownId commands[0][1]',
      'UnknownId commands[1][2]',
      'WrongType commands[2]',
      'BadCommand commands[2]',
    ])
  })

  const withBuffer = (id: number, change: object): Plan => ({
    ...withKernels,
    buffers: withKernels.buffers.map(b => (b.id === id ? { ...b, ...change } : b)),
  })
  test('views: of views, of themselves, out of their root, in another memory', () => {
    expect(tags(withBuffer(6, { alias: 9 }))).toContain('BadAlias buffers[7].alias')
    expect(tags(withBuffer(7, { alias: 7 }))).toContain('BadAlias buffers[7].alias')
    expect(tags(withBuffer(7, { aliasOffset: 49 }))).toContain('BadAlias buffers[7].alias')
    expect(tags(withBuffer(7, { space: 'pinned' }))).toContain('BadAlias buffers[7].alias')
  })

  test('ids that are not their index, and sums beyond 2^53', () => {
    expect(tags(withBuffer(3, { id: 4 }))).toContain('UnknownId buffers[3].id')
    expect(tags(withBuffer(1, { bytes: Number.MAX_SAFE_INTEGER }))).toContain('OutOfRange plan.buffers')
  })

  test('kernels that would reach outside their buffers, by one element', () => {
    for (const [buffer, bytes] of [
      [0, 511],
      [1, 508],
      [2, 255],
      [3, 127],
      [4, 255],
      [5, 124],
      [8, 15],
    ] as const) {
      const parsed = parsePlan(
        withBuffer(buffer, { bytes, dtype: undefined, shape: undefined, init: undefined }),
      )
      const found = E.isLeft(parsed)
        ? parsed.left.filter(
            ({ _tag, subject }) => _tag === 'Extent' && subject === `'${withKernels.buffers[buffer]!.name}'`,
          )
        : []
      expect(found.length, withKernels.buffers[buffer]!.name).toBeGreaterThan(0)
    }
  })

  test('what a collective gives and gets lies inside its buffers', () => {
    for (const [id, { collective }] of withCollectives.nodes.entries()) {
      const more = { ...collective!, count: withCollectives.buffers[0]!.bytes + 1 }
      const nodes = withCollectives.nodes.map(node => (node.id === id ? { ...node, collective: more } : node))
      expect(tags({ ...withCollectives, nodes })).toContain(`Extent commands[${id}]`)
    }
  })

  const withKernel = (id: number, change: object): Plan => ({
    ...withKernels,
    nodes: withKernels.nodes.map(node =>
      node.id === id ? { ...node, kernel: { ...node.kernel, ...change } as KernelSpec } : node,
    ),
  })
  test('kernels that contradict themselves or their runs', () => {
    const operand = { dtype: 'f32', offset: 7, strides: [8, -1] }
    expect(tags(withKernel(0, { bytes: 513 }))).toContain('Extent commands[1]')
    // Two sources are expected, and one is given.
    expect(tags(withKernel(0, { parts: 2 }))).toContain('Extent commands[1]')
    expect(tags(withKernel(0, { parts: 3 }))).toContain('BadKernel nodes[0].kernel.parts')
    expect(tags(withKernel(1, { workspace: 0 }))).toContain('Extent commands[3]')
    const matrix = (dtype: string, batchStride: number) => ({ dtype, batchStride })
    expect(tags(withKernel(1, { batch: 2 }))).toContain('Extent commands[3]')
    expect(tags(withKernel(1, { batch: 2, c: matrix('f32', 0) }))).toContain(
      'BadKernel nodes[1].kernel.c.batchStride',
    )
    expect(tags(withKernel(1, { b: matrix('i32', 0) }))).toContain('WrongType nodes[1].kernel.b.dtype')
    const position = { kind: 'reduce', how: 'argmax', outer: 1, length: 4, inner: 1, input: 'f32' }
    expect(tags(withKernel(2, { ...position, output: 'f32' }))).toContain('WrongType nodes[2].kernel.output')
    // It would start before its buffer.
    expect(tags(withKernel(2, { operands: [{ ...operand, offset: 6 }] }))).toContain('Extent commands[6]')
    expect(tags(withKernel(2, { operands: [{ ...operand, offset: 8 }] }))).toContain('Extent commands[6]')
    expect(tags(withKernel(2, { operands: [{ ...operand, strides: [8] }] }))).toContain(
      'BadKernel nodes[2].kernel.operands[0].strides',
    )
    expect(tags(withKernel(2, { operands: [operand, operand] }))).toContain('Extent commands[6]')
    const indices = { dtype: 'i32', offset: 0, strides: [0, 0] }
    const table = (indexed: unknown, ...others: readonly object[]) =>
      tags(withKernel(2, { operands: [{ ...operand, indexed }, ...others] }))
    // The run has one read.
    expect(table({ by: 1, length: 1, step: 8 }, indices)).toEqual(['Extent commands[6]'])
    const place = 'nodes[2].kernel.operands[0].indexed.by'
    expect(table({ by: 1, length: 1, step: 8 })).toContain(`UnknownId ${place}`)
    expect(table({ by: 2, length: 1, step: 8 }, indices)).toContain(`UnknownId ${place}`)
    const bad = 'BadKernel nodes[2].kernel.operands[0].indexed'
    expect(table({ by: 0, length: 1, step: 8 })).toContain(bad)
    expect(table({ by: 1, length: 1, step: 8 }, { ...indices, dtype: 'f32' })).toContain(bad)
    const both = { ...indices, indexed: { by: 2, length: 1, step: 0 } }
    expect(table({ by: 1, length: 1, step: 8 }, both, indices)).toContain(bad)
    expect(table({ by: 1, length: 0, step: 8 }, indices)).toContain(
      'OutOfRange nodes[2].kernel.operands[0].indexed.length',
    )
    expect(table(true, indices)).toContain('WrongType nodes[2].kernel.operands[0].indexed')
    expect(tags(withKernel(2, { code: [['neg', 0]] }))).toContain('UnknownId nodes[2].kernel.code[0][1]')
    expect(tags(withKernel(2, { results: [{ value: 9, dtype: 'f32' }] }))).toContain(
      'UnknownId nodes[2].kernel.results[0].value',
    )
    const row = [{ value: 0, dtype: 'f32', row: true }]
    expect(tags(withKernel(2, { results: row }))).toContain('BadKernel nodes[2].kernel.results[0]')
    // The table has one element for the row, and each element of the row an index.
    const indexed = { ...operand, strides: [0, 0], indexed: { by: 1, length: 1, step: 0 } }
    const by = { dtype: 'i32', offset: 0, strides: [8, 1] }
    expect(tags(withKernel(2, { operands: [indexed, by], results: row }))).toContain(
      'BadKernel nodes[2].kernel.results[0]',
    )
    expect(
      tags(withKernel(2, { shape: [], operands: [{ ...operand, strides: [] }], results: row })),
    ).toContain('BadKernel nodes[2].kernel.shape')
    for (const axis of [1, -1, 0.5])
      expect(tags(withKernel(2, { axis })).join()).toMatch(
        /(BadKernel|OutOfRange|WrongType) nodes\[2\]\.kernel\.axis/,
      )
    expect(tags(withKernel(2, { shape: [48], axis: 0, operands: [{ ...operand, strides: [1] }] }))).toContain(
      'BadKernel nodes[2].kernel.axis',
    )
    const total = { value: 0, dtype: 'f32', row: true } as const
    expect(resultElements({ shape: [6, 8] }, total)).toBe(6)
    expect(resultElements({ shape: [6, 8], axis: 0 }, total)).toBe(8)
    const deep = Array.from({ length: 65 }, (_, i) => ['rowSum', i])
    expect(tags(withKernel(2, { code: [['operand', 0], ...deep] }))).toContain(
      'BadKernel nodes[2].kernel.code',
    )
    expect(tags(withKernel(3, { length: 2 ** 40 }))).toContain('Extent commands[9]')
    expect(tags(withKernel(3, { inner: 2 }))).toContain('Extent commands[9]')
    expect(tags(withKernel(4, { block: [0, 1, 1] }))).toContain('OutOfRange nodes[4].kernel.block[0]')
    expect(tags(withBuffer(7, { aliasOffset: 46 }))).toContain('Extent commands[9]') // misaligned for f32
  })

  test('kernels that may read rows beyond their table', () => {
    const made = graph({ at: tensor('i32', [3]) }, ({ at }) => ({
      y: at.pipe(upload(), embedding(param('table', tensor('f32', [5, 4]))), mul(2), download()),
    }))
    const plan = orThrow(compile(made, { fuse: true })) as Plan
    const node = plan.nodes.findIndex(({ kernel }) => kernel?.kind === 'map')
    const { operands } = plan.nodes[node]!.kernel as MapSpec
    const place = operands.findIndex(({ indexed }) => indexed)
    const changed = (change: object, offset = 0): readonly string[] => {
      const { indexed, ...operand } = operands[place]!
      const made = { ...operand, offset, indexed: { ...indexed!, ...change } }
      const kernel = { ...(plan.nodes[node]!.kernel as MapSpec), operands: operands.with(place, made) }
      return tags({ ...plan, nodes: plan.nodes.with(node, { ...plan.nodes[node]!, kernel }) })
    }
    const run = plan.commands.findIndex(([what, id]) => what === 'run' && id === node)
    const extent = [`Extent commands[${run}]`]
    expect(changed({})).toEqual([])
    expect(changed({ length: 4 }, 4)).toEqual([])
    expect(changed({ step: -4 }, 16)).toEqual([])
    expect(changed({}, 1)).toEqual(extent)
    expect(changed({ length: 6 })).toEqual(extent)
    expect(changed({ length: Number.MAX_SAFE_INTEGER })).toEqual(extent)
    expect(changed({ step: 5 })).toEqual(extent)
    expect(changed({ step: -1 })).toEqual(extent)
    expect(changed({ step: Number.MAX_SAFE_INTEGER })).toEqual(extent)
  })
})

describe('bytes that nothing has written', () => {
  const square = tensor('f32', [4, 4])
  const plan = orThrow(
    compile(
      graph({ x: square }, ({ x }) => {
        const a = x.pipe(upload())
        return { y: a.pipe(matmul(a), download()) }
      }),
      { mode: 'eager' },
    ),
  )
  const changed = (kind: KernelSpec['kind'], last: boolean, more: object): string[] => {
    const copies = plan.nodes.flatMap(({ kernel }, id) => (kernel?.kind === kind ? [id] : []))
    const which = last ? copies.at(-1) : copies[0]
    const nodes = plan.nodes.map((node, id) =>
      id === which ? { ...node, kernel: { ...node.kernel, ...more } } : node,
    )
    return tags({ ...plan, nodes }).map(text => text.split(' ')[0]!)
  }

  test('are read by no kernel and not by the host', () => {
    expect(changed('matmul', true, {})).toEqual([])
    expect(changed('matmul', true, { m: 1 })).toEqual(['Unwritten'])
    expect(changed('copy', false, { bytes: 48 })).toEqual(['Unwritten', 'Unwritten'])
    expect(changed('copy', true, { bytes: 48 })).toEqual(['Unwritten'])
  })
})
