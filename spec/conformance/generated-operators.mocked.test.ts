// Which operators generated graphs are made of: every public one, and every cast, reaches an output.
// Operators are read from the language: the functions of `dsl/language/operators` that `dsl/index.ts`
// exports.
import { readdirSync } from 'node:fs'
import fc from 'fast-check'
import { expect, it, vi } from 'vitest'
import { type Graph, irOf } from '../../dsl/index.js'
import { elementBytes } from '../../dsl/ir/tensor.js'
import { FlowValue } from '../../dsl/language/builder.js'
import { liveNodes } from '../../dsl/language/live.js'
import { operators } from '../../dsl/language/operators/registry.js'
import { sample } from '../fixtures/graphs/random.js'
import { mixed, moves } from '../fixtures/graphs/ranks.js'

/**
 * The public operators; and the values of the graph that was built last, each with the operator that made it.
 */
const seen = vi.hoisted(() => ({
  operators: new Set<string>(),
  made: [] as [name: string, value: unknown][],
}))

vi.mock('../../dsl/index.js', async original => {
  const exported = await original<Record<string, unknown>>()
  const folder = new URL('../../dsl/language/operators/', import.meta.url)
  const changed: Record<string, unknown> = {}
  const noted = (name: string, value: unknown): unknown => {
    seen.made.push([name, value])
    return value
  }
  for (const file of readdirSync(folder).filter(name => name.endsWith('.ts'))) {
    const own: Record<string, unknown> = await import(new URL(file, folder).pathname)
    for (const [name, operator] of Object.entries(own)) {
      if (typeof operator !== 'function' || exported[name] !== operator) continue
      seen.operators.add(name)
      changed[name] = (...given: unknown[]) => {
        const piped: unknown = operator(...given)
        return typeof piped === 'function' ? (x: unknown) => noted(name, piped(x)) : noted(name, piped)
      }
    }
  }
  return { ...exported, ...changed }
})

/** The nodes of a value: of a flow, a list of flows, or flows by name. */
const nodesOf = (value: unknown): readonly number[] =>
  value instanceof FlowValue
    ? [value.id]
    : typeof value === 'object' && value !== null
      ? Object.values(value).flatMap(nodesOf)
      : []

/** The operators and the casts on which an output of one of `count` graphs depends. */
const reached = <A>(arbitrary: fc.Arbitrary<A>, count: number, graphOf: (made: A) => Graph) => {
  const used = new Set<string>()
  const casts = new Set<string>()
  const each = fc.property(arbitrary, given => {
    const { nodes, outputs } = irOf(graphOf(given))
    const live = liveNodes({ nodes, outputs })
    const ids = new Set(live.map(({ id }) => id))
    for (const [name, value] of seen.made.splice(0))
      if (nodesOf(value).some(id => ids.has(id))) used.add(name)
    for (const { op, inputs, spec } of live)
      if (op === 'cast') casts.add(`${nodes[inputs[0]!]!.spec.dtype} to ${spec.dtype}`)
  })
  fc.assert(each, { numRuns: count, seed: 7 })
  return { used, casts }
}

it('generated graphs have every operator of one rank, and every cast', () => {
  const size = { least: 8, steps: 20 }
  const { used, casts } = reached(
    fc.oneof(sample(size), sample({ ...size, rates: true })),
    400,
    made => made.graph,
  )
  const missing = [...seen.operators].filter(
    name => !used.has(name) && operators[name]?.exchange === undefined,
  )
  expect(seen.operators.size).toBeGreaterThan(70)
  expect(missing).toEqual([])
  const types = Object.keys(elementBytes)
  const all = types.flatMap(from => types.filter(to => to !== from).map(to => `${from} to ${to}`))
  expect(all.filter(cast => !casts.has(cast))).toEqual([])
})

it('generated graphs of several ranks have every collective', () => {
  const { used } = reached(moves(14), 100, mixed)
  const missing = [...seen.operators].filter(
    name => !used.has(name) && operators[name]?.exchange !== undefined,
  )
  expect(missing).toEqual([])
})
