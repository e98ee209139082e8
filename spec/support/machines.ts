import fc from 'fast-check'
import { h200 } from '../../dsl/machine/h200.js'
import type { CopyModel, Machine } from '../../dsl/machine/machine.js'

const engine = (rate: number): CopyModel => ({ engines: 1, rate, latency: 0 })
const free = {
  launch: 0,
  product: 0,
  copy: 0,
  record: 0,
  wait: 0,
  allocate: 0,
  collective: 0,
  callback: 0,
  tick: 0,
  turnaround: 0,
  bandwidth: 1e18,
  cache: 0,
  cacheBandwidth: 1e18,
}

/**
 * A machine to do sums on: calls and latencies cost nothing; a copy moves a byte a nanosecond, device memory a thousand; a kernel of any size fills the device.
 */
export const plain: Machine = {
  name: 'plain',
  devices: 1,
  ranks: 1,
  device: {
    memory: 2 ** 30,
    bandwidth: 1e12,
    cache: 0,
    cacheBandwidth: 1e12,
    flops: { bf16: 1e15, f16: 1e15, f32: 1e14, vector: 1e14 },
    power: { products: 1, memory: 0 },
    multiprocessors: 1,
    bytesPerBlock: 1,
    tile: 1,
    kernelLatency: 0,
    productLatency: 0,
    waitLatency: 0,
    queueDepth: 1 << 20,
    queues: 8,
    bus: 2e9,
    h2d: engine(1e9),
    d2h: engine(1e9),
  },
  host: free,
  peer: engine(1e10),
  collectives: {
    allGather: 1e10,
    reduceScatter: 1e10,
    allReduce: 1e10,
    allToAll: 1e10,
    broadcast: 1e10,
    sendReceive: 1e10,
    latency: 0,
    multiprocessors: 0,
  },
}

/** A machine on which nothing is ever in another's way: as many multiprocessors, engines and places in a queue as anybody may ask for, and threads that take no time. */
export const uncontended: Machine = {
  ...plain,
  name: 'uncontended',
  device: {
    ...plain.device,
    bandwidth: 1e12,
    bus: 1e18,
    multiprocessors: 1 << 20,
    bytesPerBlock: 1 << 30,
    tile: 1 << 20,
    h2d: { ...plain.device.h2d, engines: 1 << 20 },
    d2h: { ...plain.device.d2h, engines: 1 << 20 },
  },
  peer: { ...plain.peer, engines: 1 << 20 },
}

const around = (value: number) => fc.double({ min: -1.5, max: 1.5, noNaN: true }).map(power => value * 10 ** power)

/** H200s that never were: every figure up to thirty times smaller or larger, so that any of them may be what bounds a plan. */
export const someMachines: fc.Arbitrary<Machine> = fc
  .record({
    rates: fc.array(around(1), { minLength: 6, maxLength: 6 }),
    latencies: fc.array(around(1), { minLength: 9, maxLength: 9 }),
    engines: fc.integer({ min: 1, max: 2 }),
    queueDepth: fc.integer({ min: 1, max: 6 }),
    queues: fc.integer({ min: 1, max: 4 }),
    multiprocessors: fc.integer({ min: 1, max: 200 }),
  })
  .map(({ rates, latencies, engines, queueDepth, queues, multiprocessors }) => {
    const { device, host } = h200
    const l = (i: number) => latencies[i]!
    return {
      ...h200,
      name: 'some',
      device: {
        ...device,
        bandwidth: device.bandwidth * rates[0]!,
        flops: { ...device.flops, vector: device.flops.vector * rates[1]! },
        power: { products: 1, memory: 0 },
        h2d: { engines, rate: device.h2d.rate * rates[2]!, latency: device.h2d.latency * l(0) },
        d2h: { engines, rate: device.d2h.rate * rates[3]!, latency: device.d2h.latency * l(1) },
        kernelLatency: device.kernelLatency * l(2),
        productLatency: device.productLatency * l(2),
        waitLatency: device.waitLatency * l(3),
        bus: device.bus * rates[5]!,
        queueDepth,
        queues,
        multiprocessors,
      },
      host: {
        ...host,
        launch: host.launch * l(4),
        product: host.product * l(4),
        copy: host.copy * l(5),
        record: host.record * l(6),
        wait: host.wait * l(6),
        tick: host.tick * l(7),
        turnaround: host.turnaround * l(8),
        bandwidth: host.bandwidth * rates[4]!,
      },
    }
  })
