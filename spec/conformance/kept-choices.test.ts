// What is measured for products and attention when a plan is opened is kept for the next process, and so is
// the code of generated kernels.
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { native } from '../../runtime/addon.js'
import { braidWith, objectOf, root, scratch } from '../fixtures/command.js'
import { present } from './devices.js'

const program = fileURLToPath(new URL('../fixtures/measured-choices.ts', import.meta.url))

interface Printed {
  readonly yields: string
  readonly choices: { readonly folder: string; readonly kept: number; readonly measured: number }
  readonly kernels: { readonly folder: string; readonly kept: number; readonly compiled: number }
}

const opened = (device: string, cache: string): Printed => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', program, device], {
    cwd: root,
    encoding: 'utf8',
    timeout: 120_000,
    env: { ...process.env, BRAID_CACHE: cache },
  })
  expect(status, stderr).toBe(0)
  return JSON.parse(stdout) as Printed
}

describe.each(present)('choices of algorithms on %s', device => {
  // `host` has one algorithm for each. Attention has two where cuDNN is installed.
  const hasCudnn = native()
    .probe()
    .libraries.some(({ name, found }) => name === 'cuDNN' && found !== '')
  const choices = device === 'host' ? 0 : hasCudnn ? 4 : 3
  const { folder: cache } = scratch()
  const folder = join(cache, 'choices')

  it('are measured once, and are then the same', { timeout: 240_000 }, () => {
    const first = opened(device, cache)
    expect(first.choices).toMatchObject({ folder, kept: choices, measured: choices })
    const { compiled, ...where } = first.kernels
    expect(where).toEqual({ folder: join(cache, 'kernels'), refusal: '', kept: compiled })
    if (device !== 'host') expect(compiled).toBeGreaterThan(0)
    const second = opened(device, cache)
    expect(second.choices).toMatchObject({ folder, kept: choices, measured: 0 })
    expect(second.kernels).toEqual({ ...where, compiled: 0 })
    expect(second.yields).toBe(first.yields)
  })

  it('are measured anew where their files are damaged, or are not kept', { timeout: 240_000 }, () => {
    const names = choices === 0 ? [] : readdirSync(folder)
    for (const name of names)
      writeFileSync(join(folder, name), readFileSync(join(folder, name)).subarray(0, -20))
    expect(opened(device, cache).choices.measured).toBe(choices)
    expect(opened(device, cache).choices.measured).toBe(0)
    expect(opened(device, 'off').choices).toMatchObject({ folder: '', kept: 0, measured: choices })
  })
})

it('doctor says where choices are kept, how many there are, and how to have them measured anew', () => {
  const { folder: cache } = scratch()
  const folder = join(cache, 'choices')
  const none = braidWith({ BRAID_CACHE: cache }, 'doctor')
  expect(none.stdout).toContain(`none is kept yet; they will be in ${folder}`)
  mkdirSync(folder)
  mkdirSync(join(cache, 'kernels'))
  writeFileSync(join(cache, 'kernels', 'a.kernel'), '')
  for (const name of ['a.choice', 'b.choice', 'b.choice.1.1']) writeFileSync(join(folder, name), '')
  const { status, stdout } = braidWith({ BRAID_CACHE: cache }, 'doctor')
  expect(status).toBe(0)
  expect(stdout).toMatch(new RegExp(`2 are kept in ${folder}`))
  expect(stdout).toMatch(new RegExp(`1 is kept in ${join(cache, 'kernels')}`))
  expect(stdout).toContain('Delete a folder')
  chmodSync(folder, 0o777)
  const open = braidWith({ BRAID_CACHE: cache }, 'doctor')
  expect(open.stdout).toMatch(new RegExp(`not used: ${folder} may be written by users other than its owner`))
  expect(open.stdout).toMatch(new RegExp(`1 is kept in ${join(cache, 'kernels')}`))
  chmodSync(folder, 0o755)
  const off = braidWith({ BRAID_CACHE: 'off' }, 'doctor')
  expect(off.stdout).toContain('BRAID_CACHE=off')
  expect(objectOf(braidWith({ BRAID_CACHE: cache }, 'doctor', '--json').stdout)).toMatchObject({
    choices: { folder, kept: 2 },
    kernels: { folder: join(cache, 'kernels'), kept: 1 },
  })
  rmSync(cache, { recursive: true })
})
