// Orders without data: `after(flow)` and `after(flow, 'start')`. The waits that keep them are the fewest
// there can be, together with those that data asks for.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, test } from 'vitest'
import { reduceWithStarts } from '../../../dsl/compiler/passes/synchronize/starts.js'
import {
  add,
  type CompileOptions,
  after as comesAfter,
  compile,
  download,
  explain,
  graph,
  interpret,
  lane,
  neg,
  on,
  orThrow,
  type Plan,
  param,
  parsePlan,
  simulate,
  textOf,
  toJSON,
  upload,
  verify,
} from '../../../dsl/index.js'
import { type Step, spec, steps, stepsGraph } from '../../fixtures/graphs/steps.js'
import { fitted } from '../../fixtures/plans/fitted.js'
import { often, runs } from '../../fixtures/runs.js'
import { ordered } from '../../golden/graphs.js'
import { comparable, oracle } from '../../oracle/oracle.js'

const planOf = (
  made: readonly Step[],
  options: CompileOptions & { readonly chosen?: boolean } = {},
): Plan => {
  const { chosen = false, ...rest } = options
  return orThrow(compile(stepsGraph(made, chosen), { mode: 'eager', ...rest })) as Plan
}

const options = fc.record({
  inFlight: fc.constantFrom(1, 2, 3),
  storage: fc.constantFrom('pooled' as const, 'planned' as const),
  memory: fc.constantFrom('fast' as const, 'small' as const),
  fuse: fc.boolean(),
  chosen: fc.boolean(),
})

/** The names of the plan's nodes that come before each node. */
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
      { numRuns: runs(150) },
    )
    expect(orders).toBeGreaterThan(often(0))
  })

  test('change nothing of what a graph means', async () => {
    await fc.assert(
      fc.asyncProperty(steps(8), async made => {
        const feeds = { x: [new Float32Array(16).map((_, i) => i + 1)] }
        const meaning = async (of: readonly Step[]) =>
          await lastValueFrom(interpret(stepsGraph(of, false))(feeds as never).pipe(toArray()))
        expect(await meaning(made)).toEqual(await meaning(made.map(step => ({ ...step, orders: [] }))))
      }),
      { numRuns: runs(40) },
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
          runs.set(`${timeline.tick[i]} ${timeline.node[i]}`, {
            start: timeline.start[i]!,
            end: timeline.end[i]!,
          })
        for (const { id, after = [] } of plan.nodes)
          for (const [earlier, when] of after)
            for (let tick = 0; tick < 3; tick++) {
              const [later, before] = [runs.get(`${tick} ${id}`)!, runs.get(`${tick} ${earlier}`)!]
              expect(later.start).toBeGreaterThanOrEqual(when === 'start' ? before.start : before.end)
              if (later.start < before.end) started++
            }
      }),
      { numRuns: runs(60) },
    )
    // A start is not an end: some have begun meanwhile.
    expect(started).toBeGreaterThan(often(0))
  })
})

/**
 * Lanes, and of each operation those that it comes after, as hazards have them (an entry below 0: of the tick
 * before), and those whose start it comes after.
 */
interface Drawn {
  readonly lanes: readonly number[]
  readonly hazards: readonly (readonly number[])[]
  readonly starts: readonly (readonly number[])[]
  readonly overlap: boolean
}

const drawn: fc.Arbitrary<Drawn> = fc
  .record({ lanes: fc.array(fc.nat({ max: 3 }), { minLength: 2, maxLength: 12 }), overlap: fc.boolean() })
  .chain(({ lanes, overlap }) =>
    fc.record({
      lanes: fc.constant(lanes),
      overlap: fc.constant(overlap),
      hazards: fc.tuple(
        ...lanes.map((_, i) =>
          fc.uniqueArray(
            fc.integer({ min: overlap ? -lanes.length : 0, max: Math.max(i - 1, overlap ? -1 : 0) }),
            {
              maxLength: i === 0 && !overlap ? 0 : 3,
            },
          ),
        ),
      ),
      starts: fc.tuple(
        ...lanes.map((_, i) =>
          fc.uniqueArray(fc.nat({ max: Math.max(0, i - 1) }), { maxLength: i === 0 ? 0 : 2 }),
        ),
      ),
    }),
  )

/**
 * The same by sets: each point's whole past, three ticks of them. A wait is what is left of those that a
 * point must come after once what its lane knows, and what the others bring, is taken away. Points are texts:
 * tick, operation, and whether it is the start or the end.
 */
const bySets = ({ lanes, hazards, starts, overlap }: Drawn): readonly string[] => {
  const past = new Map<string, ReadonlySet<string>>()
  const latest = new Map<number, string>()
  const point = (tick: number, i: number, end: boolean): string => `${tick} ${i} ${end ? 'end' : 'start'}`
  const before = new Map<string, string | undefined>()
  let waits: string[] = []
  for (let tick = 0; tick < 3; tick++) {
    waits = []
    lanes.forEach((lane, i) => {
      const previous = latest.get(lane)
      const known = previous === undefined ? new Set<string>() : new Set([...past.get(previous)!, previous])
      before.set(`${tick} ${i}`, previous)
      const wanted = new Set<string>()
      for (const on of hazards[i]!)
        if (on >= 0 || tick > 0) wanted.add(on >= 0 ? point(tick, on, true) : point(tick - 1, -1 - on, true))
      for (const on of starts[i]!) {
        // A start is its own point where it waits for something; else it is the end of what its lane did
        // before, if ticks overlap at all.
        const own = point(tick, on, false)
        const other = before.get(`${tick} ${on}`)
        if (past.has(own)) wanted.add(own)
        else if (other !== undefined && (overlap || other.startsWith(`${tick} `))) wanted.add(other)
      }
      const left = [...wanted].filter(
        one => !known.has(one) && ![...wanted].some(other => other !== one && past.get(other)!.has(one)),
      )
      const start = new Set([...known, ...left.flatMap(one => [...past.get(one)!, one])])
      const own = point(tick, i, false)
      if (left.length > 0) past.set(own, start)
      const end = point(tick, i, true)
      past.set(end, left.length > 0 ? new Set([...start, own]) : start)
      latest.set(lane, end)
      waits.push(
        ...left.map(one => `${i} after ${one.replace(/^\d+/, found => String(Number(found) - tick))}`),
      )
    })
  }
  return waits.sort()
}

describe('waits for starts and ends', () => {
  test('are the transitive reduction, found by sets', () => {
    let forStarts = 0
    fc.assert(
      fc.property(drawn, shape => {
        const { lanes, hazards, starts, overlap } = shape
        const start = new Int32Array(lanes.length + 1)
        hazards.forEach((row, i) => {
          start[i + 1] = start[i]! + row.length
        })
        const on = Int32Array.from(hazards.flat())
        const begun = new Map(starts.flatMap((row, i) => (row.length === 0 ? [] : [[i, row] as const])))
        const found = reduceWithStarts(Int32Array.from(lanes), 4, { start, on }, begun, overlap)
        const said: string[] = []
        for (let i = 0; i < lanes.length; i++)
          for (let w = found.waitStart[i]!; w < found.waitStart[i + 1]!; w++) {
            const point = found.begins[w] === 1 ? 'start' : 'end'
            said.push(`${i} after ${found.waitTick[w]} ${found.waitOn[w]} ${point}`)
            forStarts += found.begins[w]!
          }
        expect(said.sort()).toEqual(bySets(shape))
      }),
      { numRuns: runs(1000) },
    )
    expect(forStarts).toBeGreaterThan(often(0))
  })
})

describe('why', () => {
  // A kernel as large as the device does not keep the small one on the other lane from it; what reads its
  // result comes after both.
  const large = graph('large', { x: spec }, ({ x }) => {
    const [math, comm, out] = [lane('math'), lane('comm'), lane('out')]
    const here = x.pipe(upload(lane('in')))
    const small = here.pipe(on(math), neg(), on(comm), add(2))
    const big = here.pipe(on(math), add(1), comesAfter(small, 'start'), add(3))
    const last = big.pipe(comesAfter(small), add(4))
    return { small: small.pipe(download(out)), last: last.pipe(comesAfter(small, 'start'), download(out)) }
  })

  test.each([1, 2])(
    'is said of each such wait, with the operations and lines of the user, %i in flight',
    inFlight => {
      const plan = orThrow(compile(large, { mode: 'eager', inFlight })) as Plan
      expect(verify(plan)).toEqual([])
      const text = explain(plan)
      expect(text).toMatch(
        new RegExp(
          'control {2}add\\[2\\], after the start of add\\[0\\] on comm: ' +
            'it starts after add\\[0\\] has started +\\S+\\.ts:\\d+:\\d+',
        ),
      )
      expect(text).toMatch(
        /control {2}add\[3\], after add\[0\] on comm: it starts after add\[0\] has finished/,
      )
      expect(text).toMatch(/last after the start of add\[0\]: out waited for \S+ already/)
      expect(textOf(plan)).toMatch(/math +wait e\d +#after the start of add\[0\] on comm/)
      expect(explain(plan, 'dot')).toMatch(/control, its start/)
    },
  )

  test('a plan without the wait, or with the record before what the run waits for, breaks law L10', () => {
    const plan = orThrow(compile(large, { mode: 'eager', inFlight: 1 })) as Plan
    const record = plan.commands.findIndex(
      ([op], c) => op === 'record' && plan.commands[c + 1]?.[0] === 'run',
    )
    const [, event] = plan.commands[record] as ['record', number, number]
    const wait = plan.commands.findIndex(([op, id]) => op === 'wait' && id === event)
    const laws = (commands: Plan['commands']) => verify({ ...plan, commands }).map(({ law }) => law)
    const broken = verify({ ...plan, commands: plan.commands.toSpliced(wait, 1) }, { safety: true })
    expect(broken.map(({ law }) => law)).toEqual(['L10'])
    expect(broken[0]!.message).toMatch(
      /^L10: commands\[\d+\] \(run .*add\[2\].*is to come after the start of \w+ 'add\[0\]', commands/,
    )
    const early = plan.commands.toSpliced(record, 1)
    const held = early.findLastIndex(
      ([op, , l], c) => op === 'wait' && c < record && l === plan.commands[record]![2],
    )
    expect(laws(early.toSpliced(held, 0, plan.commands[record]!))).toContain('L10')
    expect(laws([...plan.commands].reverse())).not.toEqual([])
  })

  test('each plan with one command left out, or two changed about, is judged as the oracle judges it', () => {
    let rejected = 0
    for (const storage of ['pooled', 'planned'] as const) {
      const plan = orThrow(compile(ordered, { mode: 'eager', storage })) as Plan
      const mutants = plan.commands.flatMap((command, c) => [
        plan.commands.toSpliced(c, 1),
        plan.commands.toSpliced(c, 2, ...plan.commands.slice(c + 1, c + 2), command),
      ])
      for (const commands of mutants) {
        const mutant = { ...plan, commands }
        const found = verify(mutant, { safety: true }).map(
          ({ law, command, buffer = -1 }) => `${law} ${command} ${buffer}`,
        )
        expect(comparable(mutant, found)).toEqual(comparable(mutant, [...oracle(mutant, false)]))
        if (found.some(key => key.startsWith('L10'))) rejected++
      }
    }
    expect(rejected).toBeGreaterThan(5)
  })

  test('is read from the file of a plan, and nothing else is', () => {
    const plan = JSON.parse(toJSON(orThrow(compile(large, { mode: 'eager' })) as Plan))
    const faults = (after: unknown): unknown => {
      const found = parsePlan({ ...plan, nodes: plan.nodes.with(1, { ...plan.nodes[1], after }) })
      return isLeft(found) ? found.left.map(({ at }) => at) : verify(found.right).map(({ law }) => law)
    }
    expect(faults([[0, 'finish']])).toEqual([])
    expect(faults([[2, 'start']])).toEqual(['L10'])
    expect(faults([[99, 'start']])).toEqual(['nodes[1].after[0][0]'])
    expect(faults([[0, 'end']])).toEqual(['nodes[1].after[0][1]'])
    expect(faults('x')).toEqual(['nodes[1].after'])
    for (const after of ['x', [1], [[{}]], [[-1, 'start']], null])
      expect(() => verify({ ...plan, nodes: plan.nodes.with(1, { ...plan.nodes[1], after }) })).not.toThrow()
  })

  test('a start is no end in what the compiler predicts', () => {
    const tickOf = (when: 'start' | 'finish'): number => {
      const pair = graph('pair', { x: spec }, ({ x }) => {
        const [math, side, out] = [lane('math'), lane('side'), lane('out')]
        const here = x.pipe(upload(lane('in')))
        const one = here.pipe(on(math), neg(), on(side), add(1))
        const two = here.pipe(on(math), add(2), comesAfter(one, when), add(3))
        return { one: one.pipe(download(out)), two: two.pipe(download(out)) }
      })
      const profile = Object.fromEntries(['neg[0]', 'add[0]', 'add[2]'].map(name => [name, 100_000]))
      return fitted(pair, { inFlight: 1, profile }).choice!.chosen.tick
    }
    expect(tickOf('finish') - tickOf('start')).toBeGreaterThan(20_000)
  })

  test('errors: a word that is neither, a value that is downloaded, an upload with a window', () => {
    const wrong = graph('wrong', { x: spec }, ({ x }) => {
      const y = x.pipe(upload(), neg())
      const w = param('w', spec, { on: 'host' })
      const streamed = w.pipe(comesAfter(y), upload(lane('copy'), { ahead: 1 }))
      return {
        a: y.pipe(comesAfter(y, 'end' as never), download()),
        b: y.pipe(download(), comesAfter(y)),
        c: streamed.pipe(download()),
      }
    })
    const refused = compile(wrong, { mode: 'eager' })
    expect(isLeft(refused) && refused.left.map(({ _tag, subject }) => `${_tag} ${subject}`)).toEqual([
      'BadAttribute upload',
      'BadAttribute after',
      'PlaceMismatch after',
    ])
  })

  test('an upload may come after the start of the run that it overlaps', () => {
    const overlapping = graph('overlapping', { x: spec }, ({ x }) => {
      const y = x.pipe(upload(lane('in')), on(lane('math')), neg(), add(1))
      const w = param('w', spec, { on: 'host' }).pipe(comesAfter(y, 'start'), upload(lane('copy')))
      return { z: y.pipe(add(w), download(lane('out'))) }
    })
    const plan = orThrow(compile(overlapping, { mode: 'eager' })) as Plan
    expect(verify(plan)).toEqual([])
    expect(explain(plan)).toMatch(
      /control {2}w, after the start of add\[0\] on math|control {2}w, after neg\[0\]/,
    )
  })
})
