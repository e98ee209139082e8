// Ticks in flight with an arena each, on every device: the bits of eager issue, as much memory as the plan
// promises, and two ticks in progress at once.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CompileOptions } from '../../dsl/index.js'
import { add, download, graph, lane, mul, param, scan, tensor, upload } from '../../dsl/index.js'
import { patternGraph, patternInput, patterns } from '../fixtures/graphs/patterns.js'
import { sample } from '../fixtures/graphs/random.js'
import { roomy } from '../fixtures/machines/roomy.js'
import { often, runs } from '../fixtures/runs.js'
import { floats, rows, runner } from './both-modes.js'
import { opened, present } from './devices.js'
import { expectMeant, outputsOf } from './meant.js'

describe.each(present)('an arena for each tick in flight, on %s', device => {
  let several = 0
  const { expectSame, expectKept } = runner(device, { machine: roomy }, (plan, { devices }) => {
    if (plan.arenas !== undefined) several++
    devices.forEach(({ peak }, d) => {
      expect(peak.reserved).toBeLessThanOrEqual(plan.bound.device[d]!)
    })
  })

  it('yields what the graph means, and the bits of eager issue', { timeout: 120_000 }, async () => {
    several = 0
    await fc.assert(
      fc.asyncProperty(
        sample(),
        fc.integer({ min: 1, max: 1e6 }),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        async (made, seed, inFlight, fuse) => {
          const { graph, params, dims, feeds, ticks } = made
          const compile = { dims, inFlight, fuse, memory: 'fast' as const }
          const all = await expectSame({ graph, params, feeds, compile, ...(ticks ? { ticks } : {}) }, seed)
          for (const got of all) await expectMeant(made, got)
        },
      ),
      { numRuns: runs(40) },
    )
    expect(several).toBeGreaterThan(often(0))
  })

  it('over lanes that hardly meet', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        patterns(60),
        fc.integer({ min: 2, max: 4 }),
        fc.integer({ min: 1, max: 1e6 }),
        async (pattern, inFlight, seed) => {
          const x = Array.from({ length: 12 }, (_, tick) =>
            floats(patternInput, i => Math.sin(i + 1000 * tick)),
          )
          several = 0
          await expectSame({ graph: patternGraph(pattern), compile: { inFlight }, feeds: { x } }, seed)
          expect(several).toBe(1)
        },
      ),
      { numRuns: runs(20) },
    )
  })

  const four = tensor('f32', [4])
  const [left, right] = [lane('left'), lane('right')]
  const net = graph('net', { x: four }, ({ x }) => {
    const w = param('w', four)
    const a = x.pipe(upload(left), mul(w))
    const b = x.pipe(upload(right), add(1))
    return { y: a.pipe(add(b), mul(0.5), download(left)) }
  })
  const params = { w: floats(4, i => i + 1) }
  const compiling = (inFlight: number): CompileOptions => ({ mode: 'graph', inFlight, machine: roomy })

  it('holds the bytes that it promises: as many times what a tick has for itself', async () => {
    const reserved = async (inFlight: number): Promise<number> => {
      await using session = await opened(net, device, { compile: compiling(inFlight), params })
      await outputsOf(session as never, { feeds: { x: rows(8) } })
      const { peak, bound } = session.stats()
      expect(peak.reserved).toBe(bound.device)
      return peak.reserved
    }
    const [one, two, four] = [await reserved(1), await reserved(2), await reserved(4)]
    expect(two - one).toBeGreaterThan(0)
    expect(four - one).toBe(3 * (two - one))
  })

  it('waits for a reader that keeps its leases, whatever slot comes free', async () => {
    await expectKept({ graph: net as never, params, compile: { inFlight: 3 } }, ({ arenas }) =>
      expect(arenas).toBe(3),
    )
  })

  it('carries states from tick to tick, whose other work overlaps', async () => {
    const counting = graph('counting', { x: four }, ({ x }) => ({
      y: x.pipe(
        upload(left),
        mul(2),
        scan((sum, value) => sum.pipe(mul(0.5), add(value)), 0),
        download(left),
      ),
      z: x.pipe(
        upload(right),
        scan((sum, value) => sum.pipe(add(value)), 0),
        download(right),
      ),
    }))
    several = 0
    const compile = { inFlight: 3, fuse: false, memory: 'fast' as const }
    await expectSame({ graph: counting as never, compile, feeds: { x: rows(50) } }, 3)
    expect(several).toBe(1)
  })
})

describe('ticks in flight on a host device', () => {
  const long = tensor('f32', [1 << 16])
  const row = new Float32Array(1 << 16).fill(1)
  const net = graph('net', { x: long }, ({ x }) => ({ y: x.pipe(upload(), add(1), download()) }))
  const slow = { host: { copyRate: 4 * 65_536 * 200, deviceRate: 0 } } // 5 ms a copy

  /**
   * Whether some run of a tick was in progress with some run of another one, by the times of their events.
   */
  const overlaps = async (
    arenas: boolean,
    until: (found: boolean, turn: number) => boolean,
  ): Promise<boolean> => {
    const compile: CompileOptions = { mode: 'graph', inFlight: 2, memory: arenas ? 'fast' : 'small' }
    await using session = await opened(net, 'host', {
      ...slow,
      trace: true,
      compile: { ...compile, machine: roomy },
    })
    expect(session.plan.arenas).toBe(arenas ? 2 : undefined)
    let found = false
    for (let turn = 0; !until(found, turn); turn++) {
      await outputsOf(session as never, { feeds: { x: Array.from({ length: 4 }, () => row) } })
      const all = session.trace()
      found = all.some(one =>
        all.some(
          other =>
            other.tick === one.tick + 1 && other.startMs < one.endMs - 0.1 && one.startMs < other.endMs - 0.1,
        ),
      )
    }
    return found
  }

  it('are in progress at once, each in its arena', { timeout: 120_000 }, async () => {
    expect(await overlaps(true, found => found)).toBe(true)
  })

  it('follow each other in one arena', async () => {
    expect(await overlaps(false, (_, turn) => turn === 2)).toBe(false)
  })
})

describe.each(present)('ticks without memory of their own on %s', device => {
  it('have lanes of their own all the same', async () => {
    const large = tensor('f32', [2 ** 18])
    const plain = graph('plain', {}, () => ({ y: param('x', large).pipe(add(1)) }))
    const params = { x: new Float32Array(2 ** 18).fill(2) }
    const compile: CompileOptions = { mode: 'graph', inFlight: 3, machine: roomy }
    await using session = await opened(plain, device, { params, compile })
    expect(session.plan.arenas).toBe(3)
    let ticks = 0
    await session.run({}, { ticks: 4 }).forEach(lease => {
      ticks++
      lease[Symbol.dispose]()
    })
    expect(ticks).toBe(4)
  })
})
