// The law of the project with states that grow: for every graph of appends, of values that are read before
// and after them, and of every position, the compiled plan yields what `interpret` yields.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it, vi } from 'vitest'
import {
  add,
  append,
  compile,
  type DeviceFlow,
  download,
  explain,
  graph,
  interpret,
  matmul,
  mul,
  orThrow,
  state,
  sub,
  tensor,
  transpose,
  upload,
} from '../../dsl/index.js'
import { parsePlan } from '../../dsl/ir/load.js'
import { toJSON } from '../../dsl/ir/text.js'
import { appended } from '../fixtures/graphs/appends.js'
import { valuesOf } from '../fixtures/graphs/random.js'
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
          { mode: 'eager' } as const,
          { mode: 'eager', storage: 'planned' } as const,
          { storage: 'planned', mode: 'graph' } as const,
        ),
        fc.boolean(),
        async (made, seed, compiling, fuse) => {
          const host =
            device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
          await using session = await opened(made.graph, device, {
            compile: { inFlight: made.inFlight, fuse, ...compiling },
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
    expect(said(true)).toContain(
      'append[0] changes a copy of keys: it is an output, or goes to another device',
    )
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

describe.each(present)('the next value of a state on %s', device => {
  const square = tensor('f32', [4, 4])
  type Square = DeviceFlow<typeof square>
  type Body = (w: Square, x: Square) => { readonly next: Square; readonly y: Square }
  const cases: readonly (readonly [string, boolean, RegExp, Body])[] = [
    [
      'is made in place by what reads it element by element',
      true,
      /the next w is made in place by add\[0\]/,
      (w, x) => {
        const next = w.pipe(add(x))
        return { next, y: next.pipe(mul(2)) }
      },
    ],
    [
      'is made in place by what does not read it',
      true,
      /the next w is made in place by matmul\[0\]/,
      (w, x) => {
        const y = w.pipe(sub(x))
        return { y, next: x.pipe(matmul(y)) }
      },
    ],
    [
      'is a copy where an output has it',
      false,
      /the next w is a copy of add\[0\]: it is an output/,
      (w, x) => {
        const next = w.pipe(add(x))
        return { next, y: next }
      },
    ],
    [
      'is a copy where the value before is read later',
      false,
      /the next w is a copy of add\[0\]: sub\[0\] reads the value before later/,
      (w, x) => {
        const next = w.pipe(add(x))
        return { next, y: w.pipe(sub(next)) }
      },
    ],
    [
      'is a copy where its kernel reads the value before in another order',
      false,
      /the next w is a copy of transpose\[0\]: the kernel reads the value before in another order/,
      (w, x) => {
        const next = w.pipe(transpose([1, 0]))
        return { next, y: next.pipe(add(x)) }
      },
    ],
    [
      'is a copy where its kernel reads the value before as a whole',
      false,
      /the next w is a copy of matmul\[0\]: the kernel reads the value before in another order/,
      (w, x) => {
        const next = w.pipe(matmul(x))
        return { next, y: next.pipe(mul(0.5)) }
      },
    ],
  ]
  it.each(cases)('%s', async (_, isInPlace, says, body) => {
    const made = graph('kept', { x: square }, ({ x }) => {
      const s = state({ w: square }, { w: 1 })
      const { next, y } = body(s.w, x.pipe(upload()))
      s.next({ w: next })
      return { y: y.pipe(download()) }
    })
    const feeds = { x: [1, 2, 3, 4].map(seed => valuesOf('f32', 16, seed) as Float32Array) }
    const meant = await lastValueFrom(interpret(made)(feeds).pipe(toArray()))
    // What is said of each operation, so none is part of another one's kernel.
    for (const compiling of [
      { mode: 'eager' },
      { mode: 'eager', storage: 'planned' },
      { storage: 'planned', mode: 'graph' },
    ] as const) {
      const compile = { inFlight: 2, fuse: false, ...compiling }
      await using session = await opened(made, device, { compile })
      const stores = session.plan.nodes.filter(({ op }) => op === 'store')
      expect(stores).toHaveLength(isInPlace ? 0 : 1)
      expect(explain(session.plan, 'text')).toMatch(says)
      const got = await outputsOf(session as never, { feeds })
      got.forEach(({ y }, tick) => {
        y!.forEach((value, i) => {
          expect(value).toBeCloseTo(meant[tick]!.y[i]!, 4)
        })
      })
    }
  })
})
