import type { HostArray, Lease } from '../../dsl/index.js'
import { without } from '../../dsl/internal.js'
import type { NativeFailure } from '../addon.js'
import type { Block, Span } from '../device/block.js'
import { type Event, eventFor } from '../device/event.js'
import { arrayOver, fill } from '../values.js'
import type { Executable } from './executable.js'
import type { Executables } from './executables.js'
import type { Job } from './launch.js'
import * as messages from './messages.js'
import { orderAfterLaunches, type TreeMemory } from './readers.js'
import type { Slots } from './slots.js'

// Two NaNs of bf16 or f16, and one NaN of f32.
const garbage = 0xffc0ffc0

export interface QueueParts {
  readonly memory: TreeMemory
  readonly executables: Executables
  readonly slots: Slots
  /** Launches that are given to the device at once. */
  readonly inFlight: number
  readonly poison: boolean
}

/**
 * Gives launches to the device, in the order in which they were judged: at once where that can be; else when
 * their executable is made, there is room for one more launch, and what comes before it has been copied.
 */
export class LaunchQueue {
  /** Of the first launch that failed; nothing is launched after it. */
  failure: unknown
  flying = 0
  private submitted = 0
  private readonly jobs: Job[] = []
  private working = false
  private waiting: (() => void)[] = []

  constructor(private readonly parts: QueueParts) {}

  get isIdle(): boolean {
    return this.flying === 0 && this.jobs.length === 0 && !this.working
  }

  push(job: Job): void {
    if (!this.working && this.jobs.length === 0 && this.atOnce(job)) return
    // Until it is submitted the caller may change its arrays.
    if (job.feeds.size > 0)
      job.feeds = new Map([...job.feeds].map(([name, value]) => [name, value.slice() as HostArray]))
    this.jobs.push(job)
    this.startReady()
  }

  /** Something has become free. */
  wake(): void {
    if (this.waiting.length > 0) for (const resolve of this.waiting.splice(0)) resolve()
    this.startReady()
  }

  /** Resolves when every launch so far has completed, or the tree has failed. */
  async drained(): Promise<void> {
    while (!this.isIdle) await new Promise<void>(resolve => this.waiting.push(resolve))
  }

  private startReady(): void {
    while (!this.working && this.jobs.length > 0) {
      const job = this.jobs[0]!
      if (this.atOnce(job)) {
        this.jobs.shift()
        continue
      }
      this.working = true
      void this.inTime(job).then(() => {
        this.jobs.shift()
        this.working = false
        this.wake()
      })
    }
  }

  /** Submits a job that has to wait for nothing. */
  private atOnce(job: Job): boolean {
    const { executables, slots, poison } = this.parts
    if (!job.isPlain || job.reads.length > 0 || poison || this.failure !== undefined) return false
    const executable = executables.ready(job.step.node)
    if (executable === undefined || !this.hasRoom(executable)) return false
    try {
      this.submit(job, executable, slots.takeUses(job.step.slots, job.targets))
    } catch (error) {
      this.fail(error, job)
    }
    return true
  }

  private hasRoom({ ticks }: Executable): boolean {
    return this.flying < this.parts.inFlight && ticks.fillable(ticks.next)
  }

  private async inTime(job: Job): Promise<void> {
    const { executables, slots, poison } = this.parts
    try {
      if (this.failure !== undefined) throw this.failure
      await executables.hold(job.step.node, async executable => {
        while (!this.hasRoom(executable)) {
          await new Promise<void>(resolve => this.waiting.push(resolve))
          if (this.failure !== undefined) throw this.failure
        }
        await Promise.all(job.reads)
        const uses = slots.takeUses(job.step.slots, job.targets)
        this.submit(job, executable, poison || !job.isPlain ? await this.before(job, uses) : uses)
      })
    } catch (error) {
      this.fail(error, job)
    }
  }

  /** What is copied before a launch, on the tree's lane. */
  private async before(job: Job, uses: readonly Event[]): Promise<readonly Event[]> {
    const { memory } = this.parts
    const { lane, device, sequence } = memory
    await sequence.whenIssued(this.submitted)
    orderAfterLaunches(memory, lane)
    for (const use of uses) {
      lane.wait(use)
      use[Symbol.dispose]()
    }
    const kept = this.move(job)
    for (const { to, spec, value } of job.stages) {
      const block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: staged value' })
      kept.push(block)
      fill(arrayOver(block.view(), 0, spec), value, spec)
      lane.copy(this.place(to, spec.bytes), block, spec.bytes)
    }
    if (this.parts.poison) this.poison(job)
    for (const block of kept) block.free()
    return [lane.record()]
  }

  private place(at: number, bytes: number): Span {
    return this.parts.memory.arena!.at(at, bytes)
  }

  /**
   * Copies within the arena; by way of other blocks where one copy would write over what another one reads.
   */
  private move({ copies }: Job): Block[] {
    const { lane, device } = this.parts.memory
    const clash = copies.some(a => copies.some(b => a.to < b.from + b.bytes && b.from < a.to + a.bytes))
    const kept: Block[] = []
    for (const { from, to, bytes } of copies)
      if (!clash) lane.copy(this.place(to, bytes), this.place(from, bytes))
      else {
        const block = device.malloc(Math.max(1, bytes), lane, { site: 'plan tree: moved value' })
        kept.push(block)
        lane.copy(block, this.place(from, bytes))
      }
    if (clash) for (const [i, { to, bytes }] of copies.entries()) lane.copy(this.place(to, bytes), kept[i]!)
    return kept
  }

  /** Garbage wherever the node writes first: whoever still relied on these bytes would read it. */
  private poison({ step, stages }: Job): void {
    const { lane, arena } = this.parts.memory
    // In whole words.
    const placed = stages.map(({ to, spec }) => ({ from: to, to: to + 4 * Math.ceil(spec.bytes / 4) }))
    for (const { from, to } of without(step.layout.clobbers, placed))
      lane.fill32(this.place(from, Math.min(to, arena!.bytes) - from), garbage)
  }

  private submit(job: Job, executable: Executable, uses: readonly Event[]): void {
    const { core } = this.parts.memory
    const handles = uses.length === 0 ? undefined : uses.map(use => eventFor(use, core, 'tree.launch'))
    executable.submit(job.feeds, handles, (failure, lease) => this.completed(job, failure, lease))
    for (const use of uses) use[Symbol.dispose]()
    this.flying++
    job.submitted.resolve(++this.submitted)
  }

  private completed(job: Job, failure: NativeFailure | null, lease: Lease<unknown> | undefined): void {
    this.flying--
    if (failure) this.fail(failure, job)
    else {
      const outputs = Object.entries((lease ?? {}) as Readonly<Record<string, HostArray>>)
      const values = outputs.map(([name, value]) => [name, value.slice() as HostArray] as const)
      lease?.[Symbol.dispose]()
      job.values.resolve(Object.fromEntries(values))
    }
    this.parts.executables.freed()
    this.wake()
  }

  private fail(error: unknown, job: Job): void {
    this.failure ??= error
    const failed = messages.treeFailed(job.origin.plan, this.failure)
    job.submitted.reject(failed)
    job.values.reject(failed)
  }
}
