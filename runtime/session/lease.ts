/** Called when a lease is returned, by its owner or by the garbage collector. */
import type { HostArray, Lease } from '../../dsl/index.js'
export interface LeaseOwner {
  giveBack(tick: number, lost: boolean): void
}

// A view keeps its lease alive. The map is weak in its keys, so a view and its lease are collected together.
const leaseOf = new WeakMap<ArrayBuffer, object>()

// Called some time after a lease was lost. Its credit returns to the session; otherwise the run would stall
// for ever.
const lost = new FinalizationRegistry<{ owner: LeaseOwner; tick: number }>(({ owner, tick }) =>
  owner.giveBack(tick, true),
)

/**
 * Makes the lease of one tick: a loan of its outputs. Returning it empties its views and frees its slot.
 * `detach` makes a buffer's length 0.
 */
export const makeLease = (
  tick: number,
  outputs: readonly (readonly [name: string, value: HostArray])[],
  owner: LeaseOwner,
  detach: (buffer: ArrayBuffer) => void,
): Lease<Record<string, HostArray>> => {
  const lease = {} as Record<string, HostArray>
  const token = {}
  let returned = false
  const dispose = (): void => {
    if (returned) return
    returned = true
    lost.unregister(token)
    for (const [, value] of outputs) if (value.buffer.byteLength > 0) detach(value.buffer as ArrayBuffer)
    owner.giveBack(tick, false)
  }
  for (const [name, value] of outputs) {
    // Defined, not assigned: an output may be called `__proto__` by a plan from elsewhere.
    Object.defineProperty(lease, name, { value, enumerable: true })
    leaseOf.set(value.buffer as ArrayBuffer, lease)
  }
  Object.defineProperty(lease, Symbol.dispose, { value: dispose })
  lost.register(lease, { owner, tick }, token)
  return Object.freeze(lease) as unknown as Lease<Record<string, HostArray>>
}
