// What `explain` says about kernels: of every value that one kernel makes and another one reads, why it is
// stored.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { provenanceOf } from '../../../dsl/compiler/analysis/provenance.js'
import { choicesOf } from '../../../dsl/explain/facts/choices.js'
import {
  add,
  cast,
  compile,
  concat,
  cumsum,
  download,
  embedding,
  explain,
  type Graph,
  gelu,
  graph,
  keep,
  lane,
  matmul,
  mul,
  on,
  orThrow,
  param,
  relu,
  reshape,
  sum,
  tensor,
  topK,
  upload,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { appended } from '../../fixtures/graphs/appends.js'
import { indexed, indexedSample } from '../../fixtures/graphs/indexed.js'
import { sample } from '../../fixtures/graphs/random.js'
import { graphOf, siblings } from '../../fixtures/graphs/siblings.js'
import { strided, stridedSample } from '../../fixtures/graphs/strided.js'
import { often, runs } from '../../fixtures/runs.js'

/**
 * The pairs of kernels of one lane of which the second reads memory that the first wrote last in the tick.
 */
const edgesOf = (plan: Plan): readonly (readonly [from: number, to: number])[] => {
  const { nodes, buffers, commands } = plan
  const rangeOf = (id: number) => {
    const { alias = id, aliasOffset = 0, bytes } = buffers[id]!
    return { root: alias, from: aliasOffset, to: aliasOffset + bytes }
  }
  const isKernel = (node: number): boolean => {
    const { kernel } = nodes[node]!
    return kernel !== undefined && kernel.kind !== 'copy'
  }
  const written: { node: number; lane: number; root: number; from: number; to: number }[] = []
  const edges = new Map<string, readonly [number, number]>()
  for (const command of commands) {
    if (command[0] !== 'run') continue
    const [, node, lane, reads, writes] = command
    for (const read of reads) {
      const { root, from, to } = rangeOf(read)
      const last = written.findLast(each => each.root === root && each.from < to && from < each.to)
      if (last === undefined || last.lane !== lane || last.node === node) continue
      if (isKernel(node) && isKernel(last.node)) edges.set(`${last.node} ${node}`, [last.node, node])
    }
    for (const write of writes) written.push({ node, lane, ...rangeOf(write) })
  }
  return [...edges.values()]
}

/** Checks a plan, and counts its edges by why they are none of one kernel. */
const check = (plan: Plan, seen: Map<string, number>): void => {
  const { kernels = [], apart = [] } = choicesOf(plan).fusion ?? {}
  const membersOf = new Map(kernels.map(({ name, members }) => [name, members]))
  // Attention that appends is several readers: the appends, the copies before them, and itself.
  const { changes } = provenanceOf(plan)!.decisions
  for (const { name, by } of changes)
    if (by !== undefined) membersOf.set(by, [...(membersOf.get(by) ?? []), name])
  const names = plan.nodes.map(({ name }) => [name, ...(membersOf.get(name) ?? [])])
  for (const [from, to] of edgesOf(plan)) {
    const found = apart.filter(
      ({ name, reader }) => names[from]!.includes(name) && names[to]!.includes(reader),
    )
    for (const { because } of found) seen.set(because, (seen.get(because) ?? 0) + 1)
    const between = `${names[from]!.join(', ')} → ${names[to]!.join(', ')}`
    expect([between, found.length > 0]).toEqual([between, true])
    const isAttention = plan.nodes[to]!.kernel?.kind === 'attention'
    const values = found.map(({ name, reader }) => (isAttention ? `${name} of ${reader}` : name))
    expect([between, values]).toEqual([between, [...new Set(values)]])
  }
  // And of no value inside of a kernel.
  for (const { name, reader } of apart)
    for (const [own, members] of membersOf)
      expect([own, members.includes(name) && members.includes(reader)]).toEqual([own, false])
}

const generated = {
  'of all operators': sample({ steps: 20 }),
  'of several rates': sample({ steps: 20, rates: true }),
  'of two devices': sample({ steps: 20, devices: 2 }),
  'whose outputs stay': sample({ steps: 20, stays: true }),
  'that read the same': siblings.map(graphOf),
  'that read by indices': indexed.map(indexedSample),
  'that append rows': appended,
  'that read strided matrices': strided.map(stridedSample),
} as const

describe('explain says of each value between two kernels of a lane why it is stored, once:', () => {
  const seen = new Map<string, number>()
  test.each(Object.entries(generated))('graphs %s', (_, samples) => {
    fc.assert(
      fc.property(
        samples,
        fc.constantFrom('eager' as const, 'graph' as const, 'auto' as const),
        fc.constantFrom('fast' as const, 'small' as const),
        ({ graph, dims = {} }, mode, memory) => {
          check(orThrow(compile(graph as Graph, { dims, fuse: true, mode, memory })) as Plan, seen)
        },
      ),
      { numRuns: runs(40) },
    )
  })
  test('of many kinds', () => expect(seen.size).toBeGreaterThan(often(15)))
})

// biome-ignore lint/suspicious/noExplicitAny: every operator passes through here
type Anything = any

const [n, k] = [16, 32]

/** What `explain` says why values are stored, of a graph whose values are on the device already. */
const stored = (op: (flows: Anything) => Anything, dtype: 'f32' | 'bf16' = 'bf16'): readonly string[] => {
  const shapes = { w: [k, n], v: [n, n], b: [n], r: [8, n], column: [8, 1] }
  const net = graph({ x: tensor(dtype, [8, k]) }, ({ x }: Anything) => {
    const there = Object.entries(shapes).map(([name, shape]) => [name, param(name, tensor(dtype, shape))])
    const made = op({ x: x.pipe(upload()), ...Object.fromEntries(there) })
    return Object.fromEntries(
      Object.entries(made.pipe === undefined ? made : { y: made }).map(([name, flow]: Anything) => [
        name,
        flow.pipe(download()),
      ]),
    )
  })
  const text = explain(orThrow(compile(net as Anything, { fuse: true, mode: 'eager' })))
  return [...text.matchAll(/^ {2}(\S+) is stored for (\S+): (.*?)(?: {2}.*)?$/gm)].map(
    ([, name, reader, because]) => `${name} → ${reader}: ${because}`,
  )
}

const tanh = { approximate: 'tanh' } as const
const one = lane('one')
const two = lane('two')

test.each<readonly [string, (flows: Anything) => Anything, string]>([
  ['a cast after the bias', ({ x, w, b }) => x.pipe(matmul(w), add(b), cast('f32')), 'casts before the bias'],
  ['a cast alone', ({ x, w }) => x.pipe(matmul(w), cast('f32')), 'in one element type'],
  ['a scale after the bias', ({ x, w, b }) => x.pipe(matmul(w), add(b), mul(2)), 'scales before it adds'],
  ['a scale of 0', ({ x, w }) => x.pipe(matmul(w), mul(0)), 'lose its NaNs'],
  ['another lane', ({ x, w }) => x.pipe(on(one), matmul(w), on(two), relu()), 'on another lane'],
  ['gelu by erf', ({ x, w }) => x.pipe(matmul(w), gelu()), 'does not compute this function'],
  ['what follows gelu', ({ x, w, b }) => x.pipe(matmul(w), gelu(tanh), add(b)), 'follows the activation'],
  ['what follows a residual', ({ x, w, r }) => x.pipe(matmul(w), add(r), relu()), 'follows the residual'],
  [
    'a column',
    ({ x, w, column }) => x.pipe(matmul(w), add(column)),
    'neither a row of the product nor as large',
  ],
  ['a view', ({ x, w }) => x.pipe(matmul(w), reshape([4, 2 * n]), relu()), 'a view of the product'],
  ['keep()', ({ x, w }) => x.pipe(matmul(w), keep(), relu()), 'kept in memory by keep()'],
  [
    'two readers',
    ({ x, w, b, r }) => {
      const product = x.pipe(matmul(w))
      return { y: product.pipe(add(b)), z: product.pipe(mul(r)) }
    },
    'not in one kernel',
  ],
  ['another product', ({ x, w, v }) => x.pipe(matmul(w), matmul(v)), 'its reader is a product'],
  ['a sum', ({ x, w }) => x.pipe(matmul(w), sum({ axis: 1 })), 'does not compute this function'],
])('a product does not take in %s, and explain says why', (_, op, because) => {
  const lines = stored(op)
  expect(lines.filter(line => line.startsWith('matmul[0]') || line.includes(because))).not.toEqual([])
  expect(lines.join('\n')).toContain(because)
})

test('two scales of a product of f32 are two roundings', () => {
  const scales = stored(({ x, w }) => x.pipe(matmul(w), mul(1e30), mul(1e-30)), 'f32')
  expect(scales).toEqual(['mul[0] → mul[1]: two scales in one would round f32 once in place of twice'])
})

test.each<readonly [string, (flows: Anything) => Anything, string]>([
  ['a running sum', x => x.pipe(cumsum({ axis: 1 })), 'a running sum'],
  ['the largest k', x => x.pipe(topK({ k: 2, axis: 1 })).indices, 'a search for the largest'],
  ['a concatenation', x => x.pipe(concat([x], { axis: 0 })), 'a concatenation'],
])('%s is a kernel of its own, before and after which explain says why', (_, op, because) => {
  const lines = stored(({ x }) => op(x.pipe(relu())).pipe(cast('f32'), mul(2))).join('\n')
  expect(lines).toContain(`its reader is ${because}`)
  expect(lines).toContain(`it is ${because}`)
})

test('a gather reads a table that is computed from memory', () => {
  const made = graph({ at: tensor('i32', [4]) }, ({ at }) => {
    const table = param('t', tensor('f32', [64, 8])).pipe(relu())
    return { y: at.pipe(upload(), embedding(table), mul(2), download()) }
  })
  const plan = orThrow(compile(made, { mode: 'eager' }))
  expect(explain(plan)).toMatch(
    /relu\[0\] is stored for \S+: its reader takes elements of it by their indices/,
  )
})
