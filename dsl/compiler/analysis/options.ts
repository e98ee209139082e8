import type { CompileError } from '../../ir/graph.js'
import { h200 } from '../../machine/h200.js'
import { machineOf } from '../../machine/load.js'
import type { Machine } from '../../machine/machine.js'
import { fault, unless } from './faults.js'
import type { Passed } from './pass.js'

export type { CompileOptions } from '../../language/compile-options.js'
export type { Machine } from '../../machine/machine.js'

export interface Settings {
  readonly name: string
  readonly dims: ReadonlyMap<string, number>
  readonly inFlight: number
  readonly memory: number | 'fast' | 'small'
  readonly storage: 'pooled' | 'planned'
  readonly lanes: number
  readonly placement: 'chains' | 'cover'
  readonly machine: Machine
  readonly profile: ReadonlyMap<string, number>
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

const known = new Set([
  'dims',
  'inFlight',
  'memory',
  'storage',
  'lanes',
  'placement',
  'machine',
  'profile',
  'name',
])

/** Checks options of any origin and fills in defaults. `symbols` are the symbolic dimensions of the graph. */
export const normaliseOptions = (
  options: unknown,
  graphName: string,
  symbols: ReadonlySet<string>,
): Passed<Settings> => {
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
    placement = 'chains',
    machine = h200,
    profile,
    name = graphName,
  } = given
  if (
    bindings !== undefined &&
    (typeof bindings !== 'object' || bindings === null || Array.isArray(bindings))
  )
    bad('dims', 'sizes by symbol, such as { batch: 64 }', bindings, 'give an object of whole numbers')
  else
    for (const [symbol, size] of Object.entries(bindings ?? {})) {
      if (!whole(size, 1)) bad(`dims.${symbol}`, 'a whole number from 1', size, `bind ${symbol} to its size`)
      else if (!symbols.has(symbol))
        bad(
          `dims.${symbol}`,
          symbols.size
            ? `a symbol of the graph: ${[...symbols].join(', ')}`
            : 'no dims: the graph has no symbol',
          symbol,
          'correct the name, or leave it out',
        )
      else dims.set(symbol, size)
    }
  if (!whole(inFlight, 1, 65_536))
    bad(
      'inFlight',
      'a whole number from 1 to 65536',
      inFlight,
      'give the number of ticks in flight; 2 overlaps two',
    )
  if (memory !== 'fast' && memory !== 'small' && !whole(memory, 1))
    bad('memory', "a number of bytes, 'fast' or 'small'", memory, 'give bytes as a whole number: 8 * 2 ** 30')
  if (storage !== 'pooled' && storage !== 'planned')
    bad('storage', "'pooled' or 'planned'", storage, "leave it out for 'pooled'")
  if (!whole(lanes, 1))
    bad('lanes', 'a whole number from 1', lanes, 'give the most CUDA streams, or leave it out')
  if (placement !== 'chains' && placement !== 'cover')
    bad('placement', "'chains' or 'cover'", placement, "leave it out for 'chains'")
  const model = machine === h200 ? { right: h200 } : machineOf(machine, 'options.machine')
  if ('left' in model)
    for (const { at, subject, wanted, found, next } of model.left)
      errors.push(fault('BadOption', at, subject, wanted, found, next))
  const measured = new Map<string, number>()
  if (profile !== undefined && (typeof profile !== 'object' || profile === null || Array.isArray(profile)))
    bad(
      'profile',
      'nanoseconds by name of operation',
      profile,
      "give an object such as { 'matmul[0]': 120_000 }",
    )
  else
    for (const [operation, time] of Object.entries(profile ?? {})) {
      if (typeof time !== 'number' || !Number.isFinite(time) || time < 0)
        bad(`profile.${operation}`, 'nanoseconds from 0', time, 'leave it out: its time is then predicted')
      else measured.set(operation, time)
    }
  if (typeof name !== 'string' || name.length === 0)
    bad('name', 'a name', name, "leave it out for the graph's")

  return unless(errors, () => ({
    name: name as string,
    dims,
    inFlight: inFlight as number,
    memory: memory as Settings['memory'],
    storage: storage as Settings['storage'],
    lanes: lanes as number,
    placement: placement as Settings['placement'],
    machine: 'right' in model ? model.right : h200,
    profile: measured,
  }))
}
