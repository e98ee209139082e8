// The allocator against a model, by random commands over several lanes: live blocks never overlap, the
// figures agree after every command, every reader sees the words of its block however late it runs, and at
// the end all memory goes back.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AllocatorPolicy, Block, Device, Lane, MemPool } from '../../../runtime/index.js'
import { copyUnseen, KiB, MiB, openOn } from '../../fixtures/allocator.js'
import { often, runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

/** One owner of memory: its block, whose every word is `word`. */
interface Owner {
  readonly block: Block
  readonly home: number
  readonly word: number
}

interface Model {
  readonly owners: Owner[]
  words: number
  /** By index in `seen`, the word that must stand there at the end. */
  readonly expected: number[]
}

interface Real {
  readonly device: Device
  readonly lanes: readonly Lane[]
  readonly pools: readonly (MemPool | undefined)[]
  /** By lane, a block that it fills before it reads, so that it reads late. */
  readonly scratch: readonly Block[]
  /** Where readers put the words that they read. */
  readonly seen: Block
}

const places = 4096
type Marking = 'recordUse' | 'recordStream' | 'keepUntil'

const balanced = ({ owners }: Model, { device, seen, scratch }: Real): void => {
  const all = [...owners.map(({ block }) => block), ...scratch]
  const spans = all.map(({ address, size }) => [address, address + size] as const).sort((a, b) => a[0] - b[0])
  for (let i = 1; i < spans.length; i++) expect(spans[i]![0]).toBeGreaterThanOrEqual(spans[i - 1]![1])
  const stats = device.stats()
  const live = all.reduce((sum, { size }) => sum + size, 0)
  expect(stats['allocation.all.current']).toBe(all.length)
  expect(stats['allocated_bytes.all.current']).toBe(live)
  expect(stats['active_bytes.all.current']).toBeGreaterThanOrEqual(live)
  expect(stats['reserved_bytes.all.current']).toBeGreaterThanOrEqual(stats['active_bytes.all.current']!)
  expect(seen.disposed).toBe(false)
}

type Command = fc.AsyncCommand<Model, Real>

const command = (name: string, run: (model: Model, real: Real) => void | Promise<void>): Command => ({
  check: () => true,
  run: async (model, real) => {
    await run(model, real)
    balanced(model, real)
  },
  toString: () => name,
})

const chosen = (owners: readonly Owner[], at: number): Owner | undefined =>
  owners[at % Math.max(1, owners.length)]

const allocate = (bytes: number, on: number, pool: number) =>
  command(`allocate(${bytes}, ${on}, pool ${pool})`, (model, { lanes, pools }) => {
    const home = on % lanes.length
    const from = pools[pool % pools.length]
    const block = lanes[home]!.malloc(bytes, from === undefined ? {} : { pool: from })
    const word = ++model.words
    lanes[home]!.fill32(block, word)
    model.owners.push({ block, home, word })
  })

/**
 * A lane reads the first and the last word, ordered after the owner. The use is marked in one of the three
 * ways.
 */
const read = (at: number, on: number, marking: Marking) =>
  command(`${marking}(${at}, ${on})`, (model, { lanes, seen, scratch }) => {
    const owner = chosen(model.owners, at)
    if (owner === undefined || model.expected.length + 2 > places) return
    const reader = lanes[on % lanes.length]!
    const home = lanes[owner.home]!
    using written = home.record()
    reader.wait(written)
    reader.fill32(scratch[on % lanes.length]!, 0)
    for (const offset of [0, owner.block.bytes - 4]) {
      copyUnseen(reader, seen.at(4 * model.expected.length, 4), owner.block.at(offset, 4))
      model.expected.push(owner.word)
    }
    if (marking === 'keepUntil') {
      using read = reader.record()
      owner.block.keepUntil(read)
    } else owner.block[marking](reader)
  })

const free = (at: number) =>
  command(`free(${at})`, ({ owners }) => {
    const owner = chosen(owners, at)
    if (owner === undefined) return
    owners.splice(owners.indexOf(owner), 1)
    owner.block.free()
  })

const order = (before: number, after: number) =>
  command(`order(${before}, ${after})`, (_, { lanes }) => {
    using event = lanes[before % lanes.length]!.record()
    lanes[after % lanes.length]!.wait(event)
  })

const synchronize = (on: number) =>
  command(`synchronize(${on})`, (_, { lanes }) => lanes[on % lanes.length]!.synchronize())

const empty = command('emptyCache', (_, { device }) => device.emptyCache())

const number = fc.nat(64)
const bytes = fc.oneof(
  fc.integer({ min: 1, max: 64 }).map(n => n * 4),
  fc.constantFrom(KiB, 64 * KiB, MiB, 3 * MiB),
  fc.integer({ min: 1, max: 3 * 256 * KiB }).map(n => 4 * n),
)
const commands = fc.commands(
  [
    fc.tuple(bytes, number, number).map(([size, on, pool]) => allocate(size, on, pool)),
    fc.tuple(bytes, number, number).map(([size, on, pool]) => allocate(size, on, pool)),
    fc
      .tuple(number, number, fc.constantFrom<Marking>('recordUse', 'recordUse', 'recordStream', 'keepUntil'))
      .map(([at, on, marking]) => read(at, on, marking)),
    number.map(free),
    number.map(free),
    fc.tuple(number, number).map(([before, after]) => order(before, after)),
    number.map(synchronize),
    fc.constant(empty),
  ],
  { maxCommands: 300, size: 'max' },
)

const policies: readonly AllocatorPolicy[] = ['order-then-grow', 'order-then-wait', 'never-wait', 'poll']

describe.each(present)('the allocator on %s, by random commands', name => {
  const lateBytes = (name === 'host' ? 4 : 64) * MiB
  it.each(policies)('keeps its laws under %s', { timeout: 120_000 }, async policy => {
    let ran = 0
    await fc.assert(
      fc.asyncProperty(
        commands,
        fc.boolean(),
        fc.boolean(),
        fc.nat(1e6),
        async (steps, expandable, tight, jitter) => {
          const limit = tight ? { limit: 96 * MiB + lateBytes * 4 } : {}
          await using device = await openOn(name, {
            allocator: { policy, expandable, ...limit },
            // A reader's fill takes a tenth of a millisecond: by then a next owner that comes too
            // early has written.
            host: { jitter: jitter + 1, jitterMicroseconds: 40, deviceRate: 4 * MiB * 10_000 },
          })
          const lanes = [device.defaultLane, device.lane(), device.lane(), device.lane()]
          const scratch = lanes.map(lane => lane.malloc(lateBytes))
          const real: Real = {
            scratch,
            device,
            lanes,
            pools: [undefined, undefined, device.pool()],
            seen: device.pinned(4 * places),
          }
          const model: Model = { owners: [], words: 0, expected: [] }
          try {
            await fc.asyncModelRun(() => ({ model, real }), steps)
          } catch (error) {
            // Under a limit an allocation may fail; everything before it must still hold.
            if (!tight || (error as { code?: string }).code !== 'CUDA_ERROR_OUT_OF_MEMORY') throw error
          }
          ran += model.words
          for (const lane of lanes) await lane.synchronize()
          expect([...new Uint32Array(real.seen.view()).subarray(0, model.expected.length)]).toEqual(
            model.expected,
          )
          for (const block of [...model.owners.map(({ block }) => block), ...scratch]) block.free()
          real.pools[2]!.close()
          await device.emptyCache()
          expect(device.stats()['reserved_bytes.all.current']).toBe(0)
          expect(device.stats()['active_bytes.all.current']).toBe(0)
        },
      ),
      { numRuns: runs(20) },
    )
    expect(ran).toBeGreaterThan(often(100))
  })
})
