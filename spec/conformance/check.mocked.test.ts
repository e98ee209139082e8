// What `--check` and the laws of meaning must catch, whatever the element type: operands in the wrong
// order, at any depth of a graph, and reads that do not wait for their writes. What they must let pass: the
// graph as it is.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { firstValueFrom, lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it, vi } from 'vitest'
import {
  add,
  cast,
  compile,
  download,
  type Graph,
  graph,
  interpret,
  lane,
  matmul,
  mul,
  on,
  orThrow,
  param,
  program,
  state,
  sub,
  sum,
  tanh,
  tensor,
  upload,
} from '../../dsl/index.js'
import { meaning } from '../../dsl/interpret/meaning.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { type DType, dtypes, elementBytes, elements, isFloat } from '../../dsl/ir/tensor.js'
import type { HostArray } from '../../dsl/language/values.js'
import { verify } from '../../dsl/verify/verify.js'
import { type CheckResult, check, type Ran } from '../../runtime/cli/check.js'
import { type OpenOptions, open, pulled } from '../../runtime/index.js'
import { valuesOf } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'

// `open` proves a plan that `compile` did not make. Here broken plans are to run.
vi.mock('../../runtime/session/check-plan.js', async original => ({
  ...(await original<object>()),
  checkedPlan: (plan: Plan) => E.right(plan),
}))

// biome-ignore lint/suspicious/noExplicitAny: the graphs here are of every element type
type Anything = any
type Values = Readonly<Record<string, HostArray>>

const [rows, width, layers, ticks] = [8, 32, 4, 3]

const inputs = ['x', ...Array.from({ length: layers }, (_, i) => [`b${i}`, `w${i}`]).flat()]
const shapeOf = (dtype: DType, name: string): readonly number[] =>
  name.startsWith('w') && isFloat(dtype) ? [width, width] : [rows, width]

/**
 * Layers whose weights and biases are uploaded in each tick, each followed by a step back towards the value
 * before it. In layer `swapped` the difference has its operands in the wrong order.
 */
const network = (dtype: DType, swapped = -1): Graph =>
  graph(
    'checked',
    Object.fromEntries(inputs.map(name => [name, tensor(dtype, shapeOf(dtype, name))])) as Anything,
    (({ x, ...weights }: Anything) => {
      const [copy, math] = [lane('copy'), lane('math')]
      let h = x.pipe(upload(copy), on(math))
      for (let layer = 0; layer < layers; layer++) {
        const before = h
        const bias = weights[`b${layer}`].pipe(upload(copy))
        const w = weights[`w${layer}`].pipe(upload(copy))
        const next = isFloat(dtype)
          ? h.pipe(matmul(w), add(bias), mul(0.25), tanh())
          : h.pipe(add(w), add(bias))
        const [a, b] = layer === swapped ? [before, next] : [next, before]
        const back = a.pipe(sub(b))
        h = isFloat(dtype) ? next.pipe(sub(back.pipe(mul(0.5)))) : next.pipe(add(back))
      }
      return { y: h.pipe(download(copy)), total: h.pipe(sum(1), download(copy)) }
    }) as Anything,
  ) as unknown as Graph

/** By input, a value a tick, no two alike: what an earlier tick left behind is wrong too. */
const feedsOf = (dtype: DType): Readonly<Record<string, readonly HostArray[]>> =>
  Object.fromEntries(
    inputs.map((name, i) => [
      name,
      Array.from({ length: ticks }, (_, t) =>
        valuesOf(dtype, elements(shapeOf(dtype, name)), 100 * i + 7 * t + 1),
      ),
    ]),
  )

const ran = async (plan: Plan, dtype: DType, options: OpenOptions): Promise<readonly Values[]> => {
  await using session = orThrow(await open(plan, options)())
  const outputs: Values[] = []
  const pulls = Object.entries(feedsOf(dtype)).map(([name, values]) => [name, pulled(values)])
  await session.run(Object.fromEntries(pulls)).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
  })
  return outputs
}

/** Holds outputs against the meaning of the graph as it should be. */
const checked = (dtype: DType, plan: Plan, got: readonly Values[]): Promise<CheckResult> => {
  const right = program({ graph: network(dtype) as Anything, feeds: {} })
  return check(right as Anything, plan, new Map(Object.entries(feedsOf(dtype))), got)
}

describe.each(present)('a check on %s', device => {
  describe.each(dtypes)('of %s', dtype => {
    it('lets the graph pass as it is', async () => {
      const plan = orThrow(compile(network(dtype), { mode: 'eager' }))
      const result = await checked(dtype, plan, await ran(plan, dtype, { device: device as 'host' }))
      expect(result).toMatchObject({ ok: true, outputs: 2 * ticks })
      if (!isFloat(dtype)) expect(result).toMatchObject({ maxRelativeError: 0, tolerance: 0 })
    })

    it('catches swapped operands in each layer', async () => {
      for (let layer = 0; layer < layers; layer++) {
        const plan = orThrow(compile(network(dtype, layer), { mode: 'eager' }))
        const result = await checked(dtype, plan, await ran(plan, dtype, { device: device as 'host' }))
        expect(result.ok, `layer ${layer}`).toBe(false)
      }
    })

    // All on one lane, so that it comes too early in every run: what a missing wait makes possible.
    it('catches each read that comes before its upload', async () => {
      const plan = orThrow(compile(network(dtype), { mode: 'eager', lanes: 1 }))
      const uploads = plan.commands.flatMap((command, c) =>
        command[0] === 'run' && plan.nodes[command[1]]!.op === 'upload' ? [{ c, command }] : [],
      )
      expect(uploads).toHaveLength(inputs.length)
      for (const { c, command } of uploads) {
        const [, node, , , [written]] = command
        const reader = plan.commands.findIndex(other => other[0] === 'run' && other[3].includes(written!))
        const commands = plan.commands.toSpliced(reader + 1, 0, command).toSpliced(c, 1)
        const early: Plan = { ...plan, commands }
        const got = await ran(early, dtype, { device: device as 'host', poison: true })
        expect((await checked(dtype, early, got)).ok, `upload ${plan.nodes[node]!.name}`).toBe(false)
      }
    })
  })
})

describe('a check without a device', () => {
  const net = graph({ x: tensor('f32', [4]) }, ({ x }) => {
    const { total, next } = state({ total: tensor('f32', [4]) })
    const y = x.pipe(upload(), tanh(), add(total))
    next({ total: y })
    return { y: y.pipe(download()), z: x.pipe(upload(), mul(2), download()) }
  })
  const plan = orThrow(compile(net))
  const x = [1, 2, 3].map(tick => Float32Array.of(tick, 0.5, -tick, 0))
  const right = interpret(net)({ x }).pipe(toArray())
  const held = (got: readonly Values[], ran: Ran = {}, fed: readonly HostArray[] = x) =>
    check(program({ graph: net, feeds: {} } as Anything), plan, new Map([['x', fed]]), got, ran)

  it('fails where anything is missing, or differs in one element', async () => {
    const got = (await lastValueFrom(right)) as unknown as readonly Values[]
    const total = got.at(-1)!['y']!
    expect(await held(got, { states: { total } })).toMatchObject({ ok: true, outputs: 6, states: 1 })
    expect(await held(got.slice(0, 2), { interrupted: true })).toMatchObject({ ok: true, outputs: 4 })
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('tick', 'output', 'element', 'short', 'NaN', 'state', 'more', 'unknown'),
        fc.integer({ min: 0, max: 2 }),
        fc.constantFrom('y', 'z'),
        fc.integer({ min: 0, max: 3 }),
        async (kind, tick, name, element) => {
          const change = (by: (value: HostArray) => Values) =>
            got.map((values, t) =>
              t === tick
                ? {
                    ...Object.fromEntries(Object.entries(values).filter(([n]) => n !== name)),
                    ...by(values[name]!),
                  }
                : values,
            )
          const wrong = (to: (value: number) => number) => (value: HostArray) =>
            value.map((each, i) => (i === element ? to(each) : each)) as HostArray
          const result = await {
            tick: () => held(got.toSpliced(tick, 1)),
            output: () => held(change(() => ({}))),
            element: () => held(change(value => ({ [name]: wrong(each => each + 0.01)(value) }))),
            short: () => held(change(value => ({ [name]: value.slice(0, element) }))),
            NaN: () => held(change(value => ({ [name]: wrong(() => Number.NaN)(value) }))),
            state: () => held(got, { states: { total: wrong(each => each + 0.01)(total) } }),
            more: () => held([...got, got[tick]!]),
            unknown: () => held(change(value => ({ [name]: value, other: value }))),
          }[kind]()
          expect(result.ok).toBe(false)
          expect(result.faults.length).toBeGreaterThan(0)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  it('fails where there is nothing to compare', async () => {
    const { ok, faults } = await held([], {}, [])
    expect([ok, faults[0]!.found]).toEqual([false, expect.stringContaining('no tick')])
  })

  it('names what rounding leaves undecided', async () => {
    const lost = graph({ x: tensor('f32', [4]) }, ({ x }) => {
      const a = x.pipe(upload(), tanh())
      return { y: a.pipe(add(1e6), sub(a), sub(1e6), download()), z: a.pipe(download()) }
    })
    const [values] = (await lastValueFrom(interpret(lost)({ x: x.slice(0, 1) }).pipe(toArray()))) as Anything
    const of = program({ graph: lost, feeds: {} } as Anything)
    const result = await check(of, orThrow(compile(lost)), new Map([['x', x.slice(0, 1)]]), [values])
    expect(result).toMatchObject({ ok: true, undecided: ['y'] })
  })
})

describe.each(dtypes)('a check on a host device with random delays, of %s', dtype => {
  it('catches that every wait is missing', async () => {
    const plan = orThrow(compile(network(dtype), { mode: 'eager' }))
    const without: Plan = { ...plan, commands: plan.commands.filter(([op]) => op !== 'wait') }
    expect(verify(without, { safety: true }).map(({ law }) => law)).toContain('L1')
    const host = { copyRate: 1e5 * elementBytes[dtype], jitter: 1, jitterMicroseconds: 1000 }
    const got = await ran(without, dtype, { device: 'host', poison: true, host })
    expect((await checked(dtype, without, got)).ok).toBe(false)
  })
})

describe('what rounding allows', () => {
  const allowed = async (net: Anything, values: Values, given: Values = {}) => {
    const feeds = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, [value]]))
    return (await firstValueFrom(meaning(net as Graph, { params: given })(feeds as never))).allowed['y']!
  }

  it('is nothing where every step is exact, beside an output that is not', async () => {
    const net = graph({ x: tensor('i32', [16]) }, ({ x }) => {
      const a = x.pipe(upload())
      return { y: a.pipe(sub(3), download()), z: a.pipe(cast('f32'), tanh(), download()) }
    })
    const feeds = { x: [valuesOf('i32', 16, 1)] }
    const [one] = await lastValueFrom(meaning(net)(feeds as never).pipe(toArray()))
    expect(one!.allowed['y']).toBe(0)
    expect(one!.allowed['z']).toBeGreaterThan(0)
    expect(one!.allowed['z']).toBeLessThan(1e-4)
  })

  it('grows with the length of a sum, and stays far below the values', async () => {
    const of = (k: number) => {
      const net = graph({ x: tensor('f32', [4, k]) }, ({ x }) => ({
        y: x.pipe(upload(), matmul(param('w', tensor('f32', [k, 4]))), download()),
      }))
      return allowed(net, { x: valuesOf('f32', 4 * k, 1) }, { w: valuesOf('f32', 4 * k, 2) })
    }
    const [short, long] = [await of(16), await of(1024)]
    expect(short).toBeLessThan(1e-5)
    expect(long).toBeGreaterThan(4 * short)
    expect(long).toBeLessThan(5e-3)
  })

  it('knows what a difference takes away', async () => {
    const net = (far: number) =>
      graph({ x: tensor('f32', [64]) }, ({ x }) => {
        const a = x.pipe(upload(), tanh())
        return { y: a.pipe(add(far), sub(far), download()) }
      })
    const x = valuesOf('f32', 64, 3)
    expect(await allowed(net(1024), { x })).toBeGreaterThan(50 * (await allowed(net(0), { x })))
  })

  it('is the same in every run', async () => {
    const net = network('bf16')
    const run = async () => lastValueFrom(meaning(net)(feedsOf('bf16') as never).pipe(toArray()))
    const [one, other] = [await run(), await run()]
    expect(other).toEqual(one)
    const values = await lastValueFrom(interpret(net)(feedsOf('bf16') as never).pipe(toArray()))
    expect(one.map(tick => tick.values)).toEqual(values)
  })
})
