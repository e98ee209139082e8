// What blocks and events need of the lane that they name. lane.ts makes blocks and events, so their files
// cannot import it: it fills these in.
import type { NativeNode } from '../addon.js'
import type { Core } from './core.js'
import type { GraphEvent } from './graph-event.js'

/** The classes of handles, by what they are of. lane.ts adds `lane`. */
export interface Handles {
  readonly core: Core
}

/** What the addon knows a block by. */
export interface NativeBlock {
  readonly space: 0 | 1
  readonly block: number
}

/** A capture that lanes take part in. runtime/graphs makes captures. */
export interface LaneCapture {
  /** Whether it has not ended. */
  readonly active: boolean
  /** What the lane, by its id, is given becomes a node. */
  work(lane: number, node: NativeNode, at: string): void
  /** Marks what the lane has captured so far. */
  record(lane: number, event: GraphEvent, at: string): void
  /**
   * Device memory for what the lane captures: as `Space.malloc`, with the home lane's id in `core.out[2]`.
   */
  malloc(core: Core, lane: number, bytes: number, pool: number, site: number, at: string): number
  /** The lane uses the block: see `Block.recordUse`, and with `stream` `Block.recordStream`. */
  use(lane: number, block: NativeBlock, stream: boolean, at: string): void
  /** Makes the lane go on after what the event marks. It joins the capture by that. */
  wait(lane: Handles['lane'], id: number, event: GraphEvent, at: string): void
}

/** Functions that reach into the private fields of a lane. */
export const laneAccess = {} as {
  /**
   * The id of a lane. Throws unless it is a lane of this device that is not disposed of, and that is not
   * being captured, except where `captured` says that it may.
   */
  idFor(lane: unknown, core: Core, at: string, captured?: boolean): number
  /** The capture that a lane takes part in. */
  captureOf(lane: Handles['lane']): LaneCapture | undefined
  /** The device of a lane. */
  coreFor(lane: unknown, at: string): Core
  /** From here on the lane's work goes into the capture. */
  setCapture(lane: Handles['lane'], capture: LaneCapture | undefined): void
}

// The driver's code for work that has not completed yet.
export const notReady = 600
