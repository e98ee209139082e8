// The line of a user's program is the same in everything that names one, whatever loads the program: Node, Node
// with source maps, tsx, and a test runner that maps the modules that it loads.
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type typescript from 'typescript'
import { afterAll, describe, expect, it } from 'vitest'
import * as dsl from '../../dsl/index.js'
import * as runtimeModule from '../../runtime/index.js'
import { language, root, runtime } from '../fixtures/command.js'
import { said } from '../fixtures/user-lines.js'

const source = join(root, 'spec/fixtures/user-lines.ts')
const lineOf = (place: string): number =>
  readFileSync(source, 'utf8')
    .split('\n')
    .findIndex(text => text.includes('// ') && text.split('// ').at(-1)!.includes(place)) + 1

const places = ['graph', 'session', 'snapshot', 'leak'] as const
/** Each place without its column and folder. */
const shown = (lines: Readonly<Record<string, string>>): readonly string[] =>
  places.map(place => `${/([^/]+?:\d+)(?::\d+)?$/.exec(lines[place]!)?.[1]} for ${place}`)
const expected = (file: string): readonly string[] =>
  places.map(place => `${file}:${lineOf(place)} for ${place}`)

const folder = mkdtempSync(join(tmpdir(), 'braid-lines-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** The program as a build leaves it, with a source map beside its code. */
const builtProgram = (ts: typeof typescript): string => {
  const file = join(folder, 'user-lines.mjs')
  const { outputText } = ts.transpileModule(readFileSync(source, 'utf8'), {
    fileName: source,
    compilerOptions: {
      target: ts.ScriptTarget.ESNext,
      module: ts.ModuleKind.ESNext,
      removeComments: true,
      inlineSourceMap: true,
    },
  })
  writeFileSync(file, outputText)
  return file
}

const linesFrom = async (...args: readonly string[]): Promise<readonly string[]> => {
  const modules = [language, runtime].map(file => pathToFileURL(file).href)
  const { stdout } = await promisify(execFile)(process.execPath, [...args, 'say', ...modules], { cwd: root })
  return shown(JSON.parse(stdout))
}

describe('a line of the user’s program', () => {
  it('is its own under a test runner', async () => {
    expect(shown({ ...(await said(dsl, runtimeModule)) })).toEqual(expected('user-lines.ts'))
  })

  it('is its own under tsx, and in built code with and without source maps', async context => {
    const compiler = await import('typescript').catch(() => undefined)
    if (compiler === undefined) return context.skip('the package typescript is not installed here')
    const program = builtProgram(compiler.default)
    // Where dist/ is older than the sources, these are what is built.
    const loader = language.endsWith('.ts') ? ['--import', 'tsx'] : []
    const [loaded, mapped] = await Promise.all([
      linesFrom('--import', 'tsx', source),
      linesFrom('--enable-source-maps', ...loader, program),
    ])
    expect(loaded).toEqual(expected('user-lines.ts'))
    expect(mapped).toEqual(expected('user-lines.ts'))
    if (loader.length === 0)
      for (const line of await linesFrom(program)) expect(line).toMatch(/^user-lines\.mjs:\d+ for/)
  })
})
