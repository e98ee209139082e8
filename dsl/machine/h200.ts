import type { Machine } from './machine.js'

/**
 * One NVIDIA H200 (141 GB, PCIe 5 x16, driver 580, CUDA 13), with pinned host memory. *Traced* and *ticks*:
 * from the traced runs and the times of ticks in spec/bench/results/simulate.md; the events of a trace add
 * some 1.5 µs to each run. *Calls*: a loop of that call alone.
 */
export const h200: Machine = {
  name: 'h200',
  devices: 1,
  ranks: 1,
  device: {
    // The driver.
    memory: 143_771 * 2 ** 20,
    // Ticks of elementwise chains over 64 MiB; traced 4.03e12 to 4.12e12; copies from device to device
    // 4.247e12 (calls).
    bandwidth: 4.15e12,
    // The driver; and traced kernels over 2 to 17 MB, which take 0.174 µs a MB.
    cache: 50 * 2 ** 20,
    cacheBandwidth: 5.6e12,
    // bf16: traced 6,144 × 8,192² with a pause as long after each, random values, at 1,980 MHz: 862e12 with
    // the writes of its tiles, which the model adds (the vendor's peak is 989e12). f16: as bf16. f32: without
    // TF32, not measured. vector: the vendor's peak, at 1,980 MHz.
    flops: { bf16: 884e12, f16: 884e12, f32: 50e12, vector: 67e12 },
    // products: ticks of 8,192³ and 4,096³, at 1,440 to 1,530 MHz and 690 W of 700: 700e12. memory: from
    // ticks of branches, by the rate that products leave to the other kernels.
    power: { products: 0.792, memory: 0.6 },
    multiprocessors: 132,
    bytesPerBlock: 16_384,
    tile: 128,
    // Ticks of 24 kernels over 8 MiB: 5.3 µs each, 3.0 of them for the bytes.
    kernelLatency: 2_200,
    // Ticks of branches of 2,048³ and diamonds of 1,536³.
    productLatency: 3_800,
    // Not measured by itself.
    waitLatency: 1_000,
    // A graph of 1,000 empty kernels in a row, 678 on the device for each.
    nodeLatency: 678,
    // Calls: the 1,022nd outstanding kernel, copy or fill blocks.
    queueDepth: 1_021,
    // Calls: 8 blocked streams hold as many each, 16 hold 511 each, 32 hold 256 each.
    queues: 8,
    // Ticks of 64 MiB both ways at once: 49.7e9 each.
    bus: 99.5e9,
    // Rates: calls. Latencies: traced copies of 4 KiB.
    h2d: { engines: 1, rate: 55.6e9, latency: 2_500 },
    d2h: { engines: 1, rate: 55.4e9, latency: 2_500 },
  },
  host: {
    // Between 2,736 (a loop of launches alone) and 3,500 to 3,700 (ticks of 200 small kernels, on another
    // machine).
    launch: 3_200,
    // Issue times of branches and diamonds.
    product: 6_000,
    // Issue time of 64 copies of 4 KiB.
    copy: 2_100,
    // Calls: graphs of 10, 100 and 1,000 empty kernels take 959, 1,020 and 1,644.
    graph: 952,
    node: 0.69,
    // Calls.
    record: 104,
    wait: 101,
    allocate: 45,
    // Not measured.
    collective: 5_000,
    // Calls.
    callback: 1_367,
    // Ticks of one kernel of 16 elements, three and eight in flight: 13.8 to 14.8; they took 30 where threads
    // slept.
    tick: 14_000,
    // The same, one in flight: 28.4 and 30.4.
    turnaround: 12_500,
    // Filling inputs of 64 MiB, and of 1 MiB.
    bandwidth: 5.6e9,
    cache: 2 ** 21,
    cacheBandwidth: 15.5e9,
  },
  // NVLink 4, one direction: 450e9 by the vendor; not measured.
  peer: { engines: 1, rate: 390e9, latency: 3_000 },
  // NCCL 2.28 without multicast: between the figures for two and for four ranks below.
  collectives: {
    allGather: 270e9,
    reduceScatter: 270e9,
    allReduce: 270e9,
    allToAll: 270e9,
    broadcast: 270e9,
    sendReceive: 270e9,
    latency: 20_000,
    multiprocessors: 16,
  },
}

/**
 * Two H200s of one host, a process each. An all-gather of 256 MiB takes 0.607 ms and a reduction 0.627 ms:
 * 134 MB each way.
 */
export const h200x2: Machine = {
  ...h200,
  name: 'h200x2',
  ranks: 2,
  collectives: { ...h200.collectives, allGather: 229e9, reduceScatter: 221e9 },
}

/**
 * Eight H200s of one host, a process each. The bus bandwidths are those of four: 256 MiB in an all-gather
 * 0.700 ms, in a reduction 0.695 ms.
 */
export const h200x8: Machine = {
  ...h200,
  name: 'h200x8',
  ranks: 8,
  collectives: { ...h200.collectives, allGather: 296e9, reduceScatter: 298e9, latency: 30_000 },
}
