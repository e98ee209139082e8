/** The state of a slot: free (or being filled), on the device, or leased. */
export type SlotState = 'free' | 'flying' | 'leased'

/**
 * The credits of a session. A tick has a slot from its first value on until its lease is given back: the slot
 * of number tick modulo size where that is free, else another one, so that a lease that is kept takes one
 * slot from the session and no more. At most `size` ticks are between a feed and the return of their lease.
 * Tick numbers continue from run to run.
 */
export class Ticks {
  /** The next tick to be submitted. */
  next: number
  #flying = 0
  /** The first tick, from `next` on, that has no slot yet. */
  #unplaced: number
  readonly #slots = new Map<number, number>()
  readonly #states: SlotState[]
  readonly #taken: boolean[]

  constructor(
    readonly size: number,
    first = 0,
  ) {
    this.next = first
    this.#unplaced = first
    this.#states = Array.from({ length: size }, () => 'free')
    this.#taken = Array.from({ length: size }, () => false)
  }

  get flying(): number {
    return this.#flying
  }

  get free(): number {
    return this.#states.reduce((sum, state) => sum + (state === 'free' ? 1 : 0), 0)
  }

  /** The slot of a tick that is fillable, in flight or leased. */
  slot(tick: number): number {
    return this.#slots.get(tick)!
  }

  /**
   * Whether a feed may fill this tick already. Ticks get their slots in order, so every tick between `next`
   * and it is fillable too.
   */
  fillable(tick: number): boolean {
    if (tick >= this.next + this.size) return false
    for (; this.#unplaced <= tick; this.#unplaced++) if (!this.#place(this.#unplaced)) return false
    return true
  }

  /** The ticks that have slots, and are not submitted. */
  unsubmitted(): readonly number[] {
    return Array.from({ length: Math.max(0, this.#unplaced - this.next) }, (_, i) => this.next + i)
  }

  /** While nothing is in flight: whether a tick cannot be filled before a lease is given back. */
  waitsForLease(tick: number): boolean {
    return tick < this.next + this.size && !this.fillable(tick)
  }

  /** Submits the next tick, which is fillable. */
  submit(): number {
    const tick = this.next++
    this.#states[this.slot(tick)] = 'flying'
    this.#flying++
    return tick
  }

  complete(tick: number, leased: boolean): void {
    this.#states[this.slot(tick)] = leased ? 'leased' : 'free'
    if (!leased) this.#leave(tick)
    this.#flying--
  }

  giveBack(tick: number): void {
    if (!this.#slots.has(tick)) return
    this.#states[this.slot(tick)] = 'free'
    this.#leave(tick)
  }

  isLeased(tick: number): boolean {
    const slot = this.#slots.get(tick)
    return slot !== undefined && this.#states[slot] === 'leased'
  }

  /** The ticks whose leases are out, oldest first. */
  leased(): readonly number[] {
    return [...this.#slots.keys()].filter(tick => this.isLeased(tick)).sort((a, b) => a - b)
  }

  #place(tick: number): boolean {
    for (let i = 0; i < this.size; i++) {
      const slot = (tick + i) % this.size
      if (this.#taken[slot]) continue
      this.#taken[slot] = true
      this.#slots.set(tick, slot)
      return true
    }
    return false
  }

  #leave(tick: number): void {
    this.#taken[this.slot(tick)] = false
    this.#slots.delete(tick)
  }
}
