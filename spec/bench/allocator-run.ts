// Runs benchmarks of native/tools/bench and, beside a GPU and where PyTorch's allocator has the same loops,
// those (allocator_peer.cu).
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { devices } from '../../runtime/device/devices.js'
import { reasonOf } from './python.js'

/** A line of either program: medians, in `unit`, with the least and the most of the repeats. */
export interface Figure {
  readonly bench: string
  readonly case: string
  readonly unit: string
  readonly median: number
  readonly least: number
  readonly most: number
  readonly [more: string]: string | number
}

export interface Figures {
  readonly device: string
  readonly name: string
  readonly ours: readonly Figure[]
  /** Empty where there is no GPU, or no PyTorch and compiler to compare with. */
  readonly theirs: readonly Figure[]
  readonly torch: string
}

const here = dirname(fileURLToPath(import.meta.url))
/** The checkout: this file stands in spec/bench, or in dist/spec/bench. */
export const root = [join(here, '../..'), join(here, '../../..')].find(path =>
  existsSync(join(path, 'native/tools/bench')),
)!

const folder = 'native/build-bench'
const program = 'braid_allocator_bench'

// BRAID_ALLOCATOR_BENCH names a program that is built already, for machines without a compiler.
const built = (): string => {
  const given = process.env['BRAID_ALLOCATOR_BENCH']
  if (given) return given
  // In a separate process, whose output goes to standard error, apart from the figures.
  const call = `buildNative(${JSON.stringify(folder)}, { BRAID_BENCH: 'ON' }, ${JSON.stringify(program)})`
  const library = pathToFileURL(join(root, 'scripts/lib/native.mjs')).href
  const script = `import { buildNative } from ${JSON.stringify(library)}\n${call}`
  const result = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 2, 2],
  })
  if (result.status !== 0)
    throw new Error(`${folder}/${program} could not be built; the reason is printed above`)
  return join(root, folder, program)
}

const lines = (
  command: string,
  args: readonly string[],
): { about: Record<string, string>; figures: Figure[] } => {
  const result = spawnSync(command, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 1 << 26,
  })
  if (result.status !== 0)
    throw new Error(
      `${[command, ...args].join(' ')} failed: ${result.error?.message ?? reasonOf(result.stderr)}`,
    )
  const [about, ...figures] = result.stdout
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  return { about, figures }
}

export const measure = (
  names: readonly string[],
  log: (line: string) => void,
  { peer = true } = {},
): Figures => {
  const device = devices().find(({ kind }) => kind === 'cuda')?.device ?? 'host'
  const ours = lines(built(), ['--device', device, ...names])
  log(`Braid on ${ours.about['case']}, from C++`)
  if (device === 'host') {
    log('No GPU here: the figures are those of the host device, and there is nothing to compare them with')
    return { device, name: ours.about['case']!, ours: ours.figures, theirs: [], torch: '' }
  }
  if (!peer) return { device, name: ours.about['case']!, ours: ours.figures, theirs: [], torch: '' }
  try {
    const theirs = lines('python3', [join(root, 'spec/bench/allocator_peer.py'), ...names])
    log(`PyTorch ${theirs.about['torch']} on the same device, from C++`)
    return {
      device,
      name: ours.about['case']!,
      ours: ours.figures,
      theirs: theirs.figures,
      torch: theirs.about['torch']!,
    }
  } catch (error) {
    log(`PyTorch's allocator could not be measured here: ${(error as Error).message}`)
    return { device, name: ours.about['case']!, ours: ours.figures, theirs: [], torch: '' }
  }
}
