// Orders without data: `after(flow)` and `after(flow, 'start')`. The waits that keep them are the fewest there can be, together with those that data asks for.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, test } from 'vitest'
import {
  add,
  after,
  type CompileOptions,
  compile,
  type DeviceFlow,
  download,
  type Graph,
  graph,
  interpret,
  lane,
  neg,
  on,
  orThrow,
  type Plan,
  parsePlan,
  simulate,
  tensor,
  toJSON,
  upload,
  verify,
} from '../../dsl/index.js'

interface Step {
  /** Places before it, from the last one on, that it reads; and that it comes after. */
  readonly reads: readonly number[]
  readonly orders: readonly (readonly [number, 'start' | 'finish'])[]
  readonly lane: number
}

const steps = (most: number): fc.Arbitrary<readonly Step[]> =>
  fc.array(
    fc.record({
      reads: fc.array(fc.nat({ max: 4 }), { minLength: 1, maxLength: 2 }),
      orders: fc.array(fc.tuple(fc.nat({ max: 5 }), fc.constantFrom('start' as const, 'finish' as const)), {
        maxLength: 2,
      }),
      lane: fc.nat({ max: 3 }),
    }),
    { minLength: 2, maxLength: most },
  )

const spec = tensor('f32', [16])

/** Each step adds what it reads and negates it, on its lane or one that the compiler chooses; every value that nobody reads is an output. */
const stepsGraph = (made: readonly Step[], chosen: boolean): Graph =>
  graph('steps', { x: spec }, ({ x }) => {
    const lanes = Array.from({ length: 4 }, (_, i) => lane(`l${i}`))
    const values: DeviceFlow<typeof spec>[] = [x.pipe(upload(lane('in')))]
    const read = new Set<number>()
    for (const step of made) {
      const at = (back: number): number => Math.max(0, values.length - 1 - back)
      const hint = chosen ? (v: DeviceFlow<typeof spec>) => v : on(lanes[step.lane]!)
      let first = values[at(step.reads[0]!)]!
      for (const [back, when] of step.orders) first = first.pipe(after(values[at(back)]!, when))
      for (const back of step.reads) read.add(at(back))
      const operand = step.reads[1] === undefined ? undefined : values[at(step.reads[1])]!
      const from = hint(first) as DeviceFlow<typeof spec>
      values.push(operand === undefined ? from.pipe(neg()) : from.pipe(add(operand)))
    }
    const ends = values.flatMap((value, i) =>
      i > 0 && !read.has(i) ? [[`y${i}`, value.pipe(download(lane('out')))] as const] : [],
    )
    return Object.fromEntries(ends)
  }) as unknown as Graph

const planOf = (made: readonly Step[], options: CompileOptions & { readonly chosen?: boolean } = {}): Plan => {
  const { chosen = false, ...rest } = options
  return orThrow(compile(stepsGraph(made, chosen), rest)) as Plan
}

const options = fc.record({
  inFlight: fc.constantFrom(1, 2, 3),
  storage: fc.constantFrom('pooled' as const, 'planned' as const),
  memory: fc.constantFrom('fast' as const, 'small' as const),
  chosen: fc.boolean(),
})

/** Names of what comes before, by plan node, as the plan says it. */
const ordersIn = (plan: Plan): number => plan.nodes.reduce((sum, { after }) => sum + (after?.length ?? 0), 0)

describe('orders without data', () => {
  test('are kept by plans of which every law holds, and in which no wait can be left out', () => {
    let orders = 0
    fc.assert(
      fc.property(steps(12), options, (made, chosen) => {
        const plan = planOf(made, chosen)
        orders += ordersIn(plan)
        expect(verify(plan)).toEqual([])
        expect(toJSON(orThrow(parsePlan(toJSON(plan))))).toBe(toJSON(plan))
      }),
      { numRuns: 150 },
    )
    expect(orders).toBeGreaterThan(0)
  })

  test('change nothing of what a graph means', async () => {
    await fc.assert(
      fc.asyncProperty(steps(8), async made => {
        const feeds = { x: [new Float32Array(16).map((_, i) => i + 1)] }
        const meaning = async (of: readonly Step[]) =>
          await lastValueFrom(interpret(stepsGraph(of, false))(feeds as never).pipe(toArray()))
        expect(await meaning(made)).toEqual(await meaning(made.map(step => ({ ...step, orders: [] }))))
      }),
      { numRuns: 40 },
    )
  })

  test('begin where they are to, on a simulated machine', () => {
    let started = 0
    fc.assert(
      fc.property(steps(10), fc.constantFrom(1, 2), (made, inFlight) => {
        const plan = planOf(made, { inFlight })
        // Long enough that issuing them is no matter, and of different lengths.
        const measured = new Map(plan.nodes.map(({ name, id }) => [name, 100_000 + 20_000 * (id % 5)]))
        const { timeline } = simulate(plan, 'h200', { measured })
        const runs = new Map<string, { readonly start: number; readonly end: number }>()
        for (let i = 0; i < timeline.start.length; i++)
          runs.set(`${timeline.tick[i]} ${timeline.node[i]}`, { start: timeline.start[i]!, end: timeline.end[i]! })
        for (const { id, after = [] } of plan.nodes)
          for (const [earlier, when] of after)
            for (let tick = 0; tick < 3; tick++) {
              const [later, before] = [runs.get(`${tick} ${id}`)!, runs.get(`${tick} ${earlier}`)!]
              expect(later.start).toBeGreaterThanOrEqual(when === 'start' ? before.start : before.end)
              if (later.start < before.end) started++
            }
      }),
      { numRuns: 60 },
    )
    // A start is not an end: some have begun meanwhile.
    expect(started).toBeGreaterThan(0)
  })
})
