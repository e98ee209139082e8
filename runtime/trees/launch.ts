import type { HostArray } from '../../dsl/index.js'
import { type ByteRange, hereLater } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { ValueSpec } from '../values.js'
import { Handle, type HandleOwner } from './handle.js'
import type { TreeError } from './messages.js'
import type { OwnedBlocks } from './owned.js'
import type { Origin } from './slots.js'
import type { Copy, Step } from './steps.js'

export type Values = Readonly<Record<string, HostArray>>
export type Feeds = Readonly<Record<string, unknown>>

/** A value of the host that is copied into the arena before a launch. */
export interface Stage {
  readonly to: number
  readonly spec: ValueSpec
  readonly value: HostArray
}

/** What a launch is given, once nothing can refuse it any more. */
export interface Admitted {
  readonly step: Step
  readonly feeds: ReadonlyMap<string, HostArray>
  readonly stages: readonly Stage[]
  readonly copies: readonly Copy[]
}

/** A promise that is made when somebody asks for it. What it resolves with may be known before, or after. */
class Later<A> {
  private value: A | undefined
  private error: unknown
  private state: 'open' | 'resolved' | 'rejected' = 'open'
  private promise: Promise<A> | undefined
  private settle: (() => void) | undefined

  resolve(value: A): void {
    this.value = value
    this.state = 'resolved'
    this.settle?.()
  }

  reject(error: unknown): void {
    this.error = error
    this.state = 'rejected'
    this.settle?.()
  }

  get(): Promise<A> {
    if (this.promise !== undefined) return this.promise
    this.promise = new Promise((resolve, reject) => {
      this.settle = () => {
        if (this.state === 'resolved') resolve(this.value as A)
        else reject(this.error)
      }
      if (this.state !== 'open') this.settle()
    })
    // One that nobody waits for fails quietly: the tree says so at its next launch.
    this.promise.catch(() => undefined)
    return this.promise
  }
}

/** A launch on its way to the device. */
export class Job {
  /** How many launches were submitted up to it. */
  readonly submitted = new Later<number>()
  /** Its outputs that go to the host. */
  readonly values = new Later<Values>()
  /** Undoes what the launch has changed in the tables, where it has to wait: it may still be taken back. */
  takeBack: (() => void) | undefined

  constructor(
    readonly step: Step,
    readonly origin: Origin,
    public feeds: ReadonlyMap<string, HostArray>,
    readonly stages: readonly Stage[],
    readonly copies: readonly Copy[],
    /** Bytes that are written before it. */
    readonly targets: readonly ByteRange[],
    /** Reads of what it overwrites that are not on their lanes yet. */
    readonly reads: readonly Promise<void>[],
  ) {}

  /** Whether something is copied before it. */
  get isPlain(): boolean {
    return this.stages.length === 0 && this.copies.length === 0
  }

  fail(failure: TreeError): void {
    this.origin.failure = failure
    this.submitted.reject(failure)
    this.values.reject(failure)
  }
}

/** What a launch asks of its tree. */
export interface LaunchOwner extends HandleOwner {
  /** Launches a plan after this one, or throws where another launch has come since. */
  onward(after: Origin, plan: string, feeds: Feeds, at: Where): Launch
}

/** What a launch has given, without its types. Handles and promises are made when they are asked for. */
export class Launch {
  readonly plan: string
  readonly shape: string | undefined
  readonly owned: OwnedBlocks
  readonly #job: Job
  readonly #owner: LaunchOwner
  #handles: Readonly<Record<string, Handle>> | undefined

  constructor(job: Job, owner: LaunchOwner, owned: OwnedBlocks) {
    const { family } = job.step.plan
    this.plan = family?.name ?? job.origin.plan
    this.shape = family?.key
    this.owned = owned
    this.#job = job
    this.#owner = owner
  }

  get handles(): Readonly<Record<string, Handle>> {
    this.#handles ??= Object.fromEntries(
      this.#job.step.outputs.flatMap(({ name, isOwned }, i) =>
        isOwned ? [] : [[name, handleOf(this.#owner, this.#job, i)] as const],
      ),
    )
    return this.#handles
  }

  get values(): Promise<Values> {
    return this.#job.values.get()
  }

  get next(): (plan: string, feeds?: Feeds) => Launch {
    return (plan, feeds = noFeeds) => this.#owner.onward(this.#job.origin, plan, feeds, hereLater())
  }
}

export const noFeeds: Feeds = Object.freeze({})

/** The handle of an output, by its number in the step. */
export const handleOf = (
  owner: HandleOwner,
  { step, origin, submitted, values }: Job,
  output: number,
): Handle =>
  new Handle({
    ...{ owner, origin, submitted, ended: values },
    slot: step.slots.slots[output]!,
    spec: step.outputs[output]!.spec,
  })
