// Cases 124 to 132: schedules of sharded training, with gathered weights and scattered or reduced gradients.
// By hand on the allocator, where a collective is a copy on its own lane and a gate makes it slow; and as
// programs, by the issue order of their plans.
import { describe, expect, test } from 'vitest'
import {
  add,
  type Command,
  compile,
  download,
  type Flow,
  type Graph,
  graph,
  lane,
  matmul,
  mul,
  on,
  orThrow,
  type Plan,
  type Ports,
  param,
  relu,
  type Tensor,
  tensor,
  upload,
  verify,
} from '../../dsl/index.js'
import { type Block, type Device, type Event, type Lane, open, pulled } from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import { busy, deviceOf, hold, KiB, MiB, mirrorOf, settles } from '../fixtures/allocator.js'

const bytes = 4 * MiB
const sample = 64 * KiB
const square = tensor('f32', [32, 32])
type Square = Flow<'device', Tensor<'f32', readonly [32, 32]>>
const [gatherLane, math, scatterLane, rows] = [lane('gather'), lane('math'), lane('scatter'), lane('rows')]

interface Shape {
  readonly layers: number
  readonly ahead: number
  readonly passes?: number
  /** Layers whose values are computed again in backward rather than kept. */
  readonly recompute?: boolean
  /** Layers that backward leaves out. */
  readonly skip?: readonly number[]
}

/**
 * `passes` forwards, then their backwards. Each layer's weight is gathered for forward and, in reverse order,
 * for backward; each gradient is scattered on a separate lane. Uploads are named after their parameters, so
 * that tests can read the order.
 */
const training = ({ layers, ahead, passes = 1, recompute = false, skip = [] }: Shape): Graph<Ports, Ports> =>
  graph('training', { x: square }, ({ x }) => {
    let counter = 0
    const gathered = (layer: number, phase: string): Square =>
      param(`${phase}${layer}.${counter++}`, square, { on: 'host' }).pipe(
        upload(gatherLane, { ahead }),
      ) as Square
    const grads: Record<string, Flow<'host', Tensor<'f32', readonly [32, 32]>>> = {}
    const start = x.pipe(upload(rows), on(math)) as Square
    const tapes: Square[][] = []
    for (let pass = 0; pass < passes; pass++) {
      const tape = [start]
      for (let layer = 0; layer < layers; layer++)
        tape.push(tape.at(-1)!.pipe(on(math), matmul(gathered(layer, 'f')), relu()) as Square)
      tapes.push(tape)
    }
    for (const [pass, tape] of tapes.entries()) {
      let gradient = tape.at(-1)!
      for (let layer = layers - 1; layer >= 0; layer--) {
        if (skip.includes(layer)) continue
        const weight = gathered(layer, 'b')
        const input = recompute ? (tape[layer]!.pipe(on(math), mul(1)) as Square) : tape[layer]!
        gradient = gradient.pipe(on(math), matmul(weight), add(input)) as Square
        grads[`g${pass}_${layer}`] = gradient.pipe(on(scatterLane), mul(0.5), download(scatterLane)) as never
      }
    }
    return grads as never
  }) as unknown as Graph<Ports, Ports>

const planOf = (net: Graph<Ports, Ports>, options: Parameters<typeof compile>[1] = {}): Plan => {
  const plan = orThrow(compile(net, { mode: 'eager', ...options })) as Plan
  expect(verify(plan)).toEqual([])
  return plan
}
const runsOn = (plan: Plan, name: string): (Command & { 0: 'run' })[] => {
  const id = plan.lanes.find(lane => lane.name.split('+').includes(name) || lane.name === name)!.id
  return plan.commands.filter(
    (command): command is Command & { 0: 'run' } => command[0] === 'run' && command[2] === id,
  )
}
const nameOf = (plan: Plan, run: Command & { 0: 'run' }): string =>
  plan.nodes[run[1]]!.name.replace(/\.\d+$/, '')
const gathers = (plan: Plan): string[] => runsOn(plan, 'gather').map(run => nameOf(plan, run))

/**
 * For each gather, the number of the tick's matmuls that were issued before it.
 */
const leads = (plan: Plan): number[] => {
  const order = plan.commands.filter((command): command is Command & { 0: 'run' } => command[0] === 'run')
  const gathered = new Map<number, number>()
  const out: number[] = []
  let issued = 0
  for (const run of order) {
    const { op } = plan.nodes[run[1]]!
    if (plan.lanes[run[2]]!.name === 'gather') gathered.set(run[4][0]!, issued++)
    else if (op === 'matmul') {
      const weight = run[3].find(buffer => gathered.has(buffer))!
      out.push(issued - 1 - gathered.get(weight)!)
    }
  }
  return out
}

describe.each(present)('sharded training on %s', name => {
  test('124: gathers run ahead of blocked compute, as far as their window allows', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [gather, compute] = [device.lane({ name: 'gather' }), device.lane({ name: 'compute' })]
    const shard = gather.malloc(bytes)
    const out = mirrorOf(device, 8 * sample, compute)
    gather.fill32(shard, 1)
    const layers = 8
    const window = 2
    const gathered: Event[] = []
    const computed: Event[] = []
    const weights: Block[] = []
    const gate = hold(device, compute)
    const issueGather = (layer: number): void => {
      if (layer >= window) gather.wait(computed[layer - window]!)
      const weight = gather.malloc(bytes)
      gather.copy(weight, shard)
      gather.fill32(weight.at(0, sample), 100 + layer)
      weights.push(weight)
      gathered.push(gather.record())
    }
    for (let layer = 0; layer < window; layer++) issueGather(layer)
    for (let layer = 0; layer < layers; layer++) {
      compute.wait(gathered[layer]!)
      compute.copy(out.block.at(layer * sample, sample), weights[layer]!.at(0, sample))
      computed.push(compute.record())
      weights[layer]!.recordUse(compute)
      weights[layer]!.free()
      if (layer + window < layers) issueGather(layer + window)
    }
    // Compute has not begun, and the first gathers have run: they overlap with compute. The other gathers
    // wait for it.
    await gathered[window - 1]!.synchronize()
    expect(gathered.map(({ done }) => done)).toEqual(gathered.map((_, layer) => layer < window))
    expect(computed.some(({ done }) => done)).toBe(false)
    // The schedule holds only the window and the shard, however far ahead the host is.
    expect(device.stats()['reserved_bytes.all.peak']).toBeLessThanOrEqual((window + 1 + 1) * bytes)
    gate.open()
    await compute.synchronize()
    for (let layer = 0; layer < layers; layer++)
      expect(new Set(out.words.subarray((layer * sample) / 4, ((layer + 1) * sample) / 4))).toEqual(
        new Set([100 + layer]),
      )
  })

  describe.each(['overlapped', 'serial'] as const)('124: of an %s schedule', schedule => {
    const layers = 8
    const soon = (event: Event): Promise<boolean> => settles(event.synchronize(), 30_000)

    /**
     * Issues all layers over two weights in turns. `amid` is called where a layer or a scatter is half
     * issued.
     */
    const issue = (
      device: Device,
      amid: Readonly<Record<'layer' | 'scatter', (lane: Lane, layer: number) => void>>,
    ) => {
      const [gather, compute, scatter] = [device.lane(), device.lane(), device.lane()]
      const shards = device.pinned(layers * sample, gather)
      const results = mirrorOf(device, layers * sample, scatter)
      const weights = compute.malloc(2 * sample)
      new Uint32Array(shards.view()).fill(124)
      gather.wait(compute.record())
      const events = { gathered: [], begun: [], computed: [], scattered: [] } as Record<
        'gathered' | 'begun' | 'computed' | 'scattered',
        Event[]
      >
      const { gathered, begun, computed, scattered } = events
      const issueGather = (layer: number): void => {
        const before = layer - (schedule === 'serial' ? 1 : 2)
        if (before >= 0) gather.wait(scattered[before]!)
        gather.copy(weights.at((layer % 2) * sample, sample), shards.at(layer * sample, sample))
        gathered.push(gather.record())
      }
      issueGather(0)
      for (let layer = 0; layer < layers; layer++) {
        if (schedule === 'overlapped' && layer + 1 < layers) issueGather(layer + 1)
        const weight = weights.at((layer % 2) * sample, sample)
        compute.wait(gathered[layer]!)
        begun.push(compute.record())
        amid.layer(compute, layer)
        compute.fill32(weights.at((layer % 2) * sample, sample / 2), 200 + layer)
        computed.push(compute.record())
        scatter.wait(computed[layer]!)
        amid.scatter(scatter, layer)
        scatter.copy(results.block.at(layer * sample, sample), weight)
        scattered.push(scatter.record())
        if (schedule === 'serial' && layer + 1 < layers) issueGather(layer + 1)
      }
      return { ...events, words: results.words }
    }
    const nothing = (): void => {}

    test('only the first gather and the last scatter cannot run while a layer computes', async () => {
      await using device = await deviceOf(name)
      const gates: ReturnType<typeof hold>[] = []
      const { gathered, begun, computed, scattered, words } = issue(device, {
        layer: lane => gates.push(hold(device, lane)),
        scatter: nothing,
      })
      for (const [layer, gate] of gates.entries()) {
        // The device is in the middle of this layer until the gate is opened.
        expect(await soon(begun[layer]!)).toBe(true)
        const next = gathered[layer + 1]
        if (schedule === 'serial') expect(next?.done ?? false).toBe(false)
        else
          for (const copy of [scattered[layer - 1], next])
            if (copy !== undefined) expect(await soon(copy)).toBe(true)
        expect([computed[layer]!.done, scattered[layer]!.done]).toEqual([false, false])
        gate.open()
      }
      expect(await soon(scattered.at(-1)!)).toBe(true)
      for (let layer = 0; layer < layers; layer++) {
        const row = words.subarray((layer * sample) / 4, ((layer + 1) * sample) / 4)
        expect(new Set(row)).toEqual(new Set([200 + layer, 124]))
      }
    })

    test('a held scatter holds back the layer that needs its memory, not the one before it', async () => {
      await using device = await deviceOf(name)
      const gates: ReturnType<typeof hold>[] = []
      const { computed, begun, scattered } = issue(device, {
        layer: nothing,
        scatter: (lane, layer) => layer === 0 && gates.push(hold(device, lane)),
      })
      const runs = schedule === 'serial' ? 1 : 2
      expect(await soon(computed[runs - 1]!)).toBe(true)
      expect(begun.map(({ done }) => done)).toEqual(begun.map((_, layer) => layer < runs))
      gates[0]!.open()
      expect(await soon(scattered.at(-1)!)).toBe(true)
    })
  })

  test('125: a wait for the optimizer’s event does not wait for its lane’s later work', async () => {
    await using device = await deviceOf(name)
    const [compute, narrow, wide] = [device.lane(), device.lane(), device.lane()]
    const weight = compute.malloc(bytes)
    const [early, late] = [mirrorOf(device, sample, narrow), mirrorOf(device, sample, wide)]
    compute.fill32(weight, 125)
    using stepped = compute.record()
    const gate = hold(device, compute)
    using everything = compute.record()
    narrow.wait(stepped)
    narrow.copy(early.block, weight.at(0, sample))
    wide.wait(everything)
    wide.copy(late.block, weight.at(0, sample))
    await narrow.synchronize()
    expect(early.all()).toEqual([125])
    expect(wide.idle).toBe(false)
    expect(late.all()).toEqual([0])
    gate.open()
    await wide.synchronize()
    expect(late.all()).toEqual([125])
  })

  test('126: a step holds at most three gathered weights, and frees everything at its end', async () => {
    const layers = 6
    // One step at a time, as in training.
    const plan = planOf(training({ layers, ahead: 1 }), { memory: 'small', inFlight: 1 })
    const one = 32 * 32 * 4
    // The input and one value a layer are kept for backward; in addition at most three.
    expect(plan.bound.device[0]).toBeLessThanOrEqual((layers + 1) * one + 3 * one)
    const params = Object.fromEntries(
      plan.buffers
        .filter(({ life }) => life === 'param')
        .map(buffer => [buffer.name, new Float32Array(32 * 32).fill(0.01)]),
    )
    const session = orThrow(await open(plan, { device: name, params, poison: true })())
    const x = new Float32Array(32 * 32).fill(1)
    await session.run({ x: pulled([x, x, x]) } as never).forEach(lease => {
      using _ = lease as Disposable
    })
    const stats = session.stats()
    expect(stats.peak.reserved).toBeLessThanOrEqual(plan.bound.device[0]!)
    await session.close()
    // By the plan itself: every tick buffer is freed in its tick.
    const freed = plan.commands.filter(([kind]) => kind === 'free').length
    const tick = plan.buffers.filter(({ life, alias }) => life === 'tick' && alias === undefined).length
    expect(freed).toBe(tick)
  })

  test('130: reduced gradients of a wider type are not overwritten under pressure', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait', limit: 20 * bytes })
    const [compute, scatter, reduce] = [device.lane(), device.lane(), device.lane()]
    const layers = 6
    const grads = Array.from({ length: layers }, () => compute.malloc(sample))
    const gate = hold(device, reduce)
    for (let layer = 0; layer < layers; layer++) {
      // compute fills the gradient, scatter makes the wide copy, reduce reads that, late, into the gradient
      // of the original type.
      const input = compute.malloc(bytes)
      compute.fill32(input, 200 + layer)
      using filled = compute.record()
      scatter.wait(filled)
      const wide = scatter.malloc(bytes)
      scatter.copy(wide, input)
      input.recordUse(scatter)
      input.free()
      using scattered = scatter.record()
      reduce.wait(scattered)
      reduce.copy(grads[layer]!, wide.at(bytes - sample, sample))
      wide.recordUse(reduce)
      // The wide buffer is freed after the cast, while reduce has not begun.
      wide.free()
    }
    // A write that comes too early has run by then.
    await settles(Promise.all([compute.synchronize(), scatter.synchronize()]))
    gate.open()
    for (const each of [compute, scatter, reduce]) await each.synchronize()
    const back = mirrorOf(device, layers * sample, reduce)
    for (const [layer, gradient] of grads.entries())
      reduce.copy(back.block.at(layer * sample, sample), gradient)
    await reduce.synchronize()
    expect(back.all()).toEqual(Array.from({ length: layers }, (_, layer) => 200 + layer))
  })

  test('131: the memory of reduced gradients does not grow with the layers', async () => {
    const peakOf = async (layers: number): Promise<number> => {
      await using device = await deviceOf(name, { policy: 'order-then-wait' })
      const [scatter, reduce] = [device.lane(), device.lane()]
      const out = mirrorOf(device, 4 * KiB, reduce)
      // The host runs far ahead of the device, which is busy first. Not with a gate: a GPU queues only some
      // work behind one.
      busy(reduce, reduce.malloc(16 * MiB), 16)
      for (let layer = 0; layer < layers; layer++) {
        using wide = scatter.malloc(bytes)
        scatter.fill32(wide, layer)
        using scattered = scatter.record()
        reduce.wait(scattered)
        reduce.copy(out.block, wide.at(0, 4 * KiB))
        wide.recordUse(reduce)
      }
      const peak = device.stats()['reserved_bytes.all.peak']! - 16 * MiB
      await reduce.synchronize()
      expect(out.all()).toEqual([layers - 1])
      return peak
    }
    const peaks = [await peakOf(2), await peakOf(16), await peakOf(128)]
    expect(peaks).toEqual([bytes, bytes, bytes])
  })

  test.each([1, 2, 4])(
    '132: with %i scatters in flight as many inputs are held, and each is read before it is written again',
    async depth => {
      await using device = await deviceOf(name, { policy: 'order-then-wait' })
      const [compute, scatter] = [device.lane(), device.lane()]
      const layers = 24
      const out = mirrorOf(device, layers * 4 * KiB, scatter)
      busy(scatter, scatter.malloc(16 * MiB), 16)
      const flying: { readonly input: Block; readonly end: Event }[] = []
      for (let layer = 0; layer < layers; layer++) {
        if (flying.length >= depth) {
          const { input, end } = flying.shift()!
          input.keepUntil(end)
          input.free()
        }
        const input = compute.malloc(bytes)
        compute.fill32(input, 300 + layer)
        using filled = compute.record()
        scatter.wait(filled)
        scatter.copy(out.block.at(layer * 4 * KiB, 4 * KiB), input.at(bytes - 4 * KiB, 4 * KiB))
        flying.push({ input, end: scatter.record() })
      }
      expect(device.stats()['reserved_bytes.all.peak']).toBe(depth * bytes + 16 * MiB)
      await scatter.synchronize()
      for (let layer = 0; layer < layers; layer++) expect(out.words[layer * KiB]).toBe(300 + layer)
    },
  )
})

describe('the issue order of sharded training', () => {
  const forward = ['f0', 'f1', 'f2', 'f3']
  const backward = ['b3', 'b2', 'b1', 'b0']

  // The gathers of one pass, by the number that each parameter was made with: all forwards come before the
  // backwards.
  const ofPass = (plan: Plan, layers: number, passes: number, pass: number): string[] =>
    runsOn(plan, 'gather').flatMap(run => {
      const [name, number] = plan.nodes[run[1]]!.name.split('.')
      const made = Number(number) % (layers * passes)
      return Math.floor(made / layers) === pass ? [name!] : []
    })

  test.each([false, true])(
    '127: backward gathers in reverse order, for one forward and for two; values computed again: %s',
    recompute => {
      expect(gathers(planOf(training({ layers: 4, ahead: 1, recompute })))).toEqual([...forward, ...backward])
      const twice = planOf(training({ layers: 3, ahead: 1, passes: 2, recompute }))
      expect(gathers(twice)).toHaveLength(12)
      for (const pass of [0, 1])
        expect(ofPass(twice, 3, 2, pass)).toEqual(['f0', 'f1', 'f2', 'b2', 'b1', 'b0'])
    },
  )

  test('127: every gradient is scattered on its own lane once its layer is done, last layer first', () => {
    const plan = planOf(training({ layers: 4, ahead: 1 }))
    const scattered = runsOn(plan, 'scatter').filter(run => plan.nodes[run[1]]!.op !== 'download')
    const made = plan.commands.filter(
      (command): command is Command & { 0: 'run' } =>
        command[0] === 'run' && plan.nodes[command[1]]!.name.startsWith('add'),
    )
    expect(made).toHaveLength(4)
    expect(scattered.map(run => run[3][0])).toEqual(made.map(run => run[4][0]))
  })

  test('128: a layer that backward does not need is not gathered for it, and nothing leaks', () => {
    const plan = planOf(training({ layers: 4, ahead: 1, skip: [2] }))
    expect(gathers(plan)).toEqual([...forward, 'b3', 'b1', 'b0'])
    const allocated = plan.commands.flatMap(([kind, buffer]) => (kind === 'alloc' ? [buffer] : []))
    const freed = plan.commands.flatMap(([kind, buffer]) => (kind === 'free' ? [buffer] : []))
    expect([...freed].sort()).toEqual([...allocated].sort())
  })

  test.each([1, 2, 3])('129: %i gathers ahead of their reader, not fewer and not more', ahead => {
    const plan = planOf(training({ layers: 6, ahead }))
    const found = leads(plan)
    expect(found).toHaveLength(12)
    // At the end of the tick there are fewer left to gather.
    expect(Math.max(...found)).toBe(ahead)
    expect(found.slice(0, 12 - ahead).every(lead => lead === ahead)).toBe(true)
  })
})
