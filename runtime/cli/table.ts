/**
 * Rows in aligned columns, two spaces apart. Columns whose every cell is a number (or empty) stand on the
 * right.
 */
export const table = (given: readonly (readonly string[])[], indent = ''): string => {
  // A cell is one line; what else a terminal obeys, beside colours, goes where the text leaves.
  const rows = given.map(row => row.map(cell => cell.replaceAll('\n', '\\n')))
  const columns = rows.reduce((most, row) => Math.max(most, row.length), 0)
  const widths = Array.from({ length: columns }, (_, c) =>
    rows.reduce((most, row) => Math.max(most, visible(row[c] ?? '')), 0),
  )
  const right = Array.from(
    { length: columns },
    (_, c) => c > 0 && rows.slice(1).every(row => /^[-\d.,]*$/.test(row[c] ?? '')),
  )
  return rows
    .map(
      row =>
        indent +
        row
          .map((cell, c) => pad(cell, widths[c]!, right[c]!))
          .join('  ')
          .trimEnd(),
    )
    .join('\n')
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: escapes of colours have no width.
const visible = (text: string): number => text.replace(/\u001b\[\d+m/g, '').length

const pad = (text: string, width: number, right: boolean): string => {
  const room = ' '.repeat(Math.max(0, width - visible(text)))
  return right ? room + text : text + room
}

/** Bytes for people: `576.00 MiB`. */
export const bytes = (count: number): string => {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB']
  const unit = Math.min(units.length - 1, count < 1 ? 0 : Math.floor(Math.log2(count) / 10))
  return unit === 0 ? `${count} bytes` : `${(count / 2 ** (10 * unit)).toFixed(2)} ${units[unit]}`
}
