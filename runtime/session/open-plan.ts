import type { HostArray, Lease } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeFailure, NativeProgram } from '../addon.js'
import type { Block } from '../device/block.js'
import type { SessionDevice } from '../device/devices.js'
import type { Lane } from '../device/lane.js'
import { isKept, type KeptBlock, released, whenReleased } from '../device/released.js'
import { fill, type Mismatch } from '../values.js'
import { type LeaseOwner, makeLease, watchLease } from './lease.js'
import { Loans, laneOfLoans } from './loans.js'
import { inputViews, type Port, portsOf, viewsOf, type Written } from './ports.js'
import type { Run } from './run.js'
import type { Sharing } from './sharing.js'
import { Ticks } from './ticks.js'

export interface OpenPlanParts {
  readonly plan: Plan
  readonly program: NativeProgram
  readonly devices: readonly Pick<SessionDevice, 'core'>[]
  /** Ticks between a feed and the return of their lease: at most the plan's. */
  readonly inFlight: number
  readonly written?: Written
  /** The buffers of parameters that lie in memory that other sessions share. */
  readonly shared: ReadonlySet<number>
  /** The shared parameters that it was opened with. */
  readonly sharing?: Sharing
  /** The names of the inputs, in the order in which a run numbers them. */
  readonly inputs?: readonly string[]
}

/** What an open plan needs of its session. */
export interface OpenPlanHost {
  readonly over: boolean
  /** A tick has ended, in order. */
  completed(of: OpenPlan, tick: number, failure: NativeFailure | null): void
  /** A lease was given back, of this plan. */
  returned(of: OpenPlan): void
  lost(tick: number): void
}

/**
 * A plan as a session has it open: its program, and its slots. The session's ticks have one numbering, of
 * which this plan has those from `first` on; the program counts its own from 0.
 *
 * Invariant: a feed accesses a slot's memory only while the slot is free in `ticks`, the device only while it
 * is in flight, a reader only while it is leased.
 */
export class OpenPlan implements LeaseOwner {
  readonly plan: Plan
  readonly program: NativeProgram
  readonly shared: ReadonlySet<number>
  readonly sharing: Sharing | undefined
  readonly inputs: readonly Port[]
  readonly outputs: readonly Port[]
  /** Ticks whose leases were given back, and whose slots graphs keep. */
  readonly kept = new Set<number>()
  /** The run that a tick in flight belongs to, and when the tick was submitted: by tick modulo `inFlight`. */
  readonly #owners: (Run | undefined)[]
  readonly #submittedAt: Float64Array
  readonly #loans = new Loans()
  /** The outputs that are arrays of the host; by output on a device, what stands for the session's lanes. */
  readonly #arrays: (slot: number) => readonly HostArray[]
  readonly #lanes: (Lane | undefined)[]
  readonly #detach = (view: ArrayBuffer): void => this.program.detach(view)
  #ticks: Ticks
  #first = 0
  #host!: OpenPlanHost
  #views: readonly (readonly (readonly HostArray[])[])[]
  #closing: Promise<void> | undefined

  constructor(private readonly parts: OpenPlanParts) {
    const { plan, program, inFlight, written, shared, inputs } = parts
    this.plan = plan
    this.program = program
    this.shared = shared
    this.sharing = parts.sharing
    this.#ticks = new Ticks(inFlight)
    const own = portsOf(plan, 'input', written)
    this.inputs = inputs?.map(name => own.find(({ spec }) => spec.name === name)!) ?? own
    this.outputs = portsOf(plan, 'output', written)
    this.#arrays = viewsOf(
      program,
      this.outputs.filter(({ device }) => device === undefined),
    )
    this.#lanes = Array.from({ length: this.outputs.length })
    this.#views = inputViews(program, this.inputs, plan.inFlight)
    this.#owners = Array.from({ length: inFlight })
    this.#submittedAt = new Float64Array(inFlight)
  }

  get ticks(): Ticks {
    return this.#ticks
  }

  /** The session's ticks from this one on are this plan's. */
  begin(first: number, host: OpenPlanHost): void {
    this.#first = first
    this.#ticks = new Ticks(this.#ticks.size, first)
    this.#host = host
    this.program.onTick((tick, failure) => host.completed(this, tick + first, failure))
  }

  fill(input: number, tick: number, part: number, value: unknown): Mismatch | undefined {
    return fill(this.#place(input, tick, part), value, this.inputs[input]!.spec)
  }

  /** The value as it lies in the slot of a tick. */
  filled(input: number, tick: number, part: number): HostArray {
    return this.#place(input, tick, part)
  }

  /** Copies of all inputs of a tick that is not submitted yet: of each, as many values as a tick has. */
  inputsOf(tick: number): readonly (readonly HostArray[])[] {
    return this.#views[this.#ticks.slot(tick)]!.map(parts => parts.map(value => value.slice()))
  }

  submit(run: Run | undefined, now: number): void {
    const tick = this.#ticks.next
    const slot = tick % this.#ticks.size
    this.#owners[slot] = run
    this.#submittedAt[slot] = now
    this.program.submit(tick - this.#first, this.#ticks.slot(tick))
    this.#ticks.submit()
  }

  /** Ends a tick: its run, its lease where the run wants it, and when it was submitted. */
  complete(tick: number, failed: boolean): CompletedTick {
    const index = tick % this.#ticks.size
    const run = this.#owners[index]
    this.#owners[index] = undefined
    const leased = !failed && run !== undefined && run.listening
    const slot = this.#ticks.slot(tick)
    this.#ticks.complete(tick, leased)
    return {
      run,
      submittedAt: this.#submittedAt[index]!,
      lease: leased ? this.#lease(tick, slot) : undefined,
    }
  }

  /** The subscriber has had the lease of a tick, and may lose it from now on. */
  handled(tick: number, lease: Lease<unknown>): void {
    if (this.#ticks.isLeased(tick) && !this.kept.has(tick)) watchLease(lease, tick, this)
  }

  giveBack(tick: number, lost: boolean): void {
    let lent: readonly KeptBlock[] = []
    try {
      lent = this.#loans.end(tick)
    } finally {
      if (lost && !this.#host.over) this.#host.lost(tick)
      if (!isKept(lent)) this.#freeSlot(tick)
      else this.#freeSlotLater(tick, lent)
    }
  }

  #freeSlot(tick: number): void {
    if (this.#host.over) return
    this.#ticks.giveBack(tick)
    this.#host.returned(this)
  }

  /** A graph that keeps an output keeps its slot. */
  #freeSlotLater(tick: number, lent: readonly KeptBlock[]): void {
    this.kept.add(tick)
    whenReleased(
      lent,
      () => this.#host.over,
      () => {
        this.kept.delete(tick)
        this.#freeSlot(tick)
      },
    )
  }

  /** Frees everything, once no tick is in flight. Leases that are out are empty from then on. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#views = []
    this.sharing?.end()
    this.#loans.close()
    await this.program.close()
    released()
  }

  #place(input: number, tick: number, part: number): HostArray {
    return this.#views[this.#ticks.slot(tick)]![input]![part]!
  }

  #lease(tick: number, slot: number): Lease<unknown> {
    const arrays = this.#arrays(slot)
    let next = 0
    const values = this.outputs.map((port, i) =>
      port.device === undefined ? arrays[next++]! : this.#lend(tick, slot, port, port.device, i),
    )
    return makeLease(tick, this.outputs, values, this, this.#detach)
  }

  #lend(tick: number, slot: number, { spec, root }: Port, device: number, output: number): Block {
    const { plan, program, devices } = this.parts
    const core = devices[device]!.core()
    const lane = (this.#lanes[output] ??= laneOfLoans(
      core,
      `output ${spec.name} of session \`${plan.name}\``,
    ))
    const [handle, address, size] = program.block(root, slot)
    return this.#loans.lend(tick, core, { handle, address, size, bytes: spec.bytes, lane })
  }
}

export interface CompletedTick {
  readonly run: Run | undefined
  readonly submittedAt: number
  readonly lease: Lease<unknown> | undefined
}
