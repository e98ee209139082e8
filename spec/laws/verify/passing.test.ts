// What the proof sees of L6 and L9 in the first tick of the replay of L1 to L4 is what replays of their own find.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compile, orThrow } from '../../../dsl/index.js'
import type { Command, Plan } from '../../../dsl/ir/plan.js'
import { tracesOf } from '../../../dsl/memory/plan-trace.js'
import type { AllocationTrace } from '../../../dsl/memory/trace.js'
import { type CommandTable, commandTableOf } from '../../../dsl/order/command-table.js'
import { Frontiers } from '../../../dsl/order/frontiers.js'
import { Adding, coveredWaits } from '../../../dsl/verify/covered.js'
import { Safety } from '../../../dsl/verify/safety.js'
import { Settled } from '../../../dsl/verify/settled.js'
import { verify } from '../../../dsl/verify/verify.js'
import { sample } from '../../fixtures/graphs/random.js'
import { choleskyOf, largePlan, layeredOf } from '../../fixtures/plans/of-tasks.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { often, runs } from '../../fixtures/runs.js'

const sink = { full: false, add: () => undefined }

/** The plan's replay, and who watches it. */
const watched = (tables: CommandTable) => {
  const clock = new Frontiers(tables)
  const adding = Adding.of(tables, clock)
  const settled = Settled.of(tables, clock)
  new Safety(tables, clock, new Uint8Array(tables.uses), sink).replay(-1, { adding, settled })
  return { adding, traces: settled?.traces() }
}

/** A trace with the points of each release in any order, but without releases by uses. */
const comparable = (trace: AllocationTrace) => {
  const { frees, accesses, uses: _, ...rest } = trace
  const releases = Array.from({ length: frees }, (_, f) =>
    Array.from({ length: accesses.start[f + 1]! - accesses.start[f]! }, (_, i) => {
      const r = accesses.start[f]! + i
      return `${accesses.lane[r]} ${accesses.point[r]}`
    }).sort(),
  )
  return { ...rest, frees, releases }
}

/** Whether the first tick told what a settled one turns over; and whether that took more than to count from its start. */
const agrees = (plan: Plan): { told: boolean; amended: boolean } => {
  const tables = commandTableOf(plan)
  const { adding, traces } = watched(tables)
  if (adding !== undefined) expect(adding.all).toBe(coveredWaits(tables, new Frontiers(tables)) === undefined)
  if (traces === undefined) return { told: false, amended: false }
  const replayed = tracesOf(tables, new Frontiers(tables), { accessesOnly: true, safe: true })
  expect(traces.map(comparable)).toEqual(replayed.map(comparable))
  return { told: true, amended: replayed.some(({ frontier }) => frontier.some(point => point < 0)) }
}

const agreesOften = <A>(
  plans: fc.Arbitrary<A>,
  planOf: (from: A) => Plan,
  full: number,
  least: number,
): void => {
  let [told, amended] = [0, 0]
  fc.assert(
    fc.property(plans, from => {
      const seen = agrees(planOf(from))
      told += seen.told ? 1 : 0
      amended += seen.amended ? 1 : 0
    }),
    { numRuns: runs(full) },
  )
  expect(told).toBeGreaterThan(often(least))
  expect(amended).toBeGreaterThan(often(least / 4))
}

describe('what a settled tick turns over, and whether all waits add something', () => {
  test('in plans that the compiler had no part in', () => {
    agreesOften(recipes(8), recipe => planFrom({ ...recipe, planned: false }), 150, 20)
  })

  test('in plans of generated graphs, with any number of ticks in flight', () => {
    agreesOften(
      fc.tuple(sample(), fc.constantFrom(1, 2, 3, 5)),
      ([{ graph, dims }, inFlight]) => orThrow(compile(graph, { dims, inFlight })),
      100,
      10,
    )
  })

  test('of more runs on as many lanes', () => {
    agreesOften(recipes(10), recipe => planFrom({ ...recipe, lanes: 4, planned: false, devices: 1 }), 40, 4)
  })

  for (const [name, graph, late] of [
    ['Cholesky', choleskyOf(3000), false],
    ['layered', layeredOf(3000), true],
  ] as const)
    for (const inFlight of [1, 2, 4])
      test(`${name}, ${inFlight} in flight`, () => {
        expect(agrees({ ...largePlan(name, graph, 8), inFlight })).toEqual({
          told: true,
          amended: late && inFlight > 1,
        })
      })

  test('a buffer that nobody touches is left to a replay', () => {
    const plan = largePlan('idle', layeredOf(500), 4)
    const idle = { ...plan.buffers[0]!, id: plan.buffers.length, name: 'idle' }
    const larger = { ...plan, buffers: [...plan.buffers, idle] }
    expect(agrees(larger).told).toBe(false)
    expect(verify(larger)).toEqual([])
  })

  test('what L3 refuses is not written down, however often it is said', () => {
    const plan = largePlan('again', layeredOf(500), 4)
    const again = plan.commands.filter(([op]) => op === 'alloc' || op === 'free')
    const { traces } = watched(commandTableOf(plan))
    const refused = watched(commandTableOf({ ...plan, commands: [...plan.commands, ...again, ...again] }))
    expect(refused.traces!.map(comparable)).toEqual(traces!.map(comparable))
  })

  test('waits without end are looked at piece by piece', () => {
    const plan = largePlan('many lanes', layeredOf(500), 4)
    const lanes = Array.from({ length: 1024 }, (_, id) => ({ ...plan.lanes[0]!, id, name: `lane ${id}` }))
    const at = plan.commands.findLastIndex(([op]) => op === 'wait')
    const more = new Array<Command>(9_000).fill(plan.commands[at]!)
    const waiting = { ...plan, lanes, commands: plan.commands.toSpliced(at, 0, ...more) }
    const tables = commandTableOf(waiting)
    // Any one of them could go, the plan's own among them.
    const covered = coveredWaits(tables, new Frontiers(tables))!
    expect(covered.reduce((sum, one) => sum + one, 0)).toBe(9_001)
    expect(new Set(verify(waiting).map(({ law }) => law))).toEqual(new Set(['L6']))
  })

  test('a wait too many is one that does not add', () => {
    const plan = largePlan('twice', layeredOf(500), 4)
    const at = plan.commands.findIndex(([op]) => op === 'wait')
    const commands = plan.commands.toSpliced(at, 0, plan.commands[at]!)
    expect(watched(commandTableOf(plan)).adding!.all).toBe(true)
    expect(watched(commandTableOf({ ...plan, commands })).adding!.all).toBe(false)
  })
})
