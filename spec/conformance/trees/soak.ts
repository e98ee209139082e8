// Random trees on one device, one after the other: no wrong value, and nothing grows. `npm run soak --
// --trees N` runs this file with so many launches; .ci/run some thousands of them.
import assert from 'node:assert/strict'
import { parseArgs } from 'node:util'
import { orThrow } from '../../../dsl/index.js'
import { Device } from '../../../runtime/index.js'
import { walk } from './walk.js'

export interface Soaked {
  readonly device: string
  readonly launches: number
  readonly refused: number
  readonly reads: number
  readonly trees: number
  readonly executables: number
  readonly remade: number
  readonly seconds: number
  /**
   * Bytes of the device and pinned bytes that the allocators have reserved: the most after a tenth, and at
   * the end.
   */
  readonly reserved: { readonly early: number; readonly end: number }
  /**
   * Driver events that the device's lanes have made. They are used again: it is the most that were held at
   * once.
   */
  readonly events: { readonly early: number; readonly end: number }
  /**
   * Mebibytes of the JavaScript heap after a collection, where the process can collect; and of the process.
   */
  readonly heapMiB: { readonly early: number; readonly end: number }
  readonly residentMiB: { readonly early: number; readonly end: number }
}

const mebi = 2 ** 20
const collect = (globalThis as { gc?: () => void }).gc

const settle = async (): Promise<void> => {
  for (let i = 0; i < 3; i++) {
    collect?.()
    await new Promise(resolve => setImmediate(resolve))
  }
}

interface Held {
  readonly live: number
  readonly reserved: number
  readonly events: number
  readonly heapMiB: number
  readonly residentMiB: number
}

const heldBy = async (device: Device): Promise<Held> => {
  await settle()
  const stats = [device.stats(), device.stats('pinned')]
  const sum = (name: 'allocation.all.current' | 'reserved_bytes.all.current'): number =>
    stats.reduce((sum, each) => sum + (each[name] ?? 0), 0)
  const { heapUsed, rss } = process.memoryUsage()
  return {
    live: sum('allocation.all.current'),
    reserved: sum('reserved_bytes.all.current'),
    events: device.stats()['events.created'] ?? 0,
    heapMiB: heapUsed / mebi,
    residentMiB: rss / mebi,
  }
}

/** So many launches, of trees of `each` launches. Throws where something is wrong, or has grown. */
export const soak = async (
  name: string,
  launches: number,
  { seed = 1, each = 500, log = (_: string): void => undefined } = {},
): Promise<Soaked> => {
  await using device = orThrow(await Device.open(name)())
  const began = performance.now()
  const counts = { launches: 0, refused: 0, reads: 0, executables: 0, remade: 0 }
  const first = await heldBy(device)
  let early = first
  let trees = 0
  while (counts.launches < launches) {
    const walked = await walk(device, seed + trees++, Math.min(each, launches - counts.launches))
    for (const key of Object.keys(counts) as (keyof typeof counts)[]) counts[key] += walked[key]
    const isEarly = counts.launches <= launches / 10
    if (!isEarly && trees % 50 !== 0 && counts.launches < launches) continue
    const now = await heldBy(device)
    assert.equal(now.live, first.live, `tree ${trees}, of seed ${seed + trees - 1}, has left blocks behind`)
    if (isEarly || early === first) {
      const most = (key: keyof Held): number => Math.max(early[key], now[key])
      early = {
        live: now.live,
        reserved: most('reserved'),
        events: now.events,
        heapMiB: most('heapMiB'),
        residentMiB: most('residentMiB'),
      }
    }
    const seconds = (performance.now() - began) / 1000
    if (trees % 50 === 0)
      log(
        `${counts.launches} launches of ${trees} trees in ${seconds.toFixed(0)} s, ` +
          `heap ${now.heapMiB.toFixed(1)} MiB, resident ${now.residentMiB.toFixed(0)} MiB`,
      )
  }
  const end = await heldBy(device)
  // A later tree may be the largest one yet; without a bound, a leak of one launch's bytes would show as far
  // more.
  assert(end.reserved <= 4 * early.reserved, `reserved: ${early.reserved}, then ${end.reserved} bytes`)
  // Counts of a collection that was not made say nothing.
  if (collect !== undefined) {
    assert(end.heapMiB <= early.heapMiB + 16, `heap: ${early.heapMiB}, then ${end.heapMiB} MiB`)
    assert(end.events <= 4 * early.events + 1000, `events: ${early.events}, then ${end.events} were made`)
  }
  const pair = (key: 'reserved' | 'events' | 'heapMiB' | 'residentMiB') => ({
    early: Math.round(early[key] * 10) / 10,
    end: Math.round(end[key] * 10) / 10,
  })
  return {
    ...{ device: name, trees },
    ...counts,
    seconds: Math.round((performance.now() - began) / 1000),
    ...{
      reserved: pair('reserved'),
      events: pair('events'),
      heapMiB: pair('heapMiB'),
      residentMiB: pair('residentMiB'),
    },
  }
}

if (process.argv[1] === import.meta.filename) {
  const { values } = parseArgs({
    options: {
      launches: { type: 'string', default: '1000000' },
      seed: { type: 'string', default: '1' },
      device: { type: 'string', default: 'host' },
    },
  })
  const log = (line: string): void => console.error(line)
  const soaked = await soak(values.device, Number(values.launches), { seed: Number(values.seed), log })
  console.log(JSON.stringify(soaked))
}
