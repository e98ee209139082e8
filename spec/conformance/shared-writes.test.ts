// Writes to parameters that sessions share, on every device: each tick of each session computes with one
// value as a whole, in the order of the writes.
import { firstValueFrom } from 'rxjs'
import { afterEach, describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  type CompileOptions,
  device as deviceNumber,
  download,
  graph,
  lane,
  mul,
  on,
  orThrow,
  param,
  tensor,
  upload,
} from '../../dsl/index.js'
import { copyUnseen, hold } from '../../runtime/device/testing.js'
import {
  Device,
  DisposedError,
  open,
  params,
  pulled,
  RunError,
  type Session,
  type SharedParams,
} from '../../runtime/index.js'
import { rejectionOf } from '../fixtures/errors.js'
import { fleets, pause, present, turn, until } from './devices.js'

const size = 1 << 14
const row = tensor('f32', [size])
const copy = lane('copy')
const math = lane('math')
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)

/** y = w + x · bias: w lies on the device, bias in host memory. */
const net = graph('net', { x: row }, ({ x }) => {
  const bias = param('bias', row, { on: 'host' })
  const y = x.pipe(upload(copy), on(math), mul(bias.pipe(upload(copy))), add(param('w', row)))
  return { y: y.pipe(download(copy)) }
})
type Net = Session<{ x: typeof row }, { y: typeof row }>

/** The one value of all elements; a torn read has several. */
const whole = (values: Float32Array): number => {
  const first = values[0]!
  for (const value of values) if (value !== first) throw new Error(`torn: ${first} and ${value}`)
  return first
}

/** What the next tick of a session computes of x = 1. */
const answer = async (session: Net): Promise<number> => {
  using lease = await firstValueFrom(session.run({ x: pulled([filled(1)]) }))
  return whole(lease.y)
}

const errorOf = async (running: Promise<unknown>): Promise<RunError> => {
  const error = await rejectionOf(running)
  expect(error).toBeInstanceOf(RunError)
  return error as RunError
}

const plans = (['pooled', 'planned', 'graph'] as const).map(kind => {
  const options: CompileOptions =
    kind === 'graph' ? { mode: 'graph', storage: 'planned' } : { mode: 'eager', storage: kind }
  return [kind, orThrow(compile(net, { inFlight: 3, ...options }))] as const
})
const [[, plan]] = plans as [(typeof plans)[0]]

describe.each(present)('a write to shared parameters on %s', name => {
  const made: AsyncDisposable[] = []
  const kept = <A extends AsyncDisposable>(each: A): A => {
    made.unshift(each)
    return each
  }
  afterEach(async () => {
    for (const each of made.splice(0)) await each[Symbol.asyncDispose]()
  })
  const deviceOf = async (): Promise<Device> => {
    const host = { jitter: 9, jitterMicroseconds: 200 }
    return kept(orThrow(await Device.open(name, name === 'host' ? { host } : {})()))
  }
  const weightsOf = async (device: Device): Promise<SharedParams> =>
    kept(await params(device, { w: filled(1), bias: filled(0) }))
  const start = async (weights: SharedParams, of = plan): Promise<Net> =>
    kept(orThrow(await open(of, { params: weights })()))

  it.each(plans)('reaches two sessions with ticks in flight, whole and in order (%s)', async (_, of) => {
    const weights = await weightsOf(await deviceOf())
    const sessions = [await start(weights, of), await start(weights, of)]
    let called = 1
    let done = false
    const ran = sessions.map(async session => {
      /**
       * The writes that had been called when the tick's value was asked for: the tick sees at least these.
       */
      const least: number[] = []
      const values = function* () {
        while (!done) {
          least.push(called)
          yield filled(0)
        }
      }
      const seen: number[] = []
      for await (using lease of session.run({ x: pulled(values()) })) {
        seen.push(whole(lease.y))
        expect(seen.at(-1)).toBeGreaterThanOrEqual(least[seen.length - 1]!)
        expect(seen.at(-1)).toBeLessThanOrEqual(called)
        // Leases come in a burst otherwise, and the writes never see a run.
        await turn()
      }
      expect(seen).toEqual(seen.toSorted((a, b) => a - b))
      return seen
    })
    const writes: Promise<number | undefined>[] = []
    for (let value = 2; value <= 24; value++) {
      called = value
      const way = value % 3
      const wrote =
        way === 0 ? weights.write('w', filled(value)) : sessions[way - 1]!.params.write({ w: filled(value) })
      writes.push(wrote.then(first => first ?? undefined))
      if (value % 4 !== 0) await wrote
      await pause(2)
    }
    const firsts = await Promise.all(writes)
    done = true
    const seen = await Promise.all(ran)
    for (const own of seen) expect(new Set(own).size).toBeGreaterThan(5)
    // A session's write resolves to its first tick that sees the value.
    for (const [i, first] of firsts.entries()) {
      const value = i + 2
      if (value % 3 === 0) continue
      const own = seen[(value % 3) - 1]!
      if (first! >= own.length) continue
      expect(own[first!]).toBeGreaterThanOrEqual(value)
      expect(own[first! - 1] ?? 1).toBeLessThan(value)
    }
    for (const session of sessions) expect(await answer(session)).toBe(24)
  })

  it('happens between the same two ticks for all names, also of copies that each session has', async () => {
    const weights = await weightsOf(await deviceOf())
    const sessions = [await start(weights), await start(weights)] as const
    await weights.write({ w: filled(10), bias: into => void new Float32Array(into.buffer).fill(5) })
    for (const session of sessions) expect(await answer(session)).toBe(15)
    expect(await sessions[1].params.read('w')).toEqual(filled(10))
    expect(await sessions[1].params.read('bias')).toEqual(filled(5))
    // A session's own write to memory of its own is its own; to shared memory it is everybody's.
    await sessions[0].params.write({ w: filled(20), bias: filled(7) })
    expect(await answer(sessions[0])).toBe(27)
    expect(await answer(sessions[1])).toBe(25)
    expect(await answer(await start(weights))).toBe(25)
  })

  it('is there for sessions that open later, and for one that opens meanwhile', async () => {
    const weights = await weightsOf(await deviceOf())
    await weights.write({ w: filled(2), bias: filled(3) })
    const first = await start(weights)
    expect(await answer(first)).toBe(5)
    for (let round = 0; round < 5; round++) {
      const opening = start(weights)
      for (let turns = 0; turns < round; turns++) await turn()
      const wrote = weights.write({ w: filled(10 * round), bias: filled(round) })
      const session = await opening
      expect([round === 0 ? 5 : 0, 11 * round]).toContain(await answer(session))
      await wrote
      for (const each of [first, session]) expect(await answer(each)).toBe(11 * round)
      await weights.write({ w: filled(0), bias: filled(0) })
    }
    // The value of the source is not put back where a write comes while it is read.
    let release = (): void => {}
    const source = (into: Uint8Array) =>
      new Promise<void>(resolve => {
        release = () => {
          new Float32Array(into.buffer, into.byteOffset).fill(1)
          resolve()
        }
      })
    const slow = kept(await params(await deviceOf(), { w: source, bias: filled(0) }))
    const opening = start(slow)
    await until(() => (release as { name: string }).name === 'release')
    await slow.write('w', filled(6))
    release()
    expect(await answer(await opening)).toBe(6)
  })

  it('by a source that has not answered keeps no session from closing that opened meanwhile', async () => {
    const device = await deviceOf()
    const weights = await weightsOf(device)
    const biased = graph('biased', { x: row }, ({ x }) => ({
      y: x.pipe(upload(copy), add(param('bias', row)), download(copy)),
    }))
    await start(weights, orThrow(compile(biased, { mode: 'eager' })) as never)
    using reader = device.lane({ name: 'reader' })
    using host = device.pinned(4 * size, reader)
    // The write before waits for a reader, so that the next one waits for its turn while a session opens.
    const bias = await weights.block('bias')
    device.pinned(4 * size, reader).free()
    const gate = hold(device, reader)
    copyUnseen(reader, host, bias)
    bias.recordUse(reader)
    const first = weights.write('bias', filled(0))
    let answers: (() => void) | undefined
    const source = (into: Uint8Array) =>
      new Promise<void>(resolve => {
        answers = () => {
          new Float32Array(into.buffer, into.byteOffset).fill(8)
          resolve()
        }
      })
    const written = weights.write({ w: source }) // nobody knows its type yet
    const late = orThrow(
      compile(
        graph('late', { x: row }, ({ x }) => ({
          y: x.pipe(upload(copy), add(param('w', row)), download(copy)),
        })),
        { mode: 'eager' },
      ),
    ) as never
    const [a, b] = [await start(weights, late), await start(weights, late)]
    gate.open()
    await first
    await until(() => answers !== undefined)
    expect(await answer(a)).toBe(2)
    await a.close()
    answers!()
    await written
    expect(await answer(b)).toBe(9)
  })

  it.each([
    ['a Buffer', (bytes: ArrayBuffer) => Buffer.from(bytes)],
    ['a DataView', (bytes: ArrayBuffer) => new DataView(bytes)],
    ['an array', (bytes: ArrayBuffer) => new Float32Array(bytes)],
  ])('copies %s at once, before a session has opened and after', async (_, viewOf) => {
    const weights = await weightsOf(await deviceOf())
    const values = filled(2)
    const view = viewOf(values.buffer as ArrayBuffer) as never
    const first = weights.write('w', view)
    values.fill(3)
    await first
    const session = await start(weights)
    expect(await answer(session)).toBe(2)
    const second = weights.write('w', view)
    values.fill(4)
    await second
    expect(await answer(session)).toBe(3)
  })

  it('that is wrong is an error, and changes nothing', async () => {
    const weights = await weightsOf(await deviceOf())
    const session = await start(weights)
    expect(await errorOf(weights.write('v', filled(2)))).toMatchObject({
      _tag: 'UnknownName',
      subject: 'params: v',
      wanted: expect.stringMatching('w, bias'),
    })
    for (const value of [new Float32Array(3), new Int32Array(size), 7 as never])
      expect(await errorOf(weights.write({ bias: filled(9), w: value }))).toMatchObject({
        _tag: 'WrongWrite',
        subject: 'params: w',
      })
    expect(await errorOf(weights.write(undefined as never))).toMatchObject({ _tag: 'WrongWrite' })
    const boom = new Error('boom')
    const throwing = () => {
      throw boom
    }
    expect(await errorOf(weights.write({ bias: filled(9), w: throwing }))).toMatchObject({ cause: boom })
    expect(await errorOf(session.params.write('w', new Float32Array(3)))).toMatchObject({
      _tag: 'WrongWrite',
    })
    expect(await answer(session)).toBe(1)
  })

  it('is carried out where sessions or the parameters close meanwhile, and refused afterwards', async () => {
    const weights = await weightsOf(await deviceOf())
    const [one, other] = [await start(weights), await start(weights)] as const
    const running = one.run({ x: pulled(Array.from({ length: 8 }, () => filled(1))) })
    const seen: number[] = []
    const ran = (async () => {
      for await (using lease of running) seen.push(whole(lease.y))
    })()
    await until(() => seen.length > 1)
    const writes = [weights.write('w', filled(2)), one.params.write('w', filled(3))] as const
    await Promise.all([one.close(), ran.catch(() => undefined)])
    await Promise.all(writes)
    expect(seen.every(value => value <= 3)).toBe(true)
    expect(await rejectionOf(one.params.write('w', filled(4)))).toBeInstanceOf(DisposedError)
    expect(await answer(other)).toBe(3)
    const last = weights.write('w', filled(5))
    await weights[Symbol.asyncDispose]()
    await last
    expect(await answer(other)).toBe(5)
    for (const write of [() => weights.write('w', filled(6)), () => other.params.write('w', filled(6))])
      expect(await rejectionOf(write())).toBeInstanceOf(DisposedError)
    expect(await answer(other)).toBe(5)
    expect(await other.params.read('w')).toEqual(filled(5))
  })

  it('of a function that has filled the bytes is carried out; one that has not is ended', async () => {
    const filling = (value: number) => (into: Uint8Array) => void new Float32Array(into.buffer).fill(value)
    const endless = () => new Promise<void>(() => undefined)
    const weights = await weightsOf(await deviceOf())
    const [one, other] = [await start(weights), await start(weights)] as const
    const ofSession = one.params.write('w', filling(3))
    const endedBySession = rejectionOf(one.params.write('w', endless))
    await one.close()
    await ofSession
    expect(await endedBySession).toBeInstanceOf(DisposedError)
    expect(await answer(other)).toBe(3)
    const ended = rejectionOf(weights.write('w', endless))
    const writes = [weights.write('w', filled(4)), weights.write('w', filling(5))]
    await weights[Symbol.asyncDispose]()
    await Promise.all(writes)
    expect(await ended).toBeInstanceOf(DisposedError)
    expect(await answer(other)).toBe(5)
  })

  it('comes after the uses of its block that lanes have marked', async () => {
    const device = await deviceOf()
    const weights = await weightsOf(device)
    const session = await start(weights)
    const w = await weights.block('w')
    using reader = device.lane({ name: 'reader' })
    for (const mark of ['recordUse', 'recordStream'] as const) {
      const before = await answer(session)
      using host = device.pinned(4 * size, reader)
      // The write takes its pinned memory from the cache: the driver may wait for the gate where it
      // allocates.
      device.pinned(4 * size, reader).free()
      if (mark === 'recordStream') w.recordStream(reader)
      const gate = hold(device, reader)
      copyUnseen(reader, host, w)
      if (mark === 'recordUse') w.recordUse(reader)
      let ended = false
      const wrote = weights.write('w', filled(before + 1)).then(() => {
        ended = true
      })
      await pause(20)
      expect(ended).toBe(false)
      gate.open()
      await wrote
      await reader.synchronize()
      expect(whole(new Float32Array(host.view()))).toBe(before)
      expect(await answer(session)).toBe(before + 1)
    }
  })

  it('reaches a session that goes over to another plan, and to other parameters', async () => {
    const device = await deviceOf()
    const [weights, others] = [await weightsOf(device), await weightsOf(device)]
    const session = await start(weights)
    const swapped = session.swap(plans[1]![1] as never)
    await weights.write('w', filled(4))
    await swapped
    expect(await answer(session)).toBe(4)
    await session.swap(plan as never, { params: others })
    await weights.write({ w: filled(8), bias: filled(8) })
    expect(await answer(session)).toBe(1)
    await others.write('w', filled(9))
    expect(await answer(session)).toBe(9)
    await session.swap(plan as never, { params: { w: filled(2), bias: filled(1) } })
    await others.write({ w: filled(8), bias: filled(8) })
    expect(await answer(session)).toBe(3)
  })
})

describe.each(fleets)('a write to shared parameters of sessions on %s and %s', (...fleet) => {
  const two = orThrow(
    compile(
      graph('two', { x: row }, ({ x }) => {
        const w = param('w', row)
        const near = x.pipe(upload(), on(deviceNumber(0)), mul(w))
        return { y: near.pipe(on(deviceNumber(1)), mul(w), download()) }
      }),
      { mode: 'eager', inFlight: 2 },
    ),
  )

  it('reaches the copies on the other device', async () => {
    const devices: Device[] = []
    for (const name of fleet.slice(0, 2)) devices.push(orThrow(await Device.open(name)()))
    const weights = await params(devices[0]!, { w: filled(3) })
    const start = async () => orThrow(await open(two, { device: devices, params: weights })())
    const sessions = [await start(), await start()] as const
    await weights.write('w', filled(4))
    for (const session of sessions) expect(await answer(session as Net)).toBe(16)
    await sessions[0].params.write('w', filled(5))
    for (const session of [...sessions, await start()]) {
      expect(await answer(session as Net)).toBe(25)
      await session.close()
    }
    await weights[Symbol.asyncDispose]()
    for (const device of devices) {
      expect(device.stats()['allocated_bytes.all.current']).toBe(0)
      await device.close()
    }
  })
})

describe('where a copy of a write to shared parameters fails', () => {
  it('all sessions that read it are over, and others begin with the value', async () => {
    const failing = async (nth: number) => {
      const faults = [{ call: 'copy', nth, status: 1 }]
      const device = orThrow(await Device.open('host', { host: { faults } })())
      const weights = await params(device, { w: filled(1), bias: filled(0) })
      const first = orThrow(await open(plan, { params: weights })())
      const second = orThrow(await open(plan, { params: weights })())
      const block = await weights.block('w')
      return { device, weights, sessions: [first, second] as const, block }
    }
    // One copy has filled the block; the second is of the write.
    const { device, weights, sessions, block } = await failing(2)
    expect(await errorOf(weights.write('w', filled(2)))).toMatchObject({
      _tag: 'CopyFailed',
      next: expect.stringMatching('all sessions that read it are over'),
    })
    for (const session of sessions)
      expect(await errorOf(session.params.read('w'))).toMatchObject({ _tag: 'SessionFailed' })
    expect(block.disposed).toBe(true)
    const third = orThrow(await open(plan, { params: weights })())
    expect(await answer(third)).toBe(2)
    for (const each of [...sessions, third]) await each.close()
    await weights[Symbol.asyncDispose]()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
    await device.close()
  })
})
