import type { HostArray, Lease } from '../../dsl/index.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { NativeFailure } from '../addon.js'
import type { Core } from '../device/core.js'
import { type Event, eventFor } from '../device/event.js'
import { DisposedError } from '../errors.js'
import { copied } from '../values.js'
import { ArenaCopies } from './arena-copies.js'
import type { Executable } from './executable.js'
import type { Executables } from './executables.js'
import type { Admitted, Job, Stage } from './launch.js'
import * as messages from './messages.js'
import type { TreeMemory } from './readers.js'
import type { Origin, Slots } from './slots.js'

export interface QueueParts {
  readonly memory: TreeMemory
  readonly executables: Executables
  readonly slots: Slots
  /** Launches that are given to the device at once. */
  readonly inFlight: number
  /** Bytes that launches which wait may take. */
  readonly waiting: number
  readonly poison: boolean
}

/** What a launch without values takes of the heap. */
const jobBytes = 1024

const bytesOf = (feeds: ReadonlyMap<string, HostArray>, stages: readonly Stage[]): number => {
  let bytes = jobBytes
  for (const { byteLength } of feeds.values()) bytes += byteLength
  for (const { spec } of stages) bytes += spec.bytes
  return bytes
}

/** The launch that failed first, and why: a failure of the device, or of a call of it. */
export interface TreeFailure {
  readonly origin: Origin
  readonly cause: unknown
}

/**
 * Gives launches to the device, in the order in which they were judged: at once where that can be; else when
 * their executable is made, there is room for one more launch, and what comes before it has been copied.
 *
 * A launch that fails before the device has anything of it is taken back, with those that wait behind it. One
 * that fails later ends the tree.
 */
export class LaunchQueue {
  /** Nothing is launched after it. */
  failure: TreeFailure | undefined
  flying = 0
  private readonly copies: ArenaCopies
  private submitted = 0
  private readonly jobs: Job[] = []
  /** On the device, in order; and those of them that have failed, while one before them has not ended. */
  private readonly onDevice = new Set<Job>()
  private readonly failed = new Map<Job, NativeFailure>()
  private working = false
  private waiting: (() => void)[] = []
  /** Bytes that the jobs take. */
  private waitingBytes = 0

  constructor(private readonly parts: QueueParts) {
    this.copies = new ArenaCopies(parts.memory, parts.poison)
  }

  get isIdle(): boolean {
    return this.flying === 0 && this.jobs.length === 0 && !this.working
  }

  /** Throws where launches wait already, and may not take as much more. */
  checkRoom(at: Where, { step, feeds, stages }: Admitted): void {
    const { waiting } = this.parts
    if (this.jobs.length > 0 && this.waitingBytes + bytesOf(feeds, stages) > waiting)
      throw messages.queueFull(at, step.plan.name, this.jobs.length, this.waitingBytes, waiting)
  }

  /** Resolves when no launch waits for its turn, or the tree has failed. */
  async room(): Promise<void> {
    while (this.jobs.length > 0) await this.change()
  }

  /** The executable of a job that has to wait for nothing. */
  readyFor(job: Job): Executable | undefined {
    return this.working || this.jobs.length > 0 ? undefined : this.ready(job)
  }

  /** With the executable, where it was ready for the job. */
  push(job: Job, ready: Executable | undefined): void {
    if (ready !== undefined) {
      this.submitPlain(job, ready)
      return
    }
    // Until it is submitted the caller may change its arrays.
    if (job.feeds.size > 0) job.feeds = new Map([...job.feeds].map(([name, value]) => [name, copied(value)]))
    this.jobs.push(job)
    this.waitingBytes += bytesOf(job.feeds, job.stages)
    this.startReady()
  }

  /** Something has become free. */
  wake(): void {
    if (this.waiting.length > 0) for (const resolve of this.waiting.splice(0)) resolve()
    this.startReady()
  }

  /** Resolves when every launch so far has completed, or the tree has failed. */
  async drained(): Promise<void> {
    while (!this.isIdle) await this.change()
  }

  private startReady(): void {
    while (!this.working && this.jobs.length > 0) {
      const job = this.jobs[0]!
      const executable = this.ready(job)
      if (executable !== undefined) {
        this.shift()
        this.submitPlain(job, executable)
        continue
      }
      this.working = true
      void this.inTime(job).then(() => {
        this.working = false
        this.wake()
      })
    }
  }

  private ready(job: Job): Executable | undefined {
    const { executables } = this.parts
    if (this.copies.precede(job) || job.reads.length > 0 || this.failure !== undefined) return undefined
    const executable = executables.ready(job.step.node)
    return executable !== undefined && this.hasRoom(executable) ? executable : undefined
  }

  private hasRoom({ ticks }: Executable): boolean {
    return this.flying < this.parts.inFlight && ticks.fillable(ticks.next)
  }

  private submitPlain(job: Job, executable: Executable): void {
    try {
      this.submit(job, executable, this.parts.slots.takeUses(job.step.slots, job.targets))
    } catch (error) {
      this.fail(error, job)
    }
  }

  /** The first job of the queue. */
  private async inTime(job: Job): Promise<void> {
    const { executables, slots, memory } = this.parts
    const { copies } = this
    // From then on the device may have work of the launch, and the uses that it comes after are gone.
    let isBegun = false
    try {
      this.mayGoOn()
      await executables.hold(job.step.node, async executable => {
        while (!this.hasRoom(executable)) {
          await this.change()
          this.mayGoOn()
        }
        await Promise.all(job.reads)
        const staging = copies.precede(job) ? copies.take(job) : undefined
        if (staging !== undefined) await memory.sequence.whenIssued(this.submitted)
        isBegun = true
        const uses = slots.takeUses(job.step.slots, job.targets)
        this.submit(job, executable, staging === undefined ? uses : [copies.give(job, staging, uses)])
      })
      this.shift()
    } catch (error) {
      // The reason may be that a launch before it has failed: that one says so first.
      while (!isBegun && this.flying > 0 && this.failure === undefined) await this.change()
      const isOver =
        this.failure !== undefined ||
        memory.core.closed ||
        hasFailed(memory.core) ||
        error instanceof DisposedError
      if (isBegun || isOver) {
        this.shift()
        this.fail(this.failure?.cause ?? error, job)
      } else this.takeBack(error, job)
    }
  }

  private shift(): void {
    const { feeds, stages } = this.jobs.shift()!
    this.waitingBytes -= bytesOf(feeds, stages)
  }

  /** Resolves when something has become free. */
  private change(): Promise<void> {
    return new Promise(resolve => this.waiting.push(resolve))
  }

  private mayGoOn(): void {
    if (this.failure !== undefined) throw this.failure.cause
  }

  /**
   * The device has none of this launch: undoes it, and every later launch that was accepted on the assumption
   * that it would run.
   */
  private takeBack(cause: unknown, first: Job): void {
    const all = this.jobs.splice(0)
    this.waitingBytes = 0
    for (const job of [...all].reverse()) job.takeBack?.()
    const reason = this.parts.executables.reasonOf(first.step.node, cause)
    for (const job of all) job.fail(messages.notLaunched(job.origin, first.origin, reason))
  }

  private submit(job: Job, executable: Executable, uses: readonly Event[]): void {
    const { core } = this.parts.memory
    const handles = uses.length === 0 ? undefined : uses.map(use => eventFor(use, core, 'tree.launch'))
    executable.submit(job.feeds, handles, (failure, lease) => this.completed(job, failure, lease))
    for (const use of uses) use[Symbol.dispose]()
    this.flying++
    this.onDevice.add(job)
    job.submitted.resolve(++this.submitted)
  }

  // Each executable says on a thread of its own how a launch has ended. What comes after a failed launch fails
  // too, and may say so first.
  private completed(job: Job, failure: NativeFailure | null, lease: Lease<unknown> | undefined): void {
    if (failure !== null && first(this.onDevice) !== job) this.failed.set(job, failure)
    else this.ended(job, failure, lease)
    for (let next = first(this.onDevice); next !== undefined; next = first(this.onDevice)) {
      const late = this.failed.get(next)
      if (late === undefined) break
      this.failed.delete(next)
      this.ended(next, late, undefined)
    }
  }

  private ended(job: Job, failure: NativeFailure | null, lease: Lease<unknown> | undefined): void {
    this.flying--
    this.onDevice.delete(job)
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

  private fail(cause: unknown, job: Job): void {
    this.failure ??= { origin: job.origin, cause }
    job.fail(messages.launchFailed(job.origin, this.failure))
  }
}

const first = <A>(values: ReadonlySet<A>): A | undefined => {
  for (const value of values) return value
  return undefined
}

/** Whether the device answers nothing any more, by whomever that was found. */
const hasFailed = ({ native }: Core): boolean => {
  try {
    native.memory()
    return false
  } catch {
    return true
  }
}
