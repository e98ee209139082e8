import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Plan, PlanCommunicator, Violation } from '../../../dsl/ir/plan.js'
import { verifyRanks } from '../../../dsl/verify/verify-ranks.js'
import { type Call, lanes, rankOf, type Script, scripts } from '../../fixtures/plans/ranks.js'
import { often, runs } from '../../fixtures/runs.js'
import { canStop, execute } from '../../oracle/rendezvous.js'

const judged = (plans: readonly Plan[]): readonly Violation[] => verifyRanks(plans, { safety: true })
const isConcurrent = ({ message }: Violation): boolean => message.includes('may run at the same time as')

const all: PlanCommunicator = { id: 0, name: 'all' }
const other: PlanCommunicator = { id: 1, name: 'other' }
/** Two by two: rows and columns share one rank. */
const rows: PlanCommunicator = {
  id: 0,
  name: 'rows',
  groups: [
    [0, 1],
    [2, 3],
  ],
}
const columns: PlanCommunicator = {
  id: 1,
  name: 'columns',
  groups: [
    [0, 2],
    [1, 3],
  ],
}

const sum = (communicator: number, lane = 0, count = 16): Call => ({
  kind: 'allReduce',
  communicator,
  count,
  dtype: 'f32',
  how: 'sum',
  lane,
})
const to = (peer: number, lane = 0): Call => ({
  kind: 'send',
  communicator: 0,
  count: 8,
  dtype: 'f32',
  peer,
  lane,
})
const from = (peer: number, lane = 0): Call => ({
  kind: 'recv',
  communicator: 0,
  count: 8,
  dtype: 'f32',
  peer,
  lane,
})
const script = (...calls: Call[]): Script => ({ calls, waits: [] })
const ranks = (communicators: readonly PlanCommunicator[], ...scripts: Script[]): Plan[] =>
  scripts.map(each => rankOf(each, communicators))

describe('collectives, sends and receives of several ranks', () => {
  test('the same collectives in one order are accepted; rows and columns of a mesh may be concurrent', () => {
    const same = script(sum(0), { ...sum(0), kind: 'allGather' }, sum(0, 1))
    expect(judged(ranks([all], same, same, same))).toEqual([])
    const mesh = script(sum(0, 0), sum(1, 1))
    expect(judged(ranks([rows, columns], mesh, mesh, mesh, mesh))).toEqual([])
  })

  test('two swapped', () => {
    const cast: Call = { kind: 'broadcast', communicator: 0, count: 16, dtype: 'f32', root: 1, lane: 0 }
    const one = script(sum(0), cast)
    const two = script(cast, sum(0))
    expect(judged(ranks([all], one, two)).map(({ message }) => message)).toEqual([
      "L8: rank 1, commands[0] (run broadcast0 on math): it is number 1 of its rank's collectives " +
        "over 'all', broadcast of 16 f32 over all, root 1, and that of rank 0 is " +
        'allReduce sum of 16 f32 over all: commands[0] of rank 0 (run allReduce0 on math)',
    ])
  })

  test.each<[string, Partial<Call>, Partial<Call>?]>([
    ['kind', { kind: 'reduceScatter' }],
    ['count', { count: 17 }],
    ['element type', { dtype: 'bf16' }],
    ['reduction', { how: 'max' }],
    ['root', { root: 1 }, { kind: 'broadcast', root: 0 }],
  ])('another %s', (_, change, of = {}) => {
    const call = { ...sum(0), ...of }
    const [violation, ...more] = judged(ranks([all], script(call), script({ ...call, ...change })))
    expect(more).toEqual([])
    expect(violation).toMatchObject({ law: 'L8', rank: 1, command: 0 })
  })

  test('one dropped: the rank that waits for ever is named', () => {
    const [violation] = judged(ranks([all], script(sum(0), sum(0)), script(sum(0))))
    expect(violation).toMatchObject({ law: 'L8', rank: 0, command: 2 })
    expect(violation!.message).toContain('rank 1 issues 1: it waits for that rank for ever')
  })

  test('sends meet receives, and one too many waits for ever', () => {
    expect(judged(ranks([all], script(to(1), from(1)), script(from(0), to(0))))).toEqual([])
    const [violation] = judged(ranks([all], script(to(1), to(1)), script(from(0))))
    expect(violation).toMatchObject({ law: 'L8', rank: 0, command: 2 })
    expect(violation!.message).toContain('send number 2 from rank 0 to rank 1')
    const [sized] = judged(ranks([all], script(to(1)), script({ ...from(0), count: 9 })))
    expect(sized).toMatchObject({ law: 'L8', rank: 1, command: 0 })
  })

  test('both send first: a deadlock where nothing is buffered, with its chain', () => {
    const found = judged(ranks([all], script(to(1), from(1)), script(to(0), from(0))))
    expect(found).toHaveLength(1)
    const { message } = found[0]!
    expect(message).toMatch(/deadlock, nothing buffered: (.*recv1.* comes after .*send0.*; ){2}/)
    expect(message).toMatch(/; and so round to the first$/)
    // Two lanes do not help: calls over one communicator begin in issue order.
    expect(judged(ranks([all], script(to(1, 0), from(1, 1)), script(to(0, 0), from(0, 1))))).toHaveLength(1)
  })

  test('a ring of sends around three ranks', () => {
    const ring = [0, 1, 2].map(r => script(to((r + 1) % 3), from((r + 2) % 3)))
    const [violation] = judged(ranks([all], ...ring))
    expect(violation!.message.match(/comes after/g)).toHaveLength(3)
    expect(judged(ranks([all], ring[0]!, script(from(0), to(2)), script(from(1), to(0))))).toEqual([])
  })

  test('communicators that share two ranks are ordered across lanes', () => {
    const loose = script(sum(0, 0), sum(1, 1))
    const [violation] = judged(ranks([all, other], loose, loose))
    expect(violation).toMatchObject({ law: 'L8', rank: 0, command: 2 })
    expect(violation!.message).toContain("'other' and 'all' share ranks 0, 1")
    // Ordered inside the tick, and around it: the next tick's first waits for this one's last.
    const plan = rankOf({ ...loose, waits: [[1, 0]] }, [all, other])
    const tied = { ...plan, commands: [['wait', 1, 0, -1] as const, ...plan.commands] }
    expect(judged([plan, plan]).map(({ message }) => message.includes('of the tick before'))).toEqual([
      true,
      true,
    ])
    expect(judged([tied, tied])).toEqual([])
    // In one order here and in another there.
    const turned = { ...tied, nodes: [tied.nodes[1]!, tied.nodes[0]!].map((node, id) => ({ ...node, id })) }
    expect(judged([tied, turned])[0]!.message).toContain('deadlock')
  })

  test('errors: unknown ranks, places that no rank has, two communicators of one name', () => {
    const alone = ranks([{ id: 0, name: 'all', groups: [[1]] }], script(sum(0)), script(sum(0)))
    expect(judged(alone)).toContainEqual(expect.objectContaining({ law: 'L8', rank: 0, command: 0 }))
    expect(judged(ranks([all], script(to(5)), script()))[0]!.message).toContain('its peer is 5')
    expect(judged(ranks([all, { id: 1, name: 'all' }], script(), script()))[0]!.message).toContain(
      'two communicators',
    )
    expect(judged(ranks([{ id: 0, name: 'all', groups: [[0, 7]] }], script(sum(0))))[0]!.message).toContain(
      'rank 7',
    )
    expect(judged(ranks([], script(sum(3))))[0]).toMatchObject({ law: 'L8', rank: 0, command: 0 })
    expect(judged([undefined as never, 3 as never]).length).toBeGreaterThan(0)
  })

  test('a violation of one plan names its rank', () => {
    const plan = ranks([all], script(sum(0)))[0]!
    const broken: Plan = { ...plan, commands: [...plan.commands, ['wait', 9, 0]] }
    expect(verifyRanks([plan, broken], { safety: true })).toEqual([
      expect.objectContaining({
        law: 'L7',
        rank: 1,
        command: 2,
        message: expect.stringMatching(/^L7: rank 1, commands\[2\]/),
      }),
    ])
  })
})

type Edit = readonly [kind: number, rank: number, at: number, by: number]
const edited = (sets: readonly Script[], edits: readonly Edit[]): Script[] => {
  const changed = [...sets]
  for (const [kind, rank, at, by] of edits) {
    const own = changed[rank % sets.length]!
    if (own.calls.length === 0) continue
    const calls = [...own.calls]
    const i = at % calls.length
    const j = by % calls.length
    if (kind === 0) calls.splice(i, 1)
    else if (kind === 1) [calls[i], calls[j]] = [calls[j]!, calls[i]!]
    else if (kind === 2) calls[i] = { ...calls[i]!, count: 1 + (by % 2) }
    else calls[i] = { ...calls[i]!, lane: by % lanes.length }
    changed[rank % sets.length] = { ...own, calls }
  }
  return changed
}
const edits = fc.array(fc.tuple(fc.nat(3), fc.nat(), fc.nat(), fc.nat()), { maxLength: 2 })

describe('verifyRanks and an executor that buffers nothing', () => {
  test('sets that are made in one order for all are accepted', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 4 }).chain(world => scripts(world, 1, 8)),
        sets => {
          const plans = sets.map(each => rankOf(each, [all]))
          expect(execute(plans)).toBe('done')
          expect(judged(plans)).toEqual([])
        },
      ),
      { numRuns: runs(300) },
    )
  })

  test('agree on whether the ranks end, after swaps, drops and changes', () => {
    const counts = { done: 0, stuck: 0, mismatch: 0 }
    const many = fc.integer({ min: 2, max: 4 }).chain(world => fc.tuple(scripts(world, 2, 6), edits))
    fc.assert(
      fc.property(many, ([sets, changes]) => {
        const plans = edited(sets, changes).map(each => rankOf(each, [all, other]))
        const outcome = execute(plans)
        counts[outcome]++
        expect(judged(plans).filter(violation => !isConcurrent(violation)).length === 0).toBe(
          outcome === 'done',
        )
      }),
      { numRuns: runs(1500) },
    )
    for (const count of Object.values(counts)) expect(count).toBeGreaterThan(often(50))
  })

  test('agree on whether devices that hold one call at a time can stop for ever', () => {
    const counts = { stops: 0, ends: 0 }
    fc.assert(
      fc.property(scripts(2, 2, 4), edits, (sets, changes) => {
        const plans = edited(sets, changes).map(each => rankOf(each, [all, other]))
        if (execute(plans) !== 'done') return
        const stops = canStop(plans)
        counts[stops ? 'stops' : 'ends']++
        expect(judged(plans).length > 0).toBe(stops)
      }),
      { numRuns: runs(1000) },
    )
    expect(counts.stops).toBeGreaterThan(often(50))
    expect(counts.ends).toBeGreaterThan(often(50))
  })

  /** Three communicators of three ranks: each two share one rank. */
  const ring = [0, 1, 2].map(
    (id): PlanCommunicator => ({ id, name: `pair${id}`, groups: [[id, (id + 1) % 3].sort()] }),
  )
  const around = fc.tuple(
    fc.array(fc.tuple(fc.nat(2), fc.tuple(fc.nat(2), fc.nat(2), fc.nat(2))), { minLength: 2, maxLength: 4 }),
    fc.array(fc.tuple(fc.nat(2), fc.nat(3), fc.nat(3)), { maxLength: 4 }),
    fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
    fc.array(fc.tuple(fc.nat(2), fc.nat(), fc.nat()), { maxLength: 1 }),
  )

  test('agree on whether they can stop round a circle of communicators that share one rank each', () => {
    const counts = { stops: 0, ends: 0 }
    fc.assert(
      fc.property(around, ([meetings, waits, tied, swaps]) => {
        const plans = [0, 1, 2].map(rank => {
          const calls = meetings
            .filter(([id]) => id === rank || (id + 1) % 3 === rank)
            .map(([id, lane]) => sum(id, lane[rank]))
          for (const [at, i, j] of swaps)
            if (at === rank && calls.length > 0) {
              const [x, y] = [i % calls.length, j % calls.length]
              ;[calls[x], calls[y]] = [calls[y]!, calls[x]!]
            }
          const own = waits
            .filter(([at]) => at === rank)
            .map(([, later, earlier]) => [later, earlier] as const)
          return rankOf({ calls, waits: own, around: tied[rank]! }, ring)
        })
        if (execute(plans) !== 'done') return
        const stops = canStop(plans)
        counts[stops ? 'stops' : 'ends']++
        expect(judged(plans).length > 0).toBe(stops)
      }),
      { numRuns: runs(1000) },
    )
    expect(counts.stops).toBeGreaterThan(often(20))
    expect(counts.ends).toBeGreaterThan(often(50))
  })

  test('a circle is reported step by step, and ordering one of its ranks does not mend it', () => {
    const loose = ring.map((_, rank) =>
      rankOf(script(sum(Math.min(rank, (rank + 2) % 3), 0), sum(Math.max(rank, (rank + 2) % 3), 1)), ring),
    )
    const [violation, ...more] = judged(loose)
    expect(more).toEqual([])
    expect(violation).toMatchObject({ law: 'L8' })
    expect(violation!.message.match(/rank \d may hold/g)).toHaveLength(3)
    expect(violation!.message).toContain('which waits for rank')
    const tied = ring.map((_, rank) =>
      rankOf(
        {
          ...script(sum(Math.min(rank, (rank + 2) % 3), 0), sum(Math.max(rank, (rank + 2) % 3), 1)),
          waits: [[1, 0]],
          around: true,
        },
        ring,
      ),
    )
    expect(judged(tied)).toEqual([])
    expect(judged([loose[0]!, tied[1]!, tied[2]!])).toHaveLength(1)
  })

  test('the axes of a mesh make no circle: its calls may be concurrent on every rank', () => {
    const cube = [0, 1, 2].map((axis): PlanCommunicator => {
      const lines = new Map<number, number[]>()
      for (let rank = 0; rank < 8; rank++) {
        const line = rank & ~(1 << axis)
        lines.set(line, [...(lines.get(line) ?? []), rank])
      }
      return { id: axis, name: `axis${axis}`, groups: [...lines.values()] }
    })
    const loose = script(sum(0, 0), sum(1, 1), sum(2, 2))
    expect(judged(Array.from({ length: 8 }, () => rankOf(loose, cube)))).toEqual([])
  })
})
