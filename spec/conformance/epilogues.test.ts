// Products that compute what follows them: the plan yields what the graph means, within one rounding less
// than the operations apart, and a kernel that reads another bias or residual, or leaves out a step, is
// noticed.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  add,
  cast,
  compile,
  download,
  type Graph,
  gelu,
  graph,
  matmul,
  mul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  relu,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { MatmulEpilogue } from '../../dsl/ir/kernel-spec.js'
import { type DType, elements } from '../../dsl/ir/tensor.js'
import { type HostArray, numbers, writer } from '../../dsl/language/values.js'
import { open, type Session } from '../../runtime/index.js'
import { type Sample, valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { meantOf, mismatch, outputsOf, type Values } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: element types and steps vary, which no type follows
type Anything = any

const steps = ['bias', 'residual', 'late bias', 'scale', 'gelu', 'erf', 'relu', 'f32'] as const

interface Case {
  readonly dtype: 'f32' | 'bf16' | 'f16'
  /** 0: operands have no leading dimension. */
  readonly layers: number
  readonly m: number
  readonly n: number
  readonly more: number
  readonly transpose: boolean
  readonly chain: readonly (typeof steps)[number][]
  /** What goes into the last step is an output too. */
  readonly both?: boolean
}

const cases: fc.Arbitrary<Case> = fc.record({
  dtype: fc.constantFrom('f32', 'f32', 'bf16', 'bf16', 'f16'),
  layers: fc.constantFrom(0, 0, 0, 3),
  m: fc.constantFrom(1, 2, 4, 7, 40),
  n: fc.constantFrom(1, 3, 16, 33, 520),
  more: fc.constantFrom(0, 5, 40),
  transpose: fc.boolean(),
  chain: fc.array(fc.constantFrom(...steps), { minLength: 1, maxLength: 4 }),
  both: fc.boolean(),
})

const made = ({ dtype, layers, m, n: columns, more, transpose, chain, both }: Case): Sample => {
  const n = layers === 0 ? columns : Math.min(columns, 33)
  const k = n + more
  const lead = layers === 0 ? [] : [layers]
  const ports = {
    x: tensor(dtype, [...lead, m, k]),
    w: tensor(dtype, [...lead, ...(transpose ? [n, k] : [k, n])]),
    bias: tensor(dtype, [n]),
    residual: tensor(dtype, [...lead, m, n]),
  }
  let result: string = dtype
  const outputs: Record<string, DType> = {}
  const net = graph('product', ports, (given: Anything) => {
    const [x, w, bias, residual] = ['x', 'w', 'bias', 'residual'].map(name => given[name].pipe(upload()))
    let y = x.pipe(matmul(w, { transpose }))
    const beside: Record<string, Anything> = {}
    for (const [i, step] of chain.entries()) {
      if (both && i === chain.length - 1) {
        beside['z'] = y.pipe(download())
        outputs['z'] = result as DType
      }
      const to = result === dtype ? (flow: Anything) => flow : (flow: Anything) => flow.pipe(cast('f32'))
      if (step === 'bias' || step === 'late bias') y = y.pipe(add(to(bias)))
      else if (step === 'residual') y = to(residual).pipe(add(y))
      else if (step === 'scale') y = y.pipe(mul(-0.75))
      else if (step === 'gelu') y = y.pipe(gelu({ approximate: 'tanh' }))
      else if (step === 'erf') y = y.pipe(gelu())
      else if (step === 'relu') y = y.pipe(relu())
      else y = y.pipe(cast((result = 'f32')))
    }
    return { y: y.pipe(download()), ...beside }
  })
  const feeds = Object.fromEntries(
    Object.entries(ports).map(([name, { shape }], i) => [name, [valuesOf(dtype, elements(shape), i + 1)]]),
  )
  const base = { dims: {}, inFlight: 1, params: {}, ticks: 1, text: '' }
  return { ...base, outputs: { y: result as 'f32', ...outputs }, graph: net as unknown as Graph, feeds }
}

const planOf = (one: Sample, fuse: boolean, memory: 'fast' | number = 'fast'): Plan =>
  orThrow(compile(one.graph, { mode: 'eager', fuse, inFlight: 1, memory })) as Plan

const epilogueOf = ({ nodes }: Plan): MatmulEpilogue | undefined => {
  for (const { kernel } of nodes) if (kernel?.kind === 'matmul') return kernel.epilogue
  return undefined
}

const ran = async (plan: Plan, one: Sample, device: string): Promise<readonly Values[]> => {
  const host = device === 'host' ? { host: { poison: true } } : {}
  const options = { device, params: one.params, poison: true, ...host }
  await using session = orThrow(await open(plan, options)()) as Session
  return await outputsOf(session as never, one)
}

/**
 * Few and small whole numbers, so that every order of additions and every rounding yields the same; the first
 * rows and columns have zeros of both signs, infinities and a NaN.
 */
const whole = (dtype: DType, shape: readonly number[], seed: number): HostArray => {
  const values = valuesOf(dtype, elements(shape), seed)
  const found = numbers(values, dtype)
  const write = writer(dtype)
  const special = [0, -0, Number.POSITIVE_INFINITY, Number.NaN, Number.NEGATIVE_INFINITY]
  const inner = shape.at(-1)!
  for (let i = 0; i < values.length; i++) {
    const row = Math.floor(i / inner)
    // Rows of zeros, and otherwise one number in 40 that is special: most elements of a product stay finite.
    const one = row % 5 === seed % 5 ? 0 : Math.round(found[i]! * 2)
    values[i] = write((i * 7 + seed) % 40 === 3 ? special[Math.floor(i / 40) % special.length]! : one)
  }
  return values
}

/** What is written of a number: zeros by their sign, all NaN alike. */
const marks = (values: HostArray, dtype: DType): readonly string[] =>
  Array.from(numbers(values, dtype), value => (Object.is(value, -0) ? '-0' : `${value}`))

interface Named {
  readonly dtype: 'f32' | 'bf16' | 'f16'
  readonly layers: number
  readonly m: number
  readonly n: number
  readonly k: number
  readonly transpose: boolean
  readonly epilogue: MatmulEpilogue
}

const named: fc.Arbitrary<Named> = fc.record({
  dtype: fc.constantFrom('f32', 'bf16', 'bf16', 'f16'),
  layers: fc.constantFrom(0, 0, 3),
  m: fc.constantFrom(1, 2, 3, 4, 5, 24, 130),
  n: fc.constantFrom(1, 3, 8, 16, 33, 264),
  k: fc.constantFrom(1, 5, 8, 16),
  transpose: fc.boolean(),
  epilogue: fc.constantFrom<MatmulEpilogue>(
    { activation: 'relu' },
    { scale: -2, activation: 'relu' },
    { bias: true, activation: 'relu' },
    { scale: -2, bias: true, activation: 'relu' },
    { bias: true, residual: true },
  ),
})

/** A product of parameters, and of the same the product with the operations of an epilogue after it. */
const namedCase = ({ dtype, layers, m, n, k, transpose, epilogue }: Named) => {
  const lead = layers === 0 ? [] : [layers]
  const shapes = {
    x: [...lead, m, k],
    w: [...lead, ...(transpose ? [n, k] : [k, n])],
    bias: [n],
    residual: [...lead, m, n],
  }
  const { activation, bias, residual, scale } = epilogue
  const graphOf = (steps: boolean) =>
    graph('named', {}, () => {
      const of = (name: keyof typeof shapes): Anything => param(name, tensor(dtype, shapes[name]))
      const [x, w, b, r] = [of('x'), of('w'), of('bias'), of('residual')]
      let y = x.pipe(matmul(w, { transpose }))
      if (steps && scale !== undefined) y = y.pipe(mul(scale))
      if (steps && bias) y = y.pipe(add(b))
      if (steps && activation) y = y.pipe(relu())
      if (steps && residual) y = y.pipe(add(r))
      // Read by the plan before it is changed: what is no part of a plan has no memory.
      return { y: y.pipe(download()), b: b.pipe(download()), r: r.pipe(download()) }
    })
  const params = Object.fromEntries(
    Object.entries(shapes).map(([name, shape], i) => [name, whole(dtype, shape, i + 1)]),
  )
  const outputs = { y: dtype, b: dtype, r: dtype }
  const sample = (steps: boolean): Sample =>
    ({
      graph: graphOf(steps),
      dims: {},
      inFlight: 1,
      params,
      ticks: 1,
      text: '',
      outputs,
      feeds: {},
    }) as never
  return { plain: sample(false), meant: sample(true) }
}

/** The plan with its product's kernel, and what the product reads, changed. */
const changed = (plan: Plan, change: (kernel: Anything, reads: number[], json: Anything) => void): Plan => {
  const json = JSON.parse(toJSON(plan))
  const at = json.nodes.findIndex((node: Anything) => node.kernel?.kind === 'matmul')
  const run = json.commands.find(([kind, node]: Anything) => kind === 'run' && node === at)
  change(json.nodes[at].kernel, run[3], json)
  return orThrow(parsePlan(JSON.stringify(json)))
}

// On cuda once more without the library that multiplies matrices, by Braid's own kernels.
const ways = present.flatMap(device =>
  device === 'host'
    ? [[device, 'on']]
    : [
        [device, 'on'],
        [device, 'off'],
      ],
) as readonly (readonly [string, 'on' | 'off'])[]

describe.each(ways)('on %s, cuBLASLt %s', (device, use) => {
  const before = process.env['BRAID_CUBLASLT']
  beforeAll(() => {
    process.env['BRAID_CUBLASLT'] = use
  })
  afterAll(() => {
    if (before === undefined) delete process.env['BRAID_CUBLASLT']
    else process.env['BRAID_CUBLASLT'] = before
  })

  it('a product with an epilogue is what the graph means', { timeout: 60_000 }, async () => {
    let found = 0
    await fc.assert(
      fc.asyncProperty(cases, async given => {
        const one = made(given)
        const plan = planOf(one, true)
        if (epilogueOf(plan) !== undefined) found++
        const meant = await meantOf(one)
        expect(mismatch(one, meant, await ran(plan, one, device))).toBeUndefined()
      }),
      { numRuns: runs(80) },
    )
    expect(found).toBeGreaterThan(often(20))
  })

  it('a product with gelu writes what gelu is computed of too', async () => {
    const chains = [['gelu'], ['bias', 'gelu'], ['scale', 'gelu'], ['scale', 'bias', 'gelu']] as const
    // A bias of one element is a residual where there is one row.
    const beforeGelu = fc
      .tuple(cases, fc.constantFrom(...chains))
      .map(([given, chain]) => ({ ...given, chain: [...chain], n: Math.max(3, given.n) }))
      .map(given => ({ ...given, layers: 0, dtype: 'bf16', both: true }) as const)
    await fc.assert(
      fc.asyncProperty(beforeGelu, async given => {
        const one = made(given)
        // Two results at once may hold more than one after the other: within so much memory they may.
        const plan = planOf(one, true, 2 ** 30)
        expect(epilogueOf(plan)).toMatchObject({ activation: 'gelu', auxiliary: true })
        const meant = await meantOf(one)
        expect(mismatch(one, meant, await ran(plan, one, device))).toBeUndefined()
        // The activation's operand is not the result, nor the other way round.
        const exchanged = changed(plan, (_, __, { commands, nodes }) => {
          const run = commands.find(
            ([kind, node]: Anything) => kind === 'run' && nodes[node].kernel?.epilogue,
          )
          run[4].splice(0, 2, run[4][1], run[4][0])
        })
        // Of few large values the two may be nearly equal.
        if (given.m * given.n >= 32)
          expect(mismatch(one, meant, await ran(exchanged, one, device))).toBeDefined()
      }),
      { numRuns: runs(20) },
    )
  })

  // The steps of f32 are rounded one by one in either case. A library may add a scale and a bias in one step.
  it.runIf(device === 'host')('an epilogue of f32 changes no bit', async () => {
    let found = 0
    await fc.assert(
      fc.asyncProperty(
        cases.map(given => ({ ...given, dtype: 'f32' as const })),
        async given => {
          const one = made(given)
          const plan = planOf(one, true)
          if (epilogueOf(plan) !== undefined) found++
          const bytes = (values: readonly Values[]) => values.map(({ y }) => new Uint8Array(y!.buffer))
          expect(bytes(await ran(plan, one, device))).toEqual(
            bytes(await ran(planOf(one, false), one, device)),
          )
        },
      ),
      { numRuns: runs(40) },
    )
    expect(found).toBeGreaterThan(often(15))
  })

  // In every element type, and of several layers, also where the compiler makes no such plan.
  it('an epilogue that a plan names keeps NaN, infinities and signs', { timeout: 60_000 }, async () => {
    let nans = 0
    await fc.assert(
      fc.asyncProperty(named, async given => {
        const { plain, meant } = namedCase(given)
        const { epilogue, dtype } = given
        const plan = changed(planOf(plain, false), (kernel, reads, { buffers }) => {
          kernel.epilogue = epilogue
          for (const name of ['bias', 'residual'] as const)
            if (epilogue[name]) reads.push(buffers.find((each: Anything) => each.name === name).id)
        })
        const [wanted] = await meantOf(meant)
        const [found] = await ran(plan, plain, device)
        // A library may begin a sum with its first term, so that of terms of -0 alone it is -0, not 0.
        const unsigned = (mark: string) => (epilogue.residual && mark === '-0' ? '0' : mark)
        const marked = marks(wanted!.values['y']!, dtype).map(unsigned)
        nans += marked.includes('NaN') ? 1 : 0
        expect(marks(found!['y']!, dtype).map(unsigned)).toEqual(marked)
      }),
      { numRuns: runs(60) },
    )
    expect(nans).toBeGreaterThan(often(15))
  })

  it.each<readonly [string, Case['chain'], (kernel: Anything, reads: number[]) => void]>([
    ['drops relu', ['bias', 'relu'], ({ epilogue }) => delete epilogue.activation],
    ['computes relu of nothing', ['bias'], ({ epilogue }) => Object.assign(epilogue, { activation: 'relu' })],
    ['reads another bias', ['bias', 'gelu'], (_, reads) => reads.splice(2, 1, reads[1]!)],
    ['reads another residual', ['bias', 'residual'], (_, reads) => reads.splice(3, 1, reads[0]!)],
    ['drops the activation', ['bias', 'gelu'], ({ epilogue }) => delete epilogue.activation],
    ['drops the scale', ['scale', 'bias'], ({ epilogue }) => delete epilogue.scale],
  ])('an epilogue that %s is noticed', async (_, chain, change) => {
    // gelu is part of products of bf16 alone.
    const dtype = chain.includes('gelu') ? 'bf16' : 'f32'
    const one = made({ dtype, layers: 0, m: 7, n: 33, more: 5, transpose: false, chain })
    const plan = planOf(one, true)
    expect(epilogueOf(plan)).toBeDefined()
    const meant = await meantOf(one)
    expect(mismatch(one, meant, await ran(plan, one, device))).toBeUndefined()
    expect(mismatch(one, meant, await ran(changed(plan, change), one, device))).toBeDefined()
  })
})
