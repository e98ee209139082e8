// Every case of the list is a test or has a reason, never both; no case is missing, and no unknown case is
// counted.
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { cases, contractLines, elsewhere, partly } from './coverage.js'

const folder = new URL('.', import.meta.url)
const suites = readdirSync(folder).filter(name => name.endsWith('.test.ts') && name !== 'coverage.test.ts')
// Titles of tests, the first argument of a call: test('33: …', test.each(…)('33, 34: …'. Ranges do not count.
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
  test('is complete: each case is tested or has a reason, and none is both', () => {
    const reasons = elsewhere.map(({ number }) => number)
    expect(new Set(reasons).size).toBe(reasons.length)
    const missing = all.filter(number => !tested.has(String(number)) && !reasons.includes(number))
    expect(missing).toEqual([])
    expect(reasons.filter(number => tested.has(String(number)))).toEqual([])
  })

  test('contains every case that is named', () => {
    const known = new Set([
      ...all.map(String),
      ...Array.from({ length: contractLines }, (_, i) => `5k.${i + 1}`),
    ])
    expect([...tested].filter(number => !known.has(number))).toEqual([])
    expect(elsewhere.filter(({ number }) => !all.includes(number))).toEqual([])
  })

  test('has a test for every line of the contract', () => {
    const lines = Array.from({ length: contractLines }, (_, i) => `5k.${i + 1}`)
    expect(lines.filter(line => !tested.has(line))).toEqual([])
  })

  test('names an untested part only of tested cases', () => {
    expect(partly.filter(({ number }) => !tested.has(String(number)))).toEqual([])
    for (const { not, why } of partly) expect(not.length * why.length).toBeGreaterThan(0)
  })

  test('has reasons with a why and a where', () => {
    for (const { number, why, where } of elsewhere)
      expect(Math.min(why.length, where.length), `${number}`).toBeGreaterThan(5)
  })

  test('has suites with enough tests', () => {
    expect(suites.length).toBeGreaterThanOrEqual(9)
    expect(titles.length).toBeGreaterThan(150)
  })
})
