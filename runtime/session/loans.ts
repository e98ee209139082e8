import { type Block, endLoan, type Loan, lendBlock } from '../device/block.js'
import type { Core } from '../device/core.js'
import { type Lane, makeLane } from '../device/lane.js'
import type { KeptBlock } from '../device/released.js'

interface Lent extends KeptBlock {
  readonly core: Core
  readonly block: WeakRef<Block>
}

const none: readonly KeptBlock[] = []

const lender = [
  'an output of a session, which its lease gives back',
  'dispose of the lease: using, or lease[Symbol.dispose]()',
] as const

/** Stands for the lanes of a session in an output's block. `of`: the output and its session, in words. */
export const laneOfLoans = (core: Core, of: string): Lane => makeLane(core, -1, 0n, of, 'session')

/**
 * The outputs on devices that are leased now, by tick. They are held weakly, so that a lease which is lost
 * can be collected, and its slot comes back.
 */
export class Loans {
  readonly #lent = new Map<number, Lent[]>()

  lend(tick: number, core: Core, loan: Omit<Loan, 'lender'>): Block {
    const { handle, address, size, bytes, lane } = loan
    const block = lendBlock(core, { handle, address, size, bytes, lane, lender })
    const lent = { core, space: core.device, handle, block: new WeakRef(block) }
    const others = this.#lent.get(tick)
    if (others === undefined) this.#lent.set(tick, [lent])
    else others.push(lent)
    return block
  }

  /** The lease of a tick was given back, or lost. Returns what was lent with it. */
  end(tick: number): readonly KeptBlock[] {
    const lent = this.#lent.get(tick)
    if (lent === undefined) return none
    this.#end(tick, `the lease of tick ${tick} was given back`, 'while the lease is held, call')
    return lent
  }

  /** The session is about to be freed. */
  close(): void {
    for (const tick of [...this.#lent.keys()])
      this.#end(tick, 'its session is closed', 'open the plan again, and before that session is closed call')
  }

  #end(tick: number, why: string, next: string): void {
    const lent = this.#lent.get(tick)
    if (lent === undefined) return
    this.#lent.delete(tick)
    for (const { core, handle, block } of lent) {
      const held = block.deref()
      if (held !== undefined) endLoan(held, why, next)
      // What becomes of marks that a broken device refuses does not matter: no tick runs on it again.
      else if (!core.closed) core.device.endLoan(handle)
    }
  }
}
