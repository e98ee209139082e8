// What the addon asks of the system that loads it: read from its symbols, beside what binutils read.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { leastGlibc, ownAddon, shippedAddon } from '../../../runtime/addon-file.js'
import { runs } from '../../fixtures/runs.js'
import { floor, readElf, shipped, shippingFaults } from '../../fixtures/scripts.js'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const elf = (path: string) => readElf(readFileSync(path))
const told = (program: string, ...args: string[]): string | undefined => {
  const { status, stdout } = spawnSync(program, args, { encoding: 'utf8' })
  return status === 0 ? stdout : undefined
}
const isLinux = process.platform === 'linux'

/** Dynamic symbols as objdump prints them: `name` or `name version`, of what is imported and what is exported. */
const objdumped = (path: string): { imports: string[]; exports: string[] } | undefined => {
  const lines = told('objdump', '-T', path)?.split('\n')
  const rows = lines?.flatMap(line => {
    const [, flags, section, version, name] =
      /^[0-9a-f]{16} (.{7}) (\S+)\s+[0-9a-f]{16}\s+(\S+)?\s+(?:\.\w+ )?(\S+)$/.exec(line) ?? []
    return flags === undefined ? [] : [{ section, version: version?.replace(/[()]/g, ''), name }]
  })
  const named = (from: typeof rows): string[] | undefined =>
    from?.map(({ version, name }) => (/^(Base)?$/.test(version ?? '') ? name! : `${name} ${version}`)).sort()
  return (
    rows && {
      imports: named(rows.filter(({ section }) => section === '*UND*'))!,
      exports: named(rows.filter(({ section }) => section !== '*UND*'))!,
    }
  )
}

describe.runIf(isLinux)('the addon of this checkout', () => {
  const path = join(root, ownAddon)

  it.runIf(told('objdump', '--version') !== undefined)('is read as objdump and readelf read it', () => {
    const { imports, exports, libraries } = elf(path)
    const named = imports.map(({ name, version }) => (version === undefined ? name : `${name} ${version}`))
    expect(named.sort()).toEqual(objdumped(path)!.imports)
    expect([...exports].sort()).toEqual(objdumped(path)!.exports)
    const dynamic = told('readelf', '-d', path)!
    expect(libraries).toEqual([...dynamic.matchAll(/\(NEEDED\).*\[(.*)\]/g)].map(([, name]) => name))
  })

  it('exports its registration alone, and imports nothing of libuv', () => {
    const { imports, exports } = elf(path)
    expect([...exports].sort()).toEqual(['napi_register_module_v1', 'node_api_module_get_api_version_v1'])
    expect(imports.filter(({ name }) => name.startsWith('uv_'))).toEqual([])
  })
})

describe.runIf(existsSync(join(root, shipped)))(
  `the addon that is shipped (${shipped}, where it is built)`,
  () => {
    it('loads on every system of the floor, and has no names of functions', () => {
      expect(elf(join(root, shipped)).machine).toBe('x64')
      expect(shippingFaults(elf(join(root, shipped)))).toEqual([])
      expect(told('nm', join(root, shipped)) ?? '').toBe('')
    })
  },
)

describe('what may be shipped', () => {
  it('is what the loader says', () => {
    expect(floor.GLIBC).toBe(leastGlibc)
    expect(shipped).toBe(shippedAddon)
  })

  const nothing = {
    libraries: ['libc.so.6', 'libm.so.6', 'libgcc_s.so.1', 'ld-linux-x86-64.so.2'],
    needed: [],
    imports: [],
    exports: ['napi_register_module_v1', 'node_api_module_get_api_version_v1'],
  }

  it('needs no version above the floor', () => {
    expect(shippingFaults(nothing)).toEqual([])
    const minor = fc.integer({ min: 0, max: 60 })
    fc.assert(
      fc.property(minor, fc.option(fc.integer({ min: 0, max: 9 })), (minor, patch) => {
        const version = `GLIBC_2.${minor}${patch === null ? '' : `.${patch}`}`
        const needed = [{ library: 'libc.so.6', version }]
        const above = minor > 34 || (minor === 34 && patch !== null && patch > 0)
        const faults = shippingFaults({
          ...nothing,
          needed,
          imports: [{ name: 'f', weak: false, version }],
        })
        expect(faults).toEqual(above ? [`it needs ${version} of libc.so.6, for f`] : [])
      }),
      { numRuns: runs(300) },
    )
    for (const version of ['GLIBC_PRIVATE', 'GLIBC_ABI_DT_RELR', 'GLIBCXX_3.4', 'CXXABI_1.3', 'GCC_14.0.0'])
      expect(shippingFaults({ ...nothing, needed: [{ library: 'l', version }] })).toEqual([
        `it needs ${version} of l`,
      ])
  })

  const compiler = ['cc', 'gcc', 'clang'].find(name => told(name, '--version') !== undefined)
  const folder = mkdtempSync(join(tmpdir(), 'braid-elf-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it.runIf(isLinux && compiler !== undefined)('is no library that reaches for more', () => {
    const path = join(folder, 'wrong.so')
    const source = `
      int uv_run(void*); int napi_throw(void*); int perhaps(void) __attribute__((weak));
      double pow(double, double);
      int extra(void* p) { return uv_run(p) + napi_throw(p) + (perhaps ? perhaps() : 0) + (int)pow(*(double*)p, 3.1); }
      void* napi_register_module_v1(void) { return 0; }`
    const args = ['-shared', '-fPIC', '-x', 'c', '-', '-o', path, '-lm', '-Wl,--no-as-needed', '-lresolv']
    expect(spawnSync(compiler!, args, { input: source, encoding: 'utf8' }).stderr).toBe('')
    expect(shippingFaults(elf(path))).toEqual([
      'it needs libresolv.so.2, which not every system has',
      'it needs a program that has uv_run',
      'it exports extra',
      'it does not export node_api_module_get_api_version_v1',
    ])
  })

  it('is an ELF file', () => {
    for (const bytes of [Buffer.alloc(0), Buffer.alloc(200), Buffer.from('#!/bin/sh')])
      expect(() => readElf(bytes)).toThrow('not a 64-bit little-endian ELF file')
  })
})
