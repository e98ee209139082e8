import type { HostArray } from '../../dsl/index.js'
import type { Where } from '../../dsl/ir/graph.js'
import { madeBy } from '../device/arguments.js'
import type { Block, Span } from '../device/block.js'
import type { Lane } from '../device/lane.js'
import type { ValueSpec } from '../values.js'
import { staleHandle, type TreeError } from './messages.js'
import type { Origin, Slot } from './slots.js'

/** What a handle asks of its tree. */
export interface HandleOwner {
  /** Undefined while the value is there; else why it is not. */
  problem(slot: Slot, origin: Origin): string | undefined
  /** Why the launch that makes the value, or the tree, has failed; undefined where neither has. */
  failureOf(origin: Origin): TreeError | undefined
  read(handle: Handle): Promise<HostArray>
  /** Throws where the lane, or the body, is none that `use` takes. */
  checkUse(lane: unknown, body: unknown): void
  use<A>(handle: Handle, lane: Lane, body: (span: Span) => A): Promise<A>
  /** Throws where the lane is none that `copy` takes. Undefined: the device's default lane. */
  copy(handle: Handle, lane: Lane | undefined): Promise<Block>
}

export interface HandleParts {
  readonly owner: HandleOwner
  readonly slot: Slot
  readonly spec: ValueSpec
  /** The launch that makes the value. */
  readonly origin: Origin
  /** Resolves with how many launches were submitted up to that one. */
  readonly submitted: { get(): Promise<number> }
  /** Resolves when that launch has completed; rejects with its failure. */
  readonly ended: { get(): Promise<unknown> }
}

export let partsOf: (handle: Handle) => HandleParts

/**
 * A value that a launch left on the device, until its lifetime ends. It names the value, not its memory: once
 * the memory has another value every use of the handle throws a `StaleHandleError`.
 */
export class Handle implements Disposable {
  readonly #parts: HandleParts
  #disposed = false

  constructor(parts: HandleParts) {
    madeBy(parts?.slot !== undefined && parts.owner !== undefined, 'Handle', 'tree.launch(plan, feeds)')
    this.#parts = parts
  }

  static {
    partsOf = handle => handle.#parts
  }

  static is(value: unknown): value is Handle {
    return typeof value === 'object' && value !== null && #parts in value
  }

  /** The plan that made it, and the name of its output. */
  get plan(): string {
    return this.#parts.origin.plan
  }
  get output(): string {
    return this.#parts.slot.output
  }
  get bytes(): number {
    return this.#parts.spec.bytes
  }
  get disposed(): boolean {
    return this.#disposed
  }
  /** Whether its value is gone. Throws nothing. */
  get stale(): boolean {
    const { owner, slot, origin } = this.#parts
    return this.#disposed || owner.problem(slot, origin) !== undefined
  }

  /** Throws a `StaleHandleError` where the value is gone. */
  check(at: Where | string): void {
    const { owner, slot, origin } = this.#parts
    const problem = this.#disposed ? 'it was disposed of' : owner.problem(slot, origin)
    if (problem !== undefined) throw staleHandle(at, slot.output, origin, problem, owner.failureOf(origin))
  }

  /**
   * Copies the value to the host. A later launch that writes over the value comes after the copy on the
   * device, so the host may go on launching.
   */
  read(): Promise<HostArray> {
    this.check('handle.read')
    return this.#parts.owner.read(this)
  }

  /**
   * Runs `body`, which gives a lane work on the value's memory: the lane comes after the launch that makes
   * the value, and later launches that write over it come after that work. `body` may not write. When it has
   * returned the span throws a `StaleHandleError`, so no graph takes it: a graph is launched later. The lane
   * is not one that is being captured.
   */
  use<A>(lane: Lane, body: (span: Span) => A): Promise<A> {
    this.check('handle.use')
    this.#parts.owner.checkUse(lane, body)
    return this.#parts.owner.use(this, lane, body)
  }

  /**
   * Copies the value into a block of the caller's own, which stays when launches write over the value, and
   * when the tree is closed. The copy is made on the device, by `lane`, the home of the block: what that lane
   * is given later reads it without waiting. Resolves when the lane has been given the copy. A later launch
   * that writes over the value comes after it. Without `lane`: the device's default lane.
   */
  copy(lane?: Lane): Promise<Block> {
    this.check('handle.copy')
    return this.#parts.owner.copy(this, lane)
  }

  /** The handle is of no use from now on. Its value stays as long as its lifetime says. */
  [Symbol.dispose](): void {
    this.#disposed = true
  }
}
