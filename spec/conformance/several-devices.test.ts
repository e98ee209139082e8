// Plans for several devices of one process: they yield what `interpret` yields, on any devices of one kind.
// On host devices under jitter and with poisoned memory, so that a copy that starts too early, or a missing
// wait between devices, gives a wrong result.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  type CompileOptions,
  compile,
  device,
  download,
  graph,
  lane,
  matmul,
  mul,
  on,
  orThrow,
  param,
  parsePlan,
  relu,
  scan,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import { distance, meaning } from '../../dsl/interpret/meaning.js'
import { verify } from '../../dsl/verify/verify.js'
import { open, pulled, type RunError } from '../../runtime/index.js'
import { type Sample, sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { fleets, opened } from './devices.js'
import { expectMeant, outputsOf } from './meant.js'

type Compiling = Pick<CompileOptions, 'storage' | 'memory' | 'lanes' | 'fuse' | 'mode'>

const check = async (made: Sample, fleet: readonly string[], seed: number, compiling: Compiling) => {
  const { graph, params, dims, inFlight } = made
  const plan = orThrow(compile(graph, { dims, inFlight, ...compiling }))
  expect(verify(plan)).toEqual([])
  const host = fleet[0]!.startsWith('host')
    ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } }
    : {}
  const opening = { device: fleet, params: params as never, poison: true, trace: seed % 4 === 0, ...host }
  await using session = orThrow(await open(plan, opening)())
  expect(session.devices).toHaveLength(plan.devices)
  await expectMeant(made, await outputsOf(session as never, made))
  const { devices, peak, bound } = session.stats()
  expect(devices).toHaveLength(plan.devices)
  for (const one of devices) {
    expect(one.peak.reserved).toBeLessThanOrEqual(one.bound)
    expect(one.poolPeak).toBeLessThanOrEqual(one.bound)
  }
  expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
}

describe.each(fleets)(
  'what a plan for several devices yields on %s and the others is what interpret yields',
  (...fleet) => {
    const onHost = fleet[0]!.startsWith('host')
    const samples = sample({ devices: fleet.length })
    const seeds = fc.integer({ min: 1, max: 1e6 })
    // Each of them compiles its kernels for each device.
    const cases = runs(onHost ? 60 : 40)

    it('for generated graphs', { timeout: 300_000 }, async () => {
      await fc.assert(
        fc.asyncProperty(
          samples,
          seeds,
          fc.constantFrom(1, 99),
          fc.boolean(),
          fc.constantFrom('eager' as const, 'auto' as const),
          (made, seed, lanes, fuse, mode) => check(made, fleet, seed, { lanes, fuse, mode }),
        ),
        { numRuns: cases },
      )
    })

    it('for generated graphs whose buffers share the bytes of arenas', { timeout: 300_000 }, async () => {
      await fc.assert(
        fc.asyncProperty(
          samples,
          seeds,
          fc.constantFrom('fast' as const, 'small' as const),
          fc.boolean(),
          (made, seed, memory, fuse) =>
            check(made, fleet, seed, { mode: 'eager', storage: 'planned', memory, fuse }),
        ),
        { numRuns: cases },
      )
    })

    it('for a stream of weights that goes to all of them', { timeout: 60_000 }, async () => {
      const layers = 6
      const size = 32
      const params = Object.fromEntries(
        Array.from({ length: layers }, (_, i) => [
          `w${i}`,
          Float32Array.from({ length: size * size }, (_, k) => ((k * 7 + i * 3) % 11) / 64),
        ]),
      )
      const net = graph('layers', { x: tensor('f32', [4, size]) }, ({ x }) => {
        let flow = x.pipe(upload(device(0)))
        for (let i = 0; i < layers; i++) {
          const where = i % fleet.length
          const copy = lane(`copy${where}`, { device: where })
          const math = lane(`math${where}`, { device: where, priority: 'high' })
          const w = param(`w${i}`, tensor('f32', [size, size]), { on: 'host' }).pipe(
            upload(copy, { ahead: 1 }),
          )
          flow = flow.pipe(on(math), matmul(w), relu()) as typeof flow
        }
        return { y: flow.pipe(download()) }
      })
      const feeds = Array.from({ length: 8 }, (_, t) =>
        Float32Array.from({ length: 4 * size }, (_, k) => (k + t) % 3),
      )
      const wanted = await lastValueFrom(meaning(net, { params })({ x: feeds } as never).pipe(toArray()))
      for (const storage of ['pooled', 'planned'] as const) {
        const host = onHost ? { host: { jitter: 5, poison: true } } : {}
        const opening = { compile: { storage, inFlight: 3 }, params, poison: true, ...host }
        await using session = await opened(net, fleet, opening)
        let tick = 0
        for await (const lease of session.run({ x: pulled(feeds) })) {
          using out = lease
          const { values, allowed } = wanted[tick++]!
          expect(distance(out.y, values['y']!, allowed['y']!).wrong, `tick ${tick}`).toBeUndefined()
        }
        expect(tick).toBe(8)
        expect(session.stats().eventsCreated).toBe(0)
      }
    })

    it('with parameters and state on each of them, which can be read back', async () => {
      const net = graph('ring', { x: tensor('f32', [64]) }, ({ x }) => {
        const w = param('w', tensor('f32', [64]))
        const sums = fleet.map((_, i) =>
          x.pipe(
            upload(device(i)),
            mul(w),
            scan((acc, now) => acc.pipe(add(now)), i),
          ),
        )
        return { y: sums.reduce((all, own) => all.pipe(on(device(0)), add(own))).pipe(download()) }
      })
      const w = Float32Array.from({ length: 64 }, (_, i) => i)
      await using session = await opened(net, fleet, { params: { w }, trace: true })
      const got: number[] = []
      for await (const lease of session.run({
        x: pulled([1, 2, 3].map(v => new Float32Array(64).fill(v))),
      })) {
        using out = lease
        got.push(out.y[5]!)
      }
      const starts = fleet.reduce((sum, _, i) => sum + i, 0)
      expect(got).toEqual([5, 15, 30].map(total => starts + fleet.length * total))
      const { plan } = session
      const params = plan.buffers.filter(({ life }) => life === 'param')
      expect(params.map(({ name, device }) => `${name} ${device}`)).toEqual(fleet.map((_, i) => `w ${i}`))
      const states = plan.buffers.filter(({ life, alias }) => life === 'state' && alias === undefined)
      expect(new Set(states.map(({ device }) => device)).size).toBe(fleet.length)
      for (const { name, device: where } of states) expect((await session.read(name))[5]).toBe(where + 30)
      // Every run is on a lane of its own device, and there are as few copies between devices as possible.
      expect(new Set(session.trace().map(({ device }) => device)).size).toBe(fleet.length)
      expect(plan.nodes.filter(({ op }) => op === 'peer')).toHaveLength(fleet.length - 1)
    })

    it('from a file, too, and where a lane of another device copies what it holds to the host', async () => {
      const net = graph('filed', { x: tensor('f32', [1 << 12]) }, ({ x }) => ({
        y: x.pipe(upload(device(0)), add(1), on(device(1)), mul(2), download(lane('out', { device: 1 }))),
      }))
      const plan = JSON.parse(toJSON(orThrow(compile(net)))) as { lanes: { name: string; device: number }[] }
      for (const out of [1, 0]) {
        // Only copies may reach across: this one may.
        const lanes = plan.lanes.map(each => (each.name === 'out' ? { ...each, device: out } : each))
        const filed = orThrow(parsePlan({ ...plan, lanes }))
        expect(verify(filed, { safety: true })).toEqual([])
        await using session = orThrow(await open(filed, { device: fleet, poison: true, trace: true })())
        const feeds = Array.from({ length: 5 }, (_, t) => new Float32Array(1 << 12).fill(t))
        const got: number[] = []
        await session.run({ x: pulled(feeds) } as never).forEach(lease => {
          using held = lease as unknown as { y: Float32Array } & Disposable
          got.push(held.y[77]!)
        })
        expect(got).toEqual([2, 4, 6, 8, 10])
        expect(session.trace().find(({ lane }) => lane === 'out')?.device).toBe(out)
      }
    })

    it('and a session that ends gives all of them back', async () => {
      const net = graph('there', { x: tensor('f32', [1 << 16]) }, ({ x }) => ({
        y: fleet
          .slice(1)
          .reduce((flow, _, i) => flow.pipe(on(device(i + 1)), relu()), x.pipe(upload(device(0))))
          .pipe(download()),
      }))
      for (let round = 0; round < 3; round++) {
        await using session = await opened(net, fleet)
        const run = session.run({ x: pulled([new Float32Array(1 << 16).fill(round)]) })
        for await (const lease of run) {
          using out = lease
          expect(out.y[1000]).toBe(round)
        }
      }
    })
  },
)

describe('opening a plan for several devices', () => {
  const net = graph('two', { x: tensor('f32', [64]) }, ({ x }) => ({
    y: x.pipe(upload(device(0)), relu(), on(device(1)), relu(), download()),
  }))
  const plan = orThrow(compile(net))

  it.each([
    ['host:0', '2 devices, as the plan is made for', 'one: host:0'],
    [['host'], '2 devices, as the plan is made for', 'one: host:0'],
    ['cuda:0', '2 devices, as the plan is made for', 'one: cuda:0'],
    [['cuda:0', 'host'], 'devices of one kind', 'cuda:0, host:1'],
  ] as const)('on %s reports what is missing', async (wanted, words, found) => {
    const result = await open(plan, { device: wanted })()
    expect(E.isLeft(result) && result.left).toMatchObject({ _tag: 'NoDevice', wanted: words, found })
  })

  it.each([[[]], [['auto', 'host']], [[1]], [['cuda:x']]])(
    'refuses %j, which is no list of devices',
    async wanted => {
      const result = await open(plan, { device: wanted as never })()
      expect(E.isLeft(result) && result.left).toMatchObject({ _tag: 'BadOption', at: 'device' })
    },
  )

  it('takes as many host devices as it wants, and the first of more', async () => {
    await using many = orThrow(await open(plan, { device: 'host' })())
    expect(many.devices.map(({ device }) => device)).toEqual(['host', 'host:1'])
    await using some = orThrow(await open(plan, { device: ['host:4', 'host:2', 'host:9'] })())
    expect(some.devices.map(({ device }) => device)).toEqual(['host:4', 'host:2'])
  })

  it('names the device that has too little memory', async () => {
    const big = graph('big', { x: tensor('f32', [64]) }, ({ x }) => {
      const w = param('w', tensor('f32', [1 << 18]))
      return {
        y: x.pipe(upload(device(0)), relu(), download()),
        z: w.pipe(on(device(1)), relu(), download()),
      }
    })
    const result = await open(orThrow(compile(big)), {
      device: 'host',
      host: { memory: 1 << 20 },
      params: { w: new Float32Array(1 << 18) },
    })()
    expect(E.isLeft(result) && result.left).toMatchObject({
      _tag: 'OutOfMemory',
      at: 'host:1',
      subject: 'host:1',
    })
  })

  it('names the device that fails in a tick', async () => {
    const faults = [{ call: 'run', nth: 4, status: 719 }]
    await using session = orThrow(await open(plan, { device: 'host', host: { faults } })())
    const feeds = { x: pulled(Array.from({ length: 20 }, () => new Float32Array(64))) }
    const error = await lastValueFrom(session.run(feeds).pipe(toArray())).then(
      () => undefined,
      (error: RunError) => error,
    )
    expect(error?._tag).toBe('TickFailed')
    expect(error?.wanted).toMatch(/, host:[01]\)$/)
  })
})
