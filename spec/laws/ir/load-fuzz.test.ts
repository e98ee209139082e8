import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile, type Graph, orThrow, type Plan } from '../../../dsl/index.js'
import { parsePlan } from '../../../dsl/ir/load.js'
import { textOf, toJSON } from '../../../dsl/ir/text.js'
import { verify } from '../../../dsl/verify/verify.js'
import { verifyRanks } from '../../../dsl/verify/verify-ranks.js'
import { twoLanes, weightStreaming, withCollectives, withKernels } from '../../fixtures/plans/by-hand.js'
import { edited, type Holder, type Path, places } from '../../fixtures/plans/fields.js'
import { runs } from '../../fixtures/runs.js'
import { goldens } from '../../golden/graphs.js'

const graphed = orThrow(compile(goldens.diamond as unknown as Graph, { mode: 'graph' })) as Plan
const texts = [twoLanes, weightStreaming, withKernels, withCollectives, graphed].map(toJSON)
const values = texts.map(text => JSON.parse(text) as unknown)

/**
 * The result of any input: a plan that can be judged and printed, or faults with their places; never a throw.
 */
const survives = (input: unknown): void => {
  const parsed = parsePlan(input)
  if (E.isLeft(parsed)) {
    // Plain tests, not expectations: a hundred faults of ten thousand files are many.
    const { length } = parsed.left
    if (length < 1 || length > 101) throw new Error(`${length} faults`)
    for (const fault of parsed.left) {
      for (const key in fault)
        if (typeof fault[key as keyof typeof fault] !== 'string') throw new Error(`${key} is no text`)
    }
  } else {
    verify(parsed.right)
    verifyRanks([parsed.right, withCollectives, parsed.right])
    expect(textOf(parsed.right).length).toBeGreaterThan(0)
    expect(E.isRight(parsePlan(toJSON(parsed.right)))).toBe(true)
  }
}

const odd: readonly unknown[] = [
  undefined,
  null,
  true,
  -1,
  0.5,
  1e308,
  2 ** 53,
  2 ** 53 - 1,
  2 ** 31,
  2 ** 32,
  -0,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  '',
  'run',
  '__proto__',
  'x'.repeat(10_000),
  [],
  [[]],
  [-1],
  {},
  { length: 5 },
  new Array(1000),
  10n,
  Symbol('s'),
  () => 1,
]

describe('no file makes the loader throw or hang', () => {
  test('4,000 texts with bytes flipped, dropped, doubled, and cut short', () => {
    const edits = fc.array(fc.tuple(fc.nat(3), fc.nat(), fc.integer({ min: 32, max: 126 })), {
      minLength: 1,
      maxLength: 4,
    })
    fc.assert(
      fc.property(fc.constantFrom(...texts), edits, (text, changes) => {
        for (const [kind, where, code] of changes) {
          const i = where % (text.length + 1)
          if (kind === 0) text = text.slice(0, i) + String.fromCharCode(code) + text.slice(i + 1)
          else if (kind === 1) text = text.slice(0, i) + text.slice(i + 1)
          else if (kind === 2) text = text.slice(0, i) + text.slice(i - 20, i) + text.slice(i)
          else if (code < 50) text = text.slice(0, i)
        }
        survives(text)
      }),
      { numRuns: runs(4000) },
    )
  })

  const paths = values.map(value => places(value))

  test('4,000 values with fields of another type, huge, or missing', () => {
    const edits = fc.array(fc.tuple(fc.nat(), fc.nat(odd.length)), { minLength: 1, maxLength: 3 })
    fc.assert(
      fc.property(fc.nat(values.length - 1), edits, (which, changes) => {
        let value = values[which]
        for (const [where, what] of changes) {
          value = safely(value, paths[which]![where % paths[which]!.length]!, (holder, key) => {
            if (what === odd.length) delete holder[key]
            else holder[key] = odd[what]
          })
        }
        survives(value)
      }),
      { numRuns: runs(4000) },
    )
  })

  // Some odd values cannot be cloned; they are then the last change.
  const safely = (value: unknown, path: Path, change: Parameters<typeof edited>[2]): unknown => {
    try {
      return edited(value, path, change)
    } catch {
      return value
    }
  }

  test('2,000 values with two fields swapped, or ids and sizes changed', () => {
    fc.assert(
      fc.property(
        fc.nat(values.length - 1),
        fc.nat(),
        fc.nat(),
        fc.option(fc.integer({ min: -3, max: 40 })),
        (which, x, y, id) => {
          const all = paths[which]!
          const at = (path: Path) =>
            path.reduce<unknown>(
              (inner, key) => (inner as Record<string | number, unknown>)?.[key],
              values[which],
            )
          const [one, two] = [all[x % all.length]!, all[y % all.length]!]
          const put = (new_: unknown) => (holder: Holder, key: string | number) => {
            holder[key] = structuredClone(new_)
          }
          const first = edited(values[which], one, put(id ?? at(two)))
          survives(id === null ? edited(first, two, put(at(one))) : first)
        },
      ),
      { numRuns: runs(2000) },
    )
  })

  test('values that are hostile', () => {
    const cyclic: Record<string, unknown> = { ...(values[0] as object) }
    cyclic.self = cyclic
    cyclic.lanes = [cyclic]
    const throwing = {
      ...(values[0] as object),
      get buffers() {
        throw new Error('no')
      },
    }
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const polluted = '{"__proto__": {"plan": 1}, "constructor": {"prototype": {"x": 1}}}'
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
    for (const input of [
      cyclic,
      throwing,
      proxy,
      polluted,
      deep,
      new Proxy([], {}),
      Object.create(values[0] as object),
      '',
      'null',
      '[]',
      '1e999',
      ...odd,
    ]) {
      survives(input)
      expect(E.isLeft(parsePlan(input))).toBe(true)
    }
    expect(({} as Record<string, unknown>).plan).toBeUndefined()
    const extra = { ...(values[0] as object), unknown: { deeply: [1, 2, 3] } }
    const parsed = parsePlan(extra)
    expect(E.isRight(parsed) && !('unknown' in parsed.right)).toBe(true)
  })
})
