// The documentation is tested: the code blocks of each section of the README and of docs/ form one file,
// which must type-check, run, and print what the page says.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { formatWithOptions } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

// A machine that only runs what others built has no compiler.
const compiler = await import('typescript').then(
  module => module.default,
  () => undefined,
)

const root = fileURLToPath(new URL('../../', import.meta.url))
const folder = join(root, '.cache', `docs-${process.pid}`)

interface Section {
  readonly title: string
  readonly file: string
  readonly code: string
  readonly output: readonly string[]
}

const blocks = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(match => match[1]!)

const markdown = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter(path => path.endsWith('.md'))
  .map(path => join('docs', path))
const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...markdown.sort()]
const read = (page: string): string => readFileSync(join(root, page), 'utf8')

const sections: readonly Section[] = pages
  .flatMap(page =>
    read(page)
      .split(/^## /m)
      .map(text => ({ title: `${page}: ${text.split('\n')[0]!}`, text })),
  )
  .map(({ title, text }, i) => ({
    title,
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

it('the README is at most 8 KB', () => {
  expect(Buffer.byteLength(read('README.md'))).toBeLessThanOrEqual(8192)
})

it.each(pages)('every link of %s leads to a file', page => {
  const links = [...read(page).matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map(match => match[1]!)
  expect(links.filter(link => !existsSync(join(root, dirname(page), link)))).toEqual([])
})

it('each decision has a number of its own', () => {
  const headings = pages
    .filter(page => page.startsWith(join('docs', 'internals', 'decisions')))
    .flatMap(page => [...read(page).matchAll(/^### (\d+) · /gm)].map(match => match[1]!))
  expect(headings.length).toBeGreaterThan(200)
  expect(headings.filter((number, at) => headings.indexOf(number) !== at)).toEqual([])
})

it('the page of the command line has the usage of each verb', async () => {
  const folder = join(root, 'runtime', 'cli')
  const verbs = readdirSync(folder).filter(file => /^export const usage/m.test(read(`runtime/cli/${file}`)))
  const usages = await Promise.all(
    verbs.map(async file => ((await import(join(folder, file))) as { readonly usage: string }).usage),
  )
  const rows = [...read('docs/reference/cli.md').matchAll(/^\| `(braid .*?)` \|/gm)]
  expect(rows.map(([, usage]) => usage!.replaceAll('\\|', '|')).sort()).toEqual(
    usages.map(usage => usage.replace(' [--json]', '')).sort(),
  )
})

it('pages have sections with code, and some show what it prints', () => {
  expect(sections.length).toBeGreaterThanOrEqual(8)
  expect(sections.filter(({ output }) => output.length > 0).length).toBeGreaterThanOrEqual(5)
})

it('type-checks', context => {
  if (compiler === undefined) return context.skip('the package typescript is not installed here')
  const ts = compiler
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
  it('runs, and prints what the page shows', async () => {
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
