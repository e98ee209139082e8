// No mark makes a block free earlier. Random work and marks on several lanes are done again without each one of
// the marks; then the pieces of work end one by one, and after each it is tried whether the memory is given out
// again.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AllocatorPolicy, Block, Device, Lane } from '../../../runtime/index.js'
import { copyUnseen, hold, KiB, openOn } from '../../fixtures/allocator.js'
import { runs } from '../../fixtures/runs.js'

const lanes = 2
type Step = {
  readonly kind: 'work' | 'event' | 'recordUse' | 'recordStream' | 'keepUntil'
  readonly lane: number
}

const step = fc.record({
  kind: fc.constantFrom('work', 'work', 'event', 'recordUse', 'recordStream', 'keepUntil'),
  lane: fc.nat(lanes - 1),
}) as fc.Arbitrary<Step>

interface Case {
  readonly steps: readonly Step[]
  readonly order: readonly number[]
  readonly pinned: boolean
  readonly policy: AllocatorPolicy
}
const cases: fc.Arbitrary<Case> = fc.record({
  steps: fc.array(step, { minLength: 1, maxLength: 8 }),
  order: fc.array(fc.nat(), { minLength: 12, maxLength: 12 }),
  pinned: fc.boolean(),
  policy: fc.constantFrom('never-wait', 'poll', 'order-then-grow'),
})

/** After how many pieces of work have ended the block's memory is given out again. */
const reusedAfter = async (steps: readonly Step[], { order, pinned, policy }: Case): Promise<number> => {
  const device: Device = await openOn('host', { allocator: { policy } })
  const all: readonly Lane[] = Array.from({ length: lanes }, () => device.lane())
  const allocate = (): Block => (pinned ? device.pinned(4 * KiB, all[0]) : all[0]!.malloc(4 * KiB))
  const block = allocate()
  const { address } = block
  const scratch = all.map(lane => lane.malloc(2 * KiB))
  const events = all.map(lane => lane.record())
  const pieces: { readonly lane: number; readonly end: () => Promise<void> }[] = []
  const work = (lane: number): void => {
    const gate = hold(device, all[lane]!)
    copyUnseen(all[lane]!, scratch[lane]!.at(0, KiB), scratch[lane]!.at(KiB, KiB))
    const ended = all[lane]!.record({ timed: true })
    pieces.push({
      lane,
      end: async () => {
        gate.open()
        await ended.synchronize()
      },
    })
  }
  for (const each of steps) {
    const lane = all[each.lane]!
    if (each.kind === 'work') work(each.lane)
    else if (each.kind === 'event') events[each.lane] = lane.record()
    else if (each.kind === 'keepUntil') block.keepUntil(events[each.lane]!)
    else block[each.kind](lane)
  }
  block.free()
  let ended = 0
  for (; allocate().address !== address; ended++) {
    // In an order that keeps that of each lane.
    const first = pieces.filter(({ lane }, i) => pieces.findIndex(other => other.lane === lane) === i)
    if (first.length === 0) throw new Error('the memory is not given out again')
    const next = first[order[ended]! % first.length]!
    pieces.splice(pieces.indexOf(next), 1)
    await next.end()
  }
  await device.close()
  return ended
}

describe('marks', () => {
  it('never make memory free earlier', async () => {
    await fc.assert(
      fc.asyncProperty(cases, async each => {
        const { steps } = each
        const all = await reusedAfter(steps, each)
        for (const [omitted, { kind }] of steps.entries()) {
          if (kind === 'work' || kind === 'event') continue
          const less = await reusedAfter(
            steps.filter((_, i) => i !== omitted),
            each,
          )
          expect(all, `${kind}, step ${omitted}`).toBeGreaterThanOrEqual(less)
        }
      }),
      { numRuns: runs(60) },
    )
  })
})
