// The pass `fuse`: what becomes one kernel, what never does, and that no plan is worse for it.
import fc from 'fast-check'
import { type Either, isLeft, left, right } from 'fp-ts/lib/Either.js'
import { lastValueFrom } from 'rxjs'
import { describe, expect, test } from 'vitest'
import type { Checked } from '../../../dsl/compiler/analysis/ir.js'
import { provenanceOf, recordProvenance } from '../../../dsl/compiler/analysis/provenance.js'
import { check } from '../../../dsl/compiler/passes/check.js'
import { devices } from '../../../dsl/compiler/passes/devices.js'
import { rates } from '../../../dsl/compiler/passes/rates.js'
import { simplify } from '../../../dsl/compiler/passes/simplify.js'
import { unroll } from '../../../dsl/compiler/passes/unroll.js'
import { chooseFusion } from '../../../dsl/compiler/search/choose-fusion.js'
import type { Plan } from '../../../dsl/index.js'
import {
  type AnyTensor,
  abs,
  add,
  argmax,
  attention,
  cast,
  after as comesAfter,
  compile,
  cumsum,
  type DeviceFlow,
  delay,
  download,
  exp,
  explain,
  type Graph,
  graph,
  interpret,
  iota,
  keep,
  lane,
  layerNorm,
  less,
  logSoftmax,
  logSumExp,
  matmul,
  min,
  mul,
  neg,
  on,
  orThrow,
  param,
  relu,
  renderAll,
  reshape,
  rmsNorm,
  scan,
  softmax,
  state,
  sub,
  sum,
  tensor,
  transpose,
  upload,
  variance,
  where,
} from '../../../dsl/index.js'
import type { MapSpec } from '../../../dsl/ir/kernel-spec.js'
import { resultElements } from '../../../dsl/ir/map-rows.js'
import { elementBytes } from '../../../dsl/ir/tensor.js'
import { textOf } from '../../../dsl/ir/text.js'
import { runMap } from '../../../dsl/language/operators/map-reference.js'
import type { HostArray } from '../../../dsl/language/values.js'
import { verify } from '../../../dsl/verify/verify.js'
import { sample, valuesOf } from '../../fixtures/graphs/random.js'
import { often, runs } from '../../fixtures/runs.js'

const kernelsOf = (plan: Plan) =>
  plan.nodes.filter(({ kernel }) => kernel !== undefined && kernel.kind !== 'copy').map(({ op }) => op)

const fused = (made: Graph, options: object = {}): Plan =>
  orThrow(compile(made as Graph, { fuse: true, ...options })) as Plan

/**
 * By name of a node: the values that each of its runs reads and writes, by the names of their memory. Memory
 * may have several values in a tick, as a state has its next value once that is made: each is called as it
 * would be in memory of its own, where another plan may have it. `left`: those that the next tick finds.
 */
const touchedOf = ({ nodes, buffers, commands }: Plan) => {
  const touched = new Map<string, { readonly reads: string[]; readonly writes: string[] }[]>()
  const rootOf = (id: number): number => buffers[id]!.alias ?? id
  const madeIn = new Map<number, string>()
  const nameOf = (id: number): string => madeIn.get(rootOf(id)) ?? buffers[rootOf(id)]!.name
  for (const command of commands) {
    if (command[0] !== 'run') continue
    const [, node, , read, written] = command
    const own = touched.get(nodes[node]!.name) ?? []
    const reads = read.map(nameOf)
    for (const id of written) madeIn.set(rootOf(id), buffers[id]!.name)
    own.push({ reads, writes: written.map(nameOf) })
    touched.set(nodes[node]!.name, own)
  }
  return { touched, left: [...madeIn].flatMap(([id, name]) => (buffers[id]!.life === 'state' ? [name] : [])) }
}

const matrix = tensor('f32', [64, 64])
const square = { x: matrix }
type Square = DeviceFlow<typeof matrix>
const rows = tensor('bf16', [32, 64])
type Rows = DeviceFlow<typeof rows>

/**
 * Compares what each fused kernel of a graph reads and writes with what its operations read and write apart.
 * Yields how many kernels were compared, and how many results they have beside their first ones.
 */
const compareWithNeeded = (made: Graph, settings: object = {}) => {
  const plan = fused(made, settings)
  const plain = orThrow(compile(made, { ...settings, fuse: false })) as Plan
  const { touched } = touchedOf(plan)
  // Of the plan that fuses nothing: what each operation reads and writes.
  const { touched: apart, left } = touchedOf(plain)
  const readers = new Map<string, Set<string>>()
  for (const [reader, runs] of apart)
    for (const read of runs.flatMap(({ reads }) => reads))
      readers.set(read, (readers.get(read) ?? new Set()).add(reader))
  const all = provenanceOf(plan)!.decisions.fusion!.regions.map(({ name, members }) => ({
    name,
    members: new Set(members),
  }))
  const writes = [...touched.values()].flatMap(runs => runs.flatMap(own => own.writes))
  // A copy may be a member of several kernels, each of which reads through it.
  const isInside = (reader: string, member: string) =>
    all.some(({ members }) => members.has(reader) && members.has(member))
  // A value that nothing reads is needed too: others come after the operation that makes it.
  const isNeeded = (member: string, value: string) =>
    left.includes(value) ||
    !readers.has(value) ||
    [...readers.get(value)!].some(reader => !isInside(reader, member))
  let results = 0
  const compared = all.filter(({ members }) => [...members].every(member => apart.get(member)?.length === 1))
  for (const { name, members } of compared) {
    const each = [...members].map(member => ({ member, ...apart.get(member)![0]! }))
    const inside = new Set(each.flatMap(({ writes }) => writes))
    const least = new Set(each.flatMap(({ reads }) => reads).filter(read => !inside.has(read)))
    const needed = each.flatMap(({ member, writes }) => writes.filter(value => isNeeded(member, value)))
    const [own] = touched.get(name)!
    expect(new Set(own!.reads)).toEqual(least)
    // Where something reads a copy in memory too, one of its kernels writes it.
    const ownNeeded = needed.filter(value => own!.writes.includes(value))
    expect(new Set(own!.writes)).toEqual(new Set(ownNeeded))
    for (const value of needed)
      expect([value, writes.filter(other => other === value).length]).toEqual([value, 1])
    results += own!.writes.length - 1
    expect(own!.reads.length).toBeLessThanOrEqual(each.reduce((sum, { reads }) => sum + reads.length, 0))
  }
  return { regions: compared.length, results }
}

describe('fuse', () => {
  test('makes one kernel of a chain, with what is broadcast to it', () => {
    const made = graph(square, ({ x }) => ({
      y: x.pipe(
        upload(),
        mul(param('scale', tensor('f32', [64]))),
        relu(),
        add(param('bias', tensor('f32', [64, 1]))),
        abs(),
        download(),
      ),
    }))
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toEqual(['fused'])
    const [{ kernel, movedBytes }] = plan.nodes.filter(({ op }) => op === 'fused') as [Plan['nodes'][number]]
    expect(kernel).toMatchObject({ kind: 'map', shape: [64, 64], operands: [{}, {}, {}] })
    expect(movedBytes).toBe(4 * (2 * 64 * 64 + 64 + 64))
  })

  test('reads through reshapes and transposed copies', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload(), mul(2))
      return { y: u.pipe(reshape([4096]), exp(), reshape([64, 64]), transpose([1, 0]), neg(), download()) }
    })
    expect(kernelsOf(fused(made as never))).toEqual(['fused'])
  })

  test('keeps kernels apart that differ in an infinite number or the sign of zero', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload())
      const numbers = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, -0, 0]
      return Object.fromEntries(
        numbers.map((number, i) => [`y${i}`, u.pipe(less(0.5), where(u, number), neg(), download())]),
      )
    })
    const codes = fused(made as never).nodes.flatMap(({ op, kernel }) =>
      op === 'fused' && kernel?.kind === 'map' ? [kernel.code] : [],
    )
    const chosen = codes.map(code => code.map(([op, number]) => (op === 'const' ? number : undefined)))
    for (const number of [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, -0, 0])
      expect(chosen.filter(all => all.some(one => Object.is(one, number)))).toHaveLength(1)
  })

  test('rounds in registers what would be rounded in memory', () => {
    const made = graph(square, ({ x }) => ({
      y: x.pipe(upload(), cast('bf16'), mul(3), cast('f32'), add(1), download()),
    }))
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toEqual(['fused'])
    const { kernel } = plan.nodes.find(({ op }) => op === 'fused')!
    expect(kernel?.kind === 'map' && kernel.code.filter(([op]) => op === 'bf16').length).toBe(2)
  })

  const vector = tensor('bf16', [64])
  test.each<[string, (x: Rows) => DeviceFlow<AnyTensor>, number]>([
    ['softmax', softmax(), 1],
    ['logSoftmax', logSoftmax(), 1],
    ['logSumExp', logSumExp({ axis: -1 }), 1],
    ['variance', variance({ axis: 1 }), 1],
    ['rmsNorm', rmsNorm(), 1],
    ['layerNorm', x => x.pipe(layerNorm({ scale: param('s', vector), shift: param('t', vector) })), 1],
    ['what goes into a sum', x => x.pipe(mul(x), cast('f32'), sum(1)), 1],
    ['what comes after it', x => x.pipe(mul(0.5), softmax(), cast('f32'), mul(2)), 1],
    ['norm, then softmax', x => x.pipe(layerNorm(), softmax()), 1],
    ['rows of two lengths', x => x.pipe(mul(2), sum(1), sum(0)), 2],
    ['what goes into a sum of columns, and what comes after it', x => x.pipe(mul(2), sum(0), mul(3)), 1],
    ['softmax of columns', softmax({ axis: 0 }), 1],
    ['columns, then rows', x => x.pipe(softmax({ axis: 0 }), softmax()), 2],
  ])('makes one kernel of rows: %s', (_, body, kernels) => {
    const made = graph({ x: rows }, ({ x }) => ({ y: body(x.pipe(upload())).pipe(download()) }))
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toHaveLength(kernels)
    if (kernels > 1) return
    // Each element of each operand is read once, and each of the result written once.
    const { kernel, movedBytes } = plan.nodes.find(node => node.kernel?.kind === 'map')!
    const { operands, results } = kernel as MapSpec
    const read = operands.map(({ strides }) => 2 * (strides[0] === 0 ? 64 : 32 * 64))
    const written = results.map(
      result => elementBytes[result.dtype] * resultElements(kernel as MapSpec, result),
    )
    expect(movedBytes).toBe([...read, ...written].reduce((a, b) => a + b))
  })

  test('leaves few long rows to kernels that divide them among blocks', () => {
    const long = tensor('f32', [2, 1_000_000])
    const made = graph({ x: long }, ({ x }) => ({ y: x.pipe(upload(), softmax(), download()) }))
    expect(kernelsOf(fused(made as never)).length).toBeGreaterThan(1)
  })

  const deep = tensor('f32', [3, 5, 33])
  test.each<[string, (x: DeviceFlow<typeof deep>) => DeviceFlow<AnyTensor>]>([
    ['softmax', x => x.pipe(mul(3), softmax())],
    ['logSoftmax', logSoftmax()],
    ['logSumExp', logSumExp({ axis: 2 })],
    ['variance', x => x.pipe(variance({ axis: -1 }), mul(2))],
    ['norm, then softmax', x => x.pipe(layerNorm({ epsilon: 0.01 }), softmax())],
    ['whole numbers', x => x.pipe(mul(9), cast('i32'), keep(), mul(3), sum(2))],
    ['the smallest', x => x.pipe(abs(), min(2), sub(1))],
  ])('means in rows what the operations mean: %s', async (_, body) => {
    const made = graph({ x: deep }, ({ x }) => ({ y: body(x.pipe(upload())).pipe(download()) }))
    let value = valuesOf('f32', 3 * 5 * 33, 1)
    const meant = await lastValueFrom(interpret(made as Graph)({ x: [value] } as never))
    for (const { kernel } of fused(made as never).nodes)
      if (kernel?.kind === 'map') value = runMap(kernel, [value])[0]!
    const { y } = meant as Readonly<Record<string, HostArray>>
    expect(value.length).toBe(y!.length)
    for (const [i, each] of value.entries())
      expect(Math.abs(each - y![i]!)).toBeLessThan(1e-5 * Math.max(1, Math.abs(each)))
  })

  test.each<[string, (x: Square) => Record<string, DeviceFlow<AnyTensor>>]>([
    ['sums of the same', x => ({ total: x.pipe(sum(1)), square: x.pipe(mul(x), sum(1)) })],
    [
      'a softmax and its sum',
      x => {
        const e = x.pipe(exp())
        const total = e.pipe(sum({ axis: 1, keepDims: true }))
        return { total, y: e.pipe(mul(total)) }
      },
    ],
    ['rows of two kinds', x => ({ least: x.pipe(min(1)), norm: x.pipe(layerNorm()) })],
    [
      'what both are made of',
      x => {
        const both = x.pipe(mul(3))
        return { a: both.pipe(abs()), b: both.pipe(neg()) }
      },
    ],
    ['two chains', x => ({ a: x.pipe(neg(), exp()), b: x.pipe(mul(3), abs()) })],
    ['two sums of rows', x => ({ a: x.pipe(exp(), sum(1)), b: x.pipe(abs(), sub(1), sum(1)) })],
    ['a norm and a chain', x => ({ a: x.pipe(neg(), exp()), b: x.pipe(mul(3), softmax()) })],
    ['a chain and a norm', x => ({ a: x.pipe(mul(3), softmax()), b: x.pipe(neg(), exp()) })],
    [
      'flat and square',
      x => ({
        a: x.pipe(reshape([4096]), neg(), exp()),
        b: x.pipe(mul(3), add(param('b', tensor('f32', [64])))),
      }),
    ],
  ])('makes one kernel with several results: %s', (_, body) => {
    const made = graph(square, ({ x }) =>
      Object.fromEntries(
        Object.entries(body(x.pipe(upload()))).map(([name, y]) => [name, y.pipe(download())]),
      ),
    )
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toEqual(['fused'])
    const node = plan.nodes.find(({ op }) => op === 'fused')!
    expect((node.kernel as MapSpec).results).toHaveLength(2)
    expect(verify(plan)).toEqual([])
  })

  test('gives no result to what comes before the last member', () => {
    // The product reads e, and what it yields is read with e.
    const made = graph(square, ({ x }) => {
      const e = x.pipe(upload(), exp())
      return { y: e.pipe(sub(e.pipe(matmul(param('w', matrix)))), download()) }
    })
    expect(kernelsOf(fused(made as never))).toEqual(['exp', 'matmul', 'sub'])
  })

  test('gives no result to what a view before the last member shows', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload())
      const flat = u.pipe(relu()).pipe(reshape([4096]))
      const last = u.pipe(abs())
      return { flat: flat.pipe(download()), last: last.pipe(download()) }
    })
    const plan = fused(made as never)
    expect(verify(plan)).toEqual([])
    expect(kernelsOf(plan)).toEqual(['relu', 'abs'])
  })

  test('keeps the view of a result that a kernel reads after the last member', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload())
      const n = u.pipe(neg())
      const flat = n.pipe(reshape([4096]))
      const sum = u.pipe(relu(), add(n))
      const last = flat.pipe(on(lane('other')), exp())
      return { sum: sum.pipe(download()), last: last.pipe(download()) }
    })
    const plan = fused(made as never)
    expect(verify(plan)).toEqual([])
    expect(kernelsOf(plan)).toEqual(['fused', 'exp'])
  })

  test('keeps kernels apart that read the same and of which one holds more for the other', () => {
    // The first chain would hold its own operand until the second one has its.
    const along = { axis: 0 } as const
    const made = graph({ x: matrix, z: matrix, w: matrix }, ({ x, z, w }) => {
      const u = x.pipe(upload())
      const first = u.pipe(neg(), mul(z.pipe(upload(), cumsum(along))), exp())
      const second = u.pipe(abs(), mul(w.pipe(upload(), cumsum(along))), relu())
      return { a: first.pipe(download()), b: second.pipe(download()) }
    })
    const plan = fused(made as never)
    expect(verify(plan)).toEqual([])
    expect(kernelsOf(plan)).toEqual(['cumsum', 'fused', 'cumsum', 'fused'])
  })

  test('keeps kernels apart that read the same and of which one needs the other', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload())
      const first = u.pipe(neg(), exp())
      const product = first.pipe(matmul(param('w', matrix)))
      return { y: u.pipe(abs(), sub(product), relu(), download()) }
    })
    expect(kernelsOf(fused(made as never))).toEqual(['fused', 'matmul', 'fused'])
  })

  test('makes one kernel of a norm whose statistics something later reads', () => {
    const made = graph(square, ({ x }) => {
      const u = x.pipe(upload())
      const mean = u.pipe(sum({ axis: 1, keepDims: true }), mul(1 / 64))
      const y = u.pipe(sub(mean), exp())
      const product = y.pipe(matmul(param('w', matrix)))
      return { y: product.pipe(mul(mean), download()) }
    })
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toEqual(['fused', 'matmul', 'mul'])
    expect(plan.nodes[1]!.kernel).toMatchObject({ results: [{ dtype: 'f32' }, { dtype: 'f32', row: true }] })
  })

  test('leaves what is stored anyway to the kernel with its rows, not to a sum of its columns', () => {
    const made = graph(square, ({ x }) => {
      const y = x.pipe(upload(), softmax())
      return { y: y.pipe(download()), columns: y.pipe(sum(0), download()) }
    })
    expect(kernelsOf(fused(made as never))).toEqual(['fused', 'sum'])
  })

  describe('computes again what several kernels read', () => {
    // So many columns that their sums are not made of parts.
    const narrow = { x: tensor('bf16', [256, 65536]) }
    const bytesOf = (plan: Plan): number =>
      plan.nodes.reduce((sum, { op, movedBytes = 0 }) => (op === 'download' ? sum : sum + movedBytes), 0)

    test('a cast, for rows and for columns', () => {
      const made = graph(narrow, ({ x }) => {
        const wide = x.pipe(upload(), cast('f32'))
        return {
          rows: wide.pipe(softmax(), cast('bf16'), download()),
          columns: wide.pipe(exp(), sum(0), download()),
        }
      })
      const plan = orThrow(compile(made)) as Plan
      expect(verify(plan)).toEqual([])
      expect(
        plan.buffers.filter(({ space, bytes }) => space === 'device' && bytes > 2 * 256 * 65536),
      ).toEqual([])
      expect(explain(plan)).toContain('.cast')
      const apart = orThrow(compile(made, { fuse: false })) as Plan
      expect(3 * bytesOf(plan)).toBeLessThan(bytesOf(apart))
    })

    test('not what takes more bytes to read', () => {
      const made = graph({ ...narrow, z: narrow.x }, ({ x, z }) => {
        const both = x.pipe(upload()).pipe(add(z.pipe(upload())))
        return { rows: both.pipe(softmax(), download()), columns: both.pipe(sum(0), download()) }
      })
      expect(explain(orThrow(compile(made)))).not.toContain('.add')
    })

    test('not for a reader of another kind, for which it is stored anyway', () => {
      const made = graph(narrow, ({ x }) => {
        const wide = x.pipe(upload(), cast('f32'))
        return {
          rows: wide.pipe(softmax(), cast('bf16'), download()),
          columns: wide.pipe(exp(), sum(0), download()),
          running: wide.pipe(cumsum({ axis: 0 }), sum(1), download()),
        }
      })
      expect(explain(orThrow(compile(made)))).not.toContain('.cast')
    })

    test('not of a state that is changed in its memory before', () => {
      const made = graph({}, () => {
        const s = state({ w: narrow.x })
        const wide = s.w.pipe(cast('f32'))
        const rows = wide.pipe(softmax(), cast('bf16'), download())
        s.next({ w: s.w.pipe(mul(2)) })
        return { rows, columns: wide.pipe(exp(), sum(0), download()) }
      })
      const plan = orThrow(compile(made)) as Plan
      expect(explain(plan)).not.toContain('.cast')
      expect(plan.nodes.map(({ op }) => op)).not.toContain('store')
    })
  })

  test('computes a value with several readers of one kernel once', () => {
    const made = graph(square, ({ x }) => {
      const e = x.pipe(upload(), exp())
      return { y: e.pipe(mul(e.pipe(neg()))).pipe(add(e), download()) }
    })
    const plan = fused(made as never)
    expect(kernelsOf(plan)).toEqual(['fused'])
    const { kernel } = plan.nodes.find(({ op }) => op === 'fused')!
    expect(kernel?.kind === 'map' && kernel.code.filter(([op]) => op === 'exp').length).toBe(1)
    expect(kernel?.kind === 'map' && kernel.operands.length).toBe(1)
  })

  test.each<[string, (x: Square) => DeviceFlow<AnyTensor>, number]>([
    ['what keep() names', x => x.pipe(mul(2), keep(), add(1)), 2],
    ['across lanes', x => x.pipe(mul(2), on(lane('other')), add(1)), 2],
    ['into a product', x => x.pipe(mul(2), matmul(param('w', matrix)), add(1)), 3],
    [
      'what another operation waits for',
      x => {
        const doubled = x.pipe(mul(2))
        return doubled.pipe(add(x.pipe(comesAfter(doubled), sum(0))))
      },
      2,
    ],
    ['whole numbers with floats', x => x.pipe(cast('i32'), mul(3), cast('f32')), 3],
  ])('never %s', (_, body, kernels) => {
    const made = graph(square, ({ x }) => ({ y: body(x.pipe(upload())).pipe(download()) }))
    expect(kernelsOf(fused(made as never))).toHaveLength(kernels)
  })

  test.each<[string, (x: Square) => DeviceFlow<AnyTensor>, number]>([
    ['comparisons with a constant', x => x.pipe(cast('i32'), keep(), less(7), where(x, 0)), 2],
    ['masks', x => x.pipe(less(0), mul(x.pipe(less(1))), cast('f32'), mul(x)), 1],
    ['positions', x => x.pipe(add(x.pipe(iota({ axis: 1 }), keep(), mul(3), add(1), cast('f32')))), 2],
    ['positions that nothing keeps', x => x.pipe(add(x.pipe(iota({ axis: 1 }), mul(3), cast('f32')))), 1],
    ['positions alone', x => x.pipe(mul(2), iota({ axis: 1 }), mul(3), add(1)), 1],
    ['a mask', x => x.pipe(iota({ axis: 1 }), less(x.pipe(iota({ axis: 0 }))), where(x, 0), softmax()), 1],
    ['the place of the largest', x => x.pipe(mul(2), argmax({ axis: 1 }), add(1)), 1],
    ['the place of the largest of an image', x => x.pipe(iota(), mul(3), argmax({ axis: 0 }), add(1)), 1],
    ['what is larger than 2^24', x => x.pipe(add(x.pipe(iota(), keep(), mul(2 ** 19), cast('f32')))), 3],
    ['what a kernel of i32 reads', x => x.pipe(iota(), keep(), add(1), mul(2 ** 30), cast('f32'), mul(x)), 3],
  ])('of whole numbers beside floats: %s', (_, body, kernels) => {
    const made = graph(square, ({ x }) => ({ y: body(x.pipe(upload())).pipe(download()) }))
    expect(kernelsOf(fused(made as never))).toHaveLength(kernels)
  })

  test('is on unless the program says otherwise', () => {
    const made = graph(square, ({ x }) => ({ y: x.pipe(upload(), mul(2), add(1), download()) }))
    expect(kernelsOf(orThrow(compile(made)) as Plan)).toEqual(['fused'])
    expect(JSON.stringify(compile(made, { fuse: true }))).toBe(JSON.stringify(compile(made)))
    expect(kernelsOf(orThrow(compile(made, { fuse: false })) as Plan)).toEqual(['mul', 'add'])
    const wrong = compile(made, { fuse: 'yes' } as never)
    expect(isLeft(wrong) && wrong.left).toMatchObject([{ _tag: 'BadOption', subject: 'fuse' }])
  })

  test('is off for a graph of more than 262,144 operations', () => {
    const first = (nodes: number): string => {
      const nothing = left([]) as never
      const ir = { settings: { fuse: undefined }, nodes: new Array(nodes) } as never
      try {
        return chooseFusion(() => nothing)(ir) === nothing ? 'the plan' : 'another plan'
      } catch {
        return 'fuses'
      }
    }
    // The pass that fuses finds no operation to begin with.
    expect(first(2 ** 18)).toBe('fuses')
    expect(first(2 ** 18 + 1)).toBe('the plan')
  })

  test('takes a large plan where it holds no more, and its ticks need not follow one another', () => {
    const made = graph(square, ({ x }) => {
      let value = x.pipe(upload())
      for (let i = 0; i < 2 ** 12; i++) value = value.pipe(mul(2), relu())
      return { y: value.pipe(download()) }
    })
    const passes = [check({}), simplify, rates, unroll, devices] as unknown as ((
      ir: unknown,
    ) => Either<never, unknown>)[]
    const ir = passes.reduce((ir, pass) => orThrow(pass(ir)), made.ir as unknown) as Checked
    const kinds = ['exact', 'enforced'] as const
    for (const [plainKind, kind] of kinds.flatMap(a => kinds.map(b => [a, b] as const)))
      for (const [bytes, pinned] of [
        [7, 8],
        [8, 8],
        [9, 8],
        [8, 9],
      ] as const) {
        const planOf = (device: number, pinned: number, boundKind: Plan['boundKind']) => {
          const plan = { bound: { device: [device], pinned }, boundKind } as unknown as Plan
          recordProvenance(plan, { decisions: {} } as never)
          return plan
        }
        const plain = planOf(8, 8, plainKind)
        const taken = chooseFusion(other => right(other === ir ? plain : planOf(bytes, pinned, kind)))(ir)
        const isWorse = bytes > 8 || pinned > 8 || (kind === 'enforced' && plainKind === 'exact')
        expect([bytes, pinned, plainKind, kind, orThrow(taken) === plain]).toEqual([
          bytes,
          pinned,
          plainKind,
          kind,
          isWorse,
        ])
      }
  })

  test('is shown in the text of a plan, and explained', () => {
    const made = graph(square, ({ x }) => ({ y: x.pipe(upload(), mul(2), add(1), download()) }))
    const plan = orThrow(compile(made, { mode: 'eager' })) as Plan
    expect(textOf(plan)).toMatch(/run add\[0\] +x -> add\[0\] #fused\n/)
    expect(explain(plan)).toContain('add[0]: mul[0], add[0]')
    const other = orThrow(compile(made, { fuse: false })) as Plan
    expect(`${textOf(other)} ${explain(other)}`).not.toContain('fused')
  })

  test('keeps a kernel whose last value only gave an index its shape, where another one is an output', () => {
    const made = graph('shaped', { x: tensor('f32', [4, 1]) }, ({ x }) => {
      const first = x.pipe(upload(), relu())
      const places = first.pipe(relu(), relu(), iota({ axis: 0 }))
      const sum = places.pipe(scan((acc, place) => acc.pipe(add(place)), 0))
      return { sum: sum.pipe(download()), first: first.pipe(download()) }
    })
    for (const mode of ['eager', 'graph'] as const)
      expect(verify(orThrow(compile(made, { fuse: true, mode })))).toEqual([])
  })

  test('reads of memory what its operations together need from outside, and writes what others read', () => {
    let regions = 0
    let results = 0
    fc.assert(
      fc.property(sample({ steps: 16 }), made => {
        const compared = compareWithNeeded(made.graph, { dims: made.dims })
        regions += compared.regions
        results += compared.results
      }),
      { numRuns: runs(40) },
    )
    expect(regions).toBeGreaterThan(often(0))
    expect(results).toBeGreaterThan(often(0))
  })

  test.each<[string, (x: Square) => Record<string, DeviceFlow<AnyTensor>>, readonly string[]]>([
    ['positions alone', x => ({ y: x.pipe(relu(), abs(), iota({ axis: 0 }), relu(), add(1)) }), ['fused']],
    [
      'positions of a value that is stored',
      x => {
        const stored = x.pipe(relu(), abs())
        return { stored, y: stored.pipe(iota({ axis: 0 }), relu(), add(1)) }
      },
      ['fused', 'fused'],
    ],
    [
      'positions that are ordered after another operation',
      x => {
        const doubled = x.pipe(mul(2), keep())
        const ordered = x.pipe(abs(), comesAfter(doubled))
        return { doubled, y: ordered.pipe(iota({ axis: 0 }), relu(), add(1)) }
      },
      ['mul', 'abs', 'fused'],
    ],
    [
      'a next value in its state, which another plan stores there',
      x => {
        const next = x.pipe(relu())
        const before = next.pipe(delay(0, { name: 'before' }), neg(), abs())
        return { before, y: next.pipe(exp()) }
      },
      ['fused', 'fused'],
    ],
    [
      'a next value that is computed in its state',
      x => ({
        y: x.pipe(
          scan((acc, now) => acc.pipe(mul(0.5), add(now)), 0, { name: 'sum' }),
          neg(),
          abs(),
        ),
      }),
      ['fused'],
    ],
    [
      'a next value in its state, which a view of it shows',
      x => {
        const sum = x.pipe(scan((acc, now) => acc.pipe(mul(0.5), add(now)), 0, { name: 'sum' }))
        return { y: sum.pipe(reshape([4096]), neg(), abs()), z: sum.pipe(keep(), transpose([1, 0])) }
      },
      ['fused', 'transpose'],
    ],
    [
      'what others only come after',
      x => {
        const before = x.pipe(mul(2))
        return { y: before.pipe(add(1)), z: x.pipe(comesAfter(before), sum(0)) }
      },
      ['fused', 'sum'],
    ],
    [
      'what others only come after, as a view',
      x => {
        const before = x.pipe(mul(2))
        return { y: before.pipe(add(1)), z: x.pipe(comesAfter(before.pipe(reshape([4096]))), sum(0)) }
      },
      ['fused', 'sum'],
    ],
    [
      'a copy that attention reads through and an output shows',
      x => {
        const heads = x.pipe(reshape([4, 16, 64]), transpose([1, 0, 2]))
        return { heads, y: heads.pipe(attention(heads, heads)) }
      },
      ['transpose', 'fused'],
    ],
    [
      'a copy that attention and another kernel read through',
      x => {
        const heads = x.pipe(reshape([4, 16, 64]), transpose([1, 0, 2]))
        return { scaled: heads.pipe(mul(2)), y: heads.pipe(attention(heads, heads)) }
      },
      ['fused', 'fused'],
    ],
  ])('reads and writes no more of: %s', (_, body, kernels) => {
    const made = graph(square, ({ x }) =>
      Object.fromEntries(
        Object.entries(body(x.pipe(upload()))).map(([name, y]) => [name, y.pipe(download())]),
      ),
    ) as unknown as Graph
    expect(kernelsOf(fused(made))).toEqual(kernels)
    expect(compareWithNeeded(made).regions).toBe(kernels.filter(op => op === 'fused').length)
  })

  const options = [{}, { rates: true }, { devices: 2 }, { stays: true }] as const
  test.each(options)('makes sound plans of generated graphs that hold no more: %j', option => {
    let kernels = 0
    fc.assert(
      fc.property(
        sample({ steps: 24, ...option }),
        fc.constantFrom(
          { mode: 'eager', storage: 'pooled' } as const,
          { mode: 'eager', storage: 'planned' } as const,
          { mode: 'graph' } as const,
        ),
        (made, way) => {
          const settings = { dims: made.dims, inFlight: made.inFlight, ...way }
          const plan = compile(made.graph as Graph, { ...settings, fuse: true })
          if (isLeft(plan)) throw new Error(renderAll(plan.left))
          expect(verify(plan.right)).toEqual([])
          const plain = orThrow(compile(made.graph as Graph, { ...settings, fuse: false })) as Plan
          for (const [d, bytes] of plan.right.bound.device.entries())
            expect(bytes).toBeLessThanOrEqual(plain.bound.device[d]!)
          expect(plan.right.nodes.length).toBeLessThanOrEqual(plain.nodes.length)
          kernels += plan.right.nodes.filter(({ op }) => op === 'fused').length
        },
      ),
      { numRuns: runs(40) },
    )
    expect(kernels).toBeGreaterThan(often(0))
  })
})
