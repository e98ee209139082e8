// The figures of what is split and what is oversize, against what the owners of memory know themselves: which
// blocks are alive, and where the segments lie.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AllocatorPolicy, Block, Device } from '../../../runtime/index.js'
import { deviceOf, KiB, MiB } from '../../fixtures/allocator.js'
import { runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

const maxSplit = 24 * MiB

/** As PyTorch counts: the free pieces of segments that have a live block, neighbours as one piece. */
const figuresOf = (device: Device, live: readonly Block[]) => {
  let [pieces, bytes] = [0, 0]
  for (const { address, totalSize: size } of device.snapshot().segments) {
    const inside = live
      .filter(block => block.address >= address && block.address < address + size)
      .sort((a, b) => a.address - b.address)
    if (inside.length === 0) continue
    let end = address
    for (const at of [...inside.map(block => block.address), address + size]) {
      if (at > end) pieces++
      bytes += at - end
      end = at + (inside.find(block => block.address === at)?.size ?? 0)
    }
  }
  return [pieces, bytes]
}

const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ bytes: fc.constantFrom(512, 3 * KiB, 700 * KiB, 2 * MiB, 9 * MiB, 26 * MiB) }),
  },
  { weight: 2, arbitrary: fc.record({ free: fc.nat() }) },
)

describe.each(present)('on %s', name => {
  it('split pieces and oversize blocks are those of the live blocks and their segments', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 24 }),
        fc.constantFrom<AllocatorPolicy>('order-then-grow', 'order-then-wait', 'never-wait', 'poll'),
        async (steps, policy) => {
          const device = await deviceOf(name, { policy, expandable: false, maxSplit })
          const live: Block[] = []
          const peaks = { split: 0, oversize: 0 }
          for (const each of [...steps, ...steps.map(() => ({ free: 0 }))]) {
            if ('bytes' in each) live.push(device.malloc(each.bytes))
            else for (const block of live.splice(each.free % Math.max(1, live.length), 1)) block.free()
            const stats = device.stats()
            const [pieces, bytes] = figuresOf(device, live)
            const oversize = live.filter(({ size }) => size >= maxSplit).length
            const segments = device
              .snapshot()
              .segments.filter(({ totalSize }) => totalSize >= maxSplit).length
            peaks.split = Math.max(peaks.split, bytes!)
            peaks.oversize = Math.max(peaks.oversize, oversize)
            expect({
              pieces: stats['inactive_split.all.current'],
              bytes: stats['inactive_split_bytes.all.current'],
              bySize:
                stats['inactive_split_bytes.small_pool.current']! +
                stats['inactive_split_bytes.large_pool.current']!,
              peak: stats['inactive_split_bytes.all.peak'],
              oversize: stats['oversize_allocations.current'],
              segments: stats['oversize_segments.current'],
              most: stats['oversize_allocations.peak'],
            }).toEqual({
              pieces,
              bytes,
              bySize: bytes,
              peak: peaks.split,
              oversize,
              segments,
              most: peaks.oversize,
            })
          }
          const stats = device.stats()
          for (const figure of [
            'inactive_split.all',
            'inactive_split_bytes.all',
            'oversize_allocations',
            'oversize_segments',
          ])
            expect(stats[`${figure}.allocated`]! - stats[`${figure}.freed`]!).toBe(stats[`${figure}.current`])
          device.resetPeaks()
          device.resetAccumulated()
          const reset = device.stats()
          expect(reset['oversize_allocations.peak']).toBe(reset['oversize_allocations.current'])
          expect(reset['inactive_split_bytes.all.peak']).toBe(reset['inactive_split_bytes.all.current'])
          expect(reset['oversize_allocations.allocated']).toBe(0)
          await device.close()
        },
      ),
      { numRuns: runs(20) },
    )
  })
})
