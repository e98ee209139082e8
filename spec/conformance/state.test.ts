// States and parameters between two ticks, on every device: read, written, reset, saved and restored.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as E from 'fp-ts/lib/Either.js'
import { firstValueFrom, lastValueFrom, map, Subject, toArray } from 'rxjs'
import { afterEach, describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  type Between,
  delay,
  download,
  graph,
  interpret,
  lane,
  mul,
  orThrow,
  param,
  parsePlan,
  scan,
  state,
  sum,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import {
  DisposedError,
  errorsOf,
  open,
  params,
  pulled,
  pushed,
  RunError,
  SafetensorsError,
  type Session,
  type SwapError,
  safetensors,
} from '../../runtime/index.js'
import { rejectionOf } from '../fixtures/errors.js'
import { opened, present, until } from './devices.js'

const four = tensor('f32', [4])
const copy = lane('copy')
const row = (value: number): Float32Array => new Float32Array(4).fill(value)
const rows = function* (from: number, count: number) {
  for (let i = 0; i < count; i++) yield row(from + i)
}

/** y = total + 100 × before, where total is the sum so far and before the total of the tick before. */
const sums = graph('sums', { x: four }, ({ x }) => {
  const total = x.pipe(
    upload(copy),
    scan((sum, value) => sum.pipe(add(value)), 0, { name: 'total' }),
  )
  const before = total.pipe(delay([1, 1, 1, 1], { name: 'before' }))
  return { y: total.pipe(add(before.pipe(mul(100))), download(copy)) }
})

const scaled = graph('scaled', { x: four }, ({ x }) => {
  const w = param('w', four)
  const bias = param('bias', four, { on: 'host' })
  return { y: x.pipe(upload(copy), mul(w), add(bias.pipe(upload(copy))), download(copy)) }
})

/** Its first value is a function, which no file of the plan has. */
const startsAs = graph('starts', { x: four }, ({ x }) => {
  const s = state({ s: four }, { s: into => void into.fill(0) })
  s.next({ s: s.s.pipe(add(x.pipe(upload(copy)))) })
  return { y: s.s.pipe(download(copy)) }
})

const errorOf = async (running: Promise<unknown>): Promise<RunError> => {
  const error = await rejectionOf(running)
  expect(error).toBeInstanceOf(RunError)
  return error as RunError
}

type Sums = Session<{ x: typeof four }, { y: typeof four }>

describe.each(present)('between two ticks on %s', device => {
  const open_: { close(): Promise<void> }[] = []
  const kept = <S extends { close(): Promise<void> }>(session: S): S => {
    open_.push(session)
    return session
  }
  const start = async (options: Parameters<typeof opened>[2] = {}): Promise<Sums> =>
    kept(await opened(sums, device, options))
  afterEach(async () => {
    for (const session of open_.splice(0)) await session.close()
  })
  const firsts = (session: Sums, values: Iterable<Float32Array>): Promise<number[]> =>
    lastValueFrom(
      session.run({ x: pulled(values) }).pipe(
        map(lease => {
          using held = lease
          return held.y[0]!
        }),
        toArray(),
      ),
    )

  it.each(['eager', 'graph'] as const)('1 reads, writes and resets states by name (%s)', async mode => {
    const session = await start({ compile: { mode, ...(mode === 'graph' ? { storage: 'planned' } : {}) } })
    expect(session.state.names).toEqual(['total', 'before'])
    expect(await session.state.read('before')).toEqual(row(1))
    expect(await firsts(session, rows(1, 3))).toEqual([101, 103, 306])
    expect(await session.state.read('total')).toEqual(row(6))
    expect(await session.state.read('before')).toEqual(row(6))
    expect(await session.state.write('total', row(10))).toBe(3)
    expect(await session.state.read('total')).toEqual(row(10))
    expect(await firsts(session, [row(1)])).toEqual([611])
    expect(await session.state.write({ total: row(0), before: into => void into.fill(0) })).toBe(4)
    expect(await firsts(session, rows(1, 2))).toEqual([1, 103])
    expect(await session.state.reset()).toBe(6)
    expect(await firsts(session, rows(1, 3))).toEqual([101, 103, 306])
    expect(await session.read('total')).toEqual(row(6))
  })

  it('2 never touches a tick in the middle, and says which tick sees a write first', async () => {
    const host = device === 'host' ? { host: { jitter: 5, jitterMicroseconds: 300 } } : {}
    const session = await start({ compile: { inFlight: 3 }, ...host })
    const answers: number[] = []
    const wrote = new Map<number, number>()
    const seen = new Map<number, readonly number[]>()
    const running = session.run({ x: pulled(rows(1, 60)) }).forEach(lease => {
      using held = lease
      answers.push(held.y[0]!)
      const value = answers.length
      if (value % 7 === 0)
        void Promise.all([
          session.state.read('total'),
          session.state.read('before'),
          session.state.write({ total: row(-value), before: row(value) }),
        ]).then(([total, before, tick]) => {
          seen.set(tick, [total[0]!, before[0]!])
          wrote.set(tick, value)
        })
    })
    await running
    const read = await Promise.all([session.state.read('total'), session.state.read('before')])
    let [total, before] = [0, 1]
    for (let tick = 0; tick < 60; tick++) {
      if (seen.has(tick)) expect(seen.get(tick)).toEqual([total, before])
      const value = wrote.get(tick)
      if (value !== undefined) [total, before] = [-value, value]
      total += tick + 1
      expect(answers[tick]).toBe(total + 100 * before)
      before = total
    }
    if (wrote.has(60)) [total, before] = [-wrote.get(60)!, wrote.get(60)!]
    expect(read.map(each => each[0])).toEqual([total, before])
    expect(wrote.size).toBe(8)
  })

  it('3 waits for no lease and no feed', async () => {
    const session = await start({ compile: { inFlight: 2 } })
    const feed = new Subject<Float32Array>()
    const leases: Disposable[] = []
    const run = session.run({ x: pushed(feed, 'fail') }).subscribe(lease => leases.push(lease))
    feed.next(row(1))
    feed.next(row(2))
    await until(() => leases.length === 2)
    expect(await session.state.write('total', row(5))).toBe(2)
    for (const lease of leases) lease[Symbol.dispose]()
    feed.next(row(3))
    await until(() => leases.length === 3)
    expect(await session.state.read('total')).toEqual(row(8))
    run.unsubscribe()
  })

  it('4 saves all states as one file, and opens with it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'braid-state-'))
    try {
      const path = join(folder, 'state.safetensors')
      const session = await start()
      await firsts(session, rows(1, 3))
      await session.state.save(path)
      await firsts(session, rows(1, 1))
      expect(readdirSync(folder)).toEqual(['state.safetensors'])
      const next = await start({ state: safetensors(path) })
      expect(await firsts(next, [row(1)])).toEqual([607])
      await next.state.reset()
      expect(await firsts(next, [row(1)])).toEqual([101])
      await using file = orThrow(await safetensors(path)())
      const third = await start({ state: file })
      expect(await firsts(third, [row(1)])).toEqual([607])
      const fourth = await start({ state: { before: file.source('total') } })
      expect(await firsts(fourth, [row(1)])).toEqual([601])
      const lost = await rejectionOf(session.state.save(join(folder, 'none', 'x.safetensors')))
      expect(lost).toBeInstanceOf(SafetensorsError)
      expect(readdirSync(folder)).toEqual(['state.safetensors'])
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('5 says what cannot be opened', async () => {
    const url = new URL('file:///tmp/state.safetensors')
    const asUrl = await open(orThrow(compile(sums)), { device, state: url as never })()
    expect(E.isLeft(asUrl) && asUrl.left).toMatchObject({ _tag: 'BadOption', found: 'an object (URL)' })
    const plan = orThrow(compile(sums))
    const refused = async (state: unknown) => {
      const result = await open(plan, { device, state: state as never })()
      expect(E.isLeft(result)).toBe(true)
      return E.isLeft(result) ? errorsOf(result.left) : []
    }
    expect(await refused({ totel: row(1), before: new Float32Array(3) })).toMatchObject([
      { _tag: 'WrongState', subject: 'totel', wanted: 'a state of the plan: total, before' },
      { _tag: 'WrongState', subject: 'before', found: 'Float32Array of 3 elements' },
    ])
    const boom = new Error('boom')
    for (const wrong of [7, () => 7, async () => undefined, () => Promise.reject(boom)])
      expect(await refused(wrong)).toMatchObject([{ _tag: 'BadOption', at: 'state' }])
    expect(await refused(() => Promise.reject(boom))).toMatchObject([
      { found: 'a function that threw: boom', cause: boom },
    ])
    expect(await refused(safetensors('/nowhere/at.all'))).toMatchObject([{ _tag: 'WrongState' }])
    const threw = await refused({
      total: () => {
        throw boom
      },
    })
    expect(threw).toMatchObject([{ _tag: 'WrongState', subject: 'total', cause: boom }])
    const file = { tensors: new Map(), foreign: new Map(), source: () => {} }
    expect(await refused(file)).toMatchObject([
      { _tag: 'MissingState', subject: 'total' },
      { _tag: 'MissingState', subject: 'before' },
    ])
  })

  it('6 says what cannot be read or written, and goes on', async () => {
    const session = await start()
    const unknown = await errorOf(session.state.read('sum'))
    expect(unknown).toMatchObject({ _tag: 'UnknownName', wanted: 'the name of a state: total, before' })
    expect(unknown.at).toMatch(/state\.test/)
    expect(await errorOf(session.params.read('total'))).toMatchObject({ _tag: 'UnknownName' })
    const short = await errorOf(session.state.write({ total: row(3), before: new Float32Array(3) }))
    expect(short).toMatchObject({ _tag: 'WrongWrite', found: 'Float32Array of 3 elements' })
    expect(await errorOf(session.state.write('total', new Int32Array(4)))).toMatchObject({
      _tag: 'WrongWrite',
    })
    const boom = new Error('boom')
    const threw = await errorOf(session.state.write('total', () => Promise.reject(boom)))
    expect(threw).toMatchObject({ _tag: 'WrongWrite', cause: boom })
    expect(await errorOf(session.state.write(7 as never))).toMatchObject({ _tag: 'WrongWrite' })
    expect(await firsts(session, [row(1)])).toEqual([101])
    await session.close()
    const given = await start({ compile: {} })
    const elsewhere = orThrow(parsePlan(toJSON(orThrow(compile(startsAs)))))
    const unknownFirst = orThrow(await open(elsewhere, { device, state: { s: row(2) } })())
    expect(await errorOf(unknownFirst.state.reset())).toMatchObject({ _tag: 'WrongWrite' })
    await unknownFirst.close()
    expect(await rejectionOf(unknownFirst.state.reset())).toBeInstanceOf(DisposedError)
    for (const plan of [undefined, 7, []]) {
      const { errors } = (await rejectionOf(given.swap(plan as never))) as SwapError
      expect(errors).toMatchObject([{ _tag: 'BadPlan', wanted: 'a plan' }])
    }
    for (const use of [
      () => session.state.read('total'),
      () => session.state.write('total', row(1)),
      () => session.state.reset(),
      () => session.state.save('x'),
    ])
      expect(await rejectionOf(use())).toBeInstanceOf(DisposedError)
  })

  it('11 refuses a source that fills nothing, or takes its bytes away, and goes on', async () => {
    const session = await start()
    const away = (into: Uint8Array): void => {
      structuredClone(into.buffer, { transfer: [into.buffer as ArrayBuffer] })
    }
    const generator = function* (into: Uint8Array) {
      yield into.fill(1)
    }
    const oldGenerator = (into: Uint8Array) => [into][Symbol.iterator]()
    for (const source of [generator, oldGenerator, away, async (into: Uint8Array) => away(into)]) {
      const wrong = await errorOf(session.state.write('total', source as never))
      expect(wrong).toMatchObject({ _tag: 'WrongWrite', subject: 'session.state: total' })
      expect(wrong.found).toMatch(/generator|iterator|detached/)
      const refused = await open(orThrow(compile(sums)), { device, state: { total: source as never } })()
      expect(E.isLeft(refused) && refused.left).toMatchObject({ _tag: 'WrongState', subject: 'total' })
      // Node does not transfer pinned memory: who tries is given a copy.
      for (const name of /detached/.test(wrong.found) ? ['w'] : ['w', 'bias']) {
        const given = { w: row(1), bias: row(1), [name]: source as never }
        const closed = await open(orThrow(compile(scaled)), { device, params: given })()
        expect(E.isLeft(closed) && closed.left).toMatchObject({ _tag: 'WrongParam', subject: name })
      }
    }
    const write = session.state.write('total', async into => void into.fill(0))
    expect(await write).toBe(0)
    expect(await firsts(session, [row(1)])).toEqual([101])
  })

  it('7 writes parameters between ticks, on the device and on the host', async () => {
    const session = kept(await opened(scaled, device, { params: { w: row(2), bias: row(1) } }))
    const answer = async (value: number): Promise<number> => {
      using lease = await firstValueFrom(session.run({ x: pulled([row(value)]) }))
      return lease.y[0]!
    }
    expect(await answer(3)).toBe(7)
    await session.params.write('w', row(5))
    expect(await answer(3)).toBe(16)
    await session.params.write({ bias: row(10), w: row(1) })
    expect(await answer(3)).toBe(13)
    expect(await session.params.read('bias')).toEqual(row(10))
    expect(await session.params.read('w')).toEqual(row(1))
    expect([...session.params.names].sort()).toEqual(['bias', 'w'])
  })

  it('8 writes what sessions share for all of them, and what lies on the host for one', async () => {
    await using weights = await params(device, { w: row(2), bias: row(1) })
    const [one, other] = [
      kept(await opened(scaled, device, { params: weights })),
      kept(await opened(scaled, device, { params: weights })),
    ]
    await one.params.write({ w: row(3) })
    expect(await one.params.read('w')).toEqual(row(3))
    expect(await other.params.read('w')).toEqual(row(3))
    // On the host each session has its own.
    await one.params.write('bias', row(9))
    expect(await other.params.read('bias')).toEqual(row(1))
  })

  it('9 closes after what was asked of it before', async () => {
    const session = await start()
    const asked = [session.state.write('total', row(4)), session.state.read('total')] as const
    await session.close()
    expect(await asked[1]).toEqual(row(4))
  })

  it('12 writes what a function has filled when it returns, as an array', async () => {
    const session = await start()
    const four = (into: Uint8Array): void => void new Float32Array(into.buffer).fill(4)
    const asked = [session.state.write('total', four), session.state.read('total')] as const
    expect(await asked[1]).toEqual(row(4))
    const last = session.state.write({ total: four, before: row(1) })
    await session.close()
    expect(await last).toBe(0)
    const weighted = kept(await opened(scaled, device, { params: { w: row(2), bias: row(1) } }))
    const wrote = weighted.params.write('w', four)
    await weighted.close()
    expect(await wrote).toBe(0)
  })

  it.each([
    [96, 64],
    [3, 5],
    [40, 3000],
    [3000, 40],
  ])('14 adds sums of rows and of columns to states in their memory, of %i × %i', async (length, width) => {
    const made = graph('totals', { x: tensor('f32', [length, width]) }, ({ x }) => {
      const value = x.pipe(upload())
      const s = state(
        { rows: tensor('f32', [length]), columns: tensor('f32', [width]) },
        { rows: 1, columns: 2 },
      )
      s.next({
        rows: s.rows.pipe(add(value.pipe(sum(1)))),
        columns: s.columns.pipe(add(value.pipe(mul(3), sum(0)))),
      })
      return { y: value.pipe(mul(5), sum(), download()) }
    })
    const session = kept(await opened(made as never, device, {})) as unknown as Session
    const kernels = session.plan.nodes.map(({ op }) => op)
    expect(kernels).not.toContain('store')
    const ticks = 5
    const values = Array.from({ length: ticks }, (_, t) =>
      Float32Array.from({ length: length * width }, (_, i) => ((i * 7 + t * 3) % 11) - 5),
    )
    await session.run({ x: pulled(values) } as never).forEach(lease => {
      using _held = lease as unknown as Disposable
    })
    const [rows, columns] = [new Float32Array(length).fill(1), new Float32Array(width).fill(2)]
    for (const x of values)
      x.forEach((each, i) => {
        rows[Math.floor(i / width)]! += each
        columns[i % width]! += 3 * each
      })
    expect(await session.state.read('rows')).toEqual(rows)
    expect(await session.state.read('columns')).toEqual(columns)
  })

  it('13 ends a write whose function has not ended when it closes', async () => {
    const session = await start()
    const never = session.state.write('total', () => new Promise<void>(() => undefined))
    const reason = rejectionOf(never)
    await session.close()
    expect(await reason).toBeInstanceOf(DisposedError)
  })

  it.each([
    { mode: 'eager' },
    { mode: 'eager', storage: 'planned' },
    { mode: 'graph', storage: 'planned' },
  ] as const)('10 keeps states with a name that no output needs (%o)', async compiling => {
    const averaged = graph('averaged', { x: four }, ({ x }) => {
      const s = state({ average: four, steps: tensor('i32', []), still: four }, { average: 8, still: 3 })
      const now = x.pipe(upload(copy))
      s.next({
        average: s.average.pipe(mul(0.5), add(now.pipe(mul(0.5)))),
        steps: s.steps.pipe(add(1)),
        still: s.still,
      })
      now.pipe(scan((sum, value) => sum.pipe(add(value)), 0, { name: 'sum' }))
      now.pipe(delay(0))
      return { y: now.pipe(mul(2), download(copy)) }
    })
    const session = kept(await opened(averaged, device, { compile: compiling }))
    const names = ['average', 'steps', 'still', 'sum']
    expect([...session.state.names].sort()).toEqual(names)
    await session.run({ x: pulled(rows(1, 3)) }).forEach(lease => {
      lease[Symbol.dispose]()
    })
    const meant: unknown[] = []
    const between: Between = (tick, states) => {
      if (tick === 3) for (const name of names) meant.push(states.read(name))
    }
    await lastValueFrom(interpret(averaged, { between })({ x: [...rows(1, 4)] }))
    const values = await Promise.all(names.map(name => session.state.read(name)))
    expect(values).toEqual(meant)
    expect(values).toEqual([row(3.125), Int32Array.of(3), row(3), row(6)])
    const folder = mkdtempSync(join(tmpdir(), 'braid-state-'))
    try {
      await session.state.save(join(folder, 'kept.safetensors'))
      await using file = orThrow(await safetensors(join(folder, 'kept.safetensors'))())
      expect([...file.tensors.keys()].sort()).toEqual(names)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

describe('where a copy fails', () => {
  it('a write ends the session, a read does not', async () => {
    // The copies of the first values, and of one tick, are not numbered here: the next one fails.
    const session = await opened(sums, 'host', { host: { faults: [{ call: 'copy', nth: 3, status: 1 }] } })
    const error = await errorOf(session.state.write('total', row(1)))
    expect(error).toMatchObject({ _tag: 'CopyFailed' })
    expect(await errorOf(session.state.read('total'))).toMatchObject({ _tag: 'SessionFailed' })
    await session.close()
    const faults = [3, 4].map(nth => ({ call: 'copy', nth, status: 1 }))
    const other = await opened(sums, 'host', { host: { faults } })
    const at = expect.stringContaining('state.test')
    for (const read of [() => other.state.read('total'), () => other.read('total')])
      expect(await errorOf(read())).toMatchObject({ _tag: 'CopyFailed', at })
    expect(await other.state.read('total')).toEqual(row(0))
    await other.close()
  })
})
