// Plans, broken one way at a time: every mutant is rejected by the law that it breaks, at the command and for
// the buffer that an oracle without any of the verifier's code names, or proved equal by it. One file, since
// one table at the end counts all kinds: how many were made, rejected and equal, of one rank's plan and of
// several.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile } from '../../../dsl/compiler/compile.js'
import { orThrow } from '../../../dsl/index.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { verify } from '../../../dsl/verify/verify.js'
import { verifyRanks } from '../../../dsl/verify/verify-ranks.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { cholesky, fsdp, layered, taskBench, xorshift } from '../../fixtures/graphs/tasks.js'
import { statefulWithArenas, withArenas } from '../../fixtures/plans/arenas.js'
import { singleLane, twoLanes, weightStreaming } from '../../fixtures/plans/by-hand.js'
import { withCountedBound } from '../../fixtures/plans/counted.js'
import { cutInPieces } from '../../fixtures/plans/issued.js'
import { arenaMutations, graphMutations, mutations } from '../../fixtures/plans/mutations.js'
import { largePlan } from '../../fixtures/plans/of-tasks.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { rankMutations } from '../../fixtures/plans/rank-mutations.js'
import { rankOf, type Script, scripts } from '../../fixtures/plans/ranks.js'
import { isFullRun, often, runs } from '../../fixtures/runs.js'
import { goldens } from '../../golden/graphs.js'
import { comparable, oracle } from '../../oracle/oracle.js'
import { canStop, execute } from '../../oracle/rendezvous.js'

/**
 * Mutants of each kind: as many as make the table mean something, and no more than a minute's work on one
 * core.
 */
const wanted = isFullRun ? 34 : 10
const fewest = { mutants: isFullRun ? 10 : 8, kinds: 60, all: isFullRun ? 1_500 : 600 }

const seeded = (seed: number) => {
  const next = xorshift(seed)
  return (count: number): number => Math.floor(next() * count)
}

// Plans by hand; generated ones that the compiler had no part in; families of task graphs; and the compiler's
// own, as they come and with the waits that fit them into the least memory, the golden ones among them. All
// that the oracle can judge in time.
const sampled: readonly Plan[] = [
  singleLane,
  twoLanes,
  weightStreaming,
  ...fc.sample(recipes(7), { numRuns: 70, seed: 20_240_611 }).map(planFrom),
]
const families: readonly Plan[] = [
  largePlan('cholesky', cholesky(3), 3),
  ...(['stencil', 'fft', 'sweep', 'random'] as const).map(pattern =>
    largePlan(pattern, taskBench(pattern, 3, 3), 3),
  ),
  largePlan('layered', layered(10, 3, 3), 3),
  largePlan('sharded', fsdp(2), 3),
]
const made: readonly Plan[] = [
  ...fc
    .sample(sample(), { numRuns: 25, seed: 7 })
    .flatMap(({ graph: net }) => [
      compile(net, { mode: 'eager' }),
      compile(net, { mode: 'eager', memory: 'small', inFlight: 3 }),
    ])
    .flatMap(plan => (E.isRight(plan) ? [plan.right as Plan] : [])),
  // Not fused: of the fused image pipeline, which has few enough commands, a mutant's free memory takes more
  // ticks to come back to an earlier state than the oracle can hold.
  ...Object.values(goldens).map(
    (net): Plan => orThrow(compile(net as Graph, { mode: 'eager', fuse: false })) as Plan,
  ),
  ...[1, 2].map(
    (ahead): Plan =>
      orThrow(compile(streamed(4, ahead), { mode: 'eager', memory: streamedLeast(ahead) })) as Plan,
  ),
]
// A wait that only a bound of the pool needs is one too many under a count of bytes (L6).
const compiled = made
  .filter(({ commands }) => commands.length <= 64)
  .map(withCountedBound)
  .filter(plan => verify(plan).length === 0)

/** Plans in graph mode, of one device and of several, some in several graphs. */
const graphed: readonly Plan[] = [
  ...[1, 2, 3].flatMap(devices =>
    fc
      .sample(sample({ devices, steps: 12 }), { numRuns: 25, seed: 8 })
      .map(({ graph: net }) => compile(net, { mode: 'graph' })),
  ),
  ...Object.values(goldens).map(net => compile(net as Graph, { mode: 'graph' })),
]
  .flatMap(plan => (E.isRight(plan) ? [plan.right as Plan] : []))
  .filter(({ commands }) => commands.length <= 64)
  .map((plan, i) => (i % 5 === 0 && plan.graphs?.length === 1 ? cutInPieces(plan, i) : plan))

/** Plans in graph mode whose ticks have an arena each, some with a state. */
const apart: readonly Plan[] = fc
  .sample(sample({ steps: 12 }), { numRuns: 40, seed: 9 })
  .map(({ graph: net }) => compile(net, { mode: 'graph', inFlight: 1, lanes: 1 }))
  .flatMap((plan, i) => {
    if (E.isLeft(plan)) return []
    const one = plan.right as Plan
    const stateful = statefulWithArenas(one, 2 + (i % 2))
    const isStateless = one.buffers.every(({ life }) => life !== 'state')
    return stateful !== undefined ? [stateful] : isStateless ? [withArenas(one, 2 + (i % 2))] : []
  })
  .filter(({ commands }) => commands.length <= 40)

const fits = (plan: Plan): boolean =>
  poolPeakOf(plan).device.every((bytes, d) => bytes <= plan.bound.device[d]!)

test('verify and the oracle accept every unbroken plan', () => {
  expect(compiled.length).toBeGreaterThan(20)
  expect(compiled.filter(plan => plan.commands.some(command => command[3] === -1)).length).toBeGreaterThan(2)
  expect(graphed.filter(({ graphs = [] }) => graphs.length > 1).length).toBeGreaterThan(0)
  expect(apart.length).toBeGreaterThan(10)
  for (const plan of [...families, ...compiled, ...graphed, ...apart]) {
    expect(verify(plan)).toEqual([])
    expect([...oracle(plan)]).toEqual([])
  }
})

/** How the mutants of each kind ended. */
interface Row {
  readonly kind: string
  readonly mutants: number
  readonly rejected: number
  readonly equivalent: number
}
const table: Row[] = []

/** Mutants of a kind, each of another plan than the one before, by a fixed seed. */
const mutantsOf = <P, M>(
  plans: readonly P[],
  seed: number,
  apply: (plan: P, pick: (n: number) => number) => M | undefined,
) => {
  const pick = seeded(seed)
  const found: { readonly of: P; readonly mutant: M }[] = []
  for (let attempt = 0; found.length < wanted && attempt < 60 * wanted; attempt++) {
    const of = plans[pick(plans.length)]!
    const mutant = apply(of, pick)
    if (mutant !== undefined) found.push({ of, mutant })
  }
  return found
}

describe('every mutant is rejected as the oracle does (law, command, buffer), or proved equal by it', () => {
  const kinds = [
    ...mutations.map(mutation => ({ mutation, plans: [...sampled, ...families, ...compiled] })),
    ...graphMutations.map(mutation => ({ mutation, plans: graphed })),
    ...arenaMutations.map(mutation => ({ mutation, plans: apart })),
  ]
  kinds.forEach(({ mutation, plans }, kind) => {
    test(mutation.name, () => {
      let rejected = 0
      let equivalent = 0
      const mutants = mutantsOf(plans, 7 + kind, mutation.apply)
      for (const { of, mutant } of mutants) {
        const violations = verify(mutant.plan)
        const keys = violations.map(({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`)
        // The expectation that shares no code with verify: which laws, at which commands, for which buffers.
        // The oracle knows the order of commands, not their kernels: these the loader refuses.
        const expected = [...oracle(mutant.plan)]
        if (expected.length === 0 && E.isLeft(parsePlan(mutant.plan))) {
          expect(violations).not.toEqual([])
          rejected++
          continue
        }
        if (mutation.malformed === undefined)
          expect(comparable(mutant.plan, keys)).toEqual(comparable(mutant.plan, expected))
        if (violations.length === 0) {
          expect(mutation.malformed).toBeUndefined()
          equivalent++
          continue
        }
        rejected++
        const blamed = violations.find(
          ({ law, command, buffer }) =>
            mutation.laws.includes(law) &&
            (mutant.command === undefined || mutant.command === command) &&
            (mutant.buffer === undefined || mutant.buffer === buffer) &&
            (mutant.names === undefined || buffer !== undefined),
        )
        // The second half of L9, what the session's pool takes, is asked by L6 and open: a wait may serve it
        // alone.
        if (blamed === undefined && mutant.names && fits(of) && !fits(mutant.plan)) continue
        expect(blamed, violations.map(({ message }) => message).join('\n')).toBeDefined()
        const { law, command, buffer, message } = blamed!
        expect(message.startsWith(`${law}: `)).toBe(true)
        if (command >= 0) expect(message).toContain(`commands[${command}]`)
        if (buffer !== undefined) expect(message).toContain(`'${mutant.plan.buffers[buffer]!.name}'`)
      }
      table.push({ kind: mutation.name, mutants: mutants.length, rejected, equivalent })
    })
  })
})

describe('every mutant of several ranks is rejected by L8, or ends in whatever order calls begin', () => {
  // Every call after the one before it, around the tick too: so both communicators are in one order
  // everywhere.
  const sets = fc.sample(scripts(2, 2, 5), { numRuns: 80, seed: 11 }).map(ranks =>
    ranks.map(
      ({ calls }): Script => ({
        calls,
        waits: calls.slice(1).map((_, i) => [i + 1, i] as const),
        around: true,
      }),
    ),
  )
  const communicators = [
    { id: 0, name: 'all' },
    { id: 1, name: 'other' },
  ]
  const plansOf = (ranks: readonly Script[]): Plan[] => ranks.map(script => rankOf(script, communicators))

  test('the unbroken plans of several ranks are accepted', () => {
    for (const set of sets) {
      expect(verifyRanks(plansOf(set), { safety: true })).toEqual([])
      expect(canStop(plansOf(set))).toBe(false)
    }
  })

  rankMutations.forEach((mutation, kind) => {
    test(mutation.name, () => {
      let rejected = 0
      let equivalent = 0
      const mutants = mutantsOf(sets, 101 + kind, mutation.apply)
      for (const { mutant } of mutants) {
        const plans = plansOf(mutant)
        const violations = verifyRanks(plans, { safety: true })
        expect(violations.length === 0).toBe(execute(plans) === 'done' && !canStop(plans))
        if (violations.length === 0) equivalent++
        else rejected++
        for (const { law, rank, command, message } of violations) {
          expect(law).toBe('L8')
          expect(message).toContain(`rank ${rank}, commands[${command}]`)
        }
      }
      table.push({ kind: mutation.name, mutants: mutants.length, rejected, equivalent })
    })
  })
})

test('the table: every kind has enough mutants, and some of each kind are rejected', () => {
  if (process.env['BRAID_TABLE'] !== undefined) console.table(table)
  expect(new Set(table.map(({ kind }) => kind)).size).toBeGreaterThanOrEqual(fewest.kinds)
  expect(table.reduce((sum, { mutants }) => sum + mutants, 0)).toBeGreaterThanOrEqual(fewest.all)
  for (const { kind, mutants, rejected, equivalent } of table) {
    expect(mutants, kind).toBeGreaterThanOrEqual(fewest.mutants)
    expect(rejected + equivalent, kind).toBe(mutants)
    expect(rejected, kind).toBeGreaterThan(often(0))
  }
})

describe('nothing can be left out of a plan that the compiler made', () => {
  /** Each wait and use in turn is dropped, and what is left judged as any other plan is. */
  const eachIsNeeded = (plan: Plan): void => {
    expect(verify(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] !== 'wait' && command[0] !== 'use') return
      const rest = { ...plan, commands: plan.commands.toSpliced(c, 1) }
      const broken = verify(rest, { safety: true })
      if (command[0] === 'use') {
        const free = rest.commands.findIndex(other => other[0] === 'free' && other[1] === command[1])
        expect(broken).toContainEqual(
          expect.objectContaining({ law: 'L4', command: free, buffer: command[1], lane: command[2] }),
        )
      } else if (broken.length > 0) {
        // An order without data (L10) is one of operations, not of a buffer.
        for (const { law, buffer } of broken)
          expect([law, typeof buffer]).toEqual(
            law === 'L10' ? [law, 'undefined'] : [expect.stringMatching(/^L[12349]$/), 'number'],
          )
      } else
        expect(poolPeakOf(rest).device[0], `commands[${c}] of ${plan.name}`).toBeGreaterThan(
          plan.bound.device[0]!,
        )
    })
  }

  test('generated graphs, under any memory', () => {
    fc.assert(
      fc.property(
        sample({ steps: 12 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        ({ graph: net, dims, inFlight }, at) => {
          const roomy = orThrow(compile(net, { mode: 'eager', dims, inFlight })) as Plan
          if (roomy.commands.length > 300) return
          eachIsNeeded(roomy)
          const most = roomy.bound.device[0]!
          const least = orThrow(compile(net, { mode: 'eager', dims, inFlight, memory: 'small' })).bound
            .device[0]!
          const memory = Math.max(1, Math.floor(Math.min(least, most) + at * Math.abs(most - least)))
          eachIsNeeded(orThrow(compile(net, { mode: 'eager', dims, inFlight, memory })) as Plan)
        },
      ),
      { numRuns: runs(40) },
    )
  })

  test.each([
    [6, 1],
    [12, 1],
    [12, 2],
    [20, 3],
  ])('%i streamed layers, %i ahead, in the least memory and in plenty', (layers, ahead) => {
    const tight = orThrow(
      compile(streamed(layers, ahead), { mode: 'eager', memory: streamedLeast(ahead) }),
    ) as Plan
    expect(tight.commands.filter(([op]) => op === 'wait').length).toBeGreaterThan(layers)
    eachIsNeeded(tight)
    eachIsNeeded(orThrow(compile(streamed(layers, ahead), { mode: 'eager' })) as Plan)
  })
})

describe('commands that name what the plan does not have, and sizes that no buffer has', () => {
  const without = (plan: Plan, c: number, word: number, id: number): Plan => ({
    ...plan,
    commands: plan.commands.map((command, i) =>
      i === c ? (command.with(word, id as never) as never) : command,
    ),
  })

  test('an unknown buffer, lane, node or event is a violation of its command', () => {
    twoLanes.commands.forEach((command, c) => {
      for (let word = 1; word < Math.min(command.length, 4); word++) {
        if (typeof command[word] !== 'number') continue
        for (const id of [99, -1, 0.5, Number.NaN]) {
          const broken = without(twoLanes, c, word, id)
          expect(
            verify(broken).some(
              violation =>
                violation.command === c ||
                violation.law === 'L7' ||
                violation.law === 'L6' ||
                violation.law === 'L4',
            ),
          ).toBe(true)
        }
      }
    })
  })

  test('a negative or absurd size', () => {
    for (const bytes of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      const broken = {
        ...twoLanes,
        buffers: twoLanes.buffers.map(buffer => (buffer.id === 1 ? { ...buffer, bytes } : buffer)),
      }
      expect(verify(broken)).not.toEqual([])
    }
  })
})

test('a buffer with too many views to judge by bytes: an unwritten byte never counts as written', () => {
  const views = 3_000
  const buffer = { id: 0, space: 'device', device: 0, home: 0, life: 'tick' } as const
  const parts = Array.from({ length: views - 1 }, (_, i) => i + 1)
  const readers = Array.from({ length: 1_600 }, (_, i) => i + 1)
  const plan = (count: number): Plan => ({
    ...twoLanes,
    storage: 'pooled',
    bound: { device: [2 ** 20], pinned: 0 },
    lanes: twoLanes.lanes.slice(0, 1),
    buffers: [
      { ...buffer, name: 'root', bytes: views },
      ...parts.map(id => ({ ...buffer, id, name: `part ${id}`, bytes: 1, alias: 0, aliasOffset: id - 1 })),
    ],
    nodes: [0, ...readers].map(id => ({ id, op: 'read', name: `${id}`, at: '' })),
    commands: [
      ['alloc', 0, 0],
      ['run', 0, 0, [], parts],
      ...readers.slice(0, count).map((n): Plan['commands'][number] => ['run', n, 0, [0], []]),
      ['free', 0],
    ],
  })
  // The last byte of the root is in no part.
  for (const count of [1, readers.length])
    expect(verify(plan(count), { safety: true }).map(({ law }) => law)).toContain('L1')
})

describe('with safety alone', () => {
  test('what is merely wasteful passes', () => {
    const wasteful = { ...twoLanes, commands: twoLanes.commands.toSpliced(3, 0, ['wait', 0, 0]) }
    expect(verify(wasteful).map(({ law }) => law)).toContain('L6')
    expect(verify(wasteful, { safety: true })).toEqual([])
  })
})
