// Which addon is loaded on which machine, and what is said where there is none. The machines are pretended.
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { loadAddon, type Machine, ownAddon, shippedAddon } from '../../../runtime/addon-file.js'
import { openFailure } from '../../../runtime/device/open-failure.js'
import { AddonError } from '../../../runtime/errors.js'
import { packageRoot } from '../../../runtime/package-root.js'
import { runs } from '../../fixtures/runs.js'

type State = 'absent' | 'loads' | 'broken'

interface Pretended {
  readonly os: string
  readonly arch: string
  readonly musl: boolean
  readonly glibc: string | undefined
  readonly own: State
  readonly shipped: State
  readonly root: string | undefined
}

const debian: Pretended = {
  os: 'linux',
  arch: 'x64',
  musl: false,
  glibc: '2.36',
  own: 'absent',
  shipped: 'loads',
  root: '/p',
}

/** `loaded` gets each path that is loaded, or tried. */
const machine = (pretended: Pretended, loaded: string[] = []): Machine => {
  const states = { [ownAddon]: pretended.own, [shippedAddon]: pretended.shipped }
  const state = (path: string): State => states[path.slice('/p/'.length) as typeof ownAddon] ?? 'absent'
  return {
    ...pretended,
    musl: () => pretended.musl,
    glibc: () => pretended.glibc,
    exists: path => state(path) !== 'absent',
    load: path => {
      loaded.push(path)
      if (state(path) === 'broken') throw new Error(`${path}: what the system says\nof it`)
      return path
    },
  }
}

const refusal = (pretended: Pretended): AddonError => {
  try {
    loadAddon(machine(pretended))
  } catch (error) {
    if (error instanceof AddonError) return error
    throw error
  }
  throw new Error('it loads')
}

const state = fc.constantFrom<State>('absent', 'loads', 'broken')
const pretended = fc.record<Pretended>({
  os: fc.constantFrom('linux', 'linux', 'linux', 'darwin', 'win32', 'freebsd', 'android'),
  arch: fc.constantFrom('x64', 'x64', 'arm64', 'ia32', 'riscv64'),
  musl: fc.boolean(),
  glibc: fc.constantFrom('2.17', '2.31', '2.33', '2.34', '2.4', '2.100', '3.0', undefined),
  own: state,
  shipped: state,
  root: fc.constantFrom('/p', '/p', '/p', undefined),
})

describe('the addon that is loaded', () => {
  it("is the checkout's or the user's own build, else the one that is shipped for the machine", () => {
    fc.assert(
      fc.property(pretended, given => {
        const { os, arch, musl, own, shipped, root } = given
        const fits = os === 'linux' && arch === 'x64' && !musl
        const chosen =
          root === undefined
            ? undefined
            : own !== 'absent'
              ? ownAddon
              : fits && shipped !== 'absent'
                ? shippedAddon
                : undefined
        const loads = (chosen === ownAddon ? own : shipped) === 'loads'
        const tried: string[] = []
        const run = (): unknown => loadAddon(machine(given, tried))
        if (chosen !== undefined && loads) expect(run()).toBe(`/p/${chosen}`)
        else expect(run).toThrow(AddonError)
        // An addon that is not for the machine is not tried: a system with both C libraries may load it by halves.
        expect(tried).toEqual(chosen === undefined ? [] : [`/p/${chosen}`])
      }),
      { numRuns: runs(300) },
    )
  })

  it('is refused with the reason and what helps, each as one line', () => {
    fc.assert(
      fc.property(pretended, given => {
        let error: AddonError
        try {
          error = refusal(given)
        } catch {
          return
        }
        for (const text of [error.at, error.wanted, error.found, error.next]) {
          expect(text).not.toBe('')
          expect(text).not.toContain('\n')
        }
        // A compiler helps on Linux alone.
        if (given.root !== undefined && given.own === 'absent')
          expect(error.next.includes('npx braid build')).toBe(given.os === 'linux')
      }),
      { numRuns: runs(300) },
    )
  })

  it.each<[string, Partial<Pretended>, string, string]>([
    [
      'another system',
      { os: 'darwin', arch: 'arm64' },
      'macOS on arm64',
      'open devices on Linux: in a container',
    ],
    ['another system', { os: 'win32' }, 'Windows on x64', 'WSL 2'],
    ['another processor', { arch: 'arm64' }, 'Linux on arm64', 'run: npx braid build'],
    ['another C library', { musl: true, glibc: undefined }, 'Linux on x64 with musl', 'run: npx braid build'],
    ['an old glibc', { shipped: 'broken', glibc: '2.31' }, 'glibc 2.31', 'run: npx braid build'],
    [
      'an addon that does not load',
      { shipped: 'broken' },
      `/p/${shippedAddon}, which does not load: what the system says`,
      'build',
    ],
    ['an own build that does not load', { own: 'broken' }, `/p/${ownAddon}`, 'or remove the file'],
    [
      'a package without an addon',
      { shipped: 'absent' },
      `neither /p/${ownAddon} nor`,
      'install the package again',
    ],
    ['a bundle without the package', { root: undefined }, 'no folder of the package', 'external'],
  ])('says the reason: %s', (_, part, found, next) => {
    const error = refusal({ ...debian, ...part })
    expect(error.found).toContain(found)
    expect(error.next).toContain(next)
    expect(error.message).toContain('No native addon can be loaded')
    // Devices, sessions and trees report it by the device's name.
    const { _tag, at, cause, ...rest } = openFailure(error, 'host')
    expect([_tag, at, cause]).toEqual(['NoAddon', 'host', error])
    expect(rest).toMatchObject({ wanted: error.wanted, found: error.found, next: error.next })
  })
})

describe('the folder of the package', () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'braid-root-')))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const put = (path: string, text: string): string => {
    mkdirSync(join(folder, path, '..'), { recursive: true })
    writeFileSync(join(folder, path), text)
    return pathToFileURL(join(folder, path)).href
  }

  it('is above the sources, above dist, and beside a bundle of a program', () => {
    expect(packageRoot()).toBe(fileURLToPath(new URL('../../../', import.meta.url)).slice(0, -1))
    const home = join(folder, 'app/node_modules/braid-gpu')
    put(
      'app/node_modules/braid-gpu/package.json',
      '{ "name": "braid-gpu", "exports": { "./package.json": "./package.json" } }',
    )
    for (const path of ['runtime/a.ts', 'dist/runtime/a.js', 'dist/a.js'])
      expect(packageRoot(put(`app/node_modules/braid-gpu/${path}`, ''))).toBe(home)
    put('app/package.json', '{ "name": "app" }')
    put('app/dist/package.json', '{}')
    expect(packageRoot(put('app/dist/main.js', ''))).toBe(home)
  })

  /** The folder as a program of this path finds it, from a bundle of this URL. */
  const found = (program: string, bundle: string): string | undefined => {
    const before = process.argv[1]
    try {
      process.argv[1] = fileURLToPath(put(program, ''))
      return packageRoot(bundle)
    } finally {
      process.argv[1] = before!
    }
  }

  it('is beside the program where a bundle has no file, or one of the machine that made it', () => {
    const home = join(folder, 'app/node_modules/braid-gpu')
    for (const bundle of ['data:text/javascript,', 'file:///of-another-machine/dist/main.js'])
      expect(found('app/server.cjs', bundle)).toBe(home)
    expect(found('elsewhere/server.cjs', put('elsewhere/main.js', ''))).toBeUndefined()
  })
})
