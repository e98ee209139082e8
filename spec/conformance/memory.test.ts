// A plan has one peak: measured and promised are the same thing, whatever the timing.
import { describe, expect, it } from 'vitest'
import { compile, orThrow } from '../../dsl/index.js'
import { open, pulled } from '../../runtime/index.js'
import { network, params, width } from '../fixtures/graphs/streamed.js'
import { present } from './devices.js'

const plan = orThrow(compile(network, { mode: 'eager' }))

const measured = async (device: string, jitter: number) => {
  const host = device === 'host' ? { host: { jitter, jitterMicroseconds: 120 } } : {}
  await using session = orThrow(await open(plan, { device, params, ...host })())
  const x = new Float32Array(16 * width).fill(1)
  const answers: number[] = []
  await session.run({ x: pulled(Array.from({ length: 6 }, () => x)) }).forEach(lease => {
    using held = lease
    answers.push(held.y[0]!)
  })
  const { peak, poolPeak } = session.stats()
  return { peak, poolPeak, answers }
}

describe.each(present)('memory on %s', device => {
  it('the peak is the same in 20 runs of different timing, and within the bound', async () => {
    const first = await measured(device, 1)
    expect(first.peak.reserved).toBeLessThanOrEqual(plan.bound.device[0]!)
    expect(first.peak.pinned).toBeLessThanOrEqual(plan.bound.pinned)
    expect(first.poolPeak).toBeLessThanOrEqual(plan.bound.device[0]!)
    for (let seed = 2; seed <= 20; seed++) expect(await measured(device, seed)).toEqual(first)
  })
})
