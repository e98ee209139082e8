// A line chart as SVG text, in the colours of whatever page it stands on, light or dark. Each line is named
// at its end.

export interface Chart {
  readonly title: string
  readonly subtitle: string
  readonly x: string
  readonly y: string
  readonly series: readonly {
    readonly name: string
    readonly points: readonly { readonly x: number; readonly y: number }[]
  }[]
}

const width = 860
const height = 420
const frame = { left: 72, right: 250, top: 64, bottom: 48 }
// Distinguishable in the light and the dark scheme; dashes too, for readers who see few colours.
const styles = [
  { colour: '#0b84f3', dash: '' },
  { colour: '#2ca02c', dash: '6 3' },
  { colour: '#9467bd', dash: '2 3' },
  { colour: '#17a2b8', dash: '8 3 2 3' },
  { colour: '#d62728', dash: '' },
  { colour: '#e08a00', dash: '6 3' },
] as const

const xml = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;')

/** Labels that would lie on each other are moved apart, in their order from the top. */
const apart = (wanted: readonly number[], least: number): number[] => {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a]! - wanted[b]!)
  const placed = [...wanted]
  for (let k = 1; k < order.length; k++)
    placed[order[k]!] = Math.max(placed[order[k]!]!, placed[order[k - 1]!]! + least)
  // Back up from the bottom where that pushed them out.
  let floor = height - frame.bottom + 4
  for (let k = order.length - 1; k >= 0; k--) {
    placed[order[k]!] = Math.min(placed[order[k]!]!, floor)
    floor = placed[order[k]!]! - least
  }
  return placed
}

export const chart = ({ title, subtitle, x, y, series }: Chart): string => {
  const xs = [...new Set(series.flatMap(({ points }) => points.map(point => point.x)))].sort((a, b) => a - b)
  const most = Math.max(...series.flatMap(({ points }) => points.map(point => point.y)))
  const step = 2 ** Math.ceil(Math.log2(most / 6))
  const top = Math.ceil(most / step) * step
  const right = width - frame.right
  const bottom = height - frame.bottom
  const across = (value: number) => frame.left + ((right - frame.left) * value) / xs[xs.length - 1]!
  const up = (value: number) => bottom - ((bottom - frame.top) * value) / top
  const one = (value: number) => value.toFixed(1)
  const ends = apart(
    series.map(({ points }) => up(points[points.length - 1]!.y)),
    17,
  )
  const lines: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" ` +
      `aria-label="${xml(title)}" font-family="system-ui, sans-serif" font-size="13">`,
    '<style>text{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#d1d9e0}@media (prefers-color-scheme:dark)' +
      '{text{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#3d444d}}</style>',
    `<text x="${frame.left}" y="24" font-size="17" font-weight="600">${xml(title)}</text>`,
    `<text x="${frame.left}" y="44" class="soft">${xml(subtitle)}</text>`,
  ]
  for (let value = 0; value <= top; value += step) {
    lines.push(
      `<line class="grid" x1="${frame.left}" x2="${right}" y1="${one(up(value))}" y2="${one(up(value))}"/>`,
      `<text class="soft" x="${frame.left - 8}" y="${one(up(value) + 4)}" text-anchor="end">` +
        `${value.toLocaleString('en-US')}</text>`,
    )
  }
  for (const value of xs)
    lines.push(
      `<text class="soft" x="${one(across(value))}" y="${bottom + 18}" text-anchor="middle">${value}</text>`,
    )
  lines.push(
    `<text class="soft" x="${one((frame.left + right) / 2)}" y="${height - 8}" ` +
      `text-anchor="middle">${xml(x)}</text>`,
    `<text class="soft" transform="translate(16 ${one((frame.top + bottom) / 2)}) rotate(-90)" ` +
      `text-anchor="middle">${xml(y)}</text>`,
  )
  series.forEach(({ name, points }, i) => {
    const { colour, dash } = styles[i % styles.length]!
    const path = points
      .map((point, k) => `${k ? 'L' : 'M'}${one(across(point.x))} ${one(up(point.y))}`)
      .join('')
    const last = points[points.length - 1]!
    lines.push(
      `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"` +
        `${dash && ` stroke-dasharray="${dash}"`}/>`,
      ...points.map(
        point => `<circle cx="${one(across(point.x))}" cy="${one(up(point.y))}" r="2.5" fill="${colour}"/>`,
      ),
      `<path d="M${one(across(last.x) + 5)} ${one(up(last.y))}L${right + 16} ${one(ends[i]!)}" ` +
        `stroke="${colour}" fill="none"/>`,
      `<text x="${right + 20}" y="${one(ends[i]! + 4)}">` +
        `${xml(name)}: ${Math.round(last.y).toLocaleString('en-US')}</text>`,
    )
  })
  return `${[...lines, '</svg>'].join('\n')}\n`
}
