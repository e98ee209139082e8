// examples/train: a model that is trained on the device alone learns its text, and says so itself.
import { spawnSync } from 'node:child_process'
import { lastValueFrom, map, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { training } from '../../examples/train/network.js'
import { batches, sample } from '../../examples/train/text.js'
import { pulledTogether } from '../../runtime/index.js'
import { opened, present } from './devices.js'

const main = new URL('../../examples/train/main.ts', import.meta.url).pathname
const run = (...args: string[]) =>
  spawnSync(process.execPath, ['--import', 'tsx', main, ...args], { encoding: 'utf8' })

describe.each(present)('examples/train on %s', device => {
  it('the program checks itself, and writes what it has learned', { timeout: 60_000 }, () => {
    const { status, stdout, stderr } = run('--device', device)
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout).toContain(sample.slice(0, 60))
    expect(stdout).toMatch(/✓ losses of the first 5 steps: as interpret has them/)
    expect(stdout).toMatch(/✓ loss: 5\.\d+ at first, 0\.\d+ at the end/)
  })

  it('steps are the same bit for bit, eager or as a graph, one or three at a time', async () => {
    const text = new TextEncoder().encode(sample)
    const losses = async (mode: 'eager' | 'graph', inFlight: number): Promise<number[]> => {
      await using session = await opened(training(0.5), device, { compile: { mode, inFlight } })
      const feeds = pulledTogether(batches(text), ['tokens', 'target'])
      return await lastValueFrom(
        session.run(feeds, { ticks: 40 }).pipe(
          map(lease => {
            using held = lease
            return held.loss[0]!
          }),
          toArray(),
        ),
      )
    }
    const first = await losses('eager', 1)
    expect(first.at(-1)).toBeLessThan(first[0]! / 2)
    expect(await losses('graph', 1)).toEqual(first)
    expect(await losses('graph', 3)).toEqual(first)
  })
})

it('examples/train says which option is wrong', { timeout: 60_000 }, () => {
  const { status, stderr } = run('--steps', '1.5')
  expect([status, stderr]).toEqual([1, '\ntrain: --steps: wanted a whole number from 1, found 1.5\n'])
})
