import { badArgument, wholeNumber } from './allocator-error.js'
import type { Core } from './core.js'

export interface HistoryOptions {
  /**
   * How many of the newest records are kept of device memory, and as many of pinned memory. Default 100,000.
   */
  readonly entries?: number
  /**
   * Keeps the stack of each allocation, which costs some microseconds. Default false: only labels are kept.
   */
  readonly stacks?: boolean
}

/**
 * The record of allocations, uses and frees, from `device.history`; `device.snapshot()` contains it. It costs
 * nothing until it is started.
 */
export class History {
  readonly #core: Core
  #on = false

  constructor(core: Core) {
    this.#core = core
  }

  get on(): boolean {
    return this.#on && !this.#core.closed
  }

  /** Begins a new history. */
  start(options: HistoryOptions = {}): void {
    const at = 'history.start'
    this.#core.open('a history')
    if (typeof options !== 'object' || options === null)
      throw badArgument(
        at,
        'options',
        'an object of entries, stacks',
        options,
        'correct the options, or leave them out',
      )
    const { entries = 100_000, stacks = false } = options
    if (typeof stacks !== 'boolean')
      throw badArgument(at, 'options.stacks', 'true or false', stacks, 'correct the option, or leave it out')
    const count = wholeNumber(at, 'options.entries', entries, 1, 2 ** 24)
    this.#core.tried(at, 'a history', () => this.#core.native.keepHistory(count))
    this.#on = true
    this.#core.stacks = stacks || this.#core.development
    this.#core.careful ||= this.#core.stacks
  }

  /** Keeps no further records. The present ones stay in snapshots. */
  stop(): void {
    if (!this.on) return
    this.#core.tried('history.stop', 'a history', () => this.#core.native.keepHistory(0))
    this.#on = false
    this.#core.stacks = this.#core.development
  }
}
