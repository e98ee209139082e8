import { size } from '../values.js'
import type { Core, Space } from './core.js'

interface Held {
  readonly space: Space
  readonly handle: number
  readonly bytes: number
  /** The id of its home lane. */
  readonly home: number
  readonly site: number
}

/**
 * In development: who holds what, so that a block which nobody can reach any more is told of and freed, and what is alive when its device
 * is closed is told of too. A registry costs more than an allocation does, so there is none otherwise.
 */
export class Holdings {
  readonly #core: Core
  readonly #held = new Map<number, Held>()
  readonly #registry: FinalizationRegistry<Held>

  constructor(core: Core) {
    this.#core = core
    this.#registry = new FinalizationRegistry(held => this.#lost(held))
  }

  add(block: object, held: Held): void {
    this.#held.set(held.handle, held)
    this.#registry.register(block, held, block)
  }

  remove(block: object, handle: number): void {
    this.#held.delete(handle)
    this.#registry.unregister(block)
  }

  /** When the device is closed. */
  atClose(): void {
    const bySite = new Map<number, { bytes: number; count: number }>()
    for (const { site, bytes } of this.#held.values()) {
      const sum = bySite.get(site) ?? { bytes: 0, count: 0 }
      bySite.set(site, { bytes: sum.bytes + bytes, count: sum.count + 1 })
    }
    this.#held.clear()
    for (const [site, { bytes, count }] of bySite)
      this.#warn(
        `${count} ${count === 1 ? 'block' : 'blocks'} of ${size(bytes)} alive when ${this.#core.name} was closed`,
        site,
      )
  }

  #lost(held: Held): void {
    if (this.#core.closed || this.#held.get(held.handle) !== held) return
    this.#held.delete(held.handle)
    // A view may have been lost together with its block, or moved.
    if (held.space.index === 1) {
      held.space.recordUse(held.handle, held.home)
      this.#core.native.freeViewed(held.handle)
    } else {
      held.space.free(held.handle)
    }
    this.#warn(
      `A block of ${size(held.bytes)} on ${this.#core.name} was lost without being freed; it is freed now`,
      held.site,
    )
  }

  #warn(what: string, site: number): void {
    const place = this.#core.sites.words(site)
    process.emitWarning(
      `${what}.${place === '' ? '' : ` Allocated at ${place}.`} Free blocks with free(), or declare them with using.`,
      {
        type: 'BraidLeak',
      },
    )
  }
}
