// A plan has one peak: measured and promised are the same thing, whatever the timing.
import { describe, expect, it } from 'vitest'
import { compile, download, graph, lane, matmul, orThrow, param, relu, tensor, upload } from '../../dsl/index.js'
import { open, pulled } from '../../runtime/index.js'
import { present } from './devices.js'

const copy = lane('copy')
const math = lane('math')
const layers = 6
const width = 64
const network = graph('layers', { x: tensor('f32', [16, width]) }, ({ x }) => {
  let value = x.pipe(upload(math))
  for (let layer = 0; layer < layers; layer++) {
    const weight = param(`w[${layer}]`, tensor('f32', [width, width]), { on: 'host' }).pipe(upload(copy, { ahead: 1 }))
    value = value.pipe(matmul(weight), relu())
  }
  return { y: value.pipe(download(math)) }
})
const params = Object.fromEntries(
  Array.from({ length: layers }, (_, i) => [
    `w[${i}]`,
    (into: Uint8Array) => void new Float32Array(into.buffer, into.byteOffset, width * width).fill(0.01 * (i + 1)),
  ]),
)
const plan = orThrow(compile(network))

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
