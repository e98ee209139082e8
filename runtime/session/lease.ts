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
 * The owner learns when the lease and all its values are lost. A lease that is returned by the subscriber that
 * it is given to need not be watched, which spares most of them the cost.
 */
export const watchLease = (lease: Lease<unknown>, tick: number, owner: LeaseOwner): void => {
  for (const value of Object.values(lease) as Leased[])
    Object.defineProperty(Block.is(value) ? value : value.buffer, leaseOf, { value: lease })
  lost.register(lease, { owner, tick }, lease)
}

/**
 * Makes the lease of one tick: a loan of its outputs. Returning it empties its arrays and frees its slot,
 * whose owner ends the loan of its blocks. `detach` makes a buffer's length 0.
 */
export const makeLease = (
  tick: number,
  outputs: readonly { readonly spec: { readonly name: string } }[],
  values: readonly Leased[],
  owner: LeaseOwner,
  detach: (buffer: ArrayBuffer) => void,
): Lease<Record<string, Leased>> => {
  const lease = {} as Record<string, Leased>
  let returned = false
  const dispose = (): void => {
    if (returned) return
    returned = true
    lost.unregister(lease)
    for (const value of values)
      if (!Block.is(value) && value.buffer.byteLength > 0) detach(value.buffer as ArrayBuffer)
    owner.giveBack(tick, false)
  }
  for (let i = 0; i < outputs.length; i++) {
    // Defined, not assigned: an output may be called `__proto__` by a plan from elsewhere.
    Object.defineProperty(lease, outputs[i]!.spec.name, { value: values[i], enumerable: true })
  }
  Object.defineProperty(lease, Symbol.dispose, { value: dispose })
  return Object.freeze(lease) as unknown as Lease<Record<string, Leased>>
}

/**
 * The same values in memory of their own, which stays when the session is freed; undefined where one of them
 * is a block of the device.
 */
export const copyOfLease = (lease: Lease<unknown>): Lease<unknown> | undefined => {
  const outputs = Object.keys(lease).map(name => ({ spec: { name } }))
  const arrays: HostArray[] = []
  for (const value of Object.values(lease) as Leased[]) {
    if (Block.is(value)) return undefined
    arrays.push(value.slice())
  }
  const detach = (buffer: ArrayBuffer): void => void structuredClone(buffer, { transfer: [buffer] })
  return makeLease(0, outputs, arrays, { giveBack: () => undefined }, detach)
}
