import { h200 } from '../../dsl/machine/h200.js'
import type { Machine } from '../../dsl/machine/machine.js'

/** A machine of round figures on which small graphs show what large ones do on a real one: copies and products take microseconds, the host takes next to nothing. */
export const slowMachine: Machine = {
  ...h200,
  name: 'slow',
  device: {
    ...h200.device,
    bandwidth: 20e9,
    cache: 0,
    cacheBandwidth: 20e9,
    flops: { bf16: 100e9, f16: 100e9, f32: 400e9, vector: 50e9 },
    power: { products: 1, memory: 0 },
    multiprocessors: 1,
    bytesPerBlock: 16_384,
    tile: 128,
    kernelLatency: 1_000,
    productLatency: 2_000,
    waitLatency: 500,
    queueDepth: 1_000,
    queues: 8,
    bus: 2e9,
    h2d: { engines: 1, rate: 1e9, latency: 1_000 },
    d2h: { engines: 1, rate: 1e9, latency: 1_000 },
  },
  host: {
    ...h200.host,
    launch: 100,
    product: 200,
    copy: 100,
    record: 10,
    wait: 10,
    allocate: 10,
    collective: 100,
    callback: 100,
    tick: 1_000,
    turnaround: 1_000,
    bandwidth: 1e9,
    cache: 0,
    cacheBandwidth: 1e9,
  },
}
