// Memory that its owner has given up while graphs or other sessions keep it: whoever waits for it to be let
// go.
import type { NativeSpace } from '../addon.js'

/** What the addon knows a block of device memory by. */
export interface KeptBlock {
  readonly space: NativeSpace
  readonly handle: number
}

const waiting = new Set<() => boolean>()

/** Called after something has let go of what it kept. */
export const released = (): void => {
  for (const done of [...waiting]) if (done()) waiting.delete(done)
}

/**
 * Calls `then` once nothing keeps any of the blocks, now or later; never once `over` says that nobody waits.
 */
export const whenReleased = (blocks: readonly KeptBlock[], over: () => boolean, then: () => void): void => {
  const done = (): boolean => {
    if (over()) return true
    if (isKept(blocks)) return false
    then()
    return true
  }
  if (!done()) waiting.add(done)
}

/** Whether something keeps one of the blocks. */
export const isKept = (blocks: readonly KeptBlock[]): boolean => {
  for (const { space, handle } of blocks) if (space.held(handle) !== 0) return true
  return false
}
