import { type Block, sharedHandle } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Device } from '../device/device.js'

/**
 * Blocks that were copied out of a tree that has a Device of its own: the tree's end closes the Device once the
 * caller has freed them all, or lost them.
 */
export class CopiedOut {
  private readonly alive = new Map<number, number>()
  private made = 0
  private ended: (() => void) | undefined

  constructor(
    private readonly device: Device,
    private readonly core: Core,
  ) {
    const { observer } = core
    core.observer = {
      made: (block, record) => observer?.made(block, record),
      freed: (block, handle) => {
        observer?.freed(block, handle)
        this.freed(handle)
      },
      closed: () => observer?.closed(),
    }
  }

  add(block: Block): void {
    const handle = sharedHandle(block)
    this.alive.set(handle, ++this.made)
    // In development the device finds lost blocks itself, and says so.
    if (!this.core.development) lost.register(block, { from: this, handle, number: this.made })
  }

  /** Closes the Device, now or with the last block. */
  async end(): Promise<void> {
    if (this.alive.size === 0) await this.device.close()
    else this.ended = () => void this.device.close()
  }

  /** Frees a block that the caller has lost. */
  collected({ handle, number }: Lost): void {
    if (this.alive.get(handle) !== number || this.core.closed) return
    this.core.device.free(handle)
    this.freed(handle)
  }

  private freed(handle: number): void {
    if (this.alive.delete(handle) && this.alive.size === 0) this.ended?.()
  }
}

interface Lost {
  readonly from: CopiedOut
  readonly handle: number
  readonly number: number
}

const lost = new FinalizationRegistry<Lost>(block => block.from.collected(block))
