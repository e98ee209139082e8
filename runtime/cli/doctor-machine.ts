import type { Machine } from '../../dsl/index.js'
import type { DeviceName } from '../device/devices.js'
import type { HostFigures } from './host-figures.js'

/** The device's figures are not measured: they are those of this machine that Braid knows. */
const known = 'h200'

const rates = new Set(['bandwidth', 'cacheBandwidth'])
const what: Readonly<Record<keyof HostFigures, string>> = {
  tick: "the program's own thread, for each tick",
  turnaround: "from a tick's end to when its slot may be filled again",
  bandwidth: 'filling inputs that the cache does not hold',
  cache: 'as far as it does',
  cacheBandwidth: 'filling inputs that it holds',
  launch: 'starting a kernel',
  product: 'starting a matrix product',
  copy: 'starting a copy',
}

/** `12.3 GB/s`, `1048576`, `3200 ns`: as a machine file may say it. */
const quantity = (name: string, value: number): string => {
  if (rates.has(name)) return `"${(value / 1e9).toPrecision(3)} GB/s"`
  return name === 'cache' ? String(value) : `"${Math.round(value)} ns"`
}

/** What was measured, over a machine that is known, by the figures that `machineFile` writes. */
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

/** A machine file for `--machine`: the host as measured, all else as `h200` has it. */
export const machineFile = (figures: HostFigures, device: DeviceName): string => {
  const { name } = measuredMachine(figures)
  const lines = Object.entries(figures).map(([field, value], i, all) => {
    const comma = i + 1 < all.length ? ',' : ''
    return `    "${field}": ${quantity(field, value)}${comma} // ${what[field as keyof HostFigures]}`
  })
  const calls =
    device === 'host'
      ? `\n// What the issuing thread's calls cost is measured on a GPU alone: here it is ${known}'s.`
      : ''
  return `// Written by: braid doctor --machine FILE. The host as it was measured on ${device}; the device is ${known}'s, as Braid knows it.${calls}
{
  "name": "${name}",
  "extends": "${known}",
  "host": {
${lines.join('\n')}
  }
}
`
}
