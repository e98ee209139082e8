import type { HostArray } from '../../dsl/index.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { Block, Span } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Device } from '../device/device.js'
import type { Lane } from '../device/lane.js'
import { DisposedError } from '../errors.js'
import type { Executables } from './executables.js'
import type { Families } from './families.js'
import type { Handle } from './handle.js'
import { type FindStep, judge } from './judge.js'
import { type Admitted, type Feeds, handleOf, Job, Launch, type LaunchOwner } from './launch.js'
import { LaunchQueue, type TreeFailure } from './launch-queue.js'
import type { TreeError } from './messages.js'
import * as messages from './messages.js'
import { type OwnedBlocks, ownedOf } from './owned.js'
import type { PreparedTree } from './prepare.js'
import { Readers, type TreeMemory } from './readers.js'
import { pickShape } from './shapes.js'
import { Origin, type Slot, Slots } from './slots.js'
import { type Step, Steps } from './steps.js'

export interface LauncherParts {
  readonly tree: PreparedTree
  readonly memory: TreeMemory
  readonly executables: Executables
  readonly inFlight: number
  readonly waiting: number
  readonly poison: boolean
}

export interface LaunchCounts {
  launches: number
  /** Values that were copied within the arena, and from the host to it. */
  moves: number
  staged: number
}

const nothing: readonly never[] = Object.freeze([])
const noBlocks: OwnedBlocks = Object.freeze({})

/**
 * The launches of a tree. A launch is judged whole before it changes anything, on the JavaScript thread, by
 * tables that were made at the first launch of its kind. Then the tables of what is alive change at once, so
 * that the next launch can be judged; and the device is given its work in the same order, at once where it
 * can be.
 *
 *   P0  the tree is open, has not failed, and no other launch is being judged       here
 *   P1  the plan may come now; its node                                              steps.ts
 *   P2  every input: where the contract wants it, to be moved there, or the host's   judge.ts
 *   P3  parameters: memory of their own at fixed addresses, so nothing is to be done
 *   P4  values that the node overwrites: their handles are stale from now on         slots.ts
 *   P5  uses of these by other lanes: the launch comes after them on the device      launch-queue.ts
 *   P6  copies, feeds, and the launch                                                launch-queue.ts
 */
export class Launcher {
  readonly slots = new Slots()
  readonly counts: LaunchCounts = { launches: 0, moves: 0, staged: 0 }
  private readonly core: Core
  private readonly device: Device
  private readonly steps: Steps
  private readonly queue: LaunchQueue
  private readonly readers: Readers
  private readonly families: Families
  private state = 0
  /** The number of the newest launch that was made, and of the newest that was not taken back. */
  private made = 0
  private latest = 0
  /** How many runs were begun. */
  private begun = 0
  private judging = false
  private closing = false
  private closed = false

  constructor({ tree, memory, executables, inFlight, waiting, poison }: LauncherParts) {
    const { slots } = this
    this.core = memory.core
    this.device = memory.device
    this.families = tree.families
    this.steps = new Steps(tree, memory.arena?.bytes ?? 0, slots)
    this.readers = new Readers(memory, slots)
    this.queue = new LaunchQueue({ memory, executables, slots, inFlight, waiting, poison })
  }

  /** The name of the plan that was launched last in this run. */
  get last(): string | undefined {
    const plan = this.steps.last(this.state)
    return plan?.family?.name ?? plan?.name
  }
  get flying(): number {
    return this.queue.flying
  }
  get failure(): TreeFailure | undefined {
    return this.queue.failure
  }

  /** The next launch begins a run: no value is kept for it. */
  begin(): void {
    this.state = 0
    this.begun++
  }

  launch(owner: LaunchOwner, name: string, feeds: Feeds, at: Where): Launch {
    this.alive('tree.launch', at)
    if (this.judging) throw messages.reentered(at, name)
    this.judging = true
    let admitted: Admitted
    try {
      const plan = this.families.size === 0 ? name : this.pick(at, name, feeds)
      const find: FindStep = instead => this.steps.find(at, this.state, plan, instead)
      admitted = judge(at, find, feeds, owner)
      this.queue.checkRoom(at, admitted)
    } finally {
      this.judging = false
    }
    return this.admit(owner, admitted, at)
  }

  /** The plan that a launch is of; of a plan by shape the one that takes what is given. */
  private pick(at: Where, name: string, feeds: Feeds): string {
    const { steps, state } = this
    const members = this.families.get(name)
    if (members === undefined) return name
    return pickShape(at, name, members, feeds, steps, state)
  }

  onward(owner: LaunchOwner, after: Origin, name: string, feeds: Feeds, at: Where): Launch {
    this.alive('tree.launch', at)
    if (after.failure !== undefined) throw messages.notFollowed(at, name, after, after.failure)
    if (after.serial !== this.latest) throw laterLaunch(after.plan)
    return this.launch(owner, name, feeds, at)
  }

  /** Throws where the tree, or its device, is closed, or the tree has failed. */
  alive(call: string, at: Where | string = call): void {
    if (this.closing) throw messages.closedTree(call)
    this.core.open('this tree')
    if (this.failure !== undefined) throw messages.treeFailed(at, this.failure)
  }

  /** Nothing can refuse the launch any more: the tables change. */
  private admit(owner: LaunchOwner, admitted: Admitted, at: Where): Launch {
    const { step, feeds, stages, copies } = admitted
    const { slots, counts } = this
    const origin = new Origin(++this.made, step.plan.name, at)
    const targets =
      stages.length === 0 && copies.length === 0
        ? nothing
        : [
            ...stages.map(({ to, spec }) => ({ from: to, to: to + spec.bytes })),
            ...copies.map(({ to, bytes }) => ({ from: to, to: to + bytes })),
          ]
    // Before the tables change: whoever asks for a value from now on asks for that of this launch.
    const reads = slots.readsOver(step.slots, targets)
    const job = new Job(step, origin, feeds, stages, copies, targets, reads)
    const ready = this.queue.readyFor(job)
    if (ready === undefined) job.takeBack = this.takingBack(step)
    if (targets.length > 0) slots.overwrite(targets, origin)
    slots.launch(step.slots, origin)
    this.state = step.to
    this.latest = origin.serial
    counts.launches++
    counts.moves += copies.length
    counts.staged += stages.length
    const owned = step.plan.owned.size === 0 ? noBlocks : this.takeOut(owner, job, step)
    this.queue.push(job, ready)
    return new Launch(job, owner, owned)
  }

  /** The tables as they are now; a run that was begun since stays begun. */
  private takingBack(step: Step): () => void {
    const values = this.slots.takingBack(step.slots)
    const { state, latest, begun } = this
    const counts = { ...this.counts }
    return () => {
      values()
      this.state = begun === this.begun ? state : 0
      this.latest = latest
      Object.assign(this.counts, counts)
    }
  }

  /** Before anything else may be launched over the values. */
  private takeOut(owner: LaunchOwner, job: Job, { outputs }: Step): OwnedBlocks {
    const blocks = outputs.flatMap(({ name, isOwned }, i) =>
      isOwned ? [[name, this.readers.takeOut(handleOf(owner, job, i))] as const] : [],
    )
    return ownedOf(new Map(blocks))
  }

  /** Something has become free. */
  wake(): void {
    this.queue.wake()
  }

  problem(slot: Slot, origin: Origin): string | undefined {
    if (this.closed) return 'the tree is closed'
    if (this.core.closed) return `its device ${this.core.name} is closed`
    const failure = this.failureOf(origin)
    if (failure !== undefined) {
      const what = failure._tag === 'NotLaunched' ? 'its launch could not begin' : 'the tree has failed'
      return `${what}: ${failure.found}`
    }
    if (this.slots.isCurrent(slot, origin.serial)) return undefined
    return `its bytes were overwritten by ${this.slots.overwriter(slot)}`
  }

  failureOf({ failure, at }: Origin): TreeError | undefined {
    return failure ?? (this.failure === undefined ? undefined : messages.treeFailed(at, this.failure))
  }

  checkUse(lane: unknown, body: unknown): void {
    this.readers.check(lane, body)
  }

  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A> {
    return this.readers.use(handle, lane, body)
  }

  copy(handle: Handle, lane: Lane | undefined): Promise<Block> {
    const home = lane === undefined ? this.device.defaultLane : lane
    this.readers.checkLane(home, 'handle.copy')
    return this.readers.copy(handle, home)
  }

  read(handle: Handle): Promise<HostArray> {
    return this.readers.read(handle)
  }

  /** Resolves when every launch so far has completed, or the tree has failed. */
  drained(): Promise<void> {
    return this.queue.drained()
  }

  /** Resolves when no launch waits for its turn, or the tree has failed. */
  room(): Promise<void> {
    return this.queue.room()
  }

  /** Refuses launches from now on, and waits for those that there are, and for reads of their values. */
  async close(): Promise<void> {
    this.closing = true
    await this.drained()
    await this.readers.drained()
    this.closed = true
  }
}

const laterLaunch = (plan: string): DisposedError =>
  new DisposedError(
    `the place after this launch of ${plan}`,
    'another launch has come since; go on from that one, or use tree.launch',
  )
