import type { CompileError } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import { show } from '../../ir/show.js'
import { h200 } from '../../machine/h200.js'
import { machineOf } from '../../machine/load.js'
import type { Machine } from '../../machine/machine.js'
import { fault, unless } from './faults.js'
import type { Passed } from './pass.js'

/** Of `lanes`: as many as a plan may have. */
export const noLimit = Number.MAX_SAFE_INTEGER

export type { CompileOptions } from '../../language/compile-options.js'
export type { Machine } from '../../machine/machine.js'

export interface Settings {
  readonly name: string
  readonly dims: ReadonlyMap<string, number>
  readonly inFlight: number
  /**
   * How many ticks in flight have an arena of their own: 1, which all of them share, or `inFlight`. No
   * option: see `search/choose-arenas.ts`.
   */
  readonly arenas: number
  readonly memory: number | 'fast' | 'small'
  /** Whether the program says `memory`: else graph mode may not hold much more than eager mode. */
  readonly memoryIsGiven: boolean
  /**
   * By device, then of pinned memory: bytes beyond which a plan is not taken, so that its bound need not be
   * known. No option: see `search/choose-fusion.ts`.
   */
  readonly enough?: {
    readonly bytes: readonly number[]
    readonly in: 'first tick' | 'any tick'
  }
  readonly storage: 'pooled' | 'planned'
  readonly mode: 'eager' | 'graph' | 'auto'
  /** Undefined: unless the graph is very large, see `search/choose-fusion.ts`. */
  readonly fuse: boolean | undefined
  readonly lanes: number
  readonly placement: 'chains' | 'cover'
  readonly machine: Machine
  readonly profile: ReadonlyMap<string, number>
}

/**
 * Whether a tick in flight has to come after anything of the tick before it: not where the host waits for
 * that one's end, nor where each has an arena of its own.
 */
export const ticksMeet = ({ inFlight, arenas }: Pick<Settings, 'inFlight' | 'arenas'>): boolean =>
  inFlight > 1 && arenas === 1

const whole = (value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): value is number =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most

const known = new Set([
  'dims',
  'inFlight',
  'memory',
  'storage',
  'mode',
  'fuse',
  'lanes',
  'placement',
  'machine',
  'profile',
  'name',
])

type Given = Readonly<Record<string, unknown>>
type Report = (option: string, wanted: string, found: unknown, next: string) => void

const isRecord = (value: unknown): value is Given =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const dimsOf = (bindings: unknown, symbols: ReadonlySet<string>, bad: Report): Settings['dims'] => {
  const dims = new Map<string, number>()
  if (bindings === undefined) return dims
  if (!isRecord(bindings)) {
    bad('dims', 'sizes by symbol, such as { batch: 64 }', bindings, 'give an object of whole numbers')
    return dims
  }
  const wanted =
    symbols.size > 0
      ? `a symbol of the graph: ${[...symbols].join(', ')}`
      : 'no dims: the graph has no symbol'
  for (const [symbol, size] of Object.entries(bindings)) {
    if (!whole(size, 0)) bad(`dims.${symbol}`, 'a whole number from 0', size, `bind ${symbol} to its size`)
    else if (!symbols.has(symbol)) bad(`dims.${symbol}`, wanted, symbol, 'correct the name, or leave it out')
    else dims.set(symbol, size)
  }
  return dims
}

const profileOf = (profile: unknown, bad: Report): Settings['profile'] => {
  const measured = new Map<string, number>()
  if (profile === undefined) return measured
  if (!isRecord(profile)) {
    const next = "give an object such as { 'matmul[0]': 120_000 }"
    bad('profile', 'nanoseconds by name of operation', profile, next)
    return measured
  }
  for (const [operation, time] of Object.entries(profile))
    if (typeof time === 'number' && Number.isFinite(time) && time >= 0) measured.set(operation, time)
    else bad(`profile.${operation}`, 'nanoseconds from 0', time, 'leave it out: its time is then predicted')
  return measured
}

const checkPlain = (
  { inFlight, memory, storage, mode, fuse, lanes, placement }: Given,
  bad: Report,
): void => {
  if (!whole(inFlight, 1, limits.inFlight)) {
    const next = 'give the number of ticks in flight; 2 overlaps two'
    bad('inFlight', `a whole number from 1 to ${limits.inFlight}`, inFlight, next)
  }
  if (memory !== 'fast' && memory !== 'small' && !whole(memory, 1)) {
    const next = 'give bytes as a whole number: 8 * 2 ** 30'
    bad('memory', "a number of bytes, 'fast' or 'small'", memory, next)
  }
  if (storage !== 'pooled' && storage !== 'planned')
    bad('storage', "'pooled' or 'planned'", storage, "leave it out for 'pooled'")
  if (mode !== 'eager' && mode !== 'graph' && mode !== 'auto')
    bad('mode', "'eager', 'graph' or 'auto'", mode, "leave it out for 'auto'")
  else if (mode === 'graph' && storage === 'pooled') {
    const wanted = "'planned' with mode: 'graph', whose nodes need the same addresses in every tick"
    bad('storage', wanted, storage, 'leave storage out')
  }
  if (fuse !== undefined && typeof fuse !== 'boolean')
    bad('fuse', 'true or false', fuse, 'leave it out for true')
  if (lanes !== noLimit && !whole(lanes, 1, limits.lanes))
    bad(
      'lanes',
      `a whole number from 1 to ${limits.lanes}`,
      lanes,
      'give the most CUDA streams, or leave it out',
    )
  if (placement !== 'chains' && placement !== 'cover')
    bad('placement', "'chains' or 'cover'", placement, "leave it out for 'chains'")
}

/** Checks options of any origin and fills in defaults. `symbols` are the symbolic dimensions of the graph. */
export const normaliseOptions = (
  options: unknown,
  graphName: string,
  symbols: ReadonlySet<string>,
): Passed<Settings> => {
  const errors: CompileError[] = []
  const bad: Report = (option, wanted, found, next) => {
    errors.push(fault('BadOption', `options.${option}`, option, wanted, show(found), next))
  }
  const given = isRecord(options) ? options : {}
  if (options !== undefined && !isRecord(options)) {
    const wanted = 'an object of options, or nothing'
    errors.push(fault('BadOption', 'options', 'options', wanted, show(options), 'write { inFlight: 2 }'))
  }
  for (const key of Object.keys(given))
    if (!known.has(key)) bad(key, `one of ${[...known].join(', ')}`, key, 'correct the name, or leave it out')
  const { inFlight = 2, memory = 'fast', fuse, placement = 'chains' } = given
  // Who asks for pooled storage asks for eager mode.
  const { mode = given['storage'] === 'pooled' ? 'eager' : 'auto' } = given
  const { storage = mode === 'graph' ? 'planned' : 'pooled' } = given
  const { lanes = noLimit, machine = h200, name = graphName } = given
  const plain = { inFlight, memory, storage, mode, fuse, lanes, placement }
  const dims = dimsOf(given['dims'], symbols, bad)
  checkPlain(plain, bad)
  const model = machine === h200 ? { right: h200 } : machineOf(machine, 'options.machine')
  if ('left' in model)
    for (const { at, subject, wanted, found, next } of model.left)
      errors.push(fault('BadOption', at, subject, wanted, found, next))
  const profile = profileOf(given['profile'], bad)
  if (typeof name !== 'string' || name.length === 0)
    bad('name', 'a name', name, "leave it out for the graph's")
  return unless(errors, () => ({
    ...(plain as Pick<Settings, keyof typeof plain>),
    memoryIsGiven: given['memory'] !== undefined,
    arenas: 1,
    name: name as string,
    dims,
    machine: 'right' in model ? model.right : h200,
    profile,
  }))
}
