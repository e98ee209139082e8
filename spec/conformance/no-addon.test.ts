// The package on a machine that it ships no addon for: the language works, and opening is an error that says so.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
const project = mkdtempSync(join(tmpdir(), 'braid-no-addon-'))
const home = join(project, 'node_modules/braid-gpu')
afterAll(() => rmSync(project, { recursive: true, force: true }))
beforeAll(() => {
  mkdirSync(home, { recursive: true })
  for (const path of ['package.json', 'scripts', 'dist/dsl', 'dist/runtime'])
    cpSync(join(root, path), join(home, path), { recursive: true })
  for (const name of ['rxjs', 'fp-ts', 'tslib'])
    symlinkSync(join(root, 'node_modules', name), join(project, 'node_modules', name))
})

/** Runs the package as on this system: each way to a device, and what needs none. */
const program = (os: string): string => `
  Object.defineProperty(process, 'platform', { value: ${JSON.stringify(os)} })
  const { compile, download, graph, interpret, lane, orThrow, relu, tensor, upload, verify } = await import('braid-gpu')
  const { Device, devices, open } = await import('braid-gpu/runtime')
  const copy = lane('copy')
  const net = graph('net', { x: tensor('f32', [2]) }, ({ x }) => ({ y: x.pipe(upload(copy), relu(), download(copy)) }))
  const plan = orThrow(compile(net))
  const fault = ({ _tag, at, wanted, found, next }) => ({ _tag, at, wanted, found, next })
  const left = ({ left }) => fault(left)
  let thrown
  try { devices() } catch (error) { thrown = fault(error) }
  console.log(JSON.stringify({
    opened: [thrown, left(await Device.open('host')()), left(await open(plan, { device: 'auto' })())],
    laws: verify(plan).length,
  }))`

const braid = (os: string, ...args: string[]) => {
  const preload = `data:text/javascript,Object.defineProperty(process, 'platform', { value: '${os}' })`
  const main = join(home, 'scripts/braid.mjs')
  return spawnSync(process.execPath, ['--import', preload, main, ...args], { cwd: project, encoding: 'utf8' })
}

it.each([
  ['darwin', /^macOS on /, /^open devices on Linux/],
  ['win32', /^Windows on /, /WSL 2/],
  // As beneath the floor: no file fits, and a compiler helps.
  ['linux', /^neither .*native\/build\/braid\.node nor .*prebuilt/, /^run: npx braid build/],
])('on %s without an addon', (os, found, next) => {
  writeFileSync(join(project, 'program.mjs'), program(os))
  const { stdout, stderr } = spawnSync(process.execPath, ['program.mjs'], { cwd: project, encoding: 'utf8' })
  expect(stderr).toBe('')
  const { opened, laws } = JSON.parse(stdout) as { opened: object[]; laws: number }
  expect(laws).toBe(0)
  for (const [i, at] of [home, 'host', 'host'].entries())
    expect(opened[i]).toEqual({
      _tag: 'NoAddon',
      at: expect.stringContaining(at),
      wanted: 'Linux on x64 with glibc 2.34 or newer, or an addon that is built on this machine',
      found: expect.stringMatching(found),
      next: expect.stringMatching(next),
    })
})

it('braid build says what it cannot be built on', () => {
  const { status, stdout, stderr } = braid('darwin', 'build', '--json')
  expect([status, stdout]).toEqual([1, ''])
  const { errors } = JSON.parse(stderr) as { errors: { _tag: string; found: string }[] }
  expect(errors).toEqual([expect.objectContaining({ _tag: 'NotBuilt' })])
  expect(errors[0]!.found).toContain('The native part is written for Linux; this is darwin.')
  expect(braid('linux', 'build', 'now').status).toBe(2)
})
