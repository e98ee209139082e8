import type { HostModel } from './machine.js'

/** How long the program's own thread takes to fill inputs. */
type Filling = Pick<HostModel, 'bandwidth' | 'cache' | 'cacheBandwidth'>

/** So many bytes of inputs, and the nanoseconds that filling them took. */
export interface Filled {
  readonly bytes: number
  readonly nanoseconds: number
}

/** Nanoseconds to fill so many bytes of a tick's inputs: the first of them at the cache's rate, the others at the memory's. */
export const fillTime = ({ bandwidth, cache, cacheBandwidth }: Filling, bytes: number): number => {
  const cached = Math.min(bytes, cache)
  return (cached / cacheBandwidth + (bytes - cached) / bandwidth) * 1e9
}

const error = (filling: Filling, samples: readonly Filled[]): number =>
  samples.reduce(
    (sum, { bytes, nanoseconds }) => sum + Math.log(fillTime(filling, bytes) / nanoseconds) ** 2,
    0,
  )

/** Geometric mean; undefined of none. */
const mean = (values: readonly number[]): number | undefined =>
  values.length === 0
    ? undefined
    : Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length)

/**
 * The rates that come nearest to what was measured, by ratio. A cache ends at a size that was measured, so that one rate follows from those within it and the other
 * from those beyond. Undefined where there is nothing to go by.
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
