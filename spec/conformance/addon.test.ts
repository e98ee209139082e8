// The addon under everything that JavaScript can do to it: worker threads that end in the middle, exits,
// garbage collection, wrong arguments. Each scene is a separate process, since a fault of the addon would end
// the process.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const scenes = fileURLToPath(new URL('../fixtures/addon-stress.mjs', import.meta.url))
// ArrayBuffer.prototype.transfer, which Node has from 21 on, and 20 behind a flag.
const flags = [
  '--expose-gc',
  ...(process.versions.node.startsWith('20.') ? ['--harmony-rab-gsab-transfer'] : []),
]

const scene = (name: string): string => {
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [...flags, scenes, name], {
    encoding: 'utf8',
    timeout: 60_000,
  })
  return status === 0 ? stdout : `status ${status}, signal ${signal}: ${stderr}`
}

describe('the addon', () => {
  it.each([
    ['workers', 'runs programs in the main thread and in two workers at once'],
    ['terminate', 'lets a worker be terminated with calls in flight, or with views and functions held'],
    ['exit', 'lets the process exit with ticks in flight'],
    ['exitInReference', 'lets the process exit from inside a reference'],
    ['lanesMeanwhile', 'makes lanes and pools while another thread waits for the lanes'],
    ['leaks', 'gives back threads, files and memory over 200 sessions'],
    ['forgotten', 'gives back what was never closed once it is collected, and not while a view of it lives'],
    ['flyingForgotten', 'ends the ticks of a program that is no longer referenced'],
    ['misuse', 'refuses wrong receivers, arguments and fields with an Error'],
    ['buffers', 'stands detached, moved and doubled buffers'],
    ['callbacks', 'stands callbacks and references that throw, detach and close'],
    ['flood', 'takes 100,000 ticks at once and ends each, in order'],
  ])('%s: %s', name => {
    expect(scene(name)).toBe('held\n')
  })
})
