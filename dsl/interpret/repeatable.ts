import type { CompileError, GraphIR } from '../ir/graph.js'
import { type DType, elementBytes } from '../ir/tensor.js'
import type { ParamValues } from '../language/param.js'
import { lateFunction } from '../language/reference.js'

/** The error of a source, by its place, that gives other bytes at a later call. */
export const unrepeatable = (
  at: string,
  subject: string,
  source: string,
  first: Uint8Array,
  later: Uint8Array,
  dtype: DType,
): CompileError | undefined => {
  const byte = first.findIndex((value, i) => value !== later[i])
  if (byte < 0 && first.length === later.length) return undefined
  return {
    _tag: 'Unrepeatable',
    at,
    subject,
    wanted: `${source} that gives the same bytes at every call`,
    found: `another value of element ${Math.floor(byte / elementBytes[dtype])} at a later call`,
    next: 'draw from a generator that starts with the same seed at each call, or draw once and give the array',
  }
}

interface Filled {
  readonly name: string
  readonly dtype: DType
  readonly shape: readonly number[]
  readonly bytes: number
}

type Source = (into: Uint8Array, spec: Filled) => unknown

export interface Repeatable {
  /** The graph and the parameters, with functions that give at every call what they gave at the first one. */
  readonly graph: GraphIR
  readonly params: ParamValues
  /** One for each function whose second call gave other bytes than its first one. */
  readonly faults: () => readonly CompileError[]
}

/**
 * Draws every value once, however often it is asked for, so that runs which are compared begin with the same
 * bytes. At the second request the source is called once more, and both results are compared. Whatever else a
 * source does, its caller sees as before: errors, and what it returns.
 */
export const repeatable = (graph: GraphIR, params: ParamValues = {}): Repeatable => {
  const faults = new Map<string, CompileError>()
  const once = (source: Source, at: string, kind: string): Source => {
    // One function may fill several values: its second argument says which.
    const values = new Map<string, { readonly bytes: Uint8Array; compared: boolean }>()
    const called = (into: Uint8Array, spec: Filled, then: () => void): unknown => {
      const returned = source(into, spec)
      if (typeof (returned as PromiseLike<unknown> | undefined)?.then !== 'function') then()
      else return (returned as PromiseLike<unknown>).then(then)
      return returned
    }
    return (into, spec) => {
      const { name, dtype, shape, bytes } = spec
      const key = JSON.stringify([name, dtype, shape])
      const known = values.get(key)
      if (known === undefined)
        return called(into, spec, () => {
          // A source that took the bytes away has filled nothing: its caller reports it.
          if (into.byteLength >= bytes) values.set(key, { bytes: into.slice(0, bytes), compared: false })
        })
      if (known.compared) return void into.set(known.bytes)
      const again = new Uint8Array(bytes)
      return called(again, spec, () => {
        known.compared = true
        const fault = unrepeatable(at, name, `a function for ${kind}`, known.bytes, again, dtype)
        if (fault !== undefined) faults.set(`${at} ${key}`, fault)
        into.set(known.bytes)
      })
    }
  }
  // By function: nodes with the same function stay alike for the compiler.
  const fills = new Map<unknown, Source>()
  const nodes = graph.nodes.map(node => {
    const init = node.attrs['init']
    if (typeof init !== 'function') return node
    if (!fills.has(init))
      fills.set(init, once(init as Source, node.at.toString(), 'the first value of a state'))
    return { ...node, attrs: { ...node.attrs, init: fills.get(init) } }
  })
  // A generator fills nothing: who asks it says so.
  const drawn = Object.entries(params).flatMap(([name, value]) => {
    const late = lateFunction(value)
    const isSource = typeof value === 'function' && (late === undefined || late === 'an async function')
    return isSource ? [[name, once(value as Source, `params.${name}`, 'a parameter')] as const] : []
  })
  return {
    graph: { ...graph, nodes },
    params: drawn.length === 0 ? params : ({ ...params, ...Object.fromEntries(drawn) } as ParamValues),
    faults: () => [...faults.values()],
  }
}
