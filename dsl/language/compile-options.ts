import type { Machine } from '../machine/machine.js'

/** The options of `compile`. A program carries them too, so they belong to the language. */
export interface CompileOptions {
  /** Sizes by symbol: one for each symbol of the graph. */
  readonly dims?: Readonly<Record<string, number>> | undefined
  /** Ticks that may be in flight at once: slot sets of inputs and outputs. Default 2. */
  readonly inFlight?: number | undefined
  /**
   * The most bytes of memory that the plan may take on each of its devices; `fast` (default) keeps every
   * `ahead`, `small` makes each 0. Where it is left out, `mode: 'auto'` takes graph mode only within a
   * quarter more than eager mode holds, or 32 MiB, and ticks that carry states overlap only where a tick by
   * itself takes little longer so.
   */
  readonly memory?: number | 'fast' | 'small' | undefined
  /**
   * `pooled`: tick buffers are allocated and freed during the tick; `planned`: the compiler gives each buffer
   * an offset in an arena. Default: `planned` in graph mode, `pooled` in eager mode, which it asks for.
   */
  readonly storage?: 'pooled' | 'planned' | undefined
  /**
   * `eager`: each command of a tick is issued by itself; `graph`: whatever can be is launched as an
   * executable graph, and storage is planned; `auto` (default, but with `storage: 'pooled'`): the one with
   * the shorter predicted tick, where `storage` is that of the eager plan. Graphs of more than 8,192
   * operations are issued eagerly.
   */
  readonly mode?: 'eager' | 'graph' | 'auto' | undefined
  /**
   * Several operations run in one kernel where that takes no longer and holds no more: what is between them
   * is never stored. Values agree within the operators' tolerance. `false`: each operation has a kernel of
   * its own. Default `true`, but for graphs of more than 262,144 operations, which would take too long to
   * compile.
   */
  readonly fuse?: boolean | undefined
  /**
   * The most CUDA streams of each device. Without it the compiler chooses up to 8 for operations without a
   * lane of the user's.
   */
  readonly lanes?: number | undefined
  /**
   * How independent work is cut into lanes: greedily (`chains`, the default), or into the fewest paths
   * possible (`cover`).
   */
  readonly placement?: 'chains' | 'cover' | undefined
  /**
   * The machine that lanes, order and windows are chosen for, by name or description (which may use
   * `extends`); default `h200`. It does not change a plan's results.
   */
  readonly machine?: string | Machine | Readonly<Record<string, unknown>> | undefined
  /** Measured times by name of operation, in nanoseconds. They take precedence over the machine's figures. */
  readonly profile?: Readonly<Record<string, number>> | undefined
  /** The plan's name; default: the graph's. */
  readonly name?: string | undefined
}
