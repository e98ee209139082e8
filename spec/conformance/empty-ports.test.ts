// What callers name and give may be without elements: inputs, outputs, parameters, states and files. And users'
// kernels some of whose operands are.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { afterAll, describe, expect, it } from 'vitest'
import {
  add,
  after,
  BraidError,
  compile,
  device as deviceOf,
  download,
  every,
  explain,
  graph,
  hold,
  interpret,
  kernel,
  lane,
  mul,
  on,
  orThrow,
  owned,
  param,
  parsePlan,
  relu,
  ring,
  scan,
  simulate,
  state,
  sum,
  tensor,
  toJSON,
  tree,
  until,
  upload,
  verify,
  window,
} from '../../dsl/index.js'
import { Device, open, params, planTree, pulled, safetensors, writeSafetensors } from '../../runtime/index.js'
import { sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { fleets, opened, present } from './devices.js'
import { expectMeant, meantOf, outputsOf } from './meant.js'
import { expectMeaning } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: the types of operators are tested in spec/types
type Anything = any

const folder = mkdtempSync(join(tmpdir(), 'braid-empty-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const none = new Float32Array(0)
const storages = ['pooled', 'planned'] as const
const ways = [
  { storage: 'pooled', mode: 'eager' },
  { storage: 'planned', mode: 'eager' },
  { storage: 'planned', mode: 'graph' },
] as const

/** Sums of the rows of a table, of which there may be none, and the table doubled. */
const ofTable = (rows: number) =>
  graph({ x: tensor('f32', [2]) }, ({ x }) => {
    const table = param('table', tensor('f32', [rows, 2]))
    const onHost = param('bias', tensor('f32', [rows, 2]), { on: 'host' }).pipe(upload())
    return {
      sum: x.pipe(upload(), add(table.pipe(sum({ axis: 0 }))), download()),
      both: table.pipe(add(onHost), download()),
    }
  })

describe.each(present)('on %s', device => {
  const given = { x: [new Float32Array([1, 2]), new Float32Array([3, 4])] }

  it('parameters without elements are given as arrays, by functions and by a file', async () => {
    const path = join(folder, `table-${device.replace(':', '-')}.safetensors`)
    const shape = [0, 2]
    orThrow(
      await writeSafetensors(path, [
        { name: 'table', dtype: 'f32', shape, bytes: new Uint8Array(0) },
        { name: 'bias', dtype: 'f32', shape, bytes: new Uint8Array(0) },
      ])(),
    )
    const filled: number[] = []
    const fill = (into: Uint8Array) => void filled.push(into.length)
    const net = ofTable(0)
    await expectMeaning(net as never, device, given, { params: { table: none, bias: none } })
    for (const way of ways)
      for (const source of [
        { table: none, bias: none },
        { table: fill, bias: fill },
      ]) {
        const plan = orThrow(compile(net, way))
        await using session = orThrow(await open(plan, { device, params: source })())
        expect(await outputsOf(session as never, { feeds: given })).toEqual(
          given.x.map(sum => ({ sum, both: none })),
        )
        expect(await session.params.read('table')).toEqual(none)
        await session.params.write('table', none)
      }
    expect(filled).toEqual([0, 0, 0, 0, 0, 0])
    await using weights = await params(device, safetensors(path))
    await using session = orThrow(
      await open(orThrow(compile(net)), { device: weights.device, params: weights })(),
    )
    expect((await outputsOf(session as never, { feeds: given }))[1]).toEqual({ sum: given.x[1], both: none })
    const wrong = await open(orThrow(compile(net)), {
      device,
      params: { table: new Float32Array(2), bias: none },
    })()
    expect(() => orThrow(wrong)).toThrow('wanted  Float32Array of 0 elements, f32[0, 2]')
  })

  it('sessions share parameters without elements', async () => {
    await using weights = await params(device, { table: none, bias: none })
    const plan = orThrow(compile(ofTable(0)))
    for (let i = 0; i < 2; i++) {
      await using session = orThrow(await open(plan, { device: weights.device, params: weights })())
      expect(await outputsOf(session as never, { feeds: given })).toEqual(
        given.x.map(sum => ({ sum, both: none })),
      )
      await weights.write('table', none)
    }
  })

  it.each(storages)('outputs without elements stay on the device, with %s storage', async storage => {
    const net = graph({ x: tensor('f32', ['n', 2]) }, ({ x }) => {
      const y = x.pipe(upload(), relu())
      return { y, total: y.pipe(sum({ axis: 0 })), host: y.pipe(download()) }
    })
    await using memory = orThrow(await Device.open(device)())
    const compiled = orThrow(compile(net, { dims: { n: 0 }, storage }))
    await using session = orThrow(await open(compiled, { device: memory })())
    const reader = memory.lane()
    const seen = memory.pinned(8, reader)
    let ticks = 0
    for await (const lease of session.run({ x: pulled([none, none, none]) })) {
      using held = lease
      expect(held.y.bytes).toBe(0)
      held.y.recordUse(reader)
      reader.copy(seen, held.y)
      reader.copy(seen, held.total)
      await reader.synchronize()
      expect(new Float32Array(seen.view())).toEqual(new Float32Array(2))
      expect(held.host).toEqual(none)
      ticks++
    }
    expect(ticks).toBe(3)
    const { peak, bound } = session.stats()
    expect(peak.reserved).toBeLessThanOrEqual(bound.device)
    expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
  })

  it('states without elements are read, written, given and passed over to another plan', async () => {
    const net = graph({ x: tensor('f32', ['n']) }, ({ x }) => {
      const s = state({ rows: tensor('f32', ['n']), count: tensor('i32', []) }, { rows: [], count: 3 })
      const u = x.pipe(upload())
      const rows = s.rows.pipe(add(u))
      const count = s.count.pipe(add(1))
      s.next({ rows, count })
      return { rows: rows.pipe(download()), count: count.pipe(download()) }
    })
    const feeds = { x: [none, none] }
    for (const way of ways) {
      const options = { ...way, dims: { n: 0 } }
      await expectMeaning(net as never, device, feeds, { compile: options })
      await using session = await opened(net, device, { compile: options, state: { rows: none } })
      expect(session.state.names).toEqual(['rows', 'count'])
      const ran = async () => (await outputsOf(session as never, { feeds })).map(({ count }) => count![0])
      expect(await ran()).toEqual([4, 5])
      expect(await session.state.read('rows')).toEqual(none)
      await session.state.write({ rows: none, count: new Int32Array([10]) })
      await session.swap(orThrow(compile(net, { ...options, fuse: false })))
      expect(await ran()).toEqual([11, 12])
      expect(await session.read('rows')).toEqual(none)
    }
  })

  it('of a tick without operations every value is yielded', async () => {
    const net = graph({ x: tensor('u8', ['n', 3]) }, ({ x }) => {
      const u = x.pipe(upload(lane('in')))
      return { y: u.pipe(add(1), download(lane('out'))), z: u }
    })
    const values = Array.from({ length: 50 }, () => new Uint8Array(0))
    for (const way of ways)
      for (const inFlight of [1, 3]) {
        const plan = orThrow(compile(net, { ...way, inFlight, dims: { n: 0 } }))
        expect(plan.commands).toEqual([])
        expect(verify(plan)).toEqual([])
        const read = orThrow(parsePlan(toJSON(plan)))
        expect(read).toEqual(plan)
        for (const as of ['text', 'svg', 'dot', 'perfetto'] as const)
          expect(explain(read as never, as).length).toBeGreaterThan(0)
        const { tickMs, exposed } = simulate(plan, 'h200')
        expect([tickMs, ...Object.values(exposed)].every(Number.isFinite)).toBe(true)
        await using session = orThrow(await open(read, { device, trace: true })())
        let ticks = 0
        for await (const lease of session.run({ x: pulled(values) } as never)) {
          using held = lease as unknown as { readonly y: Uint8Array } & Disposable
          expect(held.y).toEqual(new Uint8Array(0))
          ticks++
        }
        expect(ticks).toBe(50)
        expect(session.trace()).toEqual([])
      }
  })

  it('values without elements come at other rates', async () => {
    const net = graph({ x: tensor('f32', ['n', 2]) }, ({ x }) => {
      const u = x.pipe(upload())
      const slow = u.pipe(window(2))
      const total = slow.pipe(sum({ axis: 1 }), sum({ axis: 0 }), add(1))
      return {
        slow: slow.pipe(download()),
        last: u.pipe(every(2), download()),
        held: u.pipe(add(u.pipe(every(2), hold([]))), download()),
        fast: u.pipe(sum({ axis: 0 }), add(total.pipe(hold(1))), download()),
        same: x.pipe(upload(), download()),
        pairs: x.pipe(window(2), upload(), download()),
      }
    })
    const feeds = { x: [none, none, none, none] }
    for (const way of ways)
      for (const fuse of [true, false])
        await expectMeaning(net as never, device, feeds, { compile: { ...way, fuse, dims: { n: 0 } } })
  })

  it('an order after a value without elements is none', async () => {
    const net = graph({ x: tensor('f32', ['n']), y: tensor('f32', [2]) }, ({ x, y }) => {
      const [none, some] = [x.pipe(upload(), relu()), y.pipe(upload(), relu())]
      const ordered = (value: Anything, first: Anything) => value.pipe(after(first), mul(2), download())
      return { y: ordered(some, none), x: ordered(none, some) }
    })
    const feeds = { x: [none], y: [new Float32Array([1, 2])] }
    for (const way of ways)
      await expectMeaning(net as never, device, feeds, { compile: { ...way, dims: { n: 0 } } })
  })
})

describe.each(present)('in plan trees on %s, values without elements', device => {
  const [rows, row] = [tensor('f32', [0, 4]), tensor('f32', [4])]
  const planned = { storage: 'planned' } as const
  const first = orThrow(
    compile(
      graph('first', { x: rows, r: row }, ({ x, r }) => ({
        rows: x.pipe(upload(), mul(2), download()),
        twice: r.pipe(upload(), mul(2), download()),
      })),
      planned,
    ),
  )
  const then = orThrow(
    compile(
      graph('then', { rows, more: rows }, given => {
        const next = given.rows.pipe(upload(), add(given.more.pipe(upload())))
        return { rows: next.pipe(download()), total: next.pipe(sum({ axis: 0 }), download()) }
      }),
      planned,
    ),
  )

  it.each([
    ['pass on', {}],
    ['are kept until a plan comes', { keep: { first: { rows: until('then') } } }],
    ['are copied out', { keep: { first: { rows: owned } } }],
    ['are kept, the newest three', { keep: { then: { rows: ring(3) } } }],
  ])('%s', async (_, more) => {
    const spec = {
      plans: { first, then },
      start: ['first'],
      then: { first: ['then'], then: ['then'] },
    } as const
    const opened: Anything = orThrow(
      await planTree(tree({ ...spec, ...more } as never), { device, poison: true })(),
    )
    try {
      let last = opened.launch('first', { x: none, r: new Float32Array([1, 2, 3, 4]) })
      expect((await last.values).twice).toEqual(new Float32Array([2, 4, 6, 8]))
      for (let i = 0; i < 5; i++) {
        last = last.next('then', { more: none })
        expect((await last.values).total).toEqual(new Float32Array(4))
        expect(await last.handles.rows.read()).toEqual(none)
      }
    } finally {
      await opened.close()
    }
  })
})

/** Adds the number of elements of x to y, and copies x. */
const counted = kernel({
  name: 'counted',
  cuda: `extern "C" __global__ void counted(const float* x, const float* y, float* same, float* more, int n) {
    if (threadIdx.x < n) same[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 2) more[threadIdx.x] = y[threadIdx.x] + n;
  }`,
  reads: { x: tensor('f32', ['n']), y: tensor('f32', [2]) },
  writes: { same: tensor('f32', ['n']), more: tensor('f32', [2]) },
  launch: ({ n }) => ({ grid: 1, block: 32, scalars: [{ i32: n! }] }),
  reference: ({ x, y }, { same, more }) => {
    same.set(x)
    for (let i = 0; i < 2; i++) more[i] = y[i]! + x.length
  },
})

/** Adds the number of elements of x to y, in the memory of both. */
const countedInPlace = kernel({
  name: 'counted_in_place',
  cuda: `extern "C" __global__ void counted_in_place(const float*, const float*, float* same, float* more, int n) {
    if (threadIdx.x < 2) more[threadIdx.x] += n;
  }`,
  reads: { x: tensor('f32', ['n']), y: tensor('f32', [2]) },
  writes: { same: tensor('f32', ['n']), more: tensor('f32', [2]) },
  donates: { same: 'x', more: 'y' },
  launch: ({ n }) => ({ grid: 1, block: 32, scalars: [{ i32: n! }] }),
  reference: ({ x }, { more }) => {
    for (let i = 0; i < 2; i++) more[i]! += x.length
  },
})

/** A kernel whose launch no device can make where x has no elements. */
const copied = kernel({
  name: 'copied',
  cuda: 'extern "C" __global__ void copied(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }',
  reads: { x: tensor('f32', ['n']) },
  writes: { y: tensor('f32', ['n']) },
  launch: ({ n }) => ({ grid: 1, block: n! }),
  reference: ({ x }, { y }) => {
    if (x.length === 0) throw new Error('called for nothing')
    y.set(x)
  },
})

describe.each(present)("users' kernels on %s", device => {
  const feeds = { x: [none, none, none], y: [1, 2, 3].map(n => new Float32Array([n, 2 * n])) }

  it.each(ways)('run where some result has elements: $storage, $mode', async way => {
    const net = graph({ x: tensor('f32', ['n']), y: tensor('f32', [2]) }, given => {
      const [x, y] = [given.x.pipe(upload()), given.y.pipe(upload())]
      const one = counted({ x, y })
      // What it makes of no elements is read by the next one, on another lane.
      const two = counted({ x: one.same.pipe(on(lane('other'))), y: one.more })
      const three = countedInPlace({ x: two.same.pipe(relu()), y: two.more.pipe(mul(2)) })
      return {
        same: three.same.pipe(download()),
        more: three.more.pipe(download()),
        one: one.same.pipe(download()),
        stays: one.same,
      }
    })
    const options = { ...way, dims: { n: 0 }, inFlight: 3 }
    const plan = orThrow(compile(net, options))
    expect(verify(plan)).toEqual([])
    expect(plan.nodes.filter(({ kernel }) => kernel?.kind === 'cuda').length).toBe(3)
    await using session = orThrow(await open(plan, { device, poison: true })())
    const more: number[][] = []
    for await (const lease of session.run({ x: pulled(feeds.x), y: pulled(feeds.y) })) {
      using held = lease
      expect(held.same).toEqual(none)
      expect(held.one).toEqual(none)
      expect(held.stays.bytes).toBe(0)
      more.push([...held.more])
    }
    expect(more).toEqual([
      [2, 4],
      [4, 8],
      [6, 12],
    ])
  })

  it('do not run where none has', async () => {
    const net = graph({ x: tensor('f32', ['n']) }, ({ x }) => ({
      y: copied({ x: x.pipe(upload()) }).y.pipe(download()),
    }))
    await expectMeaning(net as never, device, { x: feeds.x }, { compile: { dims: { n: 0 } } })
    expect(orThrow(compile(net, { dims: { n: 0 } })).commands).toEqual([])
    await expectMeaning(
      net as never,
      device,
      { x: [new Float32Array([5, 6])] },
      { compile: { dims: { n: 2 } } },
    )
  })
})

describe.each(fleets)('values without elements on %s and %s', (...fleet) => {
  it('are left on the device that they are on', async () => {
    const net = graph({ x: tensor('f32', ['n', 2]) }, ({ x }) => {
      const far = x.pipe(upload(), on(deviceOf(1)), relu())
      const table = param('table', tensor('f32', ['n', 2]))
      const acc = far.pipe(scan((a: Anything, b: Anything) => a.pipe(add(b)), 0) as never) as typeof far
      return { far, total: far.pipe(add(table), sum({ axis: 0 }), download()), acc: acc.pipe(download()) }
    })
    for (const storage of storages) {
      const compiling = { dims: { n: 0 }, storage }
      const options = { compile: compiling, params: { table: none } } as const
      await using session = await opened(net, fleet.slice(0, 2), options as never)
      expect(session.plan.buffers.find(({ name }) => name === 'far')!.device).toBe(1)
      for await (const lease of session.run({ x: pulled([none, none]) })) {
        using held = lease
        expect(held.far.bytes).toBe(0)
        expect(held.total).toEqual(new Float32Array(2))
        expect(held.acc).toEqual(none)
      }
    }
  })

  it('60 generated graphs yield what interpret yields, or are refused', { timeout: 120_000 }, async () => {
    const samples = sample({ empty: true, devices: fleet.length })
    await fc.assert(
      fc.asyncProperty(samples, fc.constantFrom(...ways), async (made, way) => {
        const { graph: net, params, dims, inFlight } = made
        const options = { ...way, dims, inFlight }
        const compiled = compile(net, options)
        if (E.isLeft(compiled)) {
          await expect(meantOf(made)).rejects.toThrow(BraidError)
          return
        }
        const used = fleet.slice(0, compiled.right.devices)
        await using session = await opened(net, used, { compile: options, params, poison: true })
        await expectMeant(made, await outputsOf(session as never, made))
      }),
      { numRuns: runs(60) },
    )
  })
})

it('interpret yields values without elements too', async () => {
  const net = ofTable(0)
  const seen: unknown[] = []
  await interpret(net, { params: { table: none, bias: none } as never })({
    x: [new Float32Array([1, 2])],
  }).forEach(outputs => void seen.push(outputs))
  expect(seen).toEqual([{ sum: new Float32Array([1, 2]), both: none }])
})
