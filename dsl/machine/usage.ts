import type { Demand, Resource } from './cost.js'
import type { Machine } from './machine.js'

/**
 * Resource pools that the runs of a device share: each run occupies a part of some. The copy engines of one
 * direction are a pool too, of which a copy occupies one engine.
 */
const pool = { multiprocessors: 0, bandwidth: 1, h2d: 2, d2h: 3, peer: 4, link: 5, bus: 6 } as const
export const poolsPerDevice = 7

/** The resources that a list of runs occupies, as columns by run. Times are nanoseconds. */
export interface Usage {
  /** From start to end without concurrent runs: `latency`, which occupies nothing, then `work`. */
  readonly alone: Float64Array
  readonly latency: Float64Array
  readonly work: Float64Array
  /**
   * The part of each pool of its device that a run's work occupies: `demand[poolsPerDevice · run + pool]`, at
   * most 1.
   */
  readonly demand: Float64Array
  /** The first pool of a run's device, among the `pools` of all devices. */
  readonly firstPool: Int32Array
  readonly pools: number
  /** The engine that a run occupies whole, or -1; and the number of concurrent runs of each engine. */
  readonly engine: Int32Array
  readonly engineSize: Int32Array
  /** The resource that bounds each run. */
  readonly resource: readonly Resource[]
  /**
   * Nanoseconds at a device's whole sustained power, the largest of all devices: a lower bound of the tick's
   * time.
   */
  readonly power: number
}

/** The resources of `count` runs on `devices` devices; `demandOf` and `deviceOf` give those of each run. */
export const usageOf = (
  count: number,
  devices: number,
  { device, peer }: Machine,
  demandOf: (run: number) => Demand,
  deviceOf: (run: number) => number,
): Usage => {
  const pools = poolsPerDevice * devices
  const engines = { h2d: device.h2d.engines, d2h: device.d2h.engines, peer: peer.engines }
  const usage = {
    alone: new Float64Array(count),
    latency: new Float64Array(count),
    work: new Float64Array(count),
    demand: new Float64Array(count * poolsPerDevice),
    firstPool: new Int32Array(count),
    pools,
    engine: new Int32Array(count).fill(-1),
    // An engine has its pool's number. The last engine is the host, which all devices share.
    engineSize: new Int32Array(pools + 1).fill(1),
    resource: Array.from<Resource>({ length: count }),
  }
  for (let first = 0; first < pools; first += poolsPerDevice)
    for (const copy of ['h2d', 'd2h', 'peer'] as const) usage.engineSize[first + pool[copy]] = engines[copy]
  const energy = new Float64Array(devices)
  for (let run = 0; run < count; run++) {
    const demand = demandOf(run)
    const { resource } = demand
    const at = run * poolsPerDevice
    usage.alone[run] = demand.nanoseconds
    usage.latency[run] = demand.latency
    usage.work[run] = Math.max(0, demand.nanoseconds - demand.latency)
    usage.demand[at + pool.multiprocessors] = demand.multiprocessors
    usage.demand[at + pool.bandwidth] = demand.bandwidth
    usage.demand[at + pool.bus] = demand.bus
    const first = poolsPerDevice * deviceOf(run)
    usage.firstPool[run] = first
    if (resource === 'h2d' || resource === 'd2h' || resource === 'peer') {
      usage.engine[run] = first + pool[resource]
      usage.demand[at + pool[resource]] = 1 / engines[resource]
    }
    if (resource === 'link') usage.demand[at + pool.link] = 1
    if (resource === 'host') usage.engine[run] = pools
    usage.resource[run] = resource
    energy[deviceOf(run)]! += demand.energy
  }
  return { ...usage, power: Math.max(0, ...energy) }
}
