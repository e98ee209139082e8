// Allocate + free from JavaScript, on the same device.
import { orThrow } from '../../dsl/ir/braid-error.js'
import { Device } from '../../runtime/device/device.js'
import type { Figure } from './allocator-run.js'

const repeats = 21
const turns = 100_000

export const fromJavaScript = async (device: string): Promise<Figure[]> => {
  await using opened = orThrow(await Device.open(device)())
  const lane = opened.lane({ name: 'bench' })
  return [4 << 10, 1 << 20].map(bytes => {
    const run = () => {
      const began = process.hrtime.bigint()
      for (let turn = 0; turn < turns; turn++) lane.malloc(bytes).free()
      return Number(process.hrtime.bigint() - began) / turns
    }
    for (let warm = 0; warm < 3; warm++) run()
    const all = Array.from({ length: repeats }, run).sort((a, b) => a - b)
    return {
      bench: 'javascript',
      case: bytes < 1 << 20 ? `${bytes >> 10} KiB` : `${bytes >> 20} MiB`,
      unit: 'ns',
      median: all[repeats >> 1]!,
      least: all[0]!,
      most: all[repeats - 1]!,
    }
  })
}
