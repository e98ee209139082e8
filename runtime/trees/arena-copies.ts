import { without } from '../../dsl/internal.js'
import type { Block, Span } from '../device/block.js'
import { quietly } from '../device/ending.js'
import type { Event } from '../device/event.js'
import { arrayOver, fill } from '../values.js'
import type { Job } from './launch.js'
import { orderAfterLaunches, type TreeMemory } from './readers.js'

// Two NaNs of bf16 or f16, and one NaN of f32.
const garbage = 0xffc0ffc0

/** Memory that the copies before a launch go by. */
export interface Staging {
  /** Pinned, with the values that come from the host. */
  readonly staged: readonly Block[]
  /** By copy within the arena; empty where none writes over what another one reads. */
  readonly moved: readonly Block[]
}

/** What is copied before a launch, on the tree's lane. */
export class ArenaCopies {
  constructor(
    private readonly memory: TreeMemory,
    private readonly poison: boolean,
  ) {}

  /** Whether something comes before the launch. */
  precede(job: Job): boolean {
    return this.poison || !job.isPlain
  }

  /** Takes all the memory that is needed, before anything is given to the device; or throws, and has none. */
  take({ stages, copies }: Job): Staging {
    const { lane, device } = this.memory
    const taken: Block[] = []
    try {
      const staged = stages.map(({ spec, value }) => {
        const block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: staged value' })
        taken.push(block)
        fill(arrayOver(block.view(), 0, spec), value, spec)
        return block
      })
      const clash = copies.some(a => copies.some(b => a.to < b.from + b.bytes && b.from < a.to + a.bytes))
      const moved = (clash ? copies : []).map(({ bytes }) => {
        const block = device.malloc(Math.max(1, bytes), lane, { site: 'plan tree: moved value' })
        taken.push(block)
        return block
      })
      return { staged, moved }
    } catch (error) {
      for (const block of taken) quietly(() => block.free())
      throw error
    }
  }

  /** Gives the lane the copies, after the launches so far and the uses. The launch comes after the event. */
  give(job: Job, { staged, moved }: Staging, uses: readonly Event[]): Event {
    const { lane } = this.memory
    orderAfterLaunches(this.memory, lane)
    for (const use of uses) {
      lane.wait(use)
      use[Symbol.dispose]()
    }
    this.move(job, moved)
    for (const [i, { to, spec }] of job.stages.entries())
      lane.copy(this.place(to, spec.bytes), staged[i]!, spec.bytes)
    if (this.poison) this.fillWithGarbage(job)
    for (const block of [...moved, ...staged]) block.free()
    return lane.record()
  }

  private place(at: number, bytes: number): Span {
    return this.memory.arena!.at(at, bytes)
  }

  /** Copies within the arena; by way of other blocks where there are any. */
  private move({ copies }: Job, moved: readonly Block[]): void {
    const { lane } = this.memory
    for (const [i, { from, to, bytes }] of copies.entries())
      lane.copy(moved[i] ?? this.place(to, bytes), this.place(from, bytes))
    for (const [i, block] of moved.entries()) {
      const { to, bytes } = copies[i]!
      lane.copy(this.place(to, bytes), block)
    }
  }

  /**
   * Wherever the node writes first, except the values that were put there for it: whoever still relied on
   * these bytes would read it.
   */
  private fillWithGarbage({ step, targets }: Job): void {
    const { lane, arena } = this.memory
    // In whole words.
    const placed = targets.map(({ from, to }) => ({ from, to: from + 4 * Math.ceil((to - from) / 4) }))
    for (const { from, to } of without(step.layout.clobbers, placed))
      lane.fill32(this.place(from, Math.min(to, arena!.bytes) - from), garbage)
  }
}
