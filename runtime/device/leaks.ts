import { shown } from '../../dsl/ir/show.js'
import { size } from '../values.js'
import type { BlockObserver, BlockRecord, Core } from './core.js'

/**
 * Finds leaks, in development: frees a block that was collected without being freed, with a warning, and
 * warns of blocks that are alive when their device is closed. Registering a block costs more than allocating
 * it, so nothing is registered otherwise.
 */
export class LeakDetector implements BlockObserver {
  readonly #core: Core
  readonly #records = new Map<number, BlockRecord>()

  constructor(core: Core) {
    this.#core = core
  }

  made(block: object, record: BlockRecord): void {
    this.#records.set(record.handle, record)
    lost.register(block, { detector: this, record }, block)
  }

  freed(block: object, handle: number): void {
    this.#records.delete(handle)
    lost.unregister(block)
  }

  closed(): void {
    const bySite = new Map<number, { bytes: number; count: number }>()
    for (const { site, bytes } of this.#records.values()) {
      const sum = bySite.get(site) ?? { bytes: 0, count: 0 }
      bySite.set(site, { bytes: sum.bytes + bytes, count: sum.count + 1 })
    }
    this.#records.clear()
    for (const [site, { bytes, count }] of bySite) {
      const blocks = count === 1 ? '1 block' : `${count} blocks`
      this.#warn(`${blocks} of ${size(bytes)} alive when ${this.#core.name} was closed`, site)
    }
  }

  collected(record: BlockRecord): void {
    if (this.#core.closed || this.#records.get(record.handle) !== record) return
    this.#records.delete(record.handle)
    // The program may have moved the memory of a view into another buffer, so pinned memory is freed as
    // viewed memory.
    if (record.space.index === 1) {
      record.space.recordUse(record.handle, record.home)
      this.#core.native.freeViewed(record.handle)
    } else {
      record.space.free(record.handle)
    }
    this.#warn(
      `A block of ${size(record.bytes)} on ${this.#core.name} was lost without being freed; it is freed now`,
      record.site,
    )
  }

  #warn(what: string, site: number): void {
    const place = this.#core.sites.words(site)
    const allocated = place === '' ? '' : ` Allocated at ${place}.`
    const advice = 'Free blocks with free(), or declare them with using.'
    process.emitWarning(shown(`${what}.${allocated} ${advice}`), { type: 'BraidLeak' })
  }
}

interface Lost {
  readonly detector: LeakDetector
  readonly record: BlockRecord
}

const lost = new FinalizationRegistry<Lost>(({ detector, record }) => detector.collected(record))
