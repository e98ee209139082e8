import type { CompileOptions } from './compile-options.js'
import type { Feed } from './feed.js'
import type { Graph } from './graph.js'
import type { ParamValues } from './param.js'
import type { HostArrayOf, Ports } from './tensor.js'

/** A feed for each input of a graph. */
export type FeedsOf<I extends Ports> = { readonly [K in keyof I]: Feed<HostArrayOf<I[K]>> }

/** Options of `compile` and of `open`, under the same names. Flags of the command line take precedence. */
export interface ProgramOptions extends CompileOptions {
  readonly device?: 'auto' | 'host' | `cuda:${number}`
  /** Settings of the host device: `memory`, `copyRate`, `flopRate`, `jitter` and so on, as in `open`. */
  readonly host?: Readonly<Record<string, unknown>>
  readonly poison?: boolean
  readonly trace?: boolean
}

export interface ProgramSpec<I extends Ports, O extends Ports> {
  readonly graph: Graph<I, O>
  /** The feeds, or a function that makes fresh ones for every run. */
  readonly feeds: FeedsOf<I> | (() => FeedsOf<I>)
  readonly params?: ParamValues
  readonly options?: ProgramOptions
}

const brand = 'braid.program'

/** The export of a file that the command line can run. */
export interface Program<I extends Ports = Ports, O extends Ports = Ports> extends ProgramSpec<I, O> {
  readonly kind: typeof brand
}

/** A program: `export default program({ graph, feeds, params, options })`. Pure; nothing is opened. */
export const program = <I extends Ports, O extends Ports>(spec: ProgramSpec<I, O>): Program<I, O> =>
  Object.freeze({ ...spec, kind: brand })

/** Whether `program` made the value, in this copy of the package or in another one. */
export const isProgram = (value: unknown): value is Program =>
  typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === brand
