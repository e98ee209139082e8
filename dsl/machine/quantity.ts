// The value of a field of a machine file: a number in the field's own unit, or a string with a unit.

export type Quantity = 'count' | 'part' | 'bytes' | 'bytesPerSecond' | 'flopsPerSecond' | 'nanoseconds'

const decimal = { '': 1, K: 1e3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 } as const
const binary = { Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 } as const

const scaled = (
  prefixes: Readonly<Record<string, number>>,
  ...names: readonly string[]
): Readonly<Record<string, number>> =>
  Object.fromEntries(
    Object.entries(prefixes).flatMap(([prefix, by]) => names.map(name => [prefix + name, by] as const)),
  )

const units: Readonly<Record<Quantity, Readonly<Record<string, number>>>> = {
  count: {},
  part: {},
  bytes: { bytes: 1, byte: 1, ...scaled({ ...decimal, ...binary }, 'B') },
  bytesPerSecond: scaled({ ...decimal, ...binary }, 'B/s'),
  flopsPerSecond: scaled(decimal, 'FLOP/s', 'FLOPS', 'FLOPs'),
  nanoseconds: { ns: 1, us: 1e3, µs: 1e3, μs: 1e3, ms: 1e6, s: 1e9 },
}

/** The expected form of a quantity, in words. */
export const wanted: Readonly<Record<Quantity, string>> = {
  count: 'a whole number, as a number',
  part: 'a part of one, as a number',
  bytes: 'bytes as a number, or a size such as "141 GiB"',
  bytesPerSecond: 'bytes a second as a number, or a rate such as "55.6 GB/s"',
  flopsPerSecond: 'operations a second as a number, or a rate such as "700 TFLOP/s"',
  nanoseconds: 'nanoseconds as a number, or a time such as "1.5 us"',
}

/**
 * The number in the quantity's own unit; undefined for anything but a number with no unit or a unit of the
 * quantity.
 */
export const quantity = (value: unknown, kind: Quantity): number | undefined => {
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined
  if (typeof value !== 'string') return undefined
  const [, digits, unit] =
    /^\s*(-?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-zµμ/]+)\s*$/.exec(value) ?? []
  if (digits === undefined || !Object.hasOwn(units[kind], unit!)) return undefined
  return Number(digits.replaceAll('_', '')) * units[kind][unit!]!
}
