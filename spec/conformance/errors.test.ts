// Opening and running with a fault: each ends in an error that names the fault, its place and the remedy, and
// every resource is released.
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  allReduce,
  communicator,
  compile,
  download,
  graph,
  interpret,
  kernel,
  lane,
  orThrow,
  type Plan,
  param,
  tensor,
  upload,
} from '../../dsl/index.js'
import { parsePlan } from '../../dsl/ir/load.js'
import { toJSON } from '../../dsl/ir/text.js'
import {
  Device,
  type DeviceError,
  errorsOf,
  type OpenOptions,
  open,
  params,
  pulled,
  RunError,
} from '../../runtime/index.js'
import { rejectionOf } from '../fixtures/errors.js'
import { until } from './devices.js'

const row = tensor('f32', [1024])
const net = graph('biased', { x: row }, ({ x }) => {
  const bias = param('bias', row)
  return { y: x.pipe(upload(lane('copy')), add(bias), download(lane('copy'))) }
})
const plan = orThrow(compile(net, { mode: 'eager' }))
const bias = new Float32Array(1024).fill(1)
const good: OpenOptions = { device: 'host', params: { bias } }

const refused = async (options: object, which: unknown = plan): Promise<readonly DeviceError[]> => {
  const result = await open(which as Plan, options)()
  expect(E.isLeft(result)).toBe(true)
  return errorsOf((result as E.Left<DeviceError>).left)
}
const works = async (): Promise<void> => {
  await using session = orThrow(await open(plan, good)())
  const [lease] = await lastValueFrom(session.run({ x: pulled([bias]) }).pipe(toArray()))
  expect(lease!.y[7]).toBe(2)
}

describe('what open refuses', () => {
  it('a device that there is not', async () => {
    expect((await refused({ ...good, device: 'cuda:99' }))[0]).toMatchObject({
      subject: 'cuda:99',
      next: expect.stringContaining('doctor'),
    })
    expect((await refused({ ...good, device: 'tpu' }))[0]).toMatchObject({
      _tag: 'NoDevice',
      found: 'the string "tpu"',
    })
  })

  it('parameters that the device fails to copy: its failure, not one of tidying up after it', async () => {
    const device = orThrow(
      await Device.open('host', { host: { faults: [{ call: 'run', nth: 1, status: 719 }] } })(),
    )
    const shared = await params(device, { bias })
    expect(await refused({ device, params: shared })).toMatchObject([
      {
        ...{ _tag: 'DriverFailed', code: 'CUDA_ERROR_LAUNCH_FAILED', subject: 'lane.synchronize' },
        found: expect.stringMatching(/this piece of work was made to fail/),
      },
    ])
    await device.close()
  })

  it('too little memory, with how much is missing and for what', async () => {
    const [error] = await refused({ ...good, host: { memory: 4096 } })
    expect(error).toMatchObject({
      _tag: 'OutOfMemory',
      code: 'CUDA_ERROR_OUT_OF_MEMORY',
      wantedBytes: plan.bound.device[0],
      freeBytes: 4096,
    })
    expect(error!.missingBytes).toBe(plan.bound.device[0]! - 4096)
    expect(error!.holds).toContain('parameters')
    expect(error!.found).toContain('missing')
    await works()
  })

  it('parameters that are missing, that the plan does not have, or of another size', async () => {
    const [error] = await refused({ device: 'host', params: { wieght: bias } })
    expect(error).toMatchObject({
      _tag: 'MissingParam',
      subject: 'bias',
      found: expect.stringContaining('wieght'),
    })
    const [short] = await refused({ device: 'host', params: { bias: new Float32Array(3) } })
    expect(short).toMatchObject({ _tag: 'WrongParam', found: 'Float32Array of 3 elements' })
  })

  it('a missing parameter: the given ones are named; an unneeded one may be left out, or given', async () => {
    expect((await refused({ device: 'host' }))[0]).toMatchObject({ _tag: 'MissingParam', found: 'none' })
    expect(
      (await refused({ device: 'host', params: { bias: undefined, w: bias, v: bias } }))[0],
    ).toMatchObject({
      found: 'none, but w, v, which the plan does not have',
    })
    const spare = graph({ x: row }, ({ x }) => {
      param('spare', row)
      return { y: x.pipe(upload(), download()) }
    })
    for (const params of [{}, { spare: bias }, { spare: new Float32Array(3), other: bias }]) {
      await using session = orThrow(
        await open(orThrow(compile(spare, { mode: 'eager' })), { device: 'host', params })(),
      )
      expect(session.plan.buffers.map(({ life }) => life)).not.toContain('param')
    }
  })

  it('a parameter whose source throws, with its cause', async () => {
    const boom = new Error('no such file')
    const [error] = await refused({ device: 'host', params: { bias: () => Promise.reject(boom) } })
    expect(error).toMatchObject({ _tag: 'WrongParam', subject: 'bias', cause: boom })
    await works()
  })

  it('options of wrong names and types: all at once', async () => {
    const errors = await refused({
      ...good,
      inFlight: 0,
      trace: 'yes',
      devise: 'host',
      host: { memory: -1, speed: 2 },
    })
    expect(errors.map(({ subject }) => subject)).toEqual([
      'inFlight',
      'trace',
      'devise',
      'host.memory',
      'host.speed',
    ])
    expect((await refused({ ...good, inFlight: 3 }))[0]).toMatchObject({
      _tag: 'BadOption',
      wanted: expect.stringContaining('at most 2'),
    })
  })

  it('an aborted signal', async () => {
    expect((await refused({ ...good, signal: AbortSignal.abort() }))[0]).toMatchObject({ _tag: 'Cancelled' })
    const [name] = Object.keys(good.params as object)
    const never = { params: { ...(good.params as object), [name!]: () => new Promise(() => {}) } }
    const refusal = await refused({ ...good, ...never, signal: AbortSignal.timeout(20) })
    expect(refusal[0]).toMatchObject({ _tag: 'Cancelled' })
  })

  it('what is no plan, and a plan that breaks a law about safety', async () => {
    for (const value of [null, 7, 'plan', [], {}, { ...plan, commands: 5 }])
      expect((await refused(good, value))[0]).toMatchObject({ _tag: 'BadPlan' })
    const waits = plan.commands.findIndex(([kind]) => kind === 'free')
    const leaky = { ...plan, commands: plan.commands.filter((_, i) => i !== waits) }
    const [error] = await refused(good, leaky)
    expect(error).toMatchObject({ _tag: 'BadPlan' })
    expect(error!.violations!.map(({ law }) => law)).toContain('L3')
  })

  it('a plan of several ranks, compiled or from a file: one error, with its place', async () => {
    const summed = (ranks: number) => {
      const world = communicator('world', ranks)
      return graph('summed', { x: row }, ({ x }) => ({
        y: x.pipe(upload(), allReduce(world, 'sum'), allReduce(world, 'mean'), download()),
      }))
    }
    for (const storage of ['pooled', 'planned'] as const) {
      const many = orThrow(compile(summed(8), { mode: 'eager', storage }))
      for (const which of [many, orThrow(parsePlan(toJSON(many)))]) {
        const [error, ...others] = await refused({ device: 'host' }, which)
        expect(others).toEqual([])
        expect(error).toMatchObject({
          _tag: 'BadPlan',
          at: expect.stringContaining('errors.test.ts:'),
          subject: 'allReduce[0]',
          found: "allReduce over 'world' of 8 ranks, and one more",
          next: expect.stringContaining('verifyRanks'),
        })
      }
      await using session = orThrow(
        await open(orThrow(compile(summed(1), { mode: 'eager', storage })), { device: 'host' })(),
      )
      const [lease] = await lastValueFrom(session.run({ x: pulled([bias]) }).pipe(toArray()))
      expect(lease!.y[7]).toBe(1)
      lease![Symbol.dispose]()
    }
  })

  it('a user kernel without its meaning, of a plan from a file; given it, the plan runs', async () => {
    const triple = kernel({
      name: 'triple',
      cuda:
        'extern "C" __global__ void triple(const float* x, float* y) ' +
        '{ y[threadIdx.x] = 3 * x[threadIdx.x]; }',
      reads: { x: tensor('f32', [8]) },
      writes: { y: tensor('f32', [8]) },
      launch: { grid: 1, block: 8 },
      reference: ({ x }, { y }) => y.set(x.map(value => 3 * value)),
    })
    const own = orThrow(
      compile(
        graph('own', { x: tensor('f32', [8]) }, ({ x }) => ({
          y: triple({ x: x.pipe(upload()) }).y.pipe(download()),
        })),
        { mode: 'eager' },
      ),
    )
    const fromFile = orThrow(parsePlan(toJSON(own)))
    expect((await refused({ device: 'host' }, fromFile))[0]).toMatchObject({
      _tag: 'MissingReference',
      next: expect.stringContaining('triple'),
    })
    expect(
      (await refused({ device: 'host', references: { triple: async () => {} } }, fromFile))[0],
    ).toMatchObject({
      _tag: 'BadOption',
      found: 'an async function',
    })
    await using later = orThrow(
      await open(fromFile as typeof own, {
        device: 'host',
        references: { triple: () => Promise.resolve() } as never,
      })(),
    )
    await expect(lastValueFrom(later.run({ x: pulled([new Float32Array(8)]) }))).rejects.toThrow(
      'one that returned a promise',
    )
    const references = {
      triple: ([x]: readonly ArrayLike<number>[], [y]: readonly { set(values: ArrayLike<number>): void }[]) =>
        y!.set(Array.from(x!, value => 3 * value)),
    }
    for (const [which, options] of [
      [own, {}],
      [fromFile, { references: references as never }],
    ] as const) {
      await using session = orThrow(await open(which as typeof own, { device: 'host', ...options })())
      const [lease] = await lastValueFrom(
        session.run({ x: pulled([new Float32Array(8).fill(2)]) }).pipe(toArray()),
      )
      expect([...lease!.y]).toEqual(new Array(8).fill(6))
    }
  })
})

describe('a length that does not fit the size that a symbol is bound to', () => {
  const shaped = <const S extends readonly (number | string)[]>(...shape: S) =>
    graph('shaped', { x: tensor('f32', shape) }, ({ x }) => ({ y: x.pipe(upload(), add(1), download()) }))
  const refusal = async (
    net: ReturnType<typeof shaped>,
    dims: Readonly<Record<string, number>>,
    value: unknown,
  ): Promise<RunError> => {
    await using session = orThrow(
      await open(orThrow(compile(net, { mode: 'eager', dims })), { device: 'host' })(),
    )
    const run = session.run({ x: pulled([value as Float32Array]) })
    return run
      .forEach(lease => void lease[Symbol.dispose]())
      .then(
        () => expect.fail('the value was taken'),
        (error: RunError) => error,
      )
  }

  it('a feed: the symbol, its size, and the size that would fit', async () => {
    const error = await refusal(shaped('batch', 784), { batch: 4 }, new Float32Array(7840))
    expect(error).toMatchObject({
      _tag: 'WrongValue',
      subject: 'x',
      wanted: 'Float32Array of 3,136 elements, f32[batch, 784] with batch = 4',
      found: 'Float32Array of 7,840 elements',
      next: expect.stringContaining('compile(graph, { dims: { batch: 10 } })'),
    })
    const bytes = await refusal(shaped('batch', 784), { batch: 4 }, Buffer.alloc(4 * 7840))
    expect(bytes.next).toContain('{ dims: { batch: 10 } }')
    expect((await refusal(shaped('n', 'n'), { n: 2 }, new Float32Array(25))).next).toContain(
      '{ dims: { n: 5 } }',
    )
  })

  it('no size is suggested where none fits, two symbols could, or the type is wrong', async () => {
    expect((await refusal(shaped('batch', 784), { batch: 4 }, new Float32Array(785))).next).toContain(
      '{ batch: … }',
    )
    expect((await refusal(shaped('a', 'b'), { a: 2, b: 3 }, new Float32Array(12))).next).toContain(
      '{ a: …, b: … }',
    )
    expect((await refusal(shaped('a', 'b'), { a: 2, b: 3 }, new Float32Array(9))).next).toContain(
      '{ dims: { a: 3 } }',
    )
    expect((await refusal(shaped('n'), { n: 4 }, new Float64Array(8))).next).not.toContain('dims')
    expect((await refusal(shaped(4), {}, new Float32Array(8))).next).toBe('give a value of that length')
  })

  it('a parameter, and a feed of interpret', async () => {
    const wide = tensor('f32', ['width'])
    const net = graph('wide', { x: wide }, ({ x }) => ({
      y: x.pipe(upload(), add(param('w', wide)), download()),
    }))
    const [error] = await refused(
      { device: 'host', params: { w: new Float32Array(6) } },
      orThrow(compile(net, { mode: 'eager', dims: { width: 2 } })),
    )
    expect(error).toMatchObject({
      _tag: 'WrongParam',
      next: expect.stringContaining('{ dims: { width: 6 } }'),
    })
    const interpreted = lastValueFrom(
      interpret(shaped('batch', 3), { dims: { batch: 2 } })({ x: [new Float32Array(9)] as never }),
    )
    await expect(interpreted).rejects.toThrow('interpret(graph, { dims: { batch: 3 } })')
  })
})

describe('a device that fails', () => {
  it('in a tick: an iteration gets the ticks before it, however late, and then the error', async () => {
    const fails = kernel({
      name: 'fails',
      cuda: 'extern "C" __global__ void fails(const float* x, float* y) {}',
      reads: { x: row },
      writes: { y: row },
      launch: { grid: [1, 1, 1], block: [1, 1, 1] },
      reference: ({ x }, { y }) => {
        if (x[0] === 4) throw new Error('the fourth')
        y.set(x)
      },
    })
    const failing = graph('failing', { x: row }, ({ x }) => ({
      y: fails({ x: x.pipe(upload()) }).y.pipe(download()),
    }))
    const slots = orThrow(compile(failing, { mode: 'eager', inFlight: 4 }))
    const session = orThrow(await open(slots, { device: 'host' })())
    const values = async function* () {
      for (let value = 1; value <= 4; value++) {
        // A failure of the device fails every tick in flight.
        if (value === 4) await until(() => session.stats().credits.leased === 3)
        yield new Float32Array(1024).fill(value)
      }
    }
    const seen: (number | undefined)[] = []
    const iterating = (async () => {
      for await (using lease of session.run({ x: pulled(values()) })) {
        seen.push(lease.y[7])
        // The session frees its memory meanwhile.
        if (seen.length === 1) await until(() => lease.y.length === 0)
      }
    })()
    expect(await rejectionOf(iterating)).toMatchObject({ _tag: 'TickFailed' })
    expect(seen).toEqual([1, 2, 3])
    await session.close()
  })

  it.each(['pagesCreate', 'pinnedAllocate', 'streamCreate', 'eventCreate', 'prepare'])(
    'while it opens, in %s: an error, nothing left behind',
    async call => {
      const [error] = await refused({ ...good, host: { faults: [{ call, nth: 1, status: 999 }] } })
      expect(error!.code).toBe('CUDA_ERROR_UNKNOWN')
      await works()
    },
  )

  it.each([
    ['run', 5, 719],
    ['launch', 2, 719],
    ['eventRecord', 9, 999],
    ['copy', 3, 700],
    ['streamWait', 6, 400],
  ])(
    'in a tick, in %s: the run ends with the error, the session is freed, another opens',
    async (call, nth, status) => {
      const session = orThrow(await open(plan, { ...good, host: { faults: [{ call, nth, status }] } })())
      const running = session
        .run({ x: pulled(Array.from({ length: 50 }, () => bias)) })
        .forEach(lease => void lease[Symbol.dispose]())
      const error = await rejectionOf(running)
      // The plan may not make that many such calls while it runs: then nothing fails, which is right as well.
      if (error !== undefined) {
        expect(error).toBeInstanceOf(RunError)
        expect(error).toMatchObject({
          _tag: 'TickFailed',
          next: expect.stringContaining('open the plan again'),
        })
        const again = await session
          .run({ x: pulled([bias]) })
          .forEach(() => {})
          .catch((thrown: unknown) => thrown)
        expect(again).toMatchObject({ _tag: 'SessionFailed' })
      } else expect(call).not.toBe('run')
      await session.close()
      await works()
    },
  )
})
