import type { Machine } from '../machine/machine.js'

/** The options of `compile`. A program carries them too, so they belong to the language. */
export interface CompileOptions {
  /** What the symbols of shapes stand for; one that is not here is 1. */
  readonly dims?: Readonly<Record<string, number>> | undefined
  /** Ticks that may be in flight at once: slot sets of inputs and outputs. Default 2. */
  readonly inFlight?: number | undefined
  /** Bytes of device memory that the plan must fit, of each device that it is for; `fast` (default) keeps every `ahead`, `small` makes each 0. */
  readonly memory?: number | 'fast' | 'small' | undefined
  /** `pooled` (default): tick buffers are allocated and freed as the tick goes; `planned`: each has its place in an arena, found here. */
  readonly storage?: 'pooled' | 'planned' | undefined
  /** The most CUDA streams of each device. Without it the compiler chooses up to 8 for what the user gave no lane. */
  readonly lanes?: number | undefined
  /** How independent work is cut into lanes: greedily (`chains`, the default), or into the fewest paths there can be (`cover`). */
  readonly placement?: 'chains' | 'cover' | undefined
  /**
   * The machine that lanes, order and windows are chosen for, by name or description (one may say `extends`); default `h200`. What a plan means does not depend
   * on it.
   */
  readonly machine?: string | Machine | Readonly<Record<string, unknown>> | undefined
  /** Measured times by name of operation, in nanoseconds: they stand before what the machine's figures say. */
  readonly profile?: Readonly<Record<string, number>> | undefined
  /** The plan's name; default: the graph's. */
  readonly name?: string | undefined
}
