import type { HostModel } from './machine.js'

/** The time in which the program's own thread fills inputs. */
type Filling = Pick<HostModel, 'bandwidth' | 'cache' | 'cacheBandwidth'>

/** A measurement: the bytes of a tick's inputs, and the nanoseconds to fill them. */
export interface Filled {
  readonly bytes: number
  readonly nanoseconds: number
}

/**
 * Nanoseconds to fill so many bytes of a tick's inputs: those that fit in the cache at its rate, the others
 * at the memory's.
 */
export const fillTime = ({ bandwidth, cache, cacheBandwidth }: Filling, bytes: number): number => {
  const cached = Math.min(bytes, cache)
  return (cached / cacheBandwidth + (bytes - cached) / bandwidth) * 1e9
}

const error = (filling: Filling, samples: readonly Filled[]): number =>
  samples.reduce(
    (sum, { bytes, nanoseconds }) => sum + Math.log(fillTime(filling, bytes) / nanoseconds) ** 2,
    0,
  )

/** Geometric mean; undefined for an empty list. */
const mean = (values: readonly number[]): number | undefined =>
  values.length === 0
    ? undefined
    : Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length)

/**
 * The rates that fit the measurements best, by ratio. The cache's size is taken to be a measured size: the
 * sizes up to it give the cache's rate, the larger sizes give the memory's. Undefined without usable
 * measurements.
 */
export const fillingOf = (measured: readonly Filled[]): Filling | undefined => {
  const samples = measured.filter(({ bytes, nanoseconds }) => bytes > 0 && nanoseconds > 0)
  let best: Filling | undefined
  for (const { bytes: cache } of samples) {
    const within = samples.filter(({ bytes }) => bytes <= cache)
    const cacheBandwidth = mean(within.map(({ bytes, nanoseconds }) => (bytes / nanoseconds) * 1e9))!
    const beyond = samples.filter(
      ({ bytes, nanoseconds }) => bytes > cache && nanoseconds > (cache / cacheBandwidth) * 1e9,
    )
    const rates = beyond.map(
      ({ bytes, nanoseconds }) => (bytes - cache) / (nanoseconds * 1e-9 - cache / cacheBandwidth),
    )
    const found = { bandwidth: mean(rates) ?? cacheBandwidth, cache, cacheBandwidth }
    if (best === undefined || error(found, samples) < error(best, samples) * (1 - 1e-9)) best = found
  }
  return best
}
