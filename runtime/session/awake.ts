import type { NativeEventLoop } from '../addon.js'

/** Milliseconds. A tick that takes no longer is awaited without sleep, and for no longer than this. */
const patience = 5

/**
 * Keeps the event loop turning while a short tick is on the device. A loop that sleeps is woken 50 to 150 µs
 * late on a virtual processor, and until then the device has nothing to do. The addon's threads wait in the
 * same way (native/executor/patience.h).
 */
export class Awake {
  /**
   * The length of recent ticks. Ticks end in groups: a long one counts until several short ones have followed
   * it.
   */
  #lately = 0

  constructor(private readonly loop: NativeEventLoop) {}

  /** A tick has ended that took this many milliseconds. `waits`: another one is in flight. */
  ended(took: number, waits: boolean): void {
    this.#lately = Math.max(Math.min(took, 8 * patience), this.#lately / 2)
    if (!waits) this.loop.sleep()
    else if (this.#lately < patience) this.loop.turn(patience)
  }
}
