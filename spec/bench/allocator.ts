// What the caching allocator's calls cost, beside the driver's own calls and PyTorch's allocator, all in one
// run and from C++. The bars are those of an H200; a record, a wait or a query are the driver's floor under a
// block that another lane still reads, measured in turn with it.
import { availableParallelism } from 'node:os'
import { fromJavaScript } from './allocator-javascript.js'
import { type Figure, measure } from './allocator-run.js'

const names = ['driver-calls', 'allocate-free', 'cross-lane', 'threads', 'page-moves']

/** The largest (or least) figure that a case may show, or nothing where it is shown alone. */
type Bar = { readonly most: number } | { readonly least: number } | undefined

const barOf = (figure: Figure): Bar => {
  switch (figure.bench) {
    case 'allocate-free':
      // Where no size comes again there is no bar: it is shown beside the mix that has one.
      if (figure.case.endsWith('no size twice')) return undefined
      return { most: figure.case.includes('live') ? 120 : 60 }
    case 'javascript':
      return { most: 400 }
    case 'cross-lane':
      if (figure.case.startsWith('known')) return { most: 90 }
      // The other policies are shown beside the two that the bar is about.
      if (!/order-then-(grow|wait)$/.test(figure.case)) return undefined
      return { most: figure.case.startsWith('recorded') ? 80 : 90 }
    case 'threads':
      return figure.case === '1 MiB, 8 threads' && availableParallelism() >= 8 ? { least: 5 } : undefined
    default:
      return undefined
  }
}

/** What PyTorch does for the same end. */
const peerOf = ({ bench, case: name }: Figure, theirs: readonly Figure[]) => {
  const wanted =
    bench === 'cross-lane' ? name.replace(/^(recorded|shared|known), ([^,]+).*$/, 'record_stream, $2') : name
  return theirs.find(figure => figure.bench === bench && figure.case === wanted)
}

export const bench = {
  name: 'allocator',
  title: 'The caching allocator, call by call: Braid, the driver, and PyTorch, from C++',
  run: async (log: (line: string) => void) => {
    const { device, ours, theirs } = measure(names, log)
    const figures = [...ours, ...(await fromJavaScript(device))]
    let ok = true
    const rows = figures.map(figure => {
      const bar = barOf(figure)
      // Threads are held to what they do beside one, uses to what they cost above the driver's calls.
      const found = Number((bar && 'least' in bar ? figure['overOne'] : figure['over']) ?? figure.median)
      const held = bar === undefined || ('most' in bar ? found <= bar.most : found >= bar.least)
      ok &&= held
      const peer = peerOf(figure, theirs)
      return {
        bench: figure.bench,
        case: figure.case,
        unit: figure.unit,
        median: figure.median,
        least: figure.least,
        most: figure.most,
        ...('over' in figure && { floor: figure['floor'], over: figure['over'] }),
        ...('overOne' in figure && { '× one': figure['overOne'] }),
        ...(bar && {
          bar: 'most' in bar ? `≤ ${bar.most}` : `≥ ${bar.least} × one thread (${found.toFixed(2)})`,
          held: held ? 'yes' : 'no',
        }),
        ...(peer && { PyTorch: peer.median, ratio: peer.median / figure.median }),
      }
    })
    const beside = theirs
      .filter(figure => figure.bench !== 'driver-calls')
      .map(({ bench: of, case: name, unit, median, least, most }) => ({
        bench: of === 'cudaMallocAsync' ? of : `PyTorch ${of}`,
        case: name,
        unit,
        median,
        least,
        most,
      }))
    return { rows: [...rows, ...beside], ok }
  },
}
