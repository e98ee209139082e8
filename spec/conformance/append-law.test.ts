// The law of the project with states that grow: for every graph of appends, of values that are read before and after
// them, and of every position, the compiled plan yields what `interpret` yields.
import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import { append, compile, download, explain, graph, orThrow, state, tensor, upload } from '../../dsl/index.js'
import { parsePlan } from '../../dsl/ir/load.js'
import { toJSON } from '../../dsl/ir/text.js'
import { appended } from '../fixtures/graphs/appends.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { meantOf, mismatch, outputsOf } from './meant.js'

/** Whether every value is changed in place, whatever reads it later. */
const broken = vi.hoisted(() => ({ is: false }))

vi.mock('../../dsl/compiler/analysis/taken-memory.js', async original => {
  const own = await original<typeof import('../../dsl/compiler/analysis/taken-memory.js')>()
  return {
    ...own,
    takenMemory: (ir: Parameters<typeof own.takenMemory>[0]) => {
      const decided = own.takenMemory(ir)
      return broken.is ? new Map([...decided.keys()].map(node => [node, { node }])) : decided
    },
  }
})

describe.each(present)('appends on %s', device => {
  const law = (numRuns: number) => {
    const seen = { appends: 0, copied: 0 }
    const holds = fc.assert(
      fc.asyncProperty(
        appended,
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom(
          {},
          { storage: 'planned' } as const,
          { storage: 'planned', mode: 'graph' } as const,
          { fuse: true } as const,
        ),
        async (made, seed, compiling) => {
          const host =
            device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
          await using session = await opened(made.graph, device, {
            compile: { inFlight: made.inFlight, ...compiling },
            ...host,
          })
          for (const { kernel, name } of session.plan.nodes) {
            if (kernel?.kind === 'append') seen.appends++
            if (name.startsWith('copy(')) seen.copied++
          }
          expect(mismatch(made, await meantOf(made), await outputsOf(session as never, made))).toBeUndefined()
        },
      ),
      { numRuns, endOnFailure: broken.is },
    )
    return holds.then(() => seen)
  }

  it('make what interpret makes of them', { timeout: 60_000 }, async () => {
    const { appends, copied } = await law(runs(120))
    expect(copied).toBeGreaterThan(often(10))
    expect(appends - copied).toBeGreaterThan(often(10))
  })

  it('would make something else without the copies', { timeout: 60_000 }, async () => {
    broken.is = true
    try {
      await expect(law(200)).rejects.toThrow()
    } finally {
      broken.is = false
    }
  })
})

describe('a cache', () => {
  const rows = tensor('f32', [2, 1, 4])
  const cacheOf = (readsOld: boolean) =>
    graph('cache', { rows }, flows => {
      const cache = state({ keys: tensor('f32', [2, 8, 4]), length: tensor('i32', []) })
      const keys = cache.keys.pipe(append(flows.rows.pipe(upload()), { axis: 1, at: cache.length }))
      cache.next({ keys, length: cache.length })
      return { y: (readsOld ? cache.keys : keys).pipe(download()) }
    })
  const moved = (readsOld: boolean): readonly string[] =>
    orThrow(compile(cacheOf(readsOld))).nodes.map(({ name }) => name)

  const said = (readsOld: boolean): string => explain(orThrow(compile(cacheOf(readsOld))), 'text')

  it('is written in its own memory', () => {
    expect(moved(false).filter(name => /copy|store/.test(name))).toEqual([])
    expect(said(false)).toContain('append[0] changes keys in place')
  })

  it('is copied where the value before is read later', () => {
    expect(moved(true).filter(name => /copy|store/.test(name))).toEqual(['copy(keys)', 'store(keys)'])
    expect(said(true)).toContain('append[0] changes a copy of keys: it is an output')
  })

  it('is loaded from a file only where what is written is what is read', () => {
    const plan = orThrow(compile(cacheOf(true)))
    expect(parsePlan(JSON.parse(toJSON(plan)))).toMatchObject({ _tag: 'Right' })
    const own = plan.buffers.find(({ name, life }) => name === 'keys' && life === 'state')!
    const other = plan.buffers.find(({ name, life }) => name === 'copy(keys)' && life === 'tick')!
    const broken = {
      ...plan,
      buffers: plan.buffers.map(buffer =>
        buffer.alias === other.id ? { ...buffer, alias: own.id } : buffer,
      ),
    }
    const parsed = parsePlan(JSON.parse(toJSON(broken)))
    expect(parsed).toMatchObject({ _tag: 'Left' })
    expect(JSON.stringify(parsed)).toContain('write 0 in the memory of read 0')
  })
})
