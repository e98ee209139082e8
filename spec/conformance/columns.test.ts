// Reductions along other axes than the last one, in one kernel with what goes into them and what comes of them.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  cast,
  compile,
  download,
  exp,
  type Graph,
  graph,
  logSumExp,
  max,
  mean,
  mul,
  orThrow,
  type Plan,
  relu,
  reshape,
  rsqrt,
  softmax,
  sub,
  sum,
  tensor,
  transpose,
  upload,
  variance,
} from '../../dsl/index.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant } from './meant.js'
import { ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes vary, which no type follows
type Anything = any

const columns = { axis: 0, keepDims: true } as const

const batchNorm = (x: Anything): Anything => {
  const apart = x.pipe(sub(x.pipe(mean(columns))))
  return apart.pipe(mul(apart.pipe(mul(apart), mean(columns), add(1e-5), rsqrt())))
}

/** Outputs by name of the flow of a matrix, and the kernels that compute them. */
const bodies: Readonly<Record<string, (x: Anything) => Readonly<Record<string, Anything>>>> = {
  'what goes into a sum': x => ({ y: x.pipe(exp(), sum({ axis: 0 })) }),
  'what comes of a sum': x => ({ y: x.pipe(sum({ axis: 0 }), mul(0.5), exp()) }),
  softmax: x => ({ y: x.pipe(softmax({ axis: 0 })) }),
  variance: x => ({ y: x.pipe(variance({ axis: 0 })) }),
  logSumExp: x => ({ y: x.pipe(logSumExp({ axis: 0 })) }),
  'batch norm': x => ({ y: batchNorm(x) }),
  'the middle axis': x => ({ y: x.pipe(reshape([3, 50, 48]), exp(), sum({ axis: 1 })) }),
  'what is stored too, and two sums of it': x => {
    const gradient = x.pipe(relu(), mul(2))
    const [shift, scale] = [gradient.pipe(sum({ axis: 0 })), gradient.pipe(mul(x), sum({ axis: 0 }))]
    return { gradient, shift, scale }
  },
}

const numbers = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, i) => ((i * 7919 + seed * 131) % 1001) / 500 - 1)

const kernelsOf = (net: Graph): readonly NonNullable<Plan['nodes'][number]['kernel']>[] =>
  orThrow(compile(net as never, { fuse: true }) as never as ReturnType<typeof compile>)
    .nodes.map(({ kernel }: Plan['nodes'][number]) => kernel)
    .filter(kernel => kernel !== undefined && kernel.kind !== 'copy') as never

/** Checks that the fused graph yields what it means, as near as rounding allows. */
const expectMeaning = async (net: Graph, device: string, x: Float32Array, outputs: readonly string[]) => {
  const feeds = { x: [x] }
  const made = {
    ...{ graph: net, feeds, params: {}, dims: {}, inFlight: 1, ticks: 1, text: '' },
    outputs: Object.fromEntries(outputs.map(name => [name, 'f32'])),
  } as Sample
  await expectMeant(made, await ran(net as never, device, feeds, { compile: { fuse: true } }))
}

const shape = fc.array(fc.constantFrom<number>(1, 2, 3, 5, 8, 16, 33, 64), { minLength: 2, maxLength: 4 })
const steps = fc.array(
  fc.record({
    how: fc.constantFrom('sum', 'mean', 'max', 'softmax', 'exp', 'relu', 'transpose', 'sumOnly', 'twice'),
    axis: fc.nat(7),
  }),
  { minLength: 2, maxLength: 6 },
)

/** Each step goes on with what the one before it yields; reductions beside what they reduce. */
const made = (
  sizes: readonly number[],
  list: readonly { how: string; axis: number }[],
  dtype: string,
): Graph =>
  graph('columns', { x: tensor('f32', sizes as never) }, ({ x }: Anything) => {
    let at = x.pipe(upload(), ...(dtype === 'f32' ? [] : [cast('bf16')]))
    let rank = sizes.length
    for (const { how, axis: given } of list) {
      if (rank === 0) break
      const axis = given % rank
      const reduce = { sum, mean, max }[how] as Anything
      if (reduce !== undefined) at = at.pipe(sub(at.pipe(mul(0.25), reduce({ axis, keepDims: true }))))
      else if (how === 'softmax') at = at.pipe(softmax({ axis } as Anything))
      else if (how === 'exp') at = at.pipe(mul(0.5), exp(), mul(0.125))
      else if (how === 'relu') at = at.pipe(relu(), sub(0.5))
      else if (how === 'twice') at = at.pipe(mul(at))
      else if (how === 'transpose')
        at = at.pipe(transpose([...Array(rank).keys()].map(d => (d + 1) % rank) as Anything))
      else {
        at = at.pipe(mul(0.5), sum({ axis } as Anything))
        rank--
      }
    }
    return { y: at.pipe(cast('f32'), download()) }
  }) as never

describe.each(present)('columns on %s', device => {
  it.each(Object.entries(bodies))('%s is one kernel', async (_, body) => {
    const isMiddle = body === bodies['the middle axis']
    // Few columns are the work of few blocks of threads, to which an elementwise kernel is not added.
    const isStored = body === bodies['what is stored too, and two sums of it']
    const shapes = [
      [150, 48],
      [150, 47],
      [75, 96],
    ] as const
    const large = [
      [64, 4096],
      [150, 4096],
    ] as const
    for (const sizes of isStored ? large : isMiddle ? shapes.slice(0, 1) : shapes) {
      let outputs: readonly string[] = []
      const net = graph('columns', { x: tensor('f32', sizes) }, ({ x }: Anything) => {
        const flows = body(x.pipe(upload()))
        outputs = Object.keys(flows)
        return Object.fromEntries(outputs.map(name => [name, flows[name].pipe(download())]))
      }) as never as Graph
      const kernels = kernelsOf(net)
      expect(kernels).toHaveLength(1)
      expect(kernels[0]).toMatchObject({ kind: 'map', axis: isMiddle ? 1 : 0 })
      await expectMeaning(net, device, numbers(sizes[0] * sizes[1], sizes[1]), outputs)
    }
  })

  it('mean what they mean along any axes', { timeout: 300_000 }, async () => {
    let joined = 0
    await fc.assert(
      fc.asyncProperty(
        shape,
        steps,
        fc.constantFrom('f32', 'bf16'),
        fc.nat(99),
        async (sizes, list, dtype, seed) => {
          const net = made(sizes, list, dtype)
          joined += kernelsOf(net).some(kernel => kernel.kind === 'map' && kernel.axis !== undefined) ? 1 : 0
          const count = sizes.reduce((product, size) => product * size, 1)
          await expectMeaning(net, device, numbers(count, seed), ['y'])
        },
      ),
      { numRuns: runs(60) },
    )
    expect(joined).toBeGreaterThan(runs(60) / 6)
  })
})
