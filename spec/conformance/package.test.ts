// The package as npm packs it: which files it has, and that its addon can be configured where npm has hoisted the
// headers. `npm run test:package` tries the rest.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
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

  it('has the license and what builds the addon', () => {
    for (const file of [
      'LICENSE',
      'README.md',
      'CHANGELOG.md',
      'native/CMakeLists.txt',
      'scripts/build-addon.mjs',
      'scripts/require.cjs',
    ])
      expect(files).toContain(file)
    expect(files).toContain('native/memory/range_pool.cc')
  })

  it('has no tests, benchmarks, examples, sources of what is built, or builds of this machine alone', () => {
    const wrong =
      /\.(o|js\.map|test\.ts)$|(?<!\.d)\.ts$|^(?!prebuilt\/).*\.node$|^native\/(build|test|tools\/bench)|^dist\/(spec|examples)|^spec\/(?!plan\.schema)|^examples\//
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
