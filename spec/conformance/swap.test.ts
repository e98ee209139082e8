// A session that goes over to another plan of the same states: nothing is lost, nothing is seen twice.
import fc from 'fast-check'
import { Subject } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  type CompileOptions,
  compile,
  download,
  type Graph,
  graph,
  lane,
  mul,
  orThrow,
  type Plan,
  param,
  scan,
  sum,
  tensor,
  toJSON,
  upload,
  window,
} from '../../dsl/index.js'
import {
  type Block,
  DisposedError,
  type OpenOptions,
  open,
  params,
  pulled,
  pushed,
  type Session,
  SwapError,
} from '../../runtime/index.js'
import { deviceOf } from '../fixtures/allocator.js'
import { rejectionOf } from '../fixtures/errors.js'
import { type Sample, sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { fleets, opened, present, turn, until } from './devices.js'
import { meantOf, mismatch, outputsOf, type Values } from './meant.js'

const ways: fc.Arbitrary<CompileOptions> = fc.record(
  {
    storage: fc.constantFrom('planned' as const, 'pooled' as const),
    inFlight: fc.integer({ min: 1, max: 4 }),
    fuse: fc.boolean(),
    lanes: fc.integer({ min: 1, max: 3 }),
  },
  { requiredKeys: [] },
)
const modes: fc.Arbitrary<CompileOptions> = fc.constantFrom(
  {},
  {},
  { storage: 'planned', mode: 'graph' },
  { storage: 'planned', mode: 'auto' },
  { storage: 'planned', mode: 'eager' },
)
const variant = fc.tuple(ways, modes).map(([way, mode]): CompileOptions => ({ ...way, ...mode }))

interface Swap {
  readonly tick: number
  readonly as: CompileOptions
}
const swaps = fc.array(fc.record({ tick: fc.nat(5), as: variant }), { minLength: 1, maxLength: 3 })

/**
 * One run over all ticks. The swaps are begun when the outputs of their ticks arrive, and fall where they
 * fall.
 */
const swappedInRun = async (
  session: Session,
  made: Sample,
  plans: readonly (readonly [number, Plan])[],
): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  const swapping: Promise<number>[] = []
  const begin = (tick: number): void => {
    for (const [at, plan] of plans) if (at === tick) swapping.push(session.swap(plan as never))
  }
  begin(0)
  const pulls = Object.fromEntries(Object.entries(made.feeds).map(([name, all]) => [name, pulled(all)]))
  await session.run(pulls as never, { ticks: made.ticks }).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
    begin(outputs.length)
  })
  await Promise.all(swapping)
  return outputs
}

/** A run a tick, with the swaps before their ticks: each begins with the tick that it says. */
const swappedBetween = async (
  session: Session,
  made: Sample,
  plans: readonly (readonly [number, Plan])[],
): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  for (let tick = 0; tick < made.ticks; tick++) {
    for (const [at, plan] of plans) if (at === tick) expect(await session.swap(plan as never)).toBe(tick)
    const feeds = Object.fromEntries(
      Object.entries(made.feeds).map(([name, values]) => [name, values.slice(tick, tick + 1)]),
    )
    outputs.push(...(await outputsOf(session, { feeds, ticks: 1 })))
  }
  return outputs
}

const check = async (
  made: Sample,
  first: CompileOptions,
  all: readonly Swap[],
  device: string,
  seed: number,
  within: boolean,
): Promise<void> => {
  const { graph, params, dims, inFlight } = made
  const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
  const options = { compile: { dims, inFlight, ...first }, params, poison: true, ...host }
  const plans = all.map(
    ({ tick, as }) => [tick, orThrow(compile(graph, { dims, inFlight, ...as })) as unknown as Plan] as const,
  )
  await using session = (await opened(graph, device, options)) as Session
  const got = await (within ? swappedInRun : swappedBetween)(session, made, plans)
  expect(mismatch(made, await meantOf(made), got)).toBeUndefined()
  expect(session.stats().ticks).toBe(made.ticks)
}

const four = tensor('f32', [4])
const copy = lane('copy')
const row = (value: number): Float32Array => new Float32Array(4).fill(value)

/** y = factor · total, where total is the sum so far. */
const totals = (factor: number, name = 'total') =>
  graph(`totals by ${factor}`, { x: four }, ({ x }) => {
    const total = x.pipe(
      upload(copy),
      scan((before, value) => before.pipe(add(value)), 0, { name }),
    )
    return { y: total.pipe(mul(factor), download(copy)) }
  })

type Totals = Session<{ x: typeof four }, { y: typeof four }>
const planOf = (made: unknown, options: CompileOptions = {}): Plan<never, never> =>
  orThrow(compile(made as Graph, options)) as unknown as Plan<never, never>
const to = (session: unknown): Session<never, never> => session as Session<never, never>

/** The first element of y, in each tick of a run. */
const firsts = async (session: unknown, xs: readonly number[]): Promise<readonly number[]> => {
  const outputs = await outputsOf(session as Session, { feeds: { x: xs.map(row) } })
  return outputs.map(({ y }) => y![0]!)
}

const refusal = async (swapping: Promise<unknown>): Promise<SwapError> => {
  const error = await rejectionOf(swapping)
  expect(error).toBeInstanceOf(SwapError)
  return error as SwapError
}

describe.each(present)('going over to another plan on %s', device => {
  const start = (made: unknown, options: OpenOptions & { compile?: CompileOptions } = {}): Promise<Totals> =>
    opened(made as Graph, device, options) as unknown as Promise<Totals>

  it('yields what interpret yields, whatever the plans of a graph and the ticks', { timeout: 60_000 }, () =>
    fc.assert(
      fc.asyncProperty(
        sample(),
        variant,
        swaps,
        fc.integer({ min: 1, max: 1e6 }),
        fc.boolean(),
        (made, first, all, seed, within) => check(made, first, all, device, seed, within),
      ),
      { numRuns: runs(24) },
    ),
  )

  it('yields it with inputs that come several times a tick', { timeout: 60_000 }, () =>
    fc.assert(
      fc.asyncProperty(
        sample({ kernels: false, rates: true }),
        variant,
        swaps,
        fc.integer({ min: 1, max: 1e6 }),
        (made, first, all, seed) => check(made, first, all, device, seed, true),
      ),
      { numRuns: runs(12) },
    ),
  )

  it('goes on in the middle of a run, from the tick that it names', async () => {
    await using session = await start(totals(1))
    const feed = new Subject<Float32Array>()
    const got: number[] = []
    const ended = session.run({ x: pushed(feed, 'fail') }).forEach(lease => {
      using held = lease
      got.push(held.y[0]!)
    })
    for (let x = 1; x <= 3; x++) {
      feed.next(row(x))
      await until(() => got.length === x)
    }
    expect(await to(session).swap(planOf(totals(10)))).toBe(3)
    expect(session.plan.name).toBe('totals by 10')
    expect([...(await session.state.read('total'))]).toEqual([6, 6, 6, 6])
    feed.next(row(4))
    feed.complete()
    await ended
    expect(got).toEqual([1, 3, 6, 100])
    expect(session.stats().ticks).toBe(4)
  })

  it('begins with first values where nothing is kept, and for states that are new', async () => {
    await using session = await start(totals(1))
    expect(await firsts(session, [1, 2])).toEqual([1, 3])
    await to(session).swap(planOf(totals(1)), { keep: 'nothing' })
    expect(await firsts(session, [1, 2])).toEqual([1, 3])
    await to(session).swap(planOf(totals(1)), { keep: 'nothing', state: { total: row(5) } })
    expect(await firsts(session, [1])).toEqual([6])
    const counted = graph('counted', { x: four }, ({ x }) => {
      const total = x.pipe(
        upload(copy),
        scan((before, value) => before.pipe(add(value)), 0, { name: 'total' }),
      )
      const ticks = total.pipe(scan(before => before.pipe(add(100)), 1000, { name: 'ticks' }))
      return { y: total.pipe(add(ticks), download(copy)) }
    })
    await to(session).swap(planOf(counted))
    expect(await firsts(session, [1, 1])).toEqual([1107, 1208])
    expect(session.state.names).toEqual(expect.arrayContaining(['total', 'ticks']))
  })

  it('refuses a plan that cannot follow, with every reason, and goes on', async () => {
    await using memory = await deviceOf(device)
    {
      await using session = await start(totals(1), { device: memory } as never)
      expect(await firsts(session, [1])).toEqual([1])
      const held = memory.stats()['allocated_bytes.all.current']
      const eight = tensor('f32', [8])
      const other = graph('other', { x: eight, z: four }, ({ x, z }) => ({
        w: x.pipe(
          upload(copy),
          scan((before, value) => before.pipe(add(value)), 0, { name: 'total' }),
          download(copy),
        ),
        v: z.pipe(upload(copy), download(copy)),
      }))
      const { errors, message } = await refusal(to(session).swap(planOf(other)))
      expect(errors.map(({ _tag, at }) => [_tag, at])).toEqual([
        ['CannotFollow', 'input.x'],
        ['CannotFollow', 'input.z'],
        ['CannotFollow', 'output.y'],
        ['CannotFollow', 'state.total'],
      ])
      expect(message).toMatch(/f32\[4\] on device 0/)
      expect((await refusal(to(session).swap(planOf(totals(2, 'sum'))))).errors[0]).toMatchObject({
        at: 'state.total',
        found: expect.stringContaining('no state of that name'),
      })
      const broken = { ...JSON.parse(toJSON(planOf(totals(2)))), commands: [] }
      expect((await refusal(to(session).swap(broken))).errors[0]._tag).toBe('BadPlan')
      for (const options of [{ keep: 'all' }, { inFlight: 2 }, 5, null, { signal: 5 }])
        expect((await refusal(to(session).swap(planOf(totals(2)), options as never))).errors[0]._tag).toBe(
          'BadOption',
        )
      const throwing = () => {
        throw new Error('the file is elsewhere')
      }
      for (const kind of ['params', 'state']) {
        const refused = await refusal(to(session).swap(planOf(totals(2)), { [kind]: throwing }))
        expect(refused.errors[0]).toMatchObject({ _tag: 'BadOption', at: kind })
        expect(refused.message).toContain('a function that threw: the file is elsewhere')
      }
      const aborted = { signal: AbortSignal.abort('no') }
      expect((await refusal(to(session).swap(planOf(totals(2)), aborted))).errors[0]._tag).toBe('Cancelled')
      const needing = graph('needing', { x: four }, ({ x }) => ({
        y: x.pipe(
          upload(copy),
          scan((before, value) => before.pipe(add(value)), 0, { name: 'total' }),
          add(param('w', four)),
          download(copy),
        ),
      }))
      expect((await refusal(to(session).swap(planOf(needing)))).errors[0]._tag).toBe('MissingParam')
      expect(memory.stats()['allocated_bytes.all.current']).toBe(held)
      expect(await firsts(session, [2])).toEqual([3])
      await to(session).swap(planOf(needing), { params: { w: row(50) } })
      expect(await firsts(session, [2])).toEqual([55])
    }
    expect(memory.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('keeps what was written to parameters, and those that sessions share where they are', async () => {
    const weighted = (factor: number) =>
      graph('weighted', { x: four }, ({ x }) => {
        const bias = param('bias', four, { on: 'host' })
        const y = x.pipe(upload(copy), mul(param('w', four)), add(bias.pipe(upload(copy))), mul(factor))
        return { y: y.pipe(download(copy)) }
      })
    await using memory = await deviceOf(device)
    await using weights = await params(memory, { w: row(2), bias: row(1) })
    for (const shared of [false, true]) {
      const given = { device: memory, params: shared ? weights : { w: row(2), bias: row(1) } }
      await using session = await start(weighted(1), given as never)
      await session.params.write('bias', row(7))
      if (!shared) await session.params.write('w', row(3))
      const w = shared ? 2 : 3
      const block = shared ? await weights.block('w') : undefined
      expect(await firsts(session, [1])).toEqual([w + 7])
      await to(session).swap(planOf(weighted(10), { storage: 'planned' }))
      expect(await firsts(session, [1])).toEqual([10 * (w + 7)])
      if (shared) {
        expect(await weights.block('w')).toBe(block)
        await session.params.write('w', row(5))
        expect(await firsts(session, [1])).toEqual([10 * (5 + 7)])
        await weights.write('w', row(2))
      }
      await to(session).swap(planOf(weighted(1)), { params: { bias: row(0) } })
      expect(await firsts(session, [1])).toEqual([w])
    }
  })

  it('leaves leases from before as they are, and frees the plan with the last of them', async () => {
    await using memory = await deviceOf(device)
    const kept = (factor: number) =>
      graph('kept', { x: four }, ({ x }) => {
        const total = x.pipe(
          upload(copy),
          scan((before, value) => before.pipe(add(value)), 0, { name: 'total' }),
          mul(factor),
        )
        return { y: total.pipe(download(copy)), there: total.pipe(add(1)) }
      })
    const allocated = (): number => memory.stats()['allocated_bytes.all.current']!
    {
      await using session = await start(kept(1), { device: memory, compile: { inFlight: 3 } } as never)
      const alone = allocated()
      const leases: (Values & Disposable)[] = []
      const run = (xs: readonly number[]): Promise<void> =>
        to(session)
          .run({ x: pulled(xs.map(row)) } as never)
          .forEach(lease => void leases.push(lease as unknown as Values & Disposable))
      await run([1, 2])
      await to(session).swap(planOf(kept(10), { inFlight: 3 }))
      expect(allocated()).toBeGreaterThan(alone)
      await run([3])
      expect(leases.map(({ y }) => y![0])).toEqual([1, 3, 60])
      const blocks = leases.map(({ there }) => there as unknown as Block)
      const copied = async (block: Block): Promise<number> => {
        const reader = memory.lane({ name: 'reader' })
        using pinned = memory.pinned(16, reader)
        reader.copy(pinned, block)
        await reader.synchronize()
        return new Float32Array(pinned.view())[0]!
      }
      expect(await Promise.all(blocks.map(copied))).toEqual([2, 4, 61])
      leases[1]![Symbol.dispose]()
      expect(leases[0]!['y']![0]).toBe(1)
      leases[0]![Symbol.dispose]()
      await until(() => allocated() === alone)
      expect(leases[2]!['y']![0]).toBe(60)
      await to(session).swap(planOf(kept(100), { inFlight: 3 }))
    }
    expect(allocated()).toBe(0)
  })

  it('takes along what feeds gave ahead of the ticks, also into fewer slots', async () => {
    const pairs = graph('pairs', { x: four, z: four }, ({ x, z }) => ({
      y: x.pipe(upload(copy), add(z.pipe(upload(copy))), download(copy)),
    }))
    for (const [before, after] of [
      [4, 1],
      [1, 3],
      [2, 2],
    ] as const) {
      await using session = await start(pairs, { compile: { inFlight: before } })
      const [x, z] = [new Subject<Float32Array>(), new Subject<Float32Array>()]
      const got: number[] = []
      const ended = to(session)
        .run({ x: pushed(x, 'fail'), z: pushed(z, 'fail') } as never)
        .forEach(lease => {
          using held = lease as unknown as Values & Disposable
          got.push(held['y']![0]!)
        })
      for (let i = 1; i <= before; i++) x.next(row(i))
      await to(session).swap(planOf(pairs, { inFlight: after }))
      await to(session).swap(planOf(pairs, { inFlight: 1 }))
      for (let i = 1; i <= before; i++) {
        z.next(row(10 * i))
        await until(() => got.length === i)
      }
      x.complete()
      await ended
      expect(got).toEqual(Array.from({ length: before }, (_, i) => 11 * (i + 1)))
    }
  })

  it('takes along a part of a tick, and a value that was asked for before', async () => {
    const summed = graph('summed', { x: four }, ({ x }) => ({
      y: x.pipe(window(3), upload(copy), sum(0), download(copy)),
    }))
    await using session = await start(summed)
    const asked: ((value: Float32Array) => void)[] = []
    const source = async function* () {
      for (let i = 0; i < 6; i++) yield await new Promise<Float32Array>(resolve => asked.push(resolve))
    }
    const got: number[] = []
    const ended = session.run({ x: pulled(source()) }).forEach(lease => {
      using held = lease
      got.push((held.y as Float32Array)[0]!)
    })
    for (let i = 0; i < 6; i++) {
      await until(() => asked.length === i + 1)
      await to(session).swap(planOf(summed, { inFlight: 1 + (i % 3) }))
      asked[i]!(row(10 ** i))
    }
    await ended
    expect(got).toEqual([111, 111_000])
  })

  it('carries calls out in their order, and ends them where the session ends', async () => {
    await using session = await start(totals(1))
    const swapping = [10, 100].map(factor => to(session).swap(planOf(totals(factor))))
    await session.state.write('total', row(1))
    await Promise.all(swapping)
    expect(await firsts(session, [1])).toEqual([200])
    const late = rejectionOf(to(session).swap(planOf(totals(1000))))
    const later = rejectionOf(to(session).swap(planOf(totals(1))))
    await session.close()
    expect(await late).toBeInstanceOf(DisposedError)
    expect(await later).toBeInstanceOf(DisposedError)
    expect(await rejectionOf(to(session).swap(planOf(totals(1))))).toBeInstanceOf(DisposedError)
  })

  it('ends where the session ends, though a source never settles; and refuses parameters that are disposed of', async () => {
    const biased = (by: number) =>
      graph('biased', { x: four }, ({ x }) => ({
        y: x.pipe(upload(copy), add(param('w', four)), add(by), download(copy)),
      }))
    await using memory = await deviceOf(device)
    const weights = await params(memory, { w: row(50) })
    const on = { device: memory, params: weights }
    await using session = orThrow(await open(planOf(biased(0)), on as never)())
    await weights[Symbol.asyncDispose]()
    expect((await refusal(to(session).swap(planOf(biased(1))))).errors[0]).toMatchObject({
      _tag: 'WrongParam',
      found: expect.stringContaining('open sessions keep theirs'),
    })
    const never = { params: { w: () => new Promise<void>(() => {}) } }
    const late = rejectionOf(to(session).swap(planOf(biased(1)), never))
    await turn()
    await session.close()
    expect(await late).toBeInstanceOf(DisposedError)
  })

  it('is given up where a run is being ended, like any other', async () => {
    await using session = await start(totals(1))
    const running = session.run({ x: pulled([row(1), row(2), row(3)]) }).subscribe(lease => {
      lease[Symbol.dispose]()
    })
    const swapped = to(session).swap(planOf(totals(10)))
    await turn()
    running.unsubscribe()
    await swapped
    const total = (await session.state.read('total'))[0]!
    expect([0, 1, 3, 6]).toContain(total)
    expect(await firsts(session, [1])).toEqual([10 * (total + 1)])
  })
})

describe('a swap that fails', () => {
  it('leaves the plan that runs, where there is too little memory for both', async () => {
    const wide = (columns: number) =>
      graph('wide', { x: four }, ({ x }) => {
        const total = x.pipe(
          upload(copy),
          scan((before, value) => before.pipe(add(value)), 0, { name: 'total' }),
        )
        const big = param('big', tensor('f32', [columns]))
        return { y: total.pipe(add(big.pipe(sum(0))), download(copy)) }
      })
    await using session = (await opened(wide(4), 'host', {
      host: { memory: 2 ** 24 },
      params: { big: row(0) },
    })) as unknown as Session<never, never>
    expect(await firsts(session, [1])).toEqual([1])
    const columns = 2 ** 22
    const given = { params: { big: new Float32Array(columns) } }
    expect((await refusal(session.swap(planOf(wide(columns)), given))).errors[0]._tag).toBe('OutOfMemory')
    expect(await firsts(session, [1])).toEqual([2])
  })

  it('says so where the session has failed', async () => {
    await using session = (await opened(totals(1), 'host', {
      host: { faults: [{ call: 'run', nth: 4 }] },
    })) as unknown as Session<never, never>
    await rejectionOf(firsts(session, [1, 2, 3, 4, 5]))
    expect(await rejectionOf(session.swap(planOf(totals(1))))).toMatchObject({ _tag: 'SessionFailed' })
  })
})

describe.each(fleets.map(fleet => [fleet.join(), fleet] as const))('several devices, %s', (_, fleet) => {
  const spread = (factor: number, turned = false) =>
    graph('spread', { x: four }, ({ x }) => {
      const one = (i: number) => {
        const own = lane(`lane ${i}`, { device: turned ? fleet.length - 1 - i : i })
        return x.pipe(
          upload(own),
          scan((before, value) => before.pipe(add(value)), 0, { name: `total${i}` }),
          mul(factor),
          download(own),
        )
      }
      return Object.fromEntries(fleet.map((_name, i) => [`y${i}`, one(i)]))
    })

  it('keep the states of each, and refuse to move one', async () => {
    await using session = (await opened(spread(1) as never, fleet)) as unknown as Session<never, never>
    const last = async (x: number): Promise<readonly number[]> => {
      const [values] = await outputsOf(session as unknown as Session, { feeds: { x: [row(x)] } })
      return Object.values(values!).map(y => y[0]!)
    }
    expect(new Set(await last(1))).toEqual(new Set([1]))
    await session.swap(planOf(spread(10)))
    expect(new Set(await last(2))).toEqual(new Set([30]))
    const { errors } = await refusal(session.swap(planOf(spread(1, true))))
    expect(errors[0]).toMatchObject({ _tag: 'CannotFollow', at: 'state.total0' })
    expect((await refusal(session.swap(planOf(totals(1))))).errors[0].at).toBe('devices')
    expect(new Set(await last(3))).toEqual(new Set([60]))
  })
})
