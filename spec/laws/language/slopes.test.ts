// Gradients beside the slopes of the loss: its differences, in f64, by a meaning of the operators that shares
// nothing with the rules, nor with the operators' references (spec/oracle/values.ts).
import fc from 'fast-check'
import { firstValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { mapBinary, mapUnary } from '../../../dsl/ir/kernel-spec.js'
import { elements } from '../../../dsl/ir/tensor.js'
import { rules } from '../../../dsl/language/gradients/rules.js'
import { irOf } from '../../../dsl/language/graph.js'
import { numbers } from '../../../dsl/language/values.js'
import { cornerParams, corners, cornersGraph, isAsMeant } from '../../fixtures/graphs/gradient-corners.js'
import {
  drawn,
  f32,
  gradientGraph,
  lossCases,
  type Point,
  paramsOf,
  type Spec,
  type Specs,
  sameShape,
  weighed,
} from '../../fixtures/graphs/gradients.js'
import { runs } from '../../fixtures/runs.js'
import { type Losses, lossesOf } from '../../oracle/slopes.js'

// biome-ignore lint/suspicious/noExplicitAny: graphs of any operators
type Any = any
const b = braid as Any

const results = async (made: Any, specs: Specs, point: Point): Promise<Any> =>
  firstValueFrom(b.interpret(made, { params: paramsOf(specs, point) })({}) as never)

/** What the types hold of the numbers. */
const held = (specs: Specs, point: Point): Point => {
  const params = paramsOf(specs, point)
  return Object.fromEntries(
    Object.entries(specs).map(([name, [dtype]]) => [name, [...numbers(params[name]!, dtype)]]),
  )
}

/** From here on the loss jumps, and has no slope. */
const steep = 1e4

/**
 * Whether each element is between the two slopes, but for rounding; where the loss has both. At a
 * corner of several terms, whose signs differ, it may be off by as much as the slopes are apart.
 */
const expectBetween = (
  found: ArrayLike<number>,
  slopes: readonly (readonly [number, number])[],
  error: number,
  where: string,
): void => {
  const known = slopes
    .flat()
    .map(Math.abs)
    .filter(slope => slope < steep)
  const size = Math.max(1e-3, ...known)
  for (const [i, [left, right]] of slopes.entries()) {
    if (!(Math.abs(left) < steep && Math.abs(right) < steep)) continue
    const off = error * size + Math.abs(left - right)
    const text = `${where}, element ${i}: ${found[i]}, between ${left} and ${right}`
    expect(found[i]! >= Math.min(left, right) - off && found[i]! <= Math.max(left, right) + off, text).toBe(
      true,
    )
  }
}

/** In f32 a value may be on the other side of a jump than in f64. */
const jumps = ['a map', 'a map of steps', 'floorDiv', 'mod', 'where', 'where with a number']

/** Numbers with zeros and equal ones; all equal; so small that f32 has few bits of them. */
const points: readonly ((value: number, i: number) => number)[] = [
  value => value,
  value => Math.round(2 * value) / 2,
  () => 0,
  (_, i) => (i % 3 === 0 ? -0 : 2 ** -140 * (1 + (i % 2))),
]

const losses = new Map(lossCases.map(([name, { graph }]) => [name, lossesOf(irOf(graph))]))

describe('a gradient is the slope of its loss, of', () => {
  it.each(lossCases)('%s', async (name, { specs, graph: made }) => {
    const { slopes } = losses.get(name) as Losses
    for (const [p, of] of points.entries()) {
      const own = drawn(specs, 7 + p)
      const point = held(
        specs,
        Object.fromEntries(Object.entries(own).map(([each, values]) => [each, values.map(of)])),
      )
      const here = await results(made, specs, point)
      // Equal elements are the first ones of topK in their order, which a step of one of them changes.
      if (name === 'topK' && p > 0) continue
      for (const [each, values] of Object.entries(point)) {
        const gradient = here[`d${each}`]
        expect(gradient).toHaveLength(values.length)
        // Of many elements, some: those of attention cost the most.
        const every = Math.ceil(values.length / 24)
        const which = Array.from(values, (_, i) => i).filter(i => (i + p) % every === 0)
        expectBetween(
          which.map(i => gradient[i]),
          slopes([point], 0, each, which),
          5e-4,
          `point ${p}, d${each}`,
        )
      }
    }
  })

  it('operators one after another, of zeros, equal and large numbers', async () => {
    const chain = fc.array(fc.constantFrom(...Object.keys(sameShape).filter(name => !jumps.includes(name))), {
      minLength: 2,
      maxLength: 4,
    })
    const element = fc.oneof(
      fc.constantFrom(0, -0.5, 0.5, 1, -1, 2, -2, 8, -8),
      fc.double({ min: -2, max: 2, noNaN: true }),
    )
    const values = fc.array(element, { minLength: 12, maxLength: 12 })
    await fc.assert(
      fc.asyncProperty(chain, values, async (names, x) => {
        const specs: Specs = { x: f32(3, 4) }
        const { graph } = gradientGraph(specs, (s: Any) =>
          weighed(names.reduce((value, name) => sameShape[name]!(value), s.x)),
        )
        const point = held(specs, { x })
        const { largest, slopes } = lossesOf(irOf(graph))
        // Of larger numbers f32 has too few bits for a sine.
        fc.pre(largest([point]) < 1e4)
        // At a corner of several terms, whose signs differ, a gradient need not be between the slopes.
        const nearer = slopes([point], 0, 'x', undefined, 2 ** -22)
        const all = slopes([point], 0, 'x').map(([left, right], i) => {
          const error = 1e-3 * Math.max(1, Math.abs(left))
          const isSmooth = [right, ...nearer[i]!].every(slope => Math.abs(slope - left) < error)
          return isSmooth ? ([left, right] as const) : ([Number.NaN, Number.NaN] as const)
        })
        const { dx } = await results(graph, specs, point)
        // An infinite slope times 0 is NaN, and so is what is added to it.
        const isSmooth = all.flat().every(slope => !Number.isNaN(slope))
        fc.pre(isSmooth || [...dx].every(Number.isFinite))
        expectBetween(dx, all, 5e-3, names.join(', '))
      }),
      { numRuns: runs(60) },
    )
  })

  it('lengths that f16 and bf16 cannot count', async () => {
    const cases: Readonly<Record<string, (x: Any) => Any>> = {
      max: x => x.pipe(b.max({ axis: 0 })),
      min: x => x.pipe(b.neg(), b.min({ axis: 0 })),
      mean: x => x.pipe(b.mean()),
      sum: x => x.pipe(b.mul(2 ** -8), b.sum()),
      variance: x => x.pipe(b.variance(), b.mul(16)),
      softmax: x => x.pipe(b.softmax(), b.slice(0, 0, 1), b.sum()),
      logSumExp: x => x.pipe(b.logSumExp()),
      layerNorm: x => x.pipe(b.layerNorm({ epsilon: 1 }), b.slice(0, 0, 1), b.sum()),
      cumsum: x => x.pipe(b.cumsum({ axis: 0 }), b.mul(2 ** -17), b.sum()),
      'a value repeated': x =>
        x.pipe(b.slice(0, 0, 1), b.expand([x.spec.shape[0]]), b.mul(2 ** -17), b.sum()),
    }
    for (const [dtype, n] of [
      ['f16', 66_000],
      ['bf16', 1_000],
    ] as const)
      for (const [name, of] of Object.entries(cases)) {
        const specs: Specs = { x: [dtype, [n]] }
        const { graph } = gradientGraph(specs, ({ x }: Any) => of(x).pipe(b.cast('f32'), b.mul(256)), 'f32')
        const point = held(specs, { x: Array.from({ length: n }, (_, i) => (i === 1 ? 0.5 : 1)) })
        const found = (await results(graph, specs, point)).dx
        const where = `${name} of ${n} ${dtype}`
        const which = [0, 1]
        const slopes = lossesOf(irOf(graph)).slopes([point], 0, 'x', which)
        expectBetween(
          which.map(i => found[i]),
          slopes,
          2e-2,
          where,
        )
        // Each of the equal ones has its part.
        const share = (Math.abs(found[0]) * (n - 1)) / 256
        if (name === 'max' || name === 'min')
          expect(Math.abs(share - 1), `${where}: ${share}`).toBeLessThan(2e-2)
      }
  })

  it('collectives of each kind, by the values of all ranks', async () => {
    const number = fc.oneof(fc.constantFrom(0, 1, -1, 0.5), fc.double({ min: -2, max: 2, noNaN: true }))
    const kinds: Readonly<Record<string, (world: Any, how: string) => (x: Any) => Any>> = {
      allReduce: (world, how) => x => x.pipe(b.allReduce(world, how)),
      reduceScatter: (world, how) => x => x.pipe(b.reduceScatter(world, how)),
      allGather: world => x => x.pipe(b.allGather(world)),
      allToAll: world => x => x.pipe(b.allToAll(world)),
    }
    const given = fc.integer({ min: 2, max: 5 }).chain(ranks =>
      fc.record({
        kind: fc.constantFrom(...Object.keys(kinds)),
        how: fc.constantFrom('sum', 'mean', 'max', 'min', 'product'),
        rows: fc.array(fc.array(number, { minLength: 2 * ranks, maxLength: 2 * ranks }), {
          minLength: ranks,
          maxLength: ranks,
        }),
      }),
    )
    await fc.assert(
      fc.asyncProperty(given, async ({ kind, how, rows }) => {
        const ranks = rows.length
        const world = b.communicator('world', ranks)
        const specs: Specs = { x: f32(ranks, 2), w: f32(1) }
        // The losses of the ranks differ.
        const { graph } = gradientGraph(specs, ({ x, w }: Any) =>
          weighed(kinds[kind]!(world, how)(x).pipe(b.mul(w), b.sin())),
        )
        const all = rows.map((x, rank) => held(specs, { x, w: [0.5 + rank / 4] }))
        const params = all.map(point => paramsOf(specs, point))
        const found: Any = await firstValueFrom(b.interpretRanks(graph, { params })(rows.map(() => ({}))))
        const { slopes } = lossesOf(irOf(graph))
        for (const rank of rows.keys())
          for (const name of ['x', 'w'])
            expectBetween(
              found[rank][`d${name}`],
              slopes(all, rank, name),
              1e-3,
              `${kind} ${how}, rank ${rank}`,
            )
      }),
      { numRuns: runs(60) },
    )
  })
})

describe('where there is no slope, a gradient is what the guide says, of', () => {
  it.each(Object.entries(corners))('%s', async (name, corner) => {
    const found: Any = await firstValueFrom(b.interpret(cornersGraph, { params: cornerParams })({}) as never)
    expect(isAsMeant(found[name], corner), `${[...found[name]]}, for ${corner.gradient}`).toBe(true)
  })
})

describe('every operator with a rule', () => {
  const nodes = [...losses.values()].flatMap(each => each.nodes)

  it('is in a loss', () => {
    const composites = ['softmax', 'logSoftmax', 'logSumExp', 'norm', 'crossEntropy']
    const collectives = ['allGather', 'allReduce', 'allToAll', 'reduceScatter']
    // Nodes of these are of the order of what runs, and of rates: rates.test.ts and gradients.test.ts.
    const others = ['after', 'repeat', ...composites, ...collectives]
    const met = new Set(nodes.map(({ op }) => op))
    expect(Object.keys(rules).filter(op => !met.has(op) && !others.includes(op))).toEqual([])
  })

  it('is in a loss with every instruction of a map', () => {
    // Casts within a kernel are made after gradients are.
    const stored = ['f16', 'bf16', 'i32', 'u8']
    const met = new Set(nodes.flatMap(({ attrs }) => ((attrs['code'] ?? []) as Any[]).map(([op]) => op)))
    const all = [...mapUnary, ...mapBinary, 'select'].filter(op => !stored.includes(op))
    expect(all.filter(op => !met.has(op))).toEqual([])
  })
})

describe('a loss that is NaN by a value', () => {
  // By its condition a NaN is not greater and not less: what is chosen then is a line.
  const isLine = (name: string) => name.startsWith('where')
  it.each(lossCases)('has a gradient that does not hide it, of %s', async (name, { specs, graph: made }) => {
    const { slopes } = losses.get(name) as Losses
    const own = held(specs, drawn(specs, 3))
    for (const [each, [, shape]] of Object.entries(specs) as [string, Spec][]) {
      const i = Math.floor(elements(shape) / 2)
      const point = (value: number): Point => ({
        ...own,
        [each]: own[each]!.map((old, j) => (j === i ? value : old)),
      })
      const { loss, [`d${each}`]: found } = await results(made, specs, point(Number.NaN))
      if (!Number.isNaN(loss[0])) continue
      const several = [-0.9, -0.3, 0.2, 0.7].map(value => slopes([point(value)], 0, each, [i])[0]![0])
      const isConstant = several.every(slope => Math.abs(slope - several[0]!) < 1e-6)
      if (isConstant) expect(Math.abs(found[i] - several[0]!), `d${each}`).toBeLessThan(1e-4)
      else if (isLine(name)) expect(found[i]).not.toBe(0)
      else expect(found[i], `d${each}`).toBeNaN()
    }
  })
})
