import type { Machine } from '../../dsl/index.js'
import type { DeviceName } from '../device/devices.js'
import type { HostFigures } from './host-figures.js'

/** The machine whose device figures the file copies: the device is not measured. */
const known = 'h200'

const rates = new Set(['bandwidth', 'cacheBandwidth'])
const meanings: Readonly<Record<keyof HostFigures, string>> = {
  tick: "the program's own thread, for each tick",
  turnaround: "from a tick's end until its slot may be filled again",
  bandwidth: 'filling inputs that the cache does not hold',
  cache: 'bytes of that cache',
  cacheBandwidth: 'filling inputs that the cache holds',
  launch: 'starting a kernel',
  product: 'starting a matrix product',
  copy: 'starting a copy',
}

/** A figure as machine files write it: `12.3 GB/s`, `1048576`, `3200 ns`. */
const quantity = (name: string, value: number): string => {
  if (rates.has(name)) return `"${(value / 1e9).toPrecision(3)} GB/s"`
  return name === 'cache' ? String(value) : `"${Math.round(value)} ns"`
}

/** A known machine with the measured host, rounded as `machineFile` writes it. */
export const measuredMachine = (
  figures: HostFigures,
): { name: string; extends: string; host: HostFigures } => ({
  name: `${known}, this host`,
  extends: known,
  host: Object.fromEntries(
    Object.entries(figures).map(([name, value]) => [
      name,
      rates.has(name) ? Number((value / 1e9).toPrecision(3)) * 1e9 : Math.round(value),
    ]),
  ) as unknown as HostFigures satisfies Partial<Machine['host']>,
})

/** A machine file for `--machine`: the host as measured, everything else as in `h200`. */
export const machineFile = (figures: HostFigures, device: DeviceName): string => {
  const { name } = measuredMachine(figures)
  const lines = Object.entries(figures).map(([field, value], i, all) => {
    const comma = i + 1 < all.length ? ',' : ''
    return `    "${field}": ${quantity(field, value)}${comma} // ${meanings[field as keyof HostFigures]}`
  })
  const calls =
    device === 'host'
      ? `\n// The cost of the issuing thread's calls is measured on a GPU only: here it is ${known}'s.`
      : ''
  return `// Written by: braid doctor --machine FILE. The host as measured on ${device}; the device is Braid's ${known}.${calls}
{
  "name": "${name}",
  "extends": "${known}",
  "host": {
${lines.join('\n')}
  }
}
`
}
