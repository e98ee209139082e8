import * as E from 'fp-ts/lib/Either.js'
import type { HostArray, Lease } from '../../dsl/index.js'
import { type ByteRange, here, type Transition, without } from '../../dsl/internal.js'
import type { NativeFailure, NativeSequence } from '../addon.js'
import type { Block, Span } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Device } from '../device/device.js'
import { type Event, eventFor } from '../device/event.js'
import type { Lane } from '../device/lane.js'
import { DisposedError } from '../errors.js'
import { portsOf, specOf } from '../session/ports.js'
import { arrayOver, describe, fill, type ValueSpec } from '../values.js'
import type { Executable } from './executable.js'
import type { Executables } from './executables.js'
import { Handle, type HandleOwner, partsOf } from './handle.js'
import * as messages from './messages.js'
import { brokenBy, type PreparedPlan, type PreparedTree } from './prepare.js'
import { type Slot, Slots } from './slots.js'

// Two NaNs of bf16 or f16, and one NaN of f32.
const garbage = 0xffc0ffc0

export interface LauncherParts {
  readonly tree: PreparedTree
  readonly device: Device
  readonly core: Core
  readonly lane: Lane
  readonly sequence: NativeSequence
  readonly executables: Executables
  readonly arena: Block | undefined
  readonly inFlight: number
  readonly poison: boolean
}

/** What a launch has given, without its types. */
export interface Launch {
  readonly plan: string
  readonly handles: Readonly<Record<string, Handle>>
  readonly owned: Readonly<Record<string, Promise<Block>>>
  readonly values: Promise<Readonly<Record<string, HostArray>>>
}

/** A promise, and what settles it. */
interface Deferred<A> {
  readonly promise: Promise<A>
  resolve(value: A): void
  reject(error: unknown): void
}

const deferred = <A>(): Deferred<A> => {
  let settle!: Pick<Deferred<A>, 'resolve' | 'reject'>
  const promise = new Promise<A>((resolve, reject) => {
    settle = { resolve, reject }
  })
  return { promise, ...settle }
}

interface Stage {
  readonly to: number
  readonly spec: ValueSpec
  readonly value: HostArray
}
interface Copy {
  readonly from: number
  readonly to: number
  readonly bytes: number
}

interface Job {
  readonly plan: PreparedPlan
  readonly node: number
  feeds: ReadonlyMap<string, HostArray>
  readonly stages: readonly Stage[]
  readonly copies: readonly Copy[]
  /** All bytes that the launch writes, and what is written before it. */
  readonly writes: readonly ByteRange[]
  /** Reads of what it overwrites that are not on their lanes yet. */
  readonly reads: readonly Promise<void>[]
  readonly submitted: Deferred<number>
  readonly values: Deferred<Readonly<Record<string, HostArray>>>
}

/** What a launch will do, once nothing can refuse it any more. */
interface Admitted {
  readonly plan: PreparedPlan
  readonly step: Transition
  readonly feeds: ReadonlyMap<string, HostArray>
  readonly stages: readonly Stage[]
  readonly copies: readonly Copy[]
}

export interface LaunchCounts {
  launches: number
  /** Values that were copied within the arena, and from the host to it. */
  moves: number
  staged: number
}

/**
 * The launches of a tree. A launch is judged whole before it changes anything, on the JavaScript thread and by
 * numbers alone. Then the tables change at once, so that the next launch can be judged; and the device is given its
 * work in the same order, at once where it can be.
 *
 *   P0  the tree is open, has not failed, and no other launch is being judged
 *   P1  the plan may come now; its node
 *   P2  every input: in the arena where the contract wants it, or to be moved there, or given by the host
 *   P3  parameters: memory of their own at fixed addresses, so nothing is to be done
 *   P4  values that the node overwrites: their handles are stale from now on
 *   P5  uses of these by other lanes: the launch comes after them on the device
 *   P6  copies, feeds, and the launch
 */
export class Launcher implements HandleOwner {
  readonly slots = new Slots()
  readonly counts: LaunchCounts = { launches: 0, moves: 0, staged: 0 }
  failure: unknown
  flying = 0
  private state = 0
  private judging = false
  private closed = false
  private submittedCount = 0
  private readonly queue: Job[] = []
  private working = false
  private waiting: (() => void)[] = []
  private readonly slotOf = new Map<string, Slot>()
  private readonly ports: readonly PlanPorts[]

  constructor(private readonly parts: LauncherParts) {
    this.ports = parts.tree.plans.map(portsOfPlan)
  }

  /** The name of the plan that was launched last in this run. */
  get last(): string | undefined {
    const { layouts, plans } = this.parts.tree
    return plans[layouts.states[this.state]!.last]?.name
  }

  get idle(): boolean {
    return this.flying === 0 && this.queue.length === 0 && !this.working
  }

  /** The next launch begins a run: no value is kept for it. */
  begin(): void {
    this.alive('tree.begin')
    this.state = 0
  }

  launch(name: string, feeds: Readonly<Record<string, unknown>>, at = here().toString()): Launch {
    // P0
    this.alive('tree.launch')
    if (this.failure !== undefined) throw messages.treeFailed(at, this.failure)
    if (this.judging) throw messages.reentered(at, name)
    this.judging = true
    let admitted: Admitted
    try {
      admitted = this.judge(at, name, feeds)
    } finally {
      this.judging = false
    }
    return this.admit(at, admitted)
  }

  private alive(at: string): void {
    if (this.closed) throw new DisposedError('this tree', `open it again; call ${at} before it is closed`)
  }

  // ---- P1, P2: judging ------------------------------------------------------------------------------------

  private judge(at: string, name: string, given: Readonly<Record<string, unknown>>): Admitted {
    const { tree, arena } = this.parts
    const index = tree.plans.findIndex(plan => plan.name === name)
    const step = this.step(at, name, index)
    const { layout } = tree.layouts.nodes[step.node]!
    const bytes = arena?.bytes ?? 0
    if (layout.top > bytes) throw messages.arenaTooSmall(at, name, layout.top, bytes)
    const plan = tree.plans[index]!
    const { host, resident } = this.ports[index]!
    this.checkNames(at, plan.name, given, index, step)
    const feeds = new Map<string, HostArray>()
    for (const spec of host) {
      const value = given[spec.name]
      if (Handle.is(value)) throw messages.noHandle(at, name, spec.name)
      const mismatch = fill(undefined, value, spec)
      if (mismatch) throw messages.wrongFeed(at, name, spec.name, mismatch)
      feeds.set(spec.name, value as HostArray)
    }
    const stages: Stage[] = []
    const copies: Copy[] = step.moves.map(({ from, to, bytes }) => ({ from, to, bytes }))
    for (const spec of resident) {
      const value = given[spec.name]
      if (value === undefined) continue
      const to = layout.inputs.get(spec.name)!
      this.checkReplaced(at, name, spec.name, step)
      const moved = copies.findIndex(copy => copy.to === to)
      if (moved >= 0) copies.splice(moved, 1)
      if (Handle.is(value)) {
        const from = this.placeOf(at, name, spec, value)
        if (from !== to) copies.push({ from, to, bytes: spec.bytes })
        continue
      }
      const mismatch = fill(undefined, value, spec)
      if (mismatch) throw messages.wrongFeed(at, name, spec.name, mismatch)
      stages.push({ to, spec, value: (value as HostArray).slice() as HostArray })
    }
    return { plan, step, feeds, stages, copies }
  }

  private step(at: string, name: string, index: number): Transition {
    const { layouts, start, plans, next } = this.parts.tree
    const now = this.state
    const begins = layouts.transition(now, index) === undefined && start.includes(index)
    const found = layouts.transition(begins ? 0 : now, index)
    if (found === undefined) {
      const last = layouts.states[now]!.last
      const allowed = [...new Set([...(last === -1 ? [] : next[last]!), ...start])]
      throw messages.notASuccessor(
        at,
        name,
        this.last,
        allowed.map(plan => plans[plan]!.name),
      )
    }
    if (E.isLeft(found)) throw messages.tooManyKept(at, name, found.left.output, found.left.count)
    // Those that were found ahead are proved.
    if (!layouts.isWhole && !this.isProved(found.right.node))
      throw new Error(brokenBy(this.parts.tree, found.right.node)[0]!.found)
    return found.right
  }

  private readonly proved = new Set<number>()
  private isProved(node: number): boolean {
    if (this.proved.has(node)) return true
    if (brokenBy(this.parts.tree, node).length > 0) return false
    this.proved.add(node)
    return true
  }

  private checkNames(
    at: string,
    name: string,
    given: Readonly<Record<string, unknown>>,
    index: number,
    { carried }: Transition,
  ): void {
    if (typeof given !== 'object' || given === null)
      throw messages.wrongFeed(at, name, 'feeds', {
        wanted: 'an object of values by name',
        found: describe(given),
        next: 'pass { x: … }, or nothing where the plan has no input from the host',
      })
    const { host, resident } = this.ports[index]!
    const wanted = [...host, ...resident.filter(({ name }) => !carried.has(name))].map(({ name }) => name)
    const known = new Set([...host, ...resident].map(({ name }) => name))
    const missing = wanted.filter(input => given[input] === undefined)
    const extra = Object.keys(given).filter(input => !known.has(input))
    if (missing.length > 0 || extra.length > 0) throw messages.wrongFeeds(at, name, missing, extra, wanted)
  }

  /** A value that is kept beyond this launch cannot be replaced: a later plan waits for it. */
  private checkReplaced(at: string, plan: string, input: string, { carried, to }: Transition): void {
    const value = carried.get(input)
    if (value === undefined) return
    const kept = this.parts.tree.layouts.states[to]!.held.some(
      ({ from, output, offset }) => from === value.from && output === value.output && offset === value.offset,
    )
    if (!kept) return
    throw messages.wrongFeed(at, plan, input, {
      wanted: 'no value: the one in the arena is kept for a later plan',
      found: 'another value',
      next: 'leave it out',
    })
  }

  private placeOf(at: string, plan: string, spec: ValueSpec, handle: Handle): number {
    const { owner, slot, spec: own } = partsOf(handle)
    if (owner !== this || own.bytes !== spec.bytes || own.dtype !== spec.dtype)
      throw messages.foreignHandle(at, plan, spec.name)
    handle.check(at)
    return this.slots.all[slot]!.from
  }

  // ---- P4: the tables -------------------------------------------------------------------------------------

  private admit(at: string, { plan, step, feeds, stages, copies }: Admitted): Launch {
    const { layout } = this.parts.tree.layouts.nodes[step.node]!
    const by = `a launch of ${plan.name} at ${at}`
    const targets = [
      ...stages.map(({ to, spec }) => ({ from: to, to: to + spec.bytes })),
      ...copies.map(({ to, bytes }) => ({ from: to, to: to + bytes })),
    ]
    const writes = targets.length === 0 ? layout.clobbers : [...layout.clobbers, ...targets]
    // Before the tables change: whoever asks for a value from now on asks for that of this launch.
    const reads =
      targets.length === 0
        ? this.slots.readsOver(step.node, layout.clobbers)
        : this.slots.readsOverRanges(writes)
    if (targets.length === 0) this.slots.overwrite(step.node, layout.clobbers, by)
    else this.slots.overwriteRanges(writes, by)
    const job: Job = {
      ...{ plan, node: step.node, feeds, stages, copies, writes, reads },
      submitted: deferred(),
      values: deferred(),
    }
    // A promise that nobody asks for fails quietly: the tree says so at its next launch.
    job.submitted.promise.catch(() => undefined)
    job.values.promise.catch(() => undefined)
    const handles: Record<string, Handle> = {}
    const owned: Record<string, Promise<Block>> = {}
    for (const [output, from] of layout.outputs) {
      const spec = this.outputSpec(plan, output)
      const slot = this.slot(step.node, output, { from, to: from + spec.bytes })
      const epoch = this.slots.write(slot.id, by)
      const made = { owner: this, slot: slot.id, epoch, plan: plan.name, output, spec, at }
      const handle = new Handle({ ...made, submitted: job.submitted.promise })
      if (plan.owned.has(output)) owned[output] = this.takeOut(handle)
      else handles[output] = handle
    }
    this.state = step.to
    this.counts.launches++
    this.counts.moves += copies.length
    this.counts.staged += stages.length
    this.enqueue(job)
    return { plan: plan.name, handles, owned, values: job.values.promise }
  }

  private outputSpec({ body }: PreparedPlan, output: string): ValueSpec {
    return specOf(body.source.plan.buffers[body.source.outputs.get(output)!]!)
  }

  private slot(node: number, output: string, range: ByteRange): Slot {
    const key = `${node} ${output}`
    const known = this.slotOf.get(key)
    if (known !== undefined) return known
    const made = this.slots.add(node, output, range)
    this.slotOf.set(key, made)
    return made
  }

  // ---- P5, P6: the device ---------------------------------------------------------------------------------

  private enqueue(job: Job): void {
    this.queue.push(job)
    this.pump()
    // Until it is submitted the caller may change its arrays.
    if (this.queue.includes(job))
      job.feeds = new Map([...job.feeds].map(([name, value]) => [name, value.slice() as HostArray]))
  }

  /** Something has become free. */
  wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve()
    this.pump()
  }

  private pump(): void {
    while (!this.working && this.queue.length > 0) {
      const job = this.queue[0]!
      const executable = this.failure === undefined ? this.simple(job) : undefined
      if (executable === undefined) {
        this.working = true
        void this.slow(job).then(() => {
          this.queue.shift()
          this.working = false
          this.wake()
        })
        return
      }
      this.queue.shift()
      try {
        this.submit(job, executable, this.slots.takeUses(job.node, job.writes))
      } catch (error) {
        this.fail(error, job)
      }
    }
  }

  /** The executable of a job that can be given to the device at once. */
  private simple(job: Job): Executable | undefined {
    if (job.stages.length > 0 || job.copies.length > 0 || job.reads.length > 0 || this.parts.poison)
      return undefined
    const executable = this.parts.executables.ready(job.node)
    if (executable === undefined || !this.hasRoom(executable)) return undefined
    return executable
  }

  private hasRoom({ ticks }: Executable): boolean {
    return this.flying < this.parts.inFlight && ticks.fillable(ticks.next)
  }

  private async slow(job: Job): Promise<void> {
    try {
      if (this.failure !== undefined) throw this.failure
      let executable = await this.parts.executables.get(job.node)
      while (!this.hasRoom(executable)) {
        await new Promise<void>(resolve => this.waiting.push(resolve))
        if (this.failure !== undefined) throw this.failure
        executable = await this.parts.executables.get(job.node)
      }
      await Promise.all(job.reads)
      const uses = this.slots.takeUsesOver(job.writes)
      const needsLane = job.stages.length > 0 || job.copies.length > 0 || this.parts.poison
      this.submit(job, executable, needsLane ? await this.before(job, uses) : uses)
    } catch (error) {
      this.fail(error, job)
    }
  }

  /** What is copied before a launch, on the tree's lane. */
  private async before(job: Job, uses: readonly Event[]): Promise<Event[]> {
    const { lane, device, sequence, arena, poison } = this.parts
    await sequence.whenIssued(this.submittedCount)
    this.order(lane)
    for (const use of uses) {
      lane.wait(use)
      use[Symbol.dispose]()
    }
    const place = (at: number, bytes: number): Span => arena!.at(at, bytes)
    const kept: Block[] = []
    const clashes = job.copies.some(a =>
      job.copies.some(b => a.to < b.from + b.bytes && b.from < a.to + a.bytes),
    )
    for (const copy of job.copies) {
      if (!clashes) lane.copy(place(copy.to, copy.bytes), place(copy.from, copy.bytes))
      else {
        const block = device.malloc(copy.bytes, lane, { site: 'plan tree: moved value' })
        kept.push(block)
        lane.copy(block, place(copy.from, copy.bytes))
      }
    }
    if (clashes) for (const [i, copy] of job.copies.entries()) lane.copy(place(copy.to, copy.bytes), kept[i]!)
    for (const { to, spec, value } of job.stages) {
      const block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: staged value' })
      kept.push(block)
      fill(arrayOver(block.view(), 0, spec), value, spec)
      lane.copy(place(to, spec.bytes), block, spec.bytes)
    }
    if (poison) this.poison(job)
    for (const block of kept) block.free()
    return [lane.record()]
  }

  /** Garbage wherever the node writes first: whoever still relied on these bytes would read it. */
  private poison(job: Job): void {
    const { lane, arena, tree } = this.parts
    const { layout } = tree.layouts.nodes[job.node]!
    // In whole words.
    const placed = job.stages.map(({ to, spec }) => ({ from: to, to: to + 4 * Math.ceil(spec.bytes / 4) }))
    for (const { from, to } of without(layout.clobbers, placed))
      lane.fill32(arena!.at(from, Math.min(to, arena!.bytes) - from), garbage)
  }

  private order(lane: Lane): void {
    const status = this.parts.sequence.order(lane.stream)
    if (status !== 0) throw this.parts.core.failed(status, 'tree.launch', 'the arena')
  }

  private submit(job: Job, executable: Executable, uses: readonly Event[]): void {
    const { core } = this.parts
    executable.submit(
      job.feeds,
      uses.map(use => eventFor(use, core, 'tree.launch')),
      (failure, lease) => this.completed(job, failure, lease),
    )
    for (const use of uses) use[Symbol.dispose]()
    this.flying++
    job.submitted.resolve(++this.submittedCount)
  }

  private completed(job: Job, failure: NativeFailure | null, lease: Lease<unknown> | undefined): void {
    this.flying--
    if (failure) this.fail(failure, job)
    else {
      const values: Record<string, HostArray> = {}
      if (lease !== undefined) {
        for (const [name, value] of Object.entries(lease as unknown as Record<string, HostArray>))
          values[name] = value.slice() as HostArray
        lease[Symbol.dispose]()
      }
      job.values.resolve(values)
    }
    this.wake()
  }

  private fail(error: unknown, job: Job): void {
    this.failure ??= error
    const failed = messages.treeFailed(job.plan.name, this.failure)
    job.submitted.reject(failed)
    job.values.reject(failed)
  }

  // ---- handles --------------------------------------------------------------------------------------------

  problem(slot: number, epoch: number): string | undefined {
    if (this.closed) return 'the tree is closed'
    if (this.failure !== undefined) return 'a launch of the tree has failed'
    if (this.slots.epoch(slot) === epoch && this.slots.isLive(slot)) return undefined
    return `its bytes were overwritten by ${this.slots.overwritten(slot)?.by ?? 'a later launch of its plan'}`
  }

  /** Gives a lane work on a value, after the launch that makes it, and marks the use. */
  private onLane<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    const { slot, submitted, spec } = partsOf(handle)
    const given = (async (): Promise<A> => {
      await this.parts.sequence.whenIssued(await submitted)
      this.order(lane)
      try {
        return body(this.parts.arena!.at(this.slots.all[slot]!.from, spec.bytes))
      } finally {
        this.slots.use(slot, lane, lane.record())
      }
    })()
    this.slots.reading(
      slot,
      given.then(
        () => undefined,
        () => undefined,
      ),
    )
    return given
  }

  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    return this.onLane(handle, lane, body)
  }

  async read(handle: Handle): Promise<HostArray> {
    const { spec } = partsOf(handle)
    const { device, lane } = this.parts
    using block = device.pinned(Math.max(1, spec.bytes), lane, { site: 'plan tree: read value' })
    using event = await this.onLane(handle, lane, span => {
      lane.copy(block, span, spec.bytes)
      return lane.record()
    })
    await event.synchronize()
    return arrayOver(block.view(), 0, spec).slice() as HostArray
  }

  private async takeOut(handle: Handle): Promise<Block> {
    const { spec, plan, output } = partsOf(handle)
    const { device, lane } = this.parts
    return this.onLane(handle, lane, span => {
      const block = device.malloc(spec.bytes, lane, { site: `${plan}.${output}` })
      lane.copy(block, span)
      return block
    })
  }

  /** Resolves when every launch so far has completed, or the tree has failed. */
  async drained(): Promise<void> {
    while (!this.idle) await new Promise<void>(resolve => this.waiting.push(resolve))
  }

  async close(): Promise<void> {
    await this.drained()
    this.closed = true
  }
}

interface PlanPorts {
  readonly host: readonly ValueSpec[]
  readonly resident: readonly ValueSpec[]
}

const portsOfPlan = ({ body }: PreparedPlan): PlanPorts => {
  const { plan, inputs } = body.source
  const ports = portsOf(plan, 'input').filter(({ root }) => plan.buffers[root]!.space === 'pinned')
  return {
    host: ports.map(({ spec, rate }) =>
      rate === 1 ? spec : { ...spec, bytes: spec.bytes * rate, shape: [rate, ...spec.shape] },
    ),
    resident: [...inputs.values()].map(id => specOf(plan.buffers[id]!)),
  }
}
