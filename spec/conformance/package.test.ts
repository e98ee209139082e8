// The package as npm packs it: which files it has, that its addon can be configured where npm has hoisted the
// headers, and that a program which exports what it makes has declarations.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))

const found = (program: string): boolean => {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

const packed = (): readonly string[] => {
  const listed = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  return (JSON.parse(listed) as [{ files: { path: string }[] }])[0].files.map(({ path }) => path)
}

// The body of a skipped suite runs too, so that what needs npm is asked for again inside.
describe.runIf(found('npm'))('the package', () => {
  const project = mkdtempSync(join(tmpdir(), 'braid-package-'))
  afterAll(() => rmSync(project, { recursive: true, force: true }))
  const files = found('npm') ? packed() : []

  it('has sources, the license and what builds the addon', () => {
    for (const file of [
      'LICENSE',
      'README.md',
      'CHANGELOG.md',
      'native/CMakeLists.txt',
      'scripts/build-addon.mjs',
    ])
      expect(files).toContain(file)
    expect(files).toContain('dsl/index.ts')
    expect(files).toContain('native/memory/range_pool.cc')
  })

  it('has no tests, benchmarks, examples or builds of any machine', () => {
    const wrong =
      /\.(node|o|test\.ts)$|^native\/(build|test|tools\/bench)|^dist\/(spec|examples)|^spec\/(?!plan\.schema)|^examples\//
    expect(files.filter(file => wrong.test(file))).toEqual([])
  })

  it.runIf(found('cmake'))('configures its addon where headers are hoisted into the project', () => {
    const home = join(project, 'node_modules/braid-gpu')
    for (const file of files.filter(file => /^(native|scripts|package\.json)/.test(file))) {
      mkdirSync(dirname(join(home, file)), { recursive: true })
      cpSync(join(root, file), join(home, file))
    }
    for (const name of ['node-addon-api', 'node-api-headers'])
      symlinkSync(join(root, 'node_modules', name), join(project, 'node_modules', name))
    const script = join(home, 'scripts/lib/native.mjs')
    const call = `import(${JSON.stringify(script)}).then(({ configureNative }) => configureNative())`
    execFileSync(process.execPath, ['-e', call], { stdio: 'pipe' })
    expect(existsSync(join(home, 'native/build/CMakeCache.txt'))).toBe(true)
  })
})

const tsc = join(root, 'node_modules/typescript/bin/tsc')

describe.runIf(existsSync(tsc))('declarations', () => {
  const project = mkdtempSync(join(tmpdir(), 'braid-declared-'))
  afterAll(() => rmSync(project, { recursive: true, force: true }))

  it('of a program that exports graphs and operators can be written', { timeout: 300_000 }, () => {
    const home = join(project, 'node_modules/braid-gpu')
    // The sources stand for the declarations that are built from them.
    const manifest = readFileSync(join(root, 'package.json'), 'utf8')
      .replaceAll('./dist/', './')
      .replaceAll('.d.ts"', '.ts"')
    for (const folder of ['dsl', 'runtime'])
      cpSync(join(root, folder), join(home, folder), { recursive: true })
    writeFileSync(join(home, 'package.json'), manifest)
    for (const name of ['fp-ts', 'rxjs', '@types'])
      symlinkSync(join(root, 'node_modules', name), join(project, 'node_modules', name))
    writeFileSync(join(project, 'package.json'), '{ "type": "module" }')
    cpSync(join(root, 'spec/types/exported.ts'), join(project, 'program.ts'))
    const shared = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8')).compilerOptions
    const compilerOptions = {
      ...shared,
      ...{ noEmit: false, declaration: true, emitDeclarationOnly: true, outDir: 'out' },
      preserveSymlinks: true,
    }
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['program.ts'] }))
    const { status, stdout, stderr } = spawnSync(process.execPath, [tsc, '-p', project], { encoding: 'utf8' })
    expect(stdout + stderr).toBe('')
    expect(status).toBe(0)
    const declared = readFileSync(join(project, 'out/program.d.ts'), 'utf8')
    expect(declared).toMatch(/export declare const net: .*Graph</)
    expect(declared).not.toMatch(/(import\(|from )["'][./]/)
  })
})
