// The pool looks at a few free ranges one by one, and has an index of more. Both take the bytes that the
// rule says, whatever was taken and given back before.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { RangePool } from '../../../dsl/memory/range-pool.js'
import { ReleasePoints } from '../../../dsl/memory/release-points.js'
import { often, runs } from '../../fixtures/runs.js'
import { SlowPool } from '../../oracle/slow-pool.js'

const unit = 512

/** From one point a lane, 0 for none; put in an order of their own. */
const released = (points: ArrayLike<number>, from = 0): ReleasePoints => {
  const release = new ReleasePoints()
  for (let i = 0; i < points.length; i++) {
    const lane = (from + i) % points.length
    release.put(lane, points[lane]!)
  }
  return release
}

/** One step on lane `lane`; `other` is another lane, and picks among blocks. */
const steps = (lanes: number) =>
  fc.array(
    fc.record({
      kind: fc.constantFrom('run', 'wait', 'take', 'take', 'take', 'give', 'give', 'use', 'retire'),
      lane: fc.nat(lanes - 1),
      other: fc.nat(1000),
      size: fc.oneof(fc.constant(2), fc.integer({ min: 1, max: 9 })),
    }),
    { minLength: 1, maxLength: 250, size: 'max' },
  )

const traces = fc
  .integer({ min: 1, max: 6 })
  .chain(lanes => fc.record({ lanes: fc.constant(lanes), base: fc.nat(3), steps: steps(lanes) }))

interface Block {
  readonly at: number
  readonly size: number
  readonly home: number
  readonly uses: number[]
}

/** Free ranges beyond which each pool has an index. */
const few = [0, 1, 5, 20, Number.POSITIVE_INFINITY]

describe('the pool of ranges', () => {
  test('takes what the rule says, by looking at all ranges and by an index', () => {
    let indexed = 0
    let mostPoints = 0
    fc.assert(
      fc.property(traces, ({ lanes, base, steps }) => {
        const oracle = new SlowPool(base * unit)
        const pools = few.map(few => new RangePool(lanes, base * unit, few))
        const frontiers = Array.from({ length: lanes }, () => new Array<number>(lanes).fill(0))
        const blocks: Block[] = []
        for (const { kind, lane, other, size } of steps) {
          const own = frontiers[lane]!
          if (kind === 'run') own[lane]!++
          else if (kind === 'wait') {
            own[lane]!++
            frontiers[other % lanes]!.forEach((point, m) => {
              own[m] = Math.max(own[m]!, point)
            })
          } else if (kind === 'take') {
            const at = oracle.take(size * unit, lane, own)
            for (const pool of pools) expect(pool.take(size * unit, lane, Int32Array.from(own))).toBe(at)
            blocks.push({ at, size: size * unit, home: lane, uses: new Array<number>(lanes).fill(0) })
          } else if (kind === 'use' && blocks.length > 0)
            blocks[other % blocks.length]!.uses[lane] = own[lane]!
          else if (kind === 'give' && blocks.length > 0) {
            const { at, size, home, uses } = blocks.splice(other % blocks.length, 1)[0]!
            const release = uses.with(home, frontiers[home]![home]!)
            mostPoints = Math.max(mostPoints, release.filter(point => point > 0).length)
            oracle.give(at, size, release)
            for (const pool of pools) pool.give(at, size, released(release, other))
          } else if (kind === 'retire' && other < 100) {
            const done = frontiers.map((points, m) => points[m]!)
            for (const points of frontiers) for (let m = 0; m < lanes; m++) points[m] = done[m]!
            oracle.retire(done)
            for (const pool of pools) pool.retire(Int32Array.from(done))
          }
          indexed += oracle.ranges.length > 5 ? 1 : 0
          for (const pool of pools) {
            expect(pool.peak).toBe(oracle.peak)
            expect(pool.free.map(({ offset, size }) => [offset, size])).toEqual(
              oracle.ranges.map(({ at, size }) => [at, size]),
            )
          }
        }
      }),
      { numRuns: runs(150) },
    )
    expect(indexed).toBeGreaterThan(often(100))
    // More than a row has room for at first.
    expect(mostPoints).toBeGreaterThan(often(2))
  })

  test('gives bytes to a lane that is after every one of many lanes that used them, and to no other', () => {
    const lanes = 50
    for (const few of [0, 256])
      for (let missing = 1; missing < lanes; missing += 7) {
        const pool = new RangePool(lanes, 0, few)
        const points = Array.from({ length: lanes }, (_, m) => m + 1)
        const frontier = Int32Array.from(points)
        for (let i = 0; i < 3; i++) pool.take(unit, 0, frontier)
        // Its neighbour has one point less, so they stay two ranges.
        pool.give(unit, unit, released(points, missing))
        pool.give(0, unit, released(points.with(missing, 0)))
        expect(pool.free).toHaveLength(2)
        frontier[missing]!--
        expect(pool.take(unit, 0, frontier)).toBe(0)
        expect(pool.take(unit, 0, frontier)).toBe(3 * unit)
        expect(pool.take(unit, missing, frontier)).toBe(unit)
      }
  })

  test('takes nothing beyond a limit, with an index too', () => {
    for (const few of [0, 256]) {
      const pool = new RangePool(2, 0, few)
      const frontier = Int32Array.from([0, 0])
      for (let i = 0; i < 4; i++) pool.take(unit, 0, frontier)
      pool.give(unit, unit, released([1, 1]))
      pool.give(3 * unit, unit, released([0, 0]))
      expect(pool.take(2 * unit, 0, frontier, 4 * unit)).toBe(-1)
      expect(pool.free).toHaveLength(2)
      expect(pool.take(2 * unit, 0, frontier, 5 * unit)).toBe(3 * unit)
      expect(pool.peak).toBe(5 * unit)
    }
  })

  test('takes from far more ranges than are looked at one by one', () => {
    const lanes = 3
    const pools = [new RangePool(lanes, 0), new RangePool(lanes, 0, Number.POSITIVE_INFINITY)]
    const count = 5_000
    let random = 7
    const below = (limit: number): number => {
      random = (Math.imul(random, 1103515245) + 12345) & 0x7fffffff
      return (random >>> 8) % limit
    }
    const frontiers = Array.from({ length: lanes }, () => new Int32Array(lanes))
    const live: { at: number; size: number; home: number }[] = []
    for (let step = 0; step < 2 * count; step++) {
      const lane = below(lanes)
      const own = frontiers[lane]!
      own[lane]!++
      if (below(50) === 0)
        frontiers[below(lanes)]!.forEach((point, m) => {
          own[m] = Math.max(own[m]!, point)
        })
      if (step < count || below(3) === 0) {
        const size = unit * (1 + below(6))
        const taken = pools.map(pool => pool.take(size, lane, own))
        expect(taken[0]).toBe(taken[1])
        live.push({ at: taken[0]!, size, home: lane })
      } else {
        const { at, size, home } = live.splice(below(live.length), 1)[0]!
        const release = new Int32Array(lanes)
        release[home] = frontiers[home]![home]!
        for (const pool of pools) pool.give(at, size, released(release))
      }
    }
    expect(pools[0]!.free.length).toBeGreaterThan(512)
    expect(pools[0]!.free).toEqual(pools[1]!.free)
  })
})
