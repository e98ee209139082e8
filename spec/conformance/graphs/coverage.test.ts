// Every statement of the contract has a test of its number, and every case of the list a test or a reason.
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { cases, statements } from './coverage.js'

const here = new URL('.', import.meta.url)
const nativeFolder = new URL('../../../native/test/graphs/', import.meta.url)
const cudaFolder = new URL('../../../native/test/cuda/', import.meta.url)
const text = (folder: URL, end: string): string =>
  readdirSync(folder)
    .filter(file => file.endsWith(end))
    .map(file => readFileSync(new URL(file, folder), 'utf8'))
    .join('\n')
const native = text(nativeFolder, '_test.cc')
const named = readFileSync(new URL('statements.test.ts', here), 'utf8')

// Titles: `S47_S48_ANodeKeeps…` in C++, `it('13 …; 14 …` and `it('3, 11 …` in TypeScript.
const inNative = [...native.matchAll(/^TEST(?:_P)?\(\w+, ((?:S\d+_)+)/gm)].flatMap(([, numbers]) =>
  [...numbers!.matchAll(/\d+/g)].map(Number),
)
const inTypeScript = [...named.matchAll(/\bit\(\s*'(\d+[^']*)'/g)].flatMap(([, title]) =>
  title!
    .split('; ')
    .flatMap(part =>
      [...part.matchAll(/^(\d+(?:, \d+)*) /g)].flatMap(([, numbers]) => numbers!.split(', ').map(Number)),
    ),
)

const sourceOf = (file: string): string =>
  file === 'native'
    ? `${native}\n${text(cudaFolder, '_test.cc')}`
    : readFileSync(new URL(`${file}.test.ts`, here), 'utf8')

describe('the contract of graphs', () => {
  test('each statement has a test of its number', () => {
    const all = Array.from({ length: statements }, (_, i) => i + 1)
    const tested = new Set([...inNative, ...inTypeScript])
    expect(all.filter(number => !tested.has(number))).toEqual([])
    expect([...tested].filter(number => !all.includes(number))).toEqual([])
  })

  test('each case has a test that stands, or a reason', () => {
    const missing = cases.filter(([, where]) => {
      if (typeof where === 'string') return where.length < 20
      const [file, title] = where
      return title.length < 15 || !sourceOf(file).includes(file === 'native' ? `, ${title})` : `'${title}`)
    })
    expect(missing).toEqual([])
    expect(new Set(cases.map(([words]) => words)).size).toBe(cases.length)
  })

  test('most cases are tests', () => {
    expect(cases.filter(([, where]) => typeof where !== 'string').length).toBeGreaterThan(85)
  })
})
