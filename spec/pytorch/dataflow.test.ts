// Cases 27 to 32, and 5: the meaning of dataflows over several lanes, in the language, without events. On
// every device, with random timing and poisoned memory, so that a step that runs too early shows as a wrong
// number.
import { describe, expect, test } from 'vitest'
import {
  add,
  compile,
  download,
  type Flow,
  type Graph,
  graph,
  lane,
  matmul,
  mul,
  neg,
  on,
  orThrow,
  type Plan,
  type Ports,
  param,
  relu,
  scan,
  sub,
  type Tensor,
  tensor,
  upload,
} from '../../dsl/index.js'
import { pulled } from '../../runtime/index.js'
import { fleets, opened, present } from '../conformance/devices.js'
import { expectMeaning } from '../conformance/yields.js'
import { twiceInPlace } from '../fixtures/graphs/kernels.js'

const copy = lane('copy')
const math = lane('math')
const side = lane('side')
const other = lane('other')
const rows = lane('rows')
const row = tensor('f32', [1024])
type Row = Flow<'device', Tensor<'f32', readonly [1024]>>
type Net = Graph<Ports, Ports>
const net = (name: string, body: (x: Row) => Readonly<Record<string, Row>>): Net =>
  graph(name, { x: row }, ({ x }) => {
    const made = body(x.pipe(upload(copy)) as Row)
    return Object.fromEntries(Object.entries(made).map(([y, flow]) => [y, flow.pipe(download())]))
  }) as unknown as Net
const feed = (ticks: number) => ({
  x: Array.from({ length: ticks }, (_, tick) =>
    Float32Array.from({ length: 1024 }, (_, i) => tick * 4096 + i - 512),
  ),
})
const planOf = (graph: Net): Plan => orThrow(compile(graph, { mode: 'eager', fuse: false })) as Plan
const laneOf = (plan: Plan, name: string): number =>
  plan.commands.find(command => command[0] === 'run' && plan.nodes[command[1]]!.name === name)![2] as number
const waitsOn = (plan: Plan, lane: number): number =>
  plan.commands.filter(command => command[0] === 'wait' && command[2] === lane).length

describe.each(present)('dataflow over lanes on %s', device => {
  test('5: a session opened with trace has times in order on every lane; others have none', async () => {
    const graph = net('timed', x => ({ y: x.pipe(on(math), relu(), on(side), neg()) }))
    for (const trace of [false, true]) {
      await using session = await opened(graph, device, { trace })
      const run = session.run({ x: pulled(feed(3).x) } as never)
      await run.forEach(lease => {
        using _ = lease as Disposable
      })
      if (!trace) {
        expect(() => session.trace()).toThrow('trace: true')
        continue
      }
      const records = session.trace()
      expect(records.length).toBe(3 * planOf(graph).commands.filter(([kind]) => kind === 'run').length)
      const last = new Map<string, number>()
      for (const { lane, startMs, endMs } of records) {
        expect(endMs).toBeGreaterThanOrEqual(startMs)
        expect(startMs).toBeGreaterThanOrEqual(last.get(lane) ?? 0)
        last.set(lane, endMs)
      }
    }
  })

  test('27: a consumer needs a wait only on another lane than the producer’s', async () => {
    const within = net('within', x => ({ y: x.pipe(on(math), relu(), neg()) }))
    const beyond = net('beyond', x => ({ y: x.pipe(on(math), relu(), on(side), neg()) }))
    const [inside, outside] = [planOf(within), planOf(beyond)]
    expect(laneOf(inside, 'relu[0]')).toBe(laneOf(inside, 'neg[0]'))
    expect(waitsOn(inside, laneOf(inside, 'neg[0]'))).toBe(1)
    expect(laneOf(outside, 'relu[0]')).not.toBe(laneOf(outside, 'neg[0]'))
    expect(waitsOn(outside, laneOf(outside, 'neg[0]'))).toBe(1)
    expect(inside.commands.filter(([kind]) => kind === 'wait').length).toBe(
      outside.commands.filter(([kind]) => kind === 'wait').length - 1,
    )
    for (const graph of [within, beyond]) await expectMeaning(graph, device, feed(6), { seed: 27 })
  })

  test('27: the host gets complete values too', async () => {
    // The copy runs at 1 MiB a second: a lease that did not wait for it would show poisoned memory.
    const slow = device === 'host' ? { copyRate: 2 ** 20, jitter: 0 } : {}
    await expectMeaning(
      net('late', x => ({ y: x.pipe(on(side), neg()) })),
      device,
      feed(4),
      { host: slow },
    )
  })

  const square = (x: Row): Row => x.pipe(mul(x)) as Row
  test.each([
    [1, 'out of place', (x: Row): Row => x.pipe(add(x)) as Row],
    [5, 'out of place', (x: Row): Row => x.pipe(add(x)) as Row],
    [1, 'in place', (x: Row): Row => twiceInPlace({ x }).y as Row],
    [5, 'in place', (x: Row): Row => twiceInPlace({ x }).y as Row],
  ] as const)(
    '28: two branches fork and join, and the gradient adds up over %i ticks, %s',
    async (ticks, _, twice) => {
      // loss = Σ (x² + (2x)²)/2: the branches' gradients 2x·½·2 and 8x·½ are added, and a state sums them
      // over the ticks.
      const graph = net('branches', x => {
        const left = twice(x.pipe(on(side), mul(0.5)) as Row)
        const right = twice(twice(x.pipe(on(other), mul(1)) as Row))
        const gradient = left.pipe(on(math), add(right))
        return {
          loss: square(x.pipe(on(side), mul(1)) as Row).pipe(
            on(math),
            add(square(x.pipe(on(other), mul(2)) as Row)),
            mul(0.5),
          ),
          gradient: gradient.pipe(scan((sum, value) => sum.pipe(add(value)), 0)) as Row,
        }
      })
      const given = feed(ticks)
      const seen = await expectMeaning(graph, device, given, { seed: 28 + ticks })
      const total = given.x.reduce((sum, x) => sum + 5 * x[700]!, 0)
      expect(seen.at(-1)!['gradient']![700]).toBe(total)
    },
  )

  test('29: readers of an input wait for it on every lane, however late it is filled', async () => {
    const slow = device === 'host' ? { copyRate: 2 ** 19, jitter: 0 } : {}
    const graph = net('root', x => ({
      a: x.pipe(on(side), mul(2)),
      b: x.pipe(on(other), neg()),
      c: x.pipe(on(math), sub(1)),
    }))
    const plan = planOf(graph)
    for (const name of ['mul[0]', 'neg[0]', 'sub[0]']) expect(waitsOn(plan, laneOf(plan, name))).toBe(1)
    await expectMeaning(graph, device, feed(4), { host: slow })
  })

  test('30: a tick’s lease comes when its slowest lane has ended, and ticks come in order', async () => {
    const big = 2 ** 16
    const wide = tensor('f32', [big])
    const graphs = graph('leaves', { x: row, w: wide }, ({ x, w }) => ({
      quick: x.pipe(upload(copy), on(math), neg(), download(rows)),
      middle: x.pipe(upload(copy), on(side), mul(3), download(copy)),
      slow: w.pipe(upload(other), on(other), mul(2), download(other)),
    })) as unknown as Net
    const w = [0, 1, 2, 3].map(tick => new Float32Array(big).fill(tick + 1))
    const host = device === 'host' ? { copyRate: 2 ** 24, jitter: 0 } : {}
    const seen = await expectMeaning(graphs, device, { ...feed(4), w }, { host })
    expect(seen.map(({ slow }) => slow![big - 1])).toEqual([2, 4, 6, 8])
  })

  test('31: values that cross between host and device are ordered, for one and two consumers', async () => {
    const one = net('one', x => ({ y: x.pipe(on(math), neg()) }))
    const two = net('two', x => ({ y: x.pipe(on(math), neg()), z: x.pipe(on(side), mul(2)) }))
    const shared = net('shared', x => ({ y: x.pipe(on(math), neg()), z: x.pipe(on(math), neg(), relu()) }))
    for (const [graph, consumers] of [
      [one, 1],
      [two, 2],
      [shared, 1],
    ] as const) {
      const plan = planOf(graph)
      const upload = plan.commands.findIndex(([kind]) => kind === 'run')
      const record = plan.commands.findIndex(([kind], c) => c > upload && kind === 'record')
      const waits = plan.commands.filter(
        ([kind, event]) => kind === 'wait' && event === plan.commands[record]![1],
      )
      expect(waits).toHaveLength(consumers)
      await expectMeaning(graph, device, feed(6), { seed: 31 })
    }
  })

  test('32: matmuls of two lanes, in two concurrent sessions, do not disturb each other', async () => {
    const [m, k] = [48, 64]
    const weights = tensor('f32', [k, k])
    const product = (scale: number) =>
      graph('products', { x: tensor('f32', [m, k]) }, ({ x }) => {
        const on1 = x.pipe(upload(copy), on(math), matmul(param('a', weights)), mul(scale))
        const on2 = x.pipe(upload(copy), on(side), matmul(param('b', weights)), mul(scale))
        return { y: on1.pipe(download(math)), z: on2.pipe(download(side)) }
      }) as unknown as Net
    // Each weight is a multiple of the identity, so every number of the result is known.
    const identity = (factor: number) =>
      Float32Array.from({ length: k * k }, (_, i) => (i % (k + 1) === 0 ? factor : 0))
    const x = Float32Array.from({ length: m * k }, (_, i) => i % 251)
    await Promise.all(
      [1, 2, 4].map(async scale => {
        await using session = await opened(product(scale), device, {
          params: { a: identity(3), b: identity(5) },
          poison: true,
          ...(device === 'host' ? { host: { jitter: scale, jitterMicroseconds: 60, poison: true } } : {}),
        })
        const run = session.run({ x: pulled(Array.from({ length: 12 }, () => x)) } as never)
        await run.forEach(lease => {
          using held = lease as unknown as { y: Float32Array; z: Float32Array } & Disposable
          expect(held.y).toEqual(x.map(value => value * 3 * scale))
          expect(held.z).toEqual(x.map(value => value * 5 * scale))
        })
      }),
    )
  })

  test('32: matmuls that want a workspace share one for each lane, which lives on across ticks', () => {
    const size = 2048
    const graphs = graph('large', { x: tensor('f32', [size, size]) }, ({ x }) => {
      const device = x.pipe(upload(copy))
      return {
        y: device.pipe(on(math), matmul(device), matmul(device), download(math)),
        z: device.pipe(on(side), matmul(device), download(side)),
      }
    }) as unknown as Net
    const plan = planOf(graphs)
    const workspaces = plan.buffers.filter(({ name }) => name.startsWith('workspace'))
    expect(workspaces.map(({ life }) => life)).toEqual(['state', 'state'])
    const users = plan.commands.filter(
      command => command[0] === 'run' && workspaces.some(({ id }) => command[4].includes(id)),
    )
    for (const { id } of workspaces)
      expect(
        new Set(users.filter(command => (command[4] as number[]).includes(id)).map(command => command[2]))
          .size,
      ).toBe(1)
    expect(users).toHaveLength(3)
  })
})

describe.each(fleets)('dataflow over devices on %s and the others', (...fleet) => {
  test('31: copies from device to device are ordered, for one and two consumers', async () => {
    const wide = tensor('f32', [2 ** 16])
    const here = lane('here', { device: 0 })
    const [one, two] = [lane('one', { device: 1 }), lane('two', { device: 1 })]
    for (const consumers of [1, 2]) {
      const graphs = graph('transfer', { x: wide }, ({ x }) => {
        const made = x.pipe(upload(here), on(here), mul(2))
        const y = made.pipe(on(one), neg(), download())
        return consumers === 1 ? { y } : { y, z: made.pipe(on(two), mul(3), download()) }
      }) as unknown as Net
      const host = fleet[0]!.startsWith('host') ? { host: { jitter: 31, poison: true } } : {}
      await using session = await opened(graphs, fleet.slice(0, 2), { poison: true, ...host })
      const ticks = Array.from({ length: 6 }, (_, tick) => new Float32Array(2 ** 16).fill(tick + 1))
      let tick = 0
      await session.run({ x: pulled(ticks) } as never).forEach(lease => {
        using held = lease as unknown as Record<'y' | 'z', Float32Array> & Disposable
        tick++
        expect(held.y.every(value => value === -2 * tick)).toBe(true)
        if (consumers === 2) expect(held.z.every(value => value === 6 * tick)).toBe(true)
      })
      expect(tick).toBe(6)
    }
  })
})
