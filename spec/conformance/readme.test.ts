// The README is a program: the blocks of each section together are one file, which must type-check, run, and print what it says.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { formatWithOptions } from 'node:util'
import ts from 'typescript'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const folder = join(root, '.cache', `readme-${process.pid}`)

interface Section {
  readonly title: string
  readonly file: string
  readonly code: string
  readonly output: readonly string[]
}

const blocks = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(match => match[1]!)

const sections: readonly Section[] = readFileSync(join(root, 'README.md'), 'utf8')
  .split(/^## /m)
  .map((text, i) => ({
    title: text.split('\n')[0]!,
    file: join(folder, `section-${i}.ts`),
    code: blocks(text, 'ts').join('\n'),
    output: blocks(text, 'text'),
  }))
  .filter(({ code }) => code !== '')

beforeAll(() => {
  mkdirSync(folder, { recursive: true })
  for (const { file, code } of sections) writeFileSync(file, code)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

it('has sections with code, and one that shows what it prints', () => {
  expect(sections.length).toBeGreaterThanOrEqual(3)
  expect(sections.some(({ output }) => output.length > 0)).toBe(true)
})

it('type-checks', () => {
  const config = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile)
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, root)
  const program = ts.createProgram(
    sections.map(({ file }) => file),
    { ...options, noEmit: true, noUnusedLocals: false },
  )
  const problems = ts
    .getPreEmitDiagnostics(program)
    .map(problem => ts.flattenDiagnosticMessageText(problem.messageText, '\n'))
  expect(problems).toEqual([])
})

describe.each(sections)('$title', ({ file, output }) => {
  it('runs, and prints what it says', async () => {
    const printed: string[] = []
    const log = vi
      .spyOn(console, 'log')
      .mockImplementation((...words) => void printed.push(formatWithOptions({ colors: false }, ...words)))
    try {
      await import(pathToFileURL(file).href)
    } finally {
      log.mockRestore()
    }
    if (output.length > 0) expect(printed.join('\n')).toBe(output.join('').trimEnd())
    expect(printed.length).toBeGreaterThan(0)
  })
})
