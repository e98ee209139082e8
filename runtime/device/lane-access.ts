// What blocks and events need of the lane that they name. lane.ts makes blocks and events, so their files
// cannot import it: it fills these in.
import type { Core } from './core.js'

/** The classes of handles, by what they are of. lane.ts adds `lane`. */
export interface Handles {
  readonly core: Core
}

/** Functions that reach into the private fields of a lane. */
export const laneAccess = {} as {
  /** The id of a lane. Throws unless it is a lane of this device that is not disposed of. */
  idFor(lane: unknown, core: Core, at: string): number
}

// The driver's code for work that has not completed yet.
export const notReady = 600
