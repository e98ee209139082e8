import type { Machine } from './machine.js'

/**
 * One NVIDIA H200 (141 GB, PCIe 5 x16, driver 580, CUDA 13), from pinned memory. Where a comment names no other source the figure was measured on one by a loop of
 * that call alone.
 */
export const h200: Machine = {
  name: 'h200',
  devices: 1,
  ranks: 1,
  device: {
    memory: 143_771 * 2 ** 20,
    bandwidth: 4.247e12,
    // What the driver says; the rate is that of an H100's cache, published.
    cache: 50 * 2 ** 20,
    cacheBandwidth: 5.5e12,
    // Sustained, random values: 6,144 × 8,192 × 8,192 in bf16. The vendor's peak is 989e12; a cool device reaches 845e12 for some milliseconds.
    // f32 is that of products without TF32, vector the vendor's peak.
    flops: { bf16: 700e12, f16: 700e12, f32: 50e12, vector: 60e12 },
    multiprocessors: 132,
    bytesPerBlock: 16_384,
    tile: 128,
    // Between a graph's 678 ns a node and the 2,589 ns of launches one after the other, which the issuing thread bounds.
    kernelLatency: 1_500,
    // What products of 512 to 2,048 take beyond their arithmetic.
    productLatency: 4_500,
    waitLatency: 1_000,
    queueDepth: 1_021,
    bus: 111e9,
    h2d: { engines: 1, rate: 55.6e9, latency: 1_400 },
    d2h: { engines: 1, rate: 55.4e9, latency: 1_400 },
  },
  host: {
    launch: 2_736,
    copy: 1_130,
    record: 104,
    wait: 101,
    allocate: 45,
    collective: 5_000,
    callback: 1_367,
    tick: 13_000,
    turnaround: 25_000,
    bandwidth: 10e9,
  },
  // NVLink 4, one direction: 450 GB/s by the vendor; used here at what copies between two devices of one host reach.
  peer: { engines: 1, rate: 390e9, latency: 3_000 },
  // NCCL 2.28 without multicast. From one block of 256 MiB: all-gather 0.607 ms and reduce-scatter 0.627 ms on 2 GPUs, 0.700 and 0.695 ms on 4.
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

/** Two H200s of one host, a process each. 256 MiB are gathered in 0.607 ms and reduced in 0.627 ms: 134 MB each way. */
export const h200x2: Machine = {
  ...h200,
  name: 'h200x2',
  ranks: 2,
  collectives: { ...h200.collectives, allGather: 229e9, reduceScatter: 221e9 },
}

/** Eight H200s of one host, a process each. Bus bandwidths are those that 4 showed: 256 MiB gathered in 0.700 ms, reduced in 0.695 ms. */
export const h200x8: Machine = {
  ...h200,
  name: 'h200x8',
  ranks: 8,
  collectives: { ...h200.collectives, allGather: 296e9, reduceScatter: 298e9, latency: 30_000 },
}
