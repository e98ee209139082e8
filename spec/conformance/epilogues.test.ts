// Products that compute what follows them: the plan yields what the graph means, within one rounding less than the
// operations apart, and a kernel that reads another bias or residual, or leaves out a step, is noticed.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
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
  parsePlan,
  relu,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { MatmulEpilogue } from '../../dsl/ir/kernel-spec.js'
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
  readonly m: number
  readonly n: number
  readonly more: number
  readonly transpose: boolean
  readonly chain: readonly (typeof steps)[number][]
}

const cases: fc.Arbitrary<Case> = fc.record({
  dtype: fc.constantFrom('f32', 'bf16', 'bf16', 'f16'),
  m: fc.constantFrom(1, 2, 7, 40),
  n: fc.constantFrom(1, 3, 16, 33, 520),
  more: fc.constantFrom(0, 5, 40),
  transpose: fc.boolean(),
  chain: fc.array(fc.constantFrom(...steps), { minLength: 1, maxLength: 4 }),
})

const made = ({ dtype, m, n, more, transpose, chain }: Case): Sample => {
  const k = n + more
  const ports = {
    x: tensor(dtype, [m, k]),
    w: tensor(dtype, transpose ? [n, k] : [k, n]),
    bias: tensor(dtype, [n]),
    residual: tensor(dtype, [m, n]),
  }
  let result: string = dtype
  const net = graph('product', ports, (given: Anything) => {
    const [x, w, bias, residual] = ['x', 'w', 'bias', 'residual'].map(name => given[name].pipe(upload()))
    let y = x.pipe(matmul(w, { transpose }))
    for (const step of chain) {
      const to = result === dtype ? (flow: Anything) => flow : (flow: Anything) => flow.pipe(cast('f32'))
      if (step === 'bias' || step === 'late bias') y = y.pipe(add(to(bias)))
      else if (step === 'residual') y = to(residual).pipe(add(y))
      else if (step === 'scale') y = y.pipe(mul(-0.75))
      else if (step === 'gelu') y = y.pipe(gelu({ approximate: 'tanh' }))
      else if (step === 'erf') y = y.pipe(gelu())
      else if (step === 'relu') y = y.pipe(relu())
      else y = y.pipe(cast((result = 'f32')))
    }
    return { y: y.pipe(download()) }
  })
  const feeds = Object.fromEntries(
    [
      ['x', m * k],
      ['w', k * n],
      ['bias', n],
      ['residual', m * n],
    ].map(([name, count], i) => [name, [valuesOf(dtype, count as number, i + 1)]]),
  ) // prettier-ignore
  const base = { dims: {}, inFlight: 1, params: {}, ticks: 1, text: '' }
  return { ...base, outputs: { y: result as 'f32' }, graph: net as unknown as Graph, feeds }
}

const planOf = (one: Sample, fuse: boolean): Plan =>
  orThrow(compile(one.graph, { fuse, inFlight: 1 })) as Plan

const epilogueOf = ({ nodes }: Plan): MatmulEpilogue | undefined => {
  for (const { kernel } of nodes) if (kernel?.kind === 'matmul') return kernel.epilogue
  return undefined
}

const ran = async (plan: Plan, one: Sample, device: string): Promise<readonly Values[]> => {
  const host = device === 'host' ? { host: { poison: true } } : {}
  await using session = orThrow(await open(plan, { device, poison: true, ...host })()) as Session
  return await outputsOf(session as never, one)
}

/** The plan with its product's kernel, and what the product reads, changed. */
const changed = (plan: Plan, change: (epilogue: Anything, reads: number[]) => void): Plan => {
  const json = JSON.parse(toJSON(plan))
  const at = json.nodes.findIndex((node: Anything) => node.kernel?.kind === 'matmul')
  const run = json.commands.find(([kind, node]: Anything) => kind === 'run' && node === at)
  change(json.nodes[at].kernel.epilogue, run[3])
  return orThrow(parsePlan(JSON.stringify(json)))
}

describe.each(present)('on %s', device => {
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

  it.each<readonly [string, Case['chain'], (epilogue: Anything, reads: number[]) => void]>([
    ['reads another bias', ['bias', 'gelu'], (_, reads) => reads.splice(2, 1, reads[1]!)],
    ['reads another residual', ['bias', 'residual'], (_, reads) => reads.splice(3, 1, reads[0]!)],
    ['drops the activation', ['bias', 'gelu'], epilogue => delete epilogue.activation],
    ['drops the scale', ['scale', 'bias'], epilogue => delete epilogue.scale],
  ])('an epilogue that %s is noticed', async (_, chain, change) => {
    const one = made({ dtype: 'bf16', m: 7, n: 33, more: 5, transpose: false, chain })
    const plan = planOf(one, true)
    expect(epilogueOf(plan)).toBeDefined()
    const meant = await meantOf(one)
    expect(mismatch(one, meant, await ran(plan, one, device))).toBeUndefined()
    expect(mismatch(one, meant, await ran(changed(plan, change), one, device))).toBeDefined()
  })
})
