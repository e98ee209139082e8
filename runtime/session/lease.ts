import type { HostArray, Lease } from '../../dsl/index.js'
import { Block } from '../device/block.js'

/** Called when a lease is returned, by its owner or by the garbage collector. */
export interface LeaseOwner {
  giveBack(tick: number, lost: boolean): void
}

/** A value of a lease: an array of the host, or the block of an output that stays on the device. */
export type Leased = HostArray | Block

// A value keeps its lease alive by this property. A map that is weak in its keys would do the same, but keeps
// what is dead until all memory is searched, which made V8 copy each lease meanwhile.
const leaseOf = Symbol('lease')

// Called some time after a lease was lost. Its credit returns to the session; otherwise the run would stall
// for ever.
const lost = new FinalizationRegistry<{ owner: LeaseOwner; tick: number }>(({ owner, tick }) =>
  owner.giveBack(tick, true),
)

/**
 * Makes the lease of one tick: a loan of its outputs. Returning it empties its arrays and frees its slot,
 * whose owner ends the loan of its blocks. `detach` makes a buffer's length 0.
 */
export const makeLease = (
  tick: number,
  outputs: readonly (readonly [name: string, value: Leased])[],
  owner: LeaseOwner,
  detach: (buffer: ArrayBuffer) => void,
): Lease<Record<string, Leased>> => {
  const lease = {} as Record<string, Leased>
  const token = {}
  let returned = false
  const dispose = (): void => {
    if (returned) return
    returned = true
    lost.unregister(token)
    for (const [, value] of outputs)
      if (!Block.is(value) && value.buffer.byteLength > 0) detach(value.buffer as ArrayBuffer)
    owner.giveBack(tick, false)
  }
  for (const [name, value] of outputs) {
    // Defined, not assigned: an output may be called `__proto__` by a plan from elsewhere.
    Object.defineProperty(lease, name, { value, enumerable: true })
    Object.defineProperty(Block.is(value) ? value : value.buffer, leaseOf, { value: lease })
  }
  Object.defineProperty(lease, Symbol.dispose, { value: dispose })
  lost.register(lease, { owner, tick }, token)
  return Object.freeze(lease) as unknown as Lease<Record<string, Leased>>
}
