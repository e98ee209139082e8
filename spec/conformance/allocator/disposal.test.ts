// Blocks, lanes, devices, threads and the process end in any order, with work pending. Each scene runs in a
// process of its own, which must not crash, hang or leak.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { present } from '../devices.js'

const scenes = fileURLToPath(new URL('../../fixtures/allocator-scenes.ts', import.meta.url))

const played = (scene: string, device: string): ReturnType<typeof spawnSync> =>
  spawnSync(process.execPath, ['--expose-gc', '--import', 'tsx', scenes, scene, device], {
    encoding: 'utf8',
    timeout: 50_000,
  })

describe.each(present)('on %s', device => {
  it.each([
    ['alive', 'the process ends with everything alive'],
    ['exit', 'process.exit in the middle'],
    ['exitWhileWaiting', 'process.exit with waits under way'],
    ['collected', 'devices that are no longer referenced'],
    ['lost', 'in development lost blocks are reported by their site, and freed'],
    ['forgotten', 'events that were not disposed of are used again'],
    ['viewed', 'a view keeps its block'],
    ['orders', 'handles and their device, in every order'],
    ['worker', 'worker threads that end, fail and are terminated'],
    ['closing', 'a close concurrent with waits'],
    ['captured', 'waits for a callback of this thread while it captures'],
  ])('%s: %s', (scene, _) => {
    const { status, signal, stdout, stderr } = played(scene, device)
    expect({ status, signal, stdout: String(stdout).trim() }, String(stderr)).toEqual({
      status: 0,
      signal: null,
      stdout: 'well',
    })
  })

  it('thrown: an uncaught error', () => {
    const { status, signal, stdout, stderr } = played('thrown', device)
    expect({ status, signal, stdout: String(stdout).trim() }).toEqual({
      status: 1,
      signal: null,
      stdout: 'well',
    })
    expect(stderr).toMatch(/on purpose/)
  })
})

it('weight: V8 knows how much memory its objects keep alive', () => {
  const { status, stdout, stderr } = played('weight', 'host')
  expect({ status, stdout: String(stdout).trim() }, String(stderr)).toEqual({ status: 0, stdout: 'well' })
})
