// Threads and processes end while the addon waits, in every way that it can, for work that only JavaScript
// could finish. They end all the same, and at once.
import { spawn } from 'node:child_process'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { describe, expect, it } from 'vitest'
import { language, runtime } from '../fixtures/command.js'
import { present } from './devices.js'

const scenes = fileURLToPath(new URL('../fixtures/ending-scenes.mjs', import.meta.url))

const played = (way: string, device: string): Promise<readonly unknown[]> =>
  new Promise(resolve => {
    const modules = [language, runtime].map(file => pathToFileURL(file).href)
    const child = spawn(process.execPath, [scenes, way, device, ...modules], { timeout: 150_000 })
    let said = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', text => (said += text))
    child.on('close', (status, signal) => resolve([status ?? signal, said]))
  })

describe.each(present)('on %s', device => {
  it('a process, its uncaught error, and worker threads end while everything waits', async () => {
    const [exit, thrown, workers] = await Promise.all(
      ['exit', 'thrown', 'workers'].map(way => played(way, device)),
    )
    expect(exit).toEqual([42, ''])
    expect(thrown).toEqual([1, expect.stringContaining('on purpose')])
    expect(workers).toEqual([0, `${JSON.stringify({ terminated: 1, thrown: 1 })}\n`])
  })
})
