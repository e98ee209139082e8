export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`

/** Bytes as a figure and a unit; exact below one MiB. */
export const sizeOf = (bytes: number): string =>
  bytes < 2 ** 20
    ? `${bytes} bytes`
    : bytes < 2 ** 30
      ? `${fixed(bytes / 2 ** 20)} MiB`
      : `${fixed(bytes / 2 ** 30)} GiB`

const fixed = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(2))

/** A time of so many microseconds, with a suitable unit. */
export const timeOf = (us: number): string => {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)} s`
  if (us >= 1e3) return `${(us / 1e3).toFixed(us >= 1e5 ? 1 : 2)} ms`
  return `${us.toFixed(us >= 100 ? 0 : 1)} µs`
}
