// How long the event loop turns for the end of a tick that is near. A session's on `cuda` does.
import { setTimeout } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { Awake } from '../../runtime/session/awake.js'

/** How often the loop has asked whether a tick is in flight, once it has stopped asking. */
const asked = async (took: number, isInFlight: (asked: number) => boolean): Promise<number> => {
  let count = 0
  new Awake(() => isInFlight(++count)).ended(took, performance.now())
  for (let before = -1; before < count; ) {
    before = count
    await setTimeout(20)
  }
  return count
}

it('stays awake for a moment after a short tick, and sleeps then', async () => {
  expect(await asked(0.1, () => true)).toBeGreaterThan(0)
})

it('sleeps after a long tick', async () => {
  expect(await asked(20, () => true)).toBe(0)
})

it('sleeps after short ticks that ended together with a long one', async () => {
  let count = 0
  const awake = new Awake(() => ++count > 0)
  for (const took of [40, 0.1, 0.1]) awake.ended(took, performance.now())
  await setTimeout(20)
  expect(count).toBe(0)
  for (let i = 0; i < 4; i++) awake.ended(0.1, performance.now())
  await setTimeout(20)
  expect(count).toBeGreaterThan(0)
})

it('sleeps when no tick is in flight', async () => {
  expect(await asked(0.1, count => count < 3)).toBeLessThanOrEqual(3)
})

it('turns once for all ticks that end together', async () => {
  let count = 0
  const awake = new Awake(() => ++count < 1)
  for (let i = 0; i < 3; i++) awake.ended(0.1, performance.now())
  await setTimeout(20)
  expect(count).toBe(1)
})
