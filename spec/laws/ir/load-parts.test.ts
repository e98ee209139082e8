// A plan's file may be longer than a string can be: reading it in parts gives the same plan or the same
// faults as reading it whole.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { jsonParts, toJSON } from '../../../dsl/ir/json.js'
import { jsonOf } from '../../../dsl/ir/json-parts.js'
import { parsePlan, parsePlanParts } from '../../../dsl/ir/load.js'
import { Enough, Reader } from '../../../dsl/ir/reader.js'
import { plans } from '../../fixtures/plans/random.js'
import { runs } from '../../fixtures/runs.js'

const pieces = (text: string, ends: readonly number[]): string[] => {
  const at = [...ends.map(end => end % (text.length + 1)), 0, text.length].sort((a, b) => a - b)
  return at.slice(1).map((end, i) => text.slice(at[i], end))
}
const ends = fc.array(fc.nat(), { maxLength: 12 })
const few = fc.constantFrom(1, 7, 40, 2 ** 20)

const both = (text: string, cuts: readonly number[], together: number) => {
  const attempt = (read: () => unknown) => {
    try {
      return { value: read() }
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error
      return 'no JSON'
    }
  }
  return [
    attempt(() => jsonOf(pieces(text, cuts), new Reader(true), together)),
    attempt(() => JSON.parse(text)),
  ]
}

/** Values that sometimes have a plan's fields, at any depth. */
const name = fc.constantFrom('commands', 'nodes', 'buffers', 'lanes', 'name', 'a"b', 'x\\', '{[,:]}', '')
const { value } = fc.letrec(tie => ({
  value: fc.oneof({ depthSize: 'small' }, fc.integer(), name, fc.constant(null), tie('list'), tie('object')),
  list: fc.array(tie('value'), { maxLength: 6 }),
  object: fc.array(fc.tuple(name, tie('value')), { maxLength: 5 }),
}))
// An object is a list of names and values, since a text may say a name twice.
const textOf = (given: unknown, gap: string): string => {
  if (!Array.isArray(given)) return JSON.stringify(given)
  const isObject =
    given.length > 0 &&
    given.every(item => Array.isArray(item) && item.length === 2 && typeof item[0] === 'string')
  const items = given.map(item =>
    isObject ? `${JSON.stringify(item[0])}${gap}:${textOf(item[1], gap)}` : textOf(item, gap),
  )
  return isObject ? `{${gap}${items.join(`,${gap}`)}}` : `[${items.join(`${gap},`)}${gap}]`
}

describe('read in parts', () => {
  test('any JSON is the value that it is', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(name, value), { maxLength: 6 }),
        fc.constantFrom('', ' \n'),
        ends,
        few,
        (top, gap, cuts, together) => {
          const fields = top.map(([key, item]) => `${JSON.stringify(key)}:${gap}${textOf(item, gap)}`)
          const [parts, whole] = both(`${gap}{${fields.join(`${gap},`)}}`, cuts, together)
          expect(parts).toEqual(whole)
        },
      ),
      { numRuns: runs(1000) },
    )
  })

  test('what is no JSON is none', () => {
    const word = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"commands"',
      '"nodes":[',
      '1',
      '"',
      '\\',
      ' ',
      '-',
      '{"lanes":[',
      '],',
      '[1]',
    )
    fc.assert(
      fc.property(fc.array(word, { maxLength: 14 }), ends, few, (words, cuts, together) => {
        const [parts, whole] = both(words.join(''), cuts, together)
        expect(parts).toEqual(whole)
      }),
      { numRuns: runs(3000) },
    )
  })

  test('a plan is the plan, and its faults are those of the whole text', () => {
    fc.assert(
      fc.property(
        plans(),
        ends,
        fc.nat(),
        fc.constantFrom('', ',', '0', '"', 'null', '-1', '[]'),
        (plan, cuts, at, put) => {
          const text = toJSON(plan)
          expect(Array.from(jsonParts(plan)).join('')).toBe(text)
          expect(parsePlanParts(pieces(text, cuts))).toEqual(parsePlan(text))
          const where = at % text.length
          const other = text.slice(0, where) + put + text.slice(where + 1)
          const [parts, whole] = [parsePlanParts(pieces(other, cuts)), parsePlan(other)]
          expect(E.isRight(parts)).toBe(E.isRight(whole))
          // The two ways report the place of a JSON error differently.
          const faultsOf = (result: typeof parts) =>
            E.isLeft(result) ? result.left.map(({ _tag, at }) => [_tag, at]) : result.right
          expect(faultsOf(parts)).toEqual(faultsOf(whole))
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('a JSON error has its position in the whole text, wherever lists are cut out', () => {
    const positionIn = (read: () => unknown): number => {
      try {
        read()
      } catch (error) {
        const [, position] = / at position (\d+)/.exec((error as Error).message) ?? []
        return Number(position)
      }
      throw new Error('this is JSON')
    }
    fc.assert(
      fc.property(plans(), ends, few, fc.nat(), (plan, cuts, together, at) => {
        const text = toJSON(plan)
        const { index } = [...text.matchAll(/(?<=\]|\}),(?=\[|\{)/g)].at(at % 8) ?? { index: 0 }
        const wrong = [`${text} x`, text.replace('{', '{,')]
        // Between two entries of a list, which are then not separated.
        if (index > 0) wrong.push(`${text.slice(0, index)} ${text.slice(index + 1)}`)
        for (const other of wrong)
          expect(positionIn(() => jsonOf(pieces(other, cuts), new Reader(true), together))).toBe(
            positionIn(() => JSON.parse(other)),
          )
      }),
      { numRuns: runs(60) },
    )
  })

  test('a list without an end is given up', () => {
    function* forever(): Generator<string> {
      yield '{"lanes":['
      for (;;) yield '0,'.repeat(1000)
    }
    const r = new Reader(true)
    expect(() => jsonOf(forever(), r)).toThrow(Enough)
    expect(r.faults[0]).toMatchObject({ _tag: 'TooMany', at: 'plan.lanes' })
    const parsed = parsePlanParts(
      (function* () {
        yield '{"name":"'
        for (;;) yield 'x'.repeat(2 ** 20)
      })(),
    )
    expect(E.isLeft(parsed) && parsed.left[0]).toMatchObject({
      _tag: 'BadJson',
      found: expect.stringContaining('64 MiB'),
    })
  })
})
