// The error of a plan that does not fit has the least sufficient bytes, and for each device the holders at
// its peak.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  add,
  type CompileOptions,
  compile,
  download,
  type Graph,
  graph,
  lane,
  orThrow,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { CompileError } from '../../../dsl/ir/graph.js'
import { render } from '../../../dsl/ir/messages.js'
import { heldAtPeak } from '../../../dsl/memory/held.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { often, runs } from '../../fixtures/runs.js'

const refused = (graph: Graph, options: CompileOptions): Required<CompileError> => {
  const found = compile(graph, { mode: 'eager', ...options, memory: 1 })
  if (E.isRight(found) || found.left[0]._tag !== 'OverBudget') throw new Error('it fits')
  return found.left[0] as Required<CompileError>
}

const storage = fc.constantFrom('pooled' as const, 'planned' as const)

/** Checks the error; returns how many of its parts are freed already. */
const check = (graph: Graph, options: CompileOptions): number => {
  const { found, parts } = refused(graph, options)
  const least = Number(/^(\d+) bytes at the least; in memory at the peak: /.exec(found)![1])
  expect(parts.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(least)
  for (const part of parts) {
    expect(part.bytes).toBeGreaterThan(0)
    expect(part.because, part.name).not.toMatch(/^$|( after| by) ?$/)
    if (part.name !== '') expect(part.at).toMatch(/\.ts:\d+:\d+$/)
  }
  // It is the plan that `small` makes, and each part of that plan's peak is there.
  const small = orThrow(compile(graph, { mode: 'eager', ...options, memory: 'small' }))
  expect(small.bound.device).toEqual([least])
  const held = heldAtPeak(small).find(({ space }) => space === 'device')?.parts ?? []
  const row = ({ name, bytes, because }: { name: string; bytes: number; because: string }) =>
    JSON.stringify([bytes, name, because])
  expect(parts.map(row)).toEqual(expect.arrayContaining(held.map(row)))
  expect(parts.length - held.length).toBeOneOf([0, 1])
  const freed = parts.filter(({ because }) => because.startsWith('freed'))
  for (const { because } of freed) {
    const [, taker, readers] =
      /^freed(?: a tick ago| \d+ ticks ago)?, but (.+) is not known to be after (.+)$/.exec(because)!
    expect(small.lanes.map(({ name }) => name)).toContain(taker)
    expect(readers).toMatch(/ on \w+/)
  }
  return freed.length
}

describe('a plan that does not fit', () => {
  test('lists the bytes of its smallest peak: those in use, and those freed but not ready', () => {
    let freed = 0
    fc.assert(
      fc.property(sample({ steps: 12 }), storage, ({ graph, dims, inFlight }, storage) => {
        freed += check(graph, { dims, inFlight, storage })
      }),
      { numRuns: runs(60) },
    )
    fc.assert(
      fc.property(patterns(24), fc.constantFrom(1, 2), storage, (pattern, inFlight, storage) => {
        freed += check(patternGraph(pattern), { inFlight, storage })
      }),
      { numRuns: runs(40) },
    )
    expect(freed).toBeGreaterThan(often(0))
  })

  test('lists the plan that `small` takes, where another way to fuse holds as much and has a longer tick', () => {
    const pattern = { seed: 7770185, lanes: 5, nodes: 5, sizes: 'equal', reach: 1, crossing: 0 } as const
    check(patternGraph(pattern), { inFlight: 1, storage: 'planned' })
  })

  test('is an error of a dozen lines, whatever there is', () => {
    const many = graph('many', { x: tensor('f32', [256]) }, ({ x }) => {
      const parts = Array.from({ length: 30 }, (_, i) => x.pipe(upload(lane('h2d')), add(i)))
      return { y: parts.reduce((sum, part) => sum.pipe(add(part))).pipe(download(lane('d2h'))) }
    })
    const error = refused(many as unknown as Graph, {})
    const text = render(error).split('\n')
    expect(text.filter(line => /^ +[\d,]+ bytes {2}/.test(line))).toHaveLength(
      Math.min(13, error.parts.length),
    )
    if (error.parts.length > 13) expect(text.at(-2)).toMatch(/ bytes {2}in \d+ parts more$/)
  })
})
