// What a run reads has been written, byte by byte, whatever the buffers are called; and a run writes over what
// it reads only where its kernel promises to have read it. The oracle marks each byte that a kernel writes.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  append,
  compile,
  download,
  graph,
  mul,
  orThrow,
  param,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { KernelSpec } from '../../../dsl/ir/kernel-spec.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import type { CollectiveSpec, Command, Life, Plan, PlanBuffer } from '../../../dsl/ir/plan.js'
import { verify } from '../../../dsl/verify/verify.js'
import { twiceInPlace } from '../../fixtures/graphs/kernels.js'
import { planOf } from '../../fixtures/plans/by-hand.js'
import { often, runs } from '../../fixtures/runs.js'

const lawsOf = (plan: Plan): string[] => [...new Set(verify(plan, { safety: true }).map(({ law }) => law))]
const tagsOf = (plan: unknown): string[] => {
  const parsed = parsePlan(plan)
  return E.isLeft(parsed) ? [...new Set(parsed.left.map(({ _tag }) => _tag))] : []
}

const words = 16
const lives: readonly Life[] = ['input', 'tick', 'tick', 'state', 'output']

/** A view, in words of four bytes, of a root; and a run from one view to another. */
interface View {
  readonly root: number
  readonly from: number
  readonly length: number
}
interface Step {
  readonly from: number
  readonly to: number
  readonly kind: 'copy' | 'map' | 'matmul' | 'cuda'
  readonly length: number
  readonly at: number
  readonly backwards: boolean
}

const view: fc.Arbitrary<View> = fc
  .record({
    root: fc.nat(lives.length - 1),
    from: fc.nat(words - 1),
    most: fc.integer({ min: 1, max: words }),
  })
  .map(({ root, from, most }) => ({ root, from, length: Math.min(most, words - from) }))
const step: fc.Arbitrary<Step> = fc.record({
  from: fc.nat(99),
  to: fc.nat(99),
  kind: fc.constantFrom('copy', 'copy', 'map', 'map', 'matmul', 'cuda'),
  length: fc.integer({ min: 1, max: words }),
  at: fc.nat(3),
  backwards: fc.boolean(),
})

const fill = { from: 0, kind: 'copy', at: 0, backwards: false } as const

/** The kernel of a step, and the words of its two views that it reads and writes. */
const kernelOf = (one: Step, read: View, write: View) => {
  const all = (length: number) => Array.from({ length }, (_, i) => i)
  const dense = { dtype: 'f32', batchStride: 1 } as const
  const gapped = { ...dense, batchStride: 2 }
  const isGapped = one.kind === 'matmul' && read.length > 1 && write.length > 2
  if (isGapped) {
    const kernel: KernelSpec = {
      ...{ kind: 'matmul', m: 1, n: 1, k: 1, batch: 2, transposeB: false, workspace: 0 },
      ...{ a: dense, b: { ...dense, batchStride: 0 }, c: gapped },
    }
    return { kernel, reads: [0, 1], writes: [0, 2], operands: 2 }
  }
  if (one.kind === 'cuda') {
    const triple = [1, 1, 1] as const
    const kernel: KernelSpec = {
      ...{ kind: 'cuda', name: 'k', source: 'k', grid: triple, block: triple, sharedBytes: 0, scalars: [] },
    }
    return { kernel, reads: all(read.length), writes: all(write.length), operands: 1 }
  }
  const at = one.kind === 'map' ? Math.min(one.at, read.length - 1) : 0
  const length = Math.min(one.length, read.length - at, write.length)
  const reads = all(length).map(i => i + at)
  if (one.kind !== 'map')
    return { kernel: { kind: 'copy', bytes: 4 * length } as const, reads, writes: all(length), operands: 1 }
  const stride = one.backwards ? -1 : 1
  const kernel: KernelSpec = {
    ...{ kind: 'map', shape: [length], compute: 'f32', code: [['operand', 0]] },
    operands: [{ dtype: 'f32', offset: one.backwards ? at + length - 1 : at, strides: [stride] }],
    results: [{ value: 0, dtype: 'f32' }],
  }
  return { kernel, reads, writes: all(length), operands: 1 }
}

describe('bytes that nothing has written', () => {
  test('are read by no run and not by the host, through whatever views', () => {
    const seen = { good: 0, bad: 0, only: 0 }
    fc.assert(
      fc.property(
        fc.array(view, { minLength: 4, maxLength: 8 }),
        fc.array(fc.constantFrom(0, words, words, words, 12), {
          minLength: lives.length,
          maxLength: lives.length,
        }),
        fc.array(step, { minLength: 1, maxLength: 6 }),
        (drawn, begun, more) => {
          // Roots that the input fills first, whole or in part.
          const first = begun.map((length, to): Step => ({ ...fill, to, length }))
          const steps = [...first.filter(({ length }) => length > 0), ...more]
          const roots = lives.map((_, root): View => ({ root, from: 0, length: words }))
          const views = [...roots, ...drawn]
          const written = lives.map(life => new Array<boolean>(words).fill(life === 'input'))
          let [isBad, isGapped] = [false, false]
          const kernels: KernelSpec[] = []
          const commands: Command[] = []
          for (const one of steps) {
            const [from, to] = [one.from % views.length, one.to % views.length]
            const [read, write] = [views[from]!, views[to]!]
            if (read.root === write.root || lives[write.root] === 'input') continue
            const { kernel, reads, writes, operands } = kernelOf(one, read, write)
            commands.push(['run', kernels.length, 0, new Array<number>(operands).fill(from), [to]])
            kernels.push(kernel)
            isGapped ||= kernel.kind === 'matmul'
            isBad ||= reads.some(i => !written[read.root]![read.from + i])
            for (const i of writes) written[write.root]![write.from + i] = true
          }
          isBad ||= written[lives.indexOf('output')]!.includes(false)
          const used = lives.flatMap((life, b) => (life === 'tick' ? [b] : []))
          const touched = used.filter(b =>
            commands.some(c => c[0] === 'run' && [...c[3], ...c[4]].some(id => views[id]!.root === b)),
          )
          const sketch = planOf({
            name: 'bytes',
            lanes: ['main'],
            inFlight: 1,
            buffers: views.map(({ root, from, length }, b) => ({
              ...{ name: `b${b}`, bytes: 4 * length, life: lives[root]! },
              ...(b < lives.length ? {} : { alias: root, aliasOffset: 4 * from }),
            })),
            commands: [
              ...touched.map((b): Command => ['alloc', b, 0]),
              ...commands,
              ...touched.map((b): Command => ['free', b]),
            ],
          })
          const nodes = sketch.nodes.map((node, n) => ({ ...node, kernel: kernels[n]! }))
          const plan: Plan = { ...sketch, nodes }
          const laws = lawsOf(plan)
          const tags = tagsOf(plan)
          if (isBad) expect(laws).toContain('L1')
          // Of a write with gaps only its beginning counts.
          else if (!isGapped) expect([laws, tags]).toEqual([[], []])
          if (tags.length > 0) expect([laws.includes('L1'), tags]).toEqual([true, ['Unwritten']])
          seen[isBad ? 'bad' : 'good']++
          if (tags.length > 0) seen.only++
        },
      ),
      { numRuns: runs(800) },
    )
    expect(Math.min(seen.good, seen.bad, seen.only)).toBeGreaterThan(often(10))
  })

  test('are none of what a collective of so many ranks has received', () => {
    const made = (
      collective: Omit<CollectiveSpec, 'communicator'>,
      size: number,
      reads: number,
    ): string[] => {
      const plan = planOf({
        name: 'ranks',
        lanes: ['main'],
        inFlight: 1,
        buffers: [
          { name: 'x', life: 'state', init: 0 },
          { name: 'y', bytes: 1024, life: 'state' },
          { name: 'view', bytes: reads, alias: 1, life: 'state' },
          { name: 'z', life: 'state', init: 0 },
        ],
        commands: [
          ['run', 0, 0, [0], [1]],
          ['run', 1, 0, [2], [3]],
        ],
      })
      const nodes = plan.nodes.map((node, n) =>
        n === 0
          ? { ...node, collective: { ...collective, communicator: 0 } as CollectiveSpec }
          : { ...node, kernel: { kind: 'copy', bytes: reads } as const },
      )
      return lawsOf({ ...plan, nodes, communicators: [{ id: 0, name: 'all', size }] })
    }
    const gather = { kind: 'allGather', count: 32, dtype: 'f32' } as const
    expect(made(gather, 4, 512)).toEqual([])
    expect(made(gather, 4, 516)).toEqual(['L1'])
    expect(made(gather, 2, 512)).toEqual(['L1'])
    expect(made({ ...gather, kind: 'allReduce', how: 'sum' }, 4, 128)).toEqual([])
    expect(made({ ...gather, kind: 'allReduce', how: 'sum' }, 4, 132)).toEqual(['L1'])
  })
})

describe('a run that writes over what it reads', () => {
  const all = (plan: Plan) => [lawsOf(plan), tagsOf(JSON.parse(JSON.stringify(plan)))]
  const x = tensor('f32', [64])
  const changed = (plan: Plan, b: number, change: Partial<PlanBuffer>): Plan => ({
    ...plan,
    buffers: plan.buffers.map(buffer => (buffer.id === b ? { ...buffer, ...change } : buffer)),
  })

  test("is a user's kernel that donates just this", () => {
    const net = graph({ x }, flows => ({
      y: twiceInPlace({ x: flows.x.pipe(upload(), mul(3)) }).y.pipe(download()),
    }))
    const plan = orThrow(compile(net, { mode: 'eager' })) as Plan
    const node = plan.nodes.findIndex(({ donates }) => donates)
    const donating = (donates: Plan['nodes'][number]['donates']): Plan => ({
      ...plan,
      nodes: plan.nodes.map((each, n) => (n === node ? { ...each, donates: donates! } : each)),
    })
    expect(plan.nodes[node]!.donates).toEqual([[0, 0]])
    expect(all(plan)).toEqual([[], []])
    expect(all(donating([]))).toEqual([['L2'], ['Overwrite']])
    expect(all(donating([[0, 1]]))).toEqual([['L2'], ['Overwrite']])
    const run = plan.commands.find(command => command[0] === 'run' && command[1] === node)!
    const written = (run[4] as number[])[0]!
    // A donated write is its read's memory, whole and nowhere else.
    expect(all(changed(plan, written, { bytes: 128, shape: [32] }))[0]).toContain('L2')
    expect(all(changed(plan, written, { aliasOffset: 4, bytes: 252, shape: [63] }))[0]).toContain('L2')
  })

  test('is an append at the place of its read', () => {
    const rows = tensor('f32', [2, 4])
    const net = graph({ rows }, flows => {
      const cache = state({ keys: tensor('f32', [8, 4]), length: tensor('i32', []) })
      const keys = cache.keys.pipe(append(flows.rows.pipe(upload()), { axis: 0, at: cache.length }))
      cache.next({ keys, length: cache.length })
      return { y: keys.pipe(download()) }
    })
    const plan = orThrow(compile(net, { mode: 'eager' })) as Plan
    const node = plan.nodes.findIndex(({ kernel }) => kernel?.kind === 'append')
    const run = plan.commands.find(command => command[0] === 'run' && command[1] === node)!
    const [reads, [written]] = [run[3] as number[], run[4] as [number]]
    expect(all(plan)).toEqual([[], []])
    const keys = plan.buffers[written]!.alias!
    const longer = changed(plan, keys, { bytes: 1024, shape: [64, 4] })
    expect(all(changed(longer, written, { aliasOffset: 16 }))[0]).toContain('L2')
    // The rows, and their position, are no bytes of what is written.
    for (const other of reads.slice(1)) {
      const apart = changed(plan, other, { alias: keys, aliasOffset: 0, life: 'state' })
      expect(
        verify(apart, { safety: true }).some(({ law, message }) => law === 'L2' && /apart/.test(message)),
      ).toBe(true)
    }
  })

  test('is an exchange whose two ends begin at one byte, of the kinds that NCCL allows it', () => {
    const made = (kind: CollectiveSpec['kind'], from: number): string[] => {
      const sketch = planOf({
        name: 'in place',
        lanes: ['main'],
        inFlight: 1,
        buffers: [
          { name: 'x', life: 'state', init: 0 },
          { name: 'view', bytes: 512, alias: 0, aliasOffset: from, life: 'state' },
        ],
        commands: [['run', 0, 0, [0], [1]]],
      })
      const fields = { how: 'sum', root: 0, peer: 1, pairs: [] } as const
      const spec = { kind, communicator: 0, count: 32, dtype: 'f32', ...fields } as const
      const nodes = sketch.nodes.map(node => ({ ...node, collective: spec as CollectiveSpec }))
      return lawsOf({ ...sketch, nodes, communicators: [{ id: 0, name: 'all', size: 4 }] })
    }
    for (const kind of ['allReduce', 'reduce', 'broadcast'] as const)
      expect([0, 4, 128].map(from => made(kind, from))).toEqual([[], ['L2'], []])
    for (const kind of ['allGather', 'reduceScatter', 'allToAll', 'gather', 'scatter', 'permute'] as const)
      expect([0, 4].map(from => made(kind, from))).toEqual([['L2'], ['L2']])
    for (const kind of ['send', 'recv'] as const) expect(made(kind, 0)).toEqual([])
  })

  test('and whose kernel has no form is refused, not thrown', () => {
    const net = graph({ x }, flows => ({ y: flows.x.pipe(upload(), mul(param('w', x)), download()) }))
    const plan = JSON.parse(JSON.stringify(orThrow(compile(net)))) as Plan
    for (const kernel of [{ kind: 'map' }, { kind: 'none' }, { kind: 'join', pieces: 1 }, 1, 'copy'])
      expect(
        lawsOf({ ...plan, nodes: plan.nodes.map(node => ({ ...node, kernel: kernel as never })) }),
      ).toEqual(['L1'])
  })
})
