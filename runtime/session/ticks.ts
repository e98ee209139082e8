/** The state of a slot's last tick: returned (or never used), on the device, or leased. */
export type SlotState = 'free' | 'flying' | 'leased'

/**
 * The credits of a session. Tick t may be filled and submitted only when tick t − size has completed *and*
 * its lease has been returned, so at most `size` ticks are between a feed and the return of their lease. Tick
 * numbers continue from run to run.
 */
export class Ticks {
  /** The next tick to be submitted. */
  next = 0
  #flying = 0
  readonly #states: SlotState[]

  constructor(readonly size: number) {
    this.#states = Array.from({ length: size }, () => 'free')
  }

  get flying(): number {
    return this.#flying
  }

  get free(): number {
    return this.#states.reduce((sum, state) => sum + (state === 'free' ? 1 : 0), 0)
  }

  /** Of the tick that last held the slot which `tick` will hold. */
  before(tick: number): SlotState {
    return this.#states[tick % this.size]!
  }

  /**
   * Whether a feed may fill this tick already. Feeds fill in order, so every tick between `next` and it is
   * fillable too.
   */
  fillable(tick: number): boolean {
    return tick < this.next + this.size && this.before(tick) === 'free'
  }

  submit(): number {
    const tick = this.next++
    this.#states[tick % this.size] = 'flying'
    this.#flying++
    return tick
  }

  complete(tick: number, leased: boolean): void {
    this.#states[tick % this.size] = leased ? 'leased' : 'free'
    this.#flying--
  }

  giveBack(tick: number): void {
    this.#states[tick % this.size] = 'free'
  }

  /** The ticks whose leases are out, oldest first. */
  leased(): readonly number[] {
    const ticks: number[] = []
    for (let tick = Math.max(0, this.next - this.size); tick < this.next; tick++)
      if (this.before(tick) === 'leased') ticks.push(tick)
    return ticks
  }
}
