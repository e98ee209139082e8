// The options of an allocator, from whatever a caller of JavaScript may pass: those given, the environment's
// beneath them, the defaults beneath those; every fault at once; nothing throws.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { orThrow } from '../../../dsl/index.js'
import {
  type AllocatorOptions,
  allocatorOptions,
  limitOn,
  type ResolvedAllocatorOptions,
} from '../../../runtime/device/settings/options.js'
import { runs } from '../../fixtures/runs.js'

const MiB = 2 ** 20
const steps = fc.oneof(
  fc.constant(0),
  fc.integer({ min: 0, max: 31 }).map(power => 2 ** power),
)

describe('the options of an allocator', () => {
  const bytes = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })
  const bound = fc.oneof(bytes, fc.constant(Number.POSITIVE_INFINITY))
  const large = fc.integer({ min: 10 * MiB + 1, max: 2 ** 40 })
  const divisionList = fc
    .uniqueArray(fc.integer({ min: 0, max: 15 }), { maxLength: 16 })
    .chain(intervals =>
      fc.tuple(
        ...intervals
          .sort((a, b) => a - b)
          .map(at => steps.map(count => ({ from: MiB * 2 ** at, steps: count }))),
      ),
    )
  const given: fc.Arbitrary<AllocatorOptions> = fc
    .record(
      {
        policy: fc.constantFrom('order-then-wait', 'order-then-grow', 'poll', 'never-wait'),
        limit: bound,
        fraction: fc.double({ min: 0, max: 1, noNaN: true }),
        expandable: fc.boolean(),
        cacheUpTo: bound,
        movePages: fc.boolean(),
        maxSplit: fc.oneof(fc.integer({ min: 2 ** 40, max: Number.MAX_SAFE_INTEGER }), fc.constant(Infinity)),
        maxNonSplitRounding: fc.integer({ min: 2 ** 40, max: Number.MAX_SAFE_INTEGER }),
        largeSegment: large,
        collectAbove: fc.double({ min: 0, max: 0.999, noNaN: true }),
        refuseEarly: fc.boolean(),
        divisions: fc.oneof(steps, divisionList),
        pinned: fc.record(
          { limit: bound, roundUpTo: bound, cacheUpTo: bound, reserveFirst: bytes },
          { requiredKeys: [] },
        ),
      },
      { requiredKeys: [] },
    )
    .map(options => options as AllocatorOptions)

  const defaults: ResolvedAllocatorOptions = orThrow(allocatorOptions(undefined))

  test('are those given, and the defaults where none is', () => {
    fc.assert(
      fc.property(given, options => {
        const resolved = orThrow(allocatorOptions(options))
        const { pinned = {}, divisions = 0, ...plain } = options
        const maxNonSplitRounding = plain.maxNonSplitRounding ?? resolved.largeSegment
        const cacheUpTo = pinned.cacheUpTo ?? Number.POSITIVE_INFINITY
        const list = typeof divisions === 'number' ? [{ from: MiB, steps: divisions }] : divisions
        const at = (interval: number) => list.findLast(({ from }) => from <= MiB * 2 ** interval)?.steps ?? 0
        const positive = (value: unknown) => (value === 0 ? 0 : value) // -0 is no other number
        expect(resolved).toEqual({
          ...defaults,
          // Memory in pages is kept, so it is not the default where blocks go back.
          expandable: (plain.cacheUpTo ?? Number.POSITIVE_INFINITY) === Number.POSITIVE_INFINITY,
          ...Object.fromEntries(Object.entries(plain).map(([key, value]) => [key, positive(value)])),
          maxNonSplitRounding,
          divisions: Array.from({ length: 16 }, (_, interval) => at(interval)),
          pinned: {
            ...defaults.pinned,
            ...pinned,
            cacheUpTo,
            roundUpTo: Math.min(pinned.roundUpTo ?? 0, cacheUpTo),
          },
        })
      }),
    )
  })

  test('a zero below zero is a zero', () => {
    const { limit, fraction, collectAbove, pinned } = orThrow(
      allocatorOptions({
        limit: -0,
        fraction: -0,
        collectAbove: -0,
        pinned: { limit: -0, roundUpTo: -0, reserveFirst: -0 },
      }),
    )
    for (const zero of [limit, fraction, collectAbove, pinned.limit, pinned.roundUpTo, pinned.reserveFirst])
      expect(zero).toBe(0)
  })

  test('those given stand before those of the environment', () => {
    const under: AllocatorOptions = {
      expandable: false,
      fraction: 0.5,
      divisions: 4,
      pinned: { cacheUpTo: 5, reserveFirst: 6 },
    }
    const resolved = orThrow(allocatorOptions({ fraction: 0.25, pinned: { cacheUpTo: 7 } }, under))
    expect(resolved).toMatchObject({
      expandable: false,
      fraction: 0.25,
      pinned: { cacheUpTo: 7, reserveFirst: 6 },
    })
    expect(resolved.divisions).toEqual(new Array(16).fill(4))
  })

  const wrong: Readonly<Record<string, readonly unknown[]>> = {
    policy: ['fast', '', 'Poll', 1, null, ['poll']],
    limit: [-1, 1.5, Number.NaN, 2 ** 53, '1GiB', -Infinity, 5n, null, {}],
    fraction: [-0.1, 1.1, Number.NaN, '0.5', Infinity],
    expandable: ['True', 0, null],
    cacheUpTo: [-1, 1.5, Number.NaN, '1GiB', null],
    movePages: ['no', 1],
    maxSplit: [0, 20 * MiB - 1, Number.NaN, -Infinity],
    maxNonSplitRounding: [0, Infinity, '20'],
    largeSegment: [10 * MiB, Infinity, 2 ** 53, -1],
    collectAbove: [1, -0.5, Number.NaN, '0.8'],
    refuseEarly: ['False', 0],
    divisions: [3, -1, 2 ** 32, Number.NaN, '4', {}, new Array(17), Object.create(null)],
    pinned: [1, null, [], 'none', new Map(), () => 0],
  }
  const cases = Object.entries(wrong).flatMap(([name, values]) => values.map(value => [name, value] as const))

  test.each(cases)('%s cannot be %o', (name, value) => {
    const result = allocatorOptions({ [name]: value })
    expect(result).toMatchObject({ left: [{ _tag: 'BadOption', at: `allocator.${name}` }] })
  })

  test('every fault is reported at once, each by its name', () => {
    fc.assert(
      fc.property(fc.subarray(Object.keys(wrong), { minLength: 1 }), names => {
        const result = allocatorOptions(Object.fromEntries(names.map(name => [name, wrong[name]![0]])))
        const faults = E.isLeft(result) ? result.left : []
        expect(faults.map(({ at }) => at).sort()).toEqual(names.map(name => `allocator.${name}`).sort())
      }),
    )
    expect(
      allocatorOptions({
        divisions: [{ from: 3, steps: 2 }, { from: 4 * MiB, steps: 3 }, { from: MiB, steps: 1, to: 5 }, 7],
        pinned: { limit: -1, reserveFirst: Infinity, cacheUpto: 1 },
      }),
    ).toMatchObject({
      left: [
        { at: 'allocator.pinned.cacheUpto', next: expect.stringContaining('cacheUpTo') },
        { at: 'allocator.divisions[0].from' },
        { at: 'allocator.divisions[1].steps' },
        { at: 'allocator.divisions[2].to' },
        { at: 'allocator.divisions[2].from' },
        { at: 'allocator.divisions[3]' },
        { at: 'allocator.pinned.limit' },
        { at: 'allocator.pinned.reserveFirst' },
      ],
    })
  })

  test.each([
    ['maxSplitSize', 'maxSplit'],
    ['expandible', 'expandable'],
    ['LIMIT', 'limit'],
    ['pined', 'pinned'],
    ['zzzzzzzzzz', undefined],
    ['__proto__', undefined],
  ])('an option %s is none', (name, meant) => {
    const result = allocatorOptions(JSON.parse(`{ "${name}": 1 }`))
    expect(result).toMatchObject({ left: [{ _tag: 'BadOption', at: `allocator.${name}` }] })
    const next = E.isLeft(result) ? result.left[0]!.next : ''
    expect(next).toBe(meant === undefined ? 'leave it out' : `write ${meant}, or leave it out`)
  })

  test('take anything at all, and never throw', () => {
    const revoked = () => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    }
    const thrower = () => {
      throw new Error('no')
    }
    const hostile = fc.constantFrom<() => unknown>(
      revoked,
      () => new Proxy({}, { ownKeys: thrower }),
      () => new Proxy({}, { getPrototypeOf: thrower }),
      () => new Proxy({ limit: 1 }, { get: thrower }),
      () => new Proxy([], { get: thrower }),
      () => Object.defineProperty({}, 'limit', { enumerable: true, get: thrower }),
      () => ({ [Symbol.toPrimitive]: thrower, toString: thrower }),
    )
    // As functions: fast-check looks into what it makes.
    const anything: fc.Arbitrary<() => unknown> = fc.oneof(
      fc
        .anything({
          withBigInt: true,
          withDate: true,
          withMap: true,
          withNullPrototype: true,
          withSparseArray: true,
        })
        .map(value => () => value),
      hostile,
    )
    const keyed = fc
      .dictionary(fc.oneof(fc.constantFrom(...Object.keys(wrong)), fc.string()), anything)
      .map(values => () => Object.fromEntries(Object.entries(values).map(([key, value]) => [key, value()])))
    const pinned = anything.map(value => () => ({ pinned: value() }))
    const list = fc
      .array(anything, { maxLength: 17 })
      .map(items => () => ({ divisions: items.map(item => item()) }))
    fc.assert(
      fc.property(fc.oneof(anything, keyed, pinned, list), options => {
        const result = allocatorOptions(options())
        if (E.isRight(result)) return
        expect(result.left.length).toBeGreaterThan(0)
        for (const { wanted, found, next } of result.left)
          for (const said of [wanted, found, next]) expect(said).not.toBe('')
      }),
      { numRuns: runs(500) },
    )
  })

  test('the limit on a device is the lower of both bounds', () => {
    fc.assert(
      fc.property(bound, fc.double({ min: 0, max: 1, noNaN: true }), bytes, (limit, fraction, device) => {
        const most = limitOn(orThrow(allocatorOptions({ limit, fraction })), device)
        expect(most).toBeLessThanOrEqual(limit)
        if (fraction < 1) expect(most).toBe(Math.min(limit, Math.floor(fraction * device)))
        else expect(most).toBe(limit)
      }),
    )
  })
})
