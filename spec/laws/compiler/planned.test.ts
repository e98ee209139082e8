// Plans of planned storage: every law holds, every wait is needed, and no arena is larger than it must be
// where that can be decided.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import type { Ordered } from '../../../dsl/compiler/analysis/ir.js'
import { arena } from '../../../dsl/compiler/passes/arena.js'
import {
  type CompileOptions,
  compile,
  type Graph,
  orThrow,
  type Plan,
  parsePlan,
  renderAll,
  toJSON,
} from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { orderedTasks } from '../../fixtures/plans/of-tasks.js'
import { runs } from '../../fixtures/runs.js'
import { oracle } from '../../oracle/oracle.js'

const planned = (graph: Graph, options: CompileOptions = {}): Plan => {
  const plan = compile(graph, { mode: 'eager', ...options, storage: 'planned' })
  if (isLeft(plan)) throw new Error(renderAll(plan.left))
  return plan.right
}

const rounded = (bytes: number): number => Math.ceil(bytes / 512) * 512

/** All that is in device memory, each with bytes of its own. */
const sum = ({ buffers }: Plan): number =>
  buffers.reduce(
    (all, { alias, space, bytes }) =>
      alias === undefined && space === 'device' ? all + rounded(bytes) : all,
    0,
  )

describe('planned storage', () => {
  test('obeys every law, for generated graphs, and is the same each time', () => {
    fc.assert(
      fc.property(
        sample(),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.boolean(),
        (made, inFlight, lanes, memory, fuse) => {
          const options = { dims: made.dims, inFlight, lanes, memory, fuse }
          const plan = planned(made.graph, options)
          expect(verify(plan)).toEqual([])
          expect(plan.arena![0]).toBe(plan.bound.device[0])
          expect(plan.arena![0]).toBeLessThanOrEqual(sum(plan))
          expect(JSON.stringify(planned(made.graph, options))).toBe(JSON.stringify(plan))
          expect(orThrow(parsePlan(toJSON(plan)))).toEqual(plan)
        },
      ),
      { numRuns: runs(150) },
    )
  })

  test('obeys every law, for graphs of 2 to 8 lanes that hardly meet', () => {
    fc.assert(
      fc.property(
        patterns(60),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom('fast' as const, 'small' as const),
        (pattern, inFlight, memory) => {
          const plan = planned(patternGraph(pattern), { inFlight, memory })
          expect(verify(plan)).toEqual([])
          expect(plan.arena![0]).toBeLessThanOrEqual(sum(plan))
        },
      ),
      { numRuns: runs(100) },
    )
  })

  test('is refused with any wait left out, or with two buffers of one run in one place', () => {
    fc.assert(
      fc.property(patterns(30), fc.constantFrom(1, 2, 3), (pattern, inFlight) => {
        const plan = planned(patternGraph(pattern), { inFlight })
        const safe = (mutant: Plan): boolean => verify(mutant, { safety: true }).length === 0
        plan.commands.forEach((command, c) => {
          if (command[0] === 'wait')
            expect(safe({ ...plan, commands: plan.commands.filter((_, i) => i !== c) })).toBe(false)
          if (command[0] !== 'run') return
          const roots = [...command[3], ...command[4]].map(id => plan.buffers[id]!.alias ?? id)
          const placed = [...new Set(roots)].filter(id => plan.buffers[id]!.offset !== undefined)
          for (const id of placed.slice(1)) {
            const { offset } = plan.buffers[placed[0]!]!
            const over = { ...plan.buffers[id]!, offset: offset! }
            expect(
              safe({
                ...plan,
                arena: [2 * plan.arena![0]!],
                bound: { device: [2 * plan.arena![0]!], pinned: plan.bound.pinned },
                buffers: plan.buffers.with(id, over),
              }),
            ).toBe(false)
          }
        })
        const last = plan.buffers.findLast(({ offset }) => offset !== undefined)!
        const beyond = { ...last, offset: plan.arena![0]! }
        expect(
          verify({ ...plan, buffers: plan.buffers.with(last.id, beyond) }, { safety: true }),
        ).toMatchObject([{ law: 'L9' }])
      }),
      { numRuns: runs(60) },
    )
  })

  test('moved anywhere, is refused where the oracle refuses it, and nowhere else', () => {
    fc.assert(
      fc.property(
        patterns(6),
        fc.constantFrom(1, 2),
        fc.nat(),
        fc.nat(),
        (pattern, inFlight, which, where) => {
          const plan = planned(patternGraph({ ...pattern, lanes: Math.min(3, pattern.lanes) }), { inFlight })
          const movable = plan.buffers.filter(({ offset, life }) => offset !== undefined && life === 'tick')
          const chosen = movable[which % movable.length]!
          const room = plan.arena![0]! - chosen.bytes
          const moved = { ...chosen, offset: 512 * (where % (1 + Math.floor(room / 512))) }
          const mutant = { ...plan, buffers: plan.buffers.with(chosen.id, moved) }
          expect(verify(mutant, { safety: true }).length > 0).toBe(oracle(mutant, false).size > 0)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('fits the memory that is given, or reports the least that it needs, correctly', () => {
    fc.assert(
      fc.property(patterns(40), fc.constantFrom(1, 2), (pattern, inFlight) => {
        const graph = patternGraph(pattern)
        const small = planned(graph, { inFlight, memory: 'small' }).bound.device[0]!
        expect(planned(graph, { inFlight, memory: small }).bound.device[0]).toBeLessThanOrEqual(small)
        const none = compile(graph, { mode: 'eager', inFlight, storage: 'planned', memory: 1 })
        expect(isLeft(none) && none.left).toMatchObject([{ _tag: 'OverBudget' }])
        const least = Number(
          /^(\d+) bytes at the least; in memory at the peak: \w/.exec(
            isLeft(none) ? none.left[0].found : '',
          )?.[1],
        )
        expect(planned(graph, { inFlight, memory: least }).bound.device[0]).toBeLessThanOrEqual(least)
      }),
      { numRuns: runs(40) },
    )
  })

  // Everything that can be before anything else, by paths of an unrolled plan; then every way to give ranges
  // places of one size.
  const leastPlaces = (ordered: Ordered): number => {
    const { operations, laneOf, settings } = ordered
    const count = operations.length
    const touching = operations.map((_, b) =>
      operations.flatMap(({ reads, writes }, i) => (reads.includes(b) || writes.includes(b) ? [i] : [])),
    )
    const ticks = 3
    const before = Array.from({ length: ticks * count }, () => new Set<number>())
    for (let t = 0; t < ticks; t++)
      for (let i = 0; i < count; i++) {
        const own = before[t * count + i]!
        const follow = (u: number, j: number): void => {
          if (u < 0) return
          for (const other of [u * count + j, ...before[u * count + j]!]) own.add(other)
        }
        for (let j = 0; j < i; j++) if (laneOf[j] === laneOf[i]) follow(t, j)
        for (let j = 0; j < count; j++) {
          if (settings.inFlight === 1 || laneOf[j] === laneOf[i]) follow(t - 1, j)
          if (operations[i]!.reads.includes(j)) follow(t, j)
          if (touching[i]!.includes(j)) follow(t - 1, j)
        }
      }
    const follows = (a: number, b: number, ticksLater: number): boolean =>
      touching[a]!.every(i => before[(1 + ticksLater) * count + b]!.has(count + i))
    const agree = (a: number, b: number): boolean =>
      a < b ? follows(a, b, 0) && follows(b, a, 1) : follows(b, a, 0) && follows(a, b, 1)
    const fits = (places: readonly (readonly number[])[], next: number, most: number): boolean => {
      if (next === count) return true
      if (places.length < most && fits([...places, [next]], next + 1, most)) return true
      return places.some(
        (ranges, p) =>
          ranges.every(other => agree(other, next)) &&
          fits([...places.slice(0, p), [...ranges, next], ...places.slice(p + 1)], next + 1, most),
      )
    }
    let most = 1
    while (!fits([], 0, most)) most++
    return most
  }

  const sized = (ordered: Ordered): number => {
    const made = arena(ordered)
    if (isLeft(made)) throw new Error(renderAll(made.left))
    return made.right.bound.device[0]!
  }

  test('is the least there is, for small chains of buffers of one size', () => {
    const chains = fc.array(fc.tuple(fc.nat(2), fc.nat(1)), { minLength: 1, maxLength: 8 })
    fc.assert(
      fc.property(chains, fc.integer({ min: 1, max: 3 }), fc.constantFrom(1, 2), (tasks, lanes, inFlight) => {
        // Two chains, each of whose tasks reads the one before it, on whatever lanes.
        const deps = tasks.map(([, chain], v) => {
          const previous = tasks.findLastIndex(([, other], u) => u < v && other === chain)
          return previous < 0 ? [] : [previous]
        })
        const laneOf = Int32Array.from(tasks, ([lane]) => lane % lanes)
        const ordered = orderedTasks({ deps }, laneOf, () => 512, { inFlight })
        expect(sized(ordered)).toBe(512 * leastPlaces(ordered))
      }),
      { numRuns: runs(300) },
    )
  })
})
