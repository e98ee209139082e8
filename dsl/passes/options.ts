import type { CompileError } from '../ir/graph.js'
import { fault, unless } from './faults.js'
import type { Passed } from './ir.js'

/** A machine by name or description, for predictions; `compile` itself does not depend on it. */
export type Machine = string | Readonly<Record<string, unknown>>

export interface CompileOptions {
  /** What the symbols of shapes stand for; one that is not here is 1. */
  readonly dims?: Readonly<Record<string, number>> | undefined
  /** Ticks that may be in flight at once: slot sets of inputs and outputs. Default 2. */
  readonly inFlight?: number | undefined
  /** Bytes of device memory that the plan must fit; `fast` (default) keeps every `ahead`, `small` makes each 0. */
  readonly memory?: number | 'fast' | 'small' | undefined
  /** `pooled` (default): tick buffers are allocated and freed as the tick goes; `planned`: each has its place in an arena, found here. */
  readonly storage?: 'pooled' | 'planned' | undefined
  /** The most CUDA streams. */
  readonly lanes?: number | undefined
  readonly machine?: Machine | undefined
  /** The plan's name; default: the graph's. */
  readonly name?: string | undefined
}

export interface Settings {
  readonly name: string
  readonly dims: ReadonlyMap<string, number>
  readonly inFlight: number
  readonly memory: number | 'fast' | 'small'
  readonly storage: 'pooled' | 'planned'
  readonly lanes: number
}

const whole = (value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): value is number =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most

const show = (value: unknown): string => {
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'symbol') return 'a symbol'
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'an array' : 'an object'
  return String(value)
}

const known = new Set(['dims', 'inFlight', 'memory', 'storage', 'lanes', 'machine', 'name'])

/** Options as anybody may have given them; `symbols` are the dimensions that the graph speaks of. */
export const settle = (options: unknown, graphName: string, symbols: ReadonlySet<string>): Passed<Settings> => {
  const errors: CompileError[] = []
  const bad = (option: string, wanted: string, found: unknown, next: string): void => {
    errors.push(fault('BadOption', `options.${option}`, option, wanted, show(found), next))
  }
  const isObject = typeof options === 'object' && options !== null && !Array.isArray(options)
  if (options !== undefined && !isObject)
    errors.push(
      fault(
        'BadOption',
        'options',
        'options',
        'an object of options, or nothing',
        show(options),
        'write { inFlight: 2 }',
      ),
    )
  const given = (isObject ? options : {}) as Readonly<Record<string, unknown>>
  for (const key of Object.keys(given))
    if (!known.has(key)) bad(key, `one of ${[...known].join(', ')}`, key, 'correct the name, or leave it out')

  const dims = new Map<string, number>()
  const {
    dims: bindings,
    inFlight = 2,
    memory = 'fast',
    storage = 'pooled',
    lanes = Number.MAX_SAFE_INTEGER,
    machine,
    name = graphName,
  } = given
  if (bindings !== undefined && (typeof bindings !== 'object' || bindings === null || Array.isArray(bindings)))
    bad('dims', 'sizes by symbol, such as { batch: 64 }', bindings, 'give an object of whole numbers')
  else
    for (const [symbol, size] of Object.entries(bindings ?? {})) {
      if (!whole(size, 1)) bad(`dims.${symbol}`, 'a whole number from 1', size, `bind ${symbol} to its size`)
      else if (!symbols.has(symbol))
        bad(
          `dims.${symbol}`,
          symbols.size ? `a symbol of the graph: ${[...symbols].join(', ')}` : 'no dims: the graph has no symbol',
          symbol,
          'correct the name, or leave it out',
        )
      else dims.set(symbol, size)
    }
  if (!whole(inFlight, 1, 65_536))
    bad('inFlight', 'a whole number from 1 to 65536', inFlight, 'give the number of ticks in flight; 2 overlaps two')
  if (memory !== 'fast' && memory !== 'small' && !whole(memory, 1))
    bad('memory', "a number of bytes, 'fast' or 'small'", memory, 'give bytes as a whole number: 8 * 2 ** 30')
  if (storage !== 'pooled' && storage !== 'planned')
    bad('storage', "'pooled' or 'planned'", storage, "leave it out for 'pooled'")
  if (!whole(lanes, 1)) bad('lanes', 'a whole number from 1', lanes, 'give the most CUDA streams, or leave it out')
  if (machine !== undefined && typeof machine !== 'string' && (typeof machine !== 'object' || machine === null))
    bad('machine', 'the name of a machine, or its description', machine, 'leave it out')
  if (typeof name !== 'string' || name.length === 0) bad('name', 'a name', name, "leave it out for the graph's")

  return unless(errors, () => ({
    name: name as string,
    dims,
    inFlight: inFlight as number,
    memory: memory as Settings['memory'],
    storage: storage as Settings['storage'],
    lanes: lanes as number,
  }))
}
