import type { Core } from './core.js'
import { badArgument, wholeNumber } from './failure.js'

export interface HistoryOptions {
  /** How many of the newest records are kept, of device and of pinned memory each. Default 100,000. */
  readonly entries?: number
  /** The stack of each allocation as well, some microseconds each. Default false: labels alone, where there are some. */
  readonly stacks?: boolean
}

/** Who allocated, used and freed what: `device.history`. Off until it is started, and then it costs nothing; `device.snapshot()` holds it. */
export class History {
  readonly #core: Core
  #on = false

  constructor(core: Core) {
    this.#core = core
  }

  get on(): boolean {
    return this.#on && !this.#core.closed
  }

  /** Forgets what was kept, and keeps what comes. */
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

  /** What was kept can still be read. */
  stop(): void {
    if (!this.on) return
    this.#core.tried('history.stop', 'a history', () => this.#core.native.keepHistory(0))
    this.#on = false
    this.#core.stacks = this.#core.development
  }
}
