// Every case of the list is a test, or has a reason: none is both, none is missing, and nothing is counted
// that the suites do not hold.
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { cases, contractLines, elsewhere, partly } from './coverage.js'

const folder = new URL('.', import.meta.url)
const suites = readdirSync(folder).filter(name => name.endsWith('.test.ts') && name !== 'coverage.test.ts')
// Titles of tests, which stand first in the call: test('33: …', test.each(…)('33, 34: …'. Ranges do not
// count.
const titles = suites.flatMap(file =>
  [
    ...readFileSync(new URL(file, folder), 'utf8').matchAll(
      /\(\s*(['"`])((?:5k\.)?\d+(?:, (?:5k\.)?\d+)*): (.+?)\1/g,
    ),
  ].map(([, , numbers, words]) => ({ file, numbers: numbers!.split(', '), words: words! })),
)
const tested = new Set(titles.flatMap(({ numbers }) => numbers))
const all = Array.from({ length: cases }, (_, i) => i + 1)

describe('the list', () => {
  test('is covered: each of its cases is tested or has a reason, and none is both', () => {
    const reasons = elsewhere.map(({ number }) => number)
    expect(new Set(reasons).size).toBe(reasons.length)
    const missing = all.filter(number => !tested.has(String(number)) && !reasons.includes(number))
    expect(missing).toEqual([])
    expect(reasons.filter(number => tested.has(String(number)))).toEqual([])
  })

  test('names no case that it does not have', () => {
    const known = new Set([
      ...all.map(String),
      ...Array.from({ length: contractLines }, (_, i) => `5k.${i + 1}`),
    ])
    expect([...tested].filter(number => !known.has(number))).toEqual([])
    expect(elsewhere.filter(({ number }) => !all.includes(number))).toEqual([])
  })

  test('keeps every line of the contract', () => {
    const lines = Array.from({ length: contractLines }, (_, i) => `5k.${i + 1}`)
    expect(lines.filter(line => !tested.has(line))).toEqual([])
  })

  test('says what is left out of a case only of cases that are tested', () => {
    expect(partly.filter(({ number }) => !tested.has(String(number)))).toEqual([])
    for (const { not, why } of partly) expect(not.length * why.length).toBeGreaterThan(0)
  })

  test('has reasons that say why, and where', () => {
    for (const { number, why, where } of elsewhere)
      expect(Math.min(why.length, where.length), `${number}`).toBeGreaterThan(5)
    // What waits for graphs is as much as the list has of them, and what has no counterpart is little.
    expect(elsewhere.filter(({ kind }) => kind === 'none').length).toBeLessThanOrEqual(3)
  })

  test('is tested on devices, not only on paper', () => {
    expect(suites.length).toBeGreaterThanOrEqual(9)
    expect(titles.length).toBeGreaterThan(150)
  })
})
