import type { HostArray, Lease } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeFailure, NativeProgram, NativeStats, NativeTrace } from '../addon.js'
import type { SessionDevice } from '../device/devices.js'
import { type KeptBlock, released, whenReleased } from '../device/released.js'
import type { RunError } from '../errors.js'
import { fill, type Mismatch } from '../values.js'
import type { Keeper } from './kept.js'
import { type Leased, type LeaseOwner, makeLease } from './lease.js'
import { Loans } from './loans.js'
import { sessionFailed, tickFailed, warnCloseFailed, warnLostLease, warnUnfinishedTick } from './messages.js'
import { inputViews, type Port, portsOf, viewsOf, type Written } from './ports.js'
import type { Run, RunHost } from './run.js'
import { Recent } from './stats.js'
import { Ticks } from './ticks.js'

export interface EngineParts {
  readonly plan: Plan
  readonly devices: readonly Pick<SessionDevice, 'close' | 'core'>[]
  readonly program: NativeProgram
  /** Ticks between a feed and the return of their lease: at most the plan's. */
  readonly inFlight: number
  readonly detach: (buffer: ArrayBuffer) => void
  readonly written?: Written
}

/**
 * The state behind a session: the native program, its slots, and the run that each tick belongs to.
 * Invariant: a feed accesses a slot's memory only while the slot is free in `ticks`, the device only while it
 * is in flight, a reader only while it is leased.
 */
export class Engine implements RunHost, LeaseOwner, Keeper {
  readonly ticks: Ticks
  readonly inputs: readonly Port[]
  readonly outputs: readonly Port[]
  readonly enqueueUs = new Recent()
  readonly fillUs = new Recent()
  readonly tickMs = new Recent()
  readonly drops: Map<string, number>
  /** Ticks whose leases were given back, and whose slots graphs keep. */
  readonly kept = new Set<number>()
  /**
   * Called with each value that was fed, as it lies in its slot: `braid run --check` compares with
   * `interpret`.
   */
  onFed: ((input: string, tick: number, value: HostArray) => void) | undefined
  /** The run that has been started and has not ended. */
  run: Run | undefined
  failure: RunError | undefined
  #views: readonly (readonly (readonly HostArray[])[])[]
  readonly #owners: (Run | undefined)[]
  readonly #submittedAt: Float64Array
  #completedAt = 0
  #filling = 0
  #stopping: Promise<void> | undefined
  #onDrained: (() => void)[] = []
  /** Bodies of `between` that have not ended, and the end of the last one. */
  #pending = 0
  #lastBetween: Promise<unknown> = Promise.resolve()
  readonly #loans = new Loans()
  #last: { stats: NativeStats; trace: NativeTrace } | undefined

  constructor(private readonly parts: EngineParts) {
    const { plan, program, inFlight, written } = parts
    this.ticks = new Ticks(inFlight)
    this.inputs = portsOf(plan, 'input', written)
    this.outputs = portsOf(plan, 'output', written)
    this.drops = new Map(this.inputs.map(({ spec }) => [spec.name, 0]))
    this.#views = inputViews(program, this.inputs, plan.inFlight)
    this.#owners = Array.from({ length: inFlight })
    this.#submittedAt = new Float64Array(inFlight)
    program.onTick((tick, failure) => this.#completed(tick, failure))
  }

  fill(input: number, tick: number, part: number, value: unknown): Mismatch | undefined {
    const began = performance.now()
    const port = this.inputs[input]!
    const place = this.#views[this.ticks.slot(tick)]![input]![part]!
    const mismatch = fill(place, value, port.spec)
    this.#filling += performance.now() - began
    if (!mismatch) this.onFed?.(port.spec.name, tick, place)
    return mismatch
  }

  submit(): void {
    const began = performance.now()
    const slot = this.ticks.next % this.ticks.size
    this.#owners[slot] = this.run
    this.#submittedAt[slot] = began
    try {
      this.parts.program.submit(this.ticks.next, this.ticks.slot(this.ticks.next))
    } catch (error) {
      this.#fail(error as NativeFailure)
      throw this.failure
    }
    this.ticks.submit()
    this.enqueueUs.add((performance.now() - began) * 1000)
    this.fillUs.add(this.#filling * 1000)
    this.#filling = 0
  }

  dropped(input: string): void {
    this.drops.set(input, (this.drops.get(input) ?? 0) + 1)
  }

  unfinished(input: string, had: number, wanted: number): void {
    this.drops.set(input, (this.drops.get(input) ?? 0) + had)
    warnUnfinishedTick(input, had, wanted)
  }

  ended(run: Run): void {
    if (this.run === run) this.run = undefined
  }

  freed(then: () => void): void {
    this.close().then(then, then)
  }

  giveBack(tick: number, lost: boolean): void {
    let lent: readonly KeptBlock[] = []
    try {
      lent = this.#loans.end(tick)
    } finally {
      if (lost && !this.#stopping) warnLostLease(tick, this.run?.at)
      const over = (): boolean => this.#stopping !== undefined
      // A graph that keeps an output keeps its slot.
      this.kept.add(tick)
      whenReleased(lent, over, () => {
        this.kept.delete(tick)
        this.ticks.giveBack(tick)
        this.run?.advance()
      })
    }
  }

  stats(): NativeStats {
    return this.#last?.stats ?? this.parts.program.stats()
  }

  trace(): NativeTrace {
    return this.#last?.trace ?? this.parts.program.trace()
  }

  get held(): boolean {
    return this.#pending > 0
  }

  async between<A>(body: (next: number) => Promise<A>): Promise<A> {
    this.#pending++
    const turn = this.#lastBetween
      .then(() => this.#drained())
      .then(() => {
        if (this.failure) throw sessionFailed(this.parts.plan.name, this.parts.plan, this.failure)
        return body(this.ticks.next)
      })
    this.#lastBetween = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      this.#pending--
      this.run?.advance()
    }
  }

  read(buffer: number): Promise<ArrayBuffer> {
    return this.parts.program.read(buffer)
  }

  load(buffer: number, bytes: Uint8Array): Promise<void> {
    return this.parts.program.load(buffer, bytes)
  }

  view(buffer: number): ArrayBuffer {
    return this.parts.program.view(buffer, 0)
  }

  broken(failure: RunError): void {
    this.failure ??= failure
    this.run?.abort(failure)
    void this.close()
  }

  /** Drains, then frees. Idempotent, never rejects: a failure while freeing becomes a warning. */
  close(): Promise<void> {
    this.#stopping ??= this.#drained().then(async () => {
      const { program, devices } = this.parts
      try {
        await this.#lastBetween
        this.#last = { stats: program.stats(), trace: program.trace() }
        this.#views = []
        this.#loans.close()
        await program.close()
        released()
        for (const device of devices) await device.close()
      } catch (error) {
        warnCloseFailed(error)
      }
    })
    return this.#stopping
  }

  #drained(): Promise<void> {
    return this.ticks.flying === 0 ? Promise.resolve() : new Promise(resolve => this.#onDrained.push(resolve))
  }

  #fail(failure: NativeFailure): void {
    this.failure ??= tickFailed(failure, this.parts.plan)
  }

  #completed(tick: number, failure: NativeFailure | null): void {
    const slot = tick % this.ticks.size
    const run = this.#owners[slot]
    this.#owners[slot] = undefined
    if (failure) this.#fail(failure)
    else {
      const now = performance.now()
      this.tickMs.add(now - Math.max(this.#completedAt, this.#submittedAt[slot]!))
      this.#completedAt = now
    }
    const leased = !failure && run !== undefined && run.listening
    const slotOfTick = this.ticks.slot(tick)
    this.ticks.complete(tick, leased)
    run?.completed(failure ? this.failure : undefined, leased ? this.#lease(tick, slotOfTick) : undefined)
    // A run that starts while an unsubscribed one drains waits for these slots.
    if (this.run !== run) this.run?.advance()
    if (this.ticks.flying > 0) return
    for (const resolve of this.#onDrained.splice(0)) resolve()
    if (this.failure) void this.close()
  }

  #lease(tick: number, slot: number): Lease<unknown> {
    const { plan, program, devices } = this.parts
    const arrays = viewsOf(
      program,
      this.outputs.filter(({ device }) => device === undefined),
      slot,
    )[Symbol.iterator]()
    const leasedOf = ({ spec, root, device }: Port): Leased => {
      if (device === undefined) return arrays.next().value!
      const [handle, address, size] = program.block(root, slot)
      const of = `output ${spec.name} of session \`${plan.name}\``
      return this.#loans.lend(tick, devices[device]!.core(), of, { handle, address, size, bytes: spec.bytes })
    }
    const values = this.outputs.map(port => [port.spec.name, leasedOf(port)] as const)
    return makeLease(tick, values, this, this.parts.detach)
  }
}
