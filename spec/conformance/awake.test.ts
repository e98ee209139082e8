// How long the event loop turns for the end of a tick that is near. A session's on `cuda` does.
import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { expect, it } from 'vitest'
import { native } from '../../runtime/addon.js'
import { Awake } from '../../runtime/session/awake.js'

/** An event loop that notes what is asked of it. */
const noted = () => {
  const asked: string[] = []
  const awake = new Awake({
    turn: milliseconds => void asked.push(`turn ${milliseconds}`),
    sleep: () => void asked.push('sleep'),
  })
  return { asked, awake }
}

it('turns for a moment after a short tick while another one is in flight', () => {
  const { asked, awake } = noted()
  awake.ended(0.1, true)
  expect(asked).toEqual(['turn 5'])
})

it('sleeps after a long tick', () => {
  const { asked, awake } = noted()
  awake.ended(20, true)
  expect(asked).toEqual([])
})

it('sleeps after short ticks that ended together with a long one', () => {
  const { asked, awake } = noted()
  for (const took of [40, 0.1, 0.1]) awake.ended(took, true)
  expect(asked).toEqual([])
  for (let i = 0; i < 4; i++) awake.ended(0.1, true)
  expect(asked).toContain('turn 5')
})

it('sleeps when no tick is in flight', () => {
  const { asked, awake } = noted()
  awake.ended(0.1, true)
  awake.ended(0.1, false)
  expect(asked).toEqual(['turn 5', 'sleep'])
})

/** The part of the time that the event loop slept for while `body` was awaited. */
const slept = async (body: () => Promise<unknown>): Promise<number> => {
  const before = performance.eventLoopUtilization()
  await body()
  return 1 - performance.eventLoopUtilization(before).utilization
}

it('an event loop that turns does not sleep, and sleeps when the time is over', async () => {
  const loop = native().eventLoop()!
  loop.turn(60)
  expect(await slept(() => setTimeout(40))).toBeLessThan(0.5)
  await setTimeout(40)
  expect(await slept(() => setTimeout(40))).toBeGreaterThan(0.5)
  loop.turn(10_000)
  loop.sleep()
  expect(await slept(() => setTimeout(40))).toBeGreaterThan(0.5)
})

it('a thread ends while its event loop turns', async () => {
  const addon = new URL('../../native/build/braid.node', import.meta.url).pathname
  const worker = new Worker(
    `const loop = require(${JSON.stringify(addon)}).eventLoop()
     loop.turn(100_000)
     require('node:worker_threads').parentPort.postMessage('turns')`,
    { eval: true },
  )
  const ended = new Promise<number>(resolve => worker.once('exit', resolve))
  expect(await new Promise(resolve => worker.once('message', resolve))).toBe('turns')
  expect(await ended).toBe(0)
})
