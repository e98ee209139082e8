// Sessions and a Device's lanes share one memory: everything on a device is a block of its Device.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, take, toArray } from 'rxjs'
import { afterAll, describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  download,
  graph,
  lane,
  matmul,
  on,
  orThrow,
  param,
  parsePlan,
  relu,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { copyUnseen, hold } from '../../runtime/device/testing.js'
import {
  type Block,
  Device,
  errorsOf,
  type OpenOptions,
  open,
  params,
  pulled,
  type Session,
  safetensors,
  writeSafetensors,
} from '../../runtime/index.js'
import { leasedRounds } from '../fixtures/leased-rounds.js'
import { pause, present } from './devices.js'

const KiB = 1024
const size = 256
const copy = lane('copy')
const math = lane('math')
const net = graph({ x: tensor('f32', [size, size]), w: tensor('f32', [size, size]) }, ({ x, w }) => ({
  y: x.pipe(upload(copy), on(math), matmul(w.pipe(upload(copy))), relu(), download(copy)),
}))
const feed = new Float32Array(size * size).fill(0.5)

const folder = mkdtempSync(join(tmpdir(), 'braid-one-memory-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** A file of tensors of these shapes, all of whose elements are 1/4. */
const written = async (
  stem: string,
  shapes: Readonly<Record<string, readonly number[]>>,
): Promise<string> => {
  const path = join(folder, `${stem}.safetensors`)
  const entries = Object.entries(shapes).map(([name, shape]) => {
    const values = new Float32Array(shape.reduce((product, extent) => product * extent, 1)).fill(0.25)
    return { name, dtype: 'f32' as const, shape, bytes: new Uint8Array(values.buffer) }
  })
  orThrow(await writeSafetensors(path, entries)())
  return path
}

const failuresOf = async (plan: Plan, options: OpenOptions) => {
  const result = await open(plan, options)()
  expect(E.isLeft(result)).toBe(true)
  return errorsOf((result as E.Left<never>).left)
}
const failures = (options: OpenOptions) =>
  failuresOf(orThrow(compile(net, { mode: 'eager' })) as never, options)

describe.each(present)('one memory, on %s', name => {
  const plans = {
    pooled: orThrow(compile(net, { mode: 'eager' })),
    planned: orThrow(compile(net, { mode: 'eager', storage: 'planned' })),
  }

  it.each(['pooled', 'planned'] as const)('a %s session takes blocks of its Device', async storage => {
    const plan = plans[storage]
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const before = device.stats()['allocated_bytes.all.current']!
    {
      await using session = orThrow(await open(plan, { device })())
      const during = device.stats()['allocated_bytes.all.current']! - before
      expect(during).toBeGreaterThanOrEqual(size * size * 4)
      expect(during).toBeLessThanOrEqual(plan.bound.device[0]! + 4 * KiB)
      expect(device.stats('pinned')['allocated_bytes.all.current']).toBeGreaterThan(0)
      const held = device.snapshot()
      const live = held.segments.flatMap(({ blocks }) => blocks.filter(({ state }) => state === 'live'))
      const words = live.map(({ site }) => held.sites[site]![0]?.name)
      const range = storage === 'pooled' ? 'pool' : 'arena'
      expect(words).toContain(`session \`${plan.name}\`: ${range}`)
      expect(words).toContain(`session \`${plan.name}\`: input slot x`)
      expect(words).toContain(`session \`${plan.name}\`: output slot y`)
      const run = session.run({ x: pulled([feed, feed, feed]), w: pulled([feed, feed, feed]) })
      const sums: number[] = []
      for await (using out of run) sums.push(out.y[7]!)
      expect(sums).toEqual([64, 64, 64])
    }
    expect(device.stats()['allocated_bytes.all.current']).toBe(before)
    expect(device.closed).toBe(false)
  })

  it('what a session gives back serves a lane, and what a lane frees serves a session', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const bytes = 8 * 2 ** 20
    const block = device.malloc(bytes)
    block.lane.fill32(block, 7)
    block.free()
    const reserved = device.stats()['reserved_bytes.all.current']!
    for (let i = 0; i < 5; i++) {
      await using session = orThrow(await open(plans.planned, { device })())
      const out = await lastValueFrom(
        session.run({ x: pulled([feed]), w: pulled([feed]) }).pipe(take(1), toArray()),
      )
      expect(out[0]!.y[0]).toBe(64)
      out[0]![Symbol.dispose]()
    }
    using again = device.malloc(bytes)
    expect(again.bytes).toBe(bytes)
    expect(device.stats()['reserved_bytes.all.current']).toBeLessThanOrEqual(reserved + 4 * 2 ** 20)
  })

  it('a name joins the Device that is open, in any order', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { policy: 'order-then-wait' } })())
    await using session = orThrow(await open(plans.pooled, { device: name })())
    expect(session.device.device).toBe(name)
    expect(device.stats()['allocated_bytes.all.current']).toBeGreaterThan(0)
    await using other = orThrow(await Device.open(name)())
    expect(other.options.policy).toBe('order-then-wait')
    expect(other.stats()['policy.order-then-wait']).toBe(1)
    const block = other.malloc(KiB)
    const reader = device.lane({ name: 'reader' })
    block.recordUse(reader)
    reader.copy(block, block)
    expect(other.stats()).toEqual(device.stats())
    block.free()
  })

  it('a pool says where on the device, and which device', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const pool = device.pool()
    const session = orThrow(await open(plans.planned, { pool })())
    const ours = device.snapshot().segments.filter(segment => segment.pool === pool.id)
    expect(ours.flatMap(({ blocks }) => blocks).some(({ state }) => state === 'live')).toBe(true)
    pool.close()
    await session.close()
  })

  it('a device or pool that cannot be taken is an error with its reason', async () => {
    const device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    await using other = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 31 } })())
    const pool = other.pool()
    const [foreign] = await failures({ device, pool })
    expect(foreign).toMatchObject({ _tag: 'BadOption', at: 'pool' })
    pool.close()
    const [closed] = await failures({ device: other, pool })
    expect(closed).toMatchObject({ _tag: 'BadOption', at: 'pool', found: 'one that is closed' })
    const scripted = other.pool({ allocator: { allocate: () => null, release: () => undefined } })
    const [functions] = await failures({ pool: scripted })
    expect(functions).toMatchObject({ _tag: 'BadOption', at: 'pool' })
    expect(functions!.found).toContain('memory is JavaScript')
    expect(functions!.next).toBe("leave the pool's allocator out, or name a library's functions")
    await device.close()
    expect((await failures({ device }))[0]).toMatchObject({ _tag: 'BadOption', at: 'device' })
    expect((await failures({ device: {} as never }))[0]).toMatchObject({ _tag: 'BadOption', at: 'device' })
  })

  it('a limit holds sessions and blocks together, and the error names who holds the memory', async () => {
    const limit = 24 * 2 ** 20
    await using device = orThrow(await Device.open(name, { allocator: { limit } })())
    await using session = orThrow(await open(plans.planned, { device })())
    expect(() => device.malloc(limit - KiB)).toThrow(`session \`${session.plan.name}\`: arena`)
    using held = device.malloc(limit - 4 * 2 ** 20, undefined, { site: 'weights of mine' })
    const wide = graph({ x: tensor('f32', [1024, 1024]) }, ({ x }) => ({
      y: x.pipe(upload(copy), relu(), download(copy)),
    }))
    const result = await open(orThrow(compile(wide, { mode: 'eager', storage: 'planned' })), { device })()
    expect(E.isLeft(result)).toBe(true)
    const [error] = errorsOf((result as E.Left<never>).left)
    expect(error).toMatchObject({ _tag: 'OutOfMemory' })
    expect(error!.found).toContain('weights of mine')
    expect(held.disposed).toBe(false)
  })
})

describe.each(present)('memory that runs out, on %s', name => {
  const MiB = 2 ** 20
  const plan = orThrow(compile(net, { mode: 'eager' }))
  const wide = graph({ x: tensor('f32', [1024, 1024]) }, ({ x }) => ({
    y: x.pipe(upload(copy), on(math), add(1), relu(), download(copy)),
    z: x.pipe(upload(copy), on(math), add(2)),
  }))
  const large = orThrow(compile(wide, { mode: 'eager' }))

  it('while a session opens, wherever it does, leaves nothing behind', async () => {
    // The wide plan takes several blocks of 4 MiB: with each limit another one of them is refused.
    const need = large.bound.device[0]!
    for (let limit = 0; limit < need; limit += 4 * MiB) {
      await using device = orThrow(await Device.open(name, { allocator: { limit: limit + 2 * MiB } })())
      const lanes = device.snapshot().lanes.length
      const result = await open(large, { device })()
      expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([{ _tag: 'OutOfMemory' }])
      expect(device.stats()['allocated_bytes.all.current']).toBe(0)
      expect(device.stats()['active_bytes.all.current']).toBe(0)
      expect(device.stats('pinned')['allocated_bytes.all.current']).toBe(0)
      expect(device.snapshot().lanes.length - lanes).toBeLessThanOrEqual(1) // the home of sessions' memory
      using block = device.malloc(MiB)
      expect(block.disposed).toBe(false)
    }
  })

  it('asks observers about allocations of their own thread, and about sessions in a pool', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { limit: 12 * MiB } })())
    let ballast: Block | undefined = device.malloc(8 * MiB, undefined, { site: 'ballast' })
    let asked = 0
    const stop = device.onOutOfMemory(() => {
      asked++
      const freed = ballast !== undefined
      ballast?.free()
      ballast = undefined
      return freed
    })
    const refused = await open(large, { device })()
    expect(E.isLeft(refused) && errorsOf(refused.left)[0]!.found).toContain('ballast: 8388608 bytes')
    expect(asked).toBe(0)
    device.malloc(10 * MiB).free()
    expect(asked).toBe(1)
    ballast = device.malloc(12 * MiB)
    const pool = device.pool()
    await using _session = orThrow(await open(plan, { pool })())
    expect(asked).toBe(2)
    stop()
    pool.close()
  })
})

describe('an enforced bound on host', () => {
  it('holds after a failed tick: the device goes on, and the plan runs right when it is opened again', async () => {
    const compiled = orThrow(compile(net, { mode: 'eager', inFlight: 2 }))
    const { first } = poolPeakOf(compiled)
    const bound = { device: first.slice(0, 1), pinned: first.at(-1)! }
    const plan = orThrow(
      parsePlan(toJSON({ ...compiled, boundKind: 'enforced', bound } as never)),
    ) as unknown as typeof compiled
    const values = Array.from({ length: 6 }, () => feed)
    const sumsOf = async (session: Session): Promise<number[]> => {
      const sums: number[] = []
      const run = session.run({ x: pulled(values), w: pulled(values) } as never)
      for await (using out of run) sums.push((out as unknown as { y: Float32Array }).y[7]!)
      return sums
    }
    let failed = 0
    for (let nth = 1; nth <= 24; nth += 4) {
      const faults = [{ call: 'launch', nth, status: 1 }]
      await using device = orThrow(await Device.open('host', { host: { faults } })())
      const options = { device, poison: true }
      const one = orThrow(await open(plan, options)()) as unknown as Session
      const sums = await sumsOf(one).catch((error: unknown) => error)
      if (sums instanceof Error) {
        failed++
        expect(sums).toMatchObject({ _tag: 'TickFailed' })
      } else expect(sums).toEqual(values.map(() => 64))
      await one.close()
      expect(device.stats()['allocated_bytes.all.current']).toBe(0)
      await using again = orThrow(await open(plan, options)()) as unknown as Session
      expect(await sumsOf(again)).toEqual(values.map(() => 64))
      expect(again.stats().poolPeak).toBeLessThanOrEqual(plan.bound.device[0]!)
    }
    expect(failed).toBeGreaterThan(3)
  })
})

describe.each(present)('shared parameters, on %s', name => {
  const scaled = (factor: string) =>
    graph(factor, { x: tensor('f32', [size, size]) }, ({ x }) => ({
      y: x.pipe(upload(copy), on(math), matmul(param('w', tensor('f32', [size, size]))), download(copy)),
    }))
  const plans = [
    orThrow(compile(scaled('a'), { mode: 'eager' })),
    orThrow(compile(scaled('b'), { mode: 'eager', storage: 'planned' })),
  ]
  const answers = async (session: Session<{ x: never }, { y: never }>): Promise<number> => {
    const run = (session as unknown as Session).run({ x: pulled([feed]) })
    let found = 0
    for await (using out of run) found = (out as unknown as { y: Float32Array }).y[3]!
    return found
  }

  it('are on the device once, are right in each session, and outlive their disposal while one is open', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const bytes = size * size * 4
    let calls = 0
    const source = (into: Uint8Array): void => {
      calls++
      new Float32Array(into.buffer, into.byteOffset, into.byteLength / 4).fill(0.25)
    }
    const weights = await params(device, { w: source })
    const named = (): number =>
      device
        .snapshot()
        .segments.flatMap(({ blocks }) => blocks)
        .filter(({ state, requested }) => state === 'live' && requested === bytes).length
    const first = orThrow(await open(plans[0]!, { params: weights })())
    const alone = device.stats()['allocated_bytes.all.current']!
    const second = orThrow(await open(plans[1]!, { device, params: weights })())
    expect(device.stats()['allocated_bytes.all.current']! - alone).toBeLessThan(
      plans[1]!.bound.device[0]! - bytes + 1,
    )
    expect(calls).toBe(1)
    expect(named()).toBeGreaterThan(0)
    expect(await answers(first as never)).toBe(32)
    await first.close()
    await weights[Symbol.asyncDispose]()
    expect(await answers(second as never)).toBe(32)
    const refused = await open(plans[0]!, { device, params: weights })()
    expect(E.isLeft(refused)).toBe(true)
    await second.close()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('of a wrong type are an error of the opening, and nothing stays', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    await using weights = await params(device, { w: new Float32Array(3) })
    expect((await failuresOf(plans[0]!, { params: weights }))[0]).toMatchObject({ _tag: 'WrongParam' })
    await using throwing = await params(device, {
      w: () => {
        throw new Error('no file')
      },
    })
    const [error] = await failuresOf(plans[0]!, { params: throwing })
    expect(error).toMatchObject({ _tag: 'WrongParam' })
    expect(error!.found).toContain('no file')
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
    await expect(params(device, { w: 7 as never })).rejects.toThrow('wanted a typed array')
    await expect(params(device, 7 as never)).rejects.toThrow('safetensors(path)')
  })

  it('are read from a file that `open` or `swap` is given, which is closed again', async () => {
    await using device = orThrow(await Device.open(name)())
    const path = await written('given', { w: [size, size] })
    const [first, next] = plans as [Plan, Plan]
    const file = safetensors(path)
    await using session = orThrow(await open(first, { device, params: file })())
    expect(await answers(session as never)).toBe(32)
    await session.swap(next)
    expect(await answers(session as never)).toBe(32)
    await session.swap(first, { params: file })
    expect(await answers(session as never)).toBe(32)
    const none = join(folder, 'none.safetensors')
    const [missing] = await failuresOf(first, { params: safetensors(none) })
    expect(missing).toMatchObject({ _tag: 'WrongParam', at: none })
    const other = await written('other', { v: [size, size] })
    const [absent] = await failuresOf(first, { params: safetensors(other) })
    expect(absent).toMatchObject({ _tag: 'MissingParam', at: other, subject: 'w', found: 'v' })
    const open_ = orThrow(await file())
    await using again = orThrow(await open(first, { device, params: open_ })())
    expect(await answers(again as never)).toBe(32)
    await open_.close()
    for (const wrong of [() => 7, async () => undefined, () => Promise.reject(new Error('no'))] as never[]) {
      const [refused] = await failuresOf(first, { params: wrong })
      expect(refused).toMatchObject({ _tag: 'BadOption', at: 'params' })
      expect(refused!.wanted).toContain('safetensors(')
    }
  })

  it('are read from a file, which is open until they are disposed of', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const path = await written('weights', { w: [size, size] })
    for (const own of [true, false]) {
      const file = own ? undefined : orThrow(await safetensors(path)())
      const weights = await params(device, file ?? safetensors(path))
      expect(weights.names).toEqual(['w'])
      const sessions = []
      for (const plan of plans) sessions.push(orThrow(await open(plan, { params: weights })()))
      for (const session of sessions) expect(await answers(session as never)).toBe(32)
      for (const session of sessions) await session.close()
      await weights[Symbol.asyncDispose]()
      const read = file?.source('w')(new Uint8Array(size * size * 4))
      await expect(Promise.resolve(read)).resolves.toBeUndefined()
      await file?.close()
    }
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('of a file that does not fit are errors that name the file and the tensor', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const errorOf = async (path: string) => {
      await using weights = await params(device, safetensors(path))
      const [error] = await failuresOf(plans[0]!, { params: weights })
      return error
    }
    const wanted = `f32[${size}, ${size}]`
    const other = await written('other', { v: [2], u: [3] })
    expect(await errorOf(other)).toMatchObject({
      _tag: 'MissingParam',
      at: other,
      subject: 'w',
      wanted: `a tensor of this name, ${wanted}`,
      found: 'v, u',
      next: expect.stringMatching('file.source'),
    })
    const small = await written('small', { w: [size] })
    expect(await errorOf(small)).toMatchObject({
      _tag: 'WrongParam',
      at: small,
      subject: 'w',
      wanted,
      found: `f32[${size}]`,
      next: 'declare it in the graph as the file has it',
    })
    const none = join(folder, 'none.safetensors')
    await expect(params(device, safetensors(none))).rejects.toThrow(none)
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })
})

describe.each(present)('several Devices of one name, on %s', name => {
  // On a GPU no kernel has a reference.
  it.runIf(name === 'host')(
    'one closes while it waits for work of another that needs JavaScript',
    async () => {
      for (let round = 0; round < 5; round++) {
        const [one, two] = [orThrow(await Device.open(name)()), orThrow(await Device.open(name)())]
        const lane = two.lane()
        const kernel = await two.kernel({
          ...{ name: 'copy', cuda: 'none', reads: { x: 'f32' }, writes: { y: 'f32' } },
          reference: ({ x }, { y }) => void y.set(x),
        })
        const [x, y] = [lane.malloc(64), lane.malloc(64)]
        const launches = () => {
          for (let i = 0; i < 20; i++) lane.launch(kernel, { reads: { x }, writes: { y }, grid: 1, block: 1 })
        }
        launches()
        const emptied = one.emptyCache()
        const closed = one.close()
        const busy = performance.now() + 10
        while (performance.now() < busy);
        launches()
        await Promise.all([emptied, closed])
        await two.close()
      }
    },
  )
})

describe.each(present)('several threads, on %s', name => {
  it('share one memory: each with its own lanes and sessions, all in one snapshot', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { policy: 'order-then-wait' } })())
    await using session = orThrow(await open(orThrow(compile(net, { mode: 'eager' })), { device })())
    const base = device.stats()['allocated_bytes.all.current']!
    const workers = [1, 2, 3].map(
      seed =>
        new Worker(new URL('../fixtures/shared-device-worker.mjs', import.meta.url), {
          workerData: { name, seed, rounds: 320 },
        }),
    )
    const said = workers.map(
      worker =>
        new Promise<never>((resolve, reject) => {
          worker.once('message', resolve)
          worker.once('error', reject)
        }),
    )
    const sums: number[] = []
    const values = Array.from({ length: 40 }, () => feed)
    const rounds = leasedRounds(device, 4, 3)
    for await (using out of session.run({ x: pulled(values), w: pulled(values) })) sums.push(out.y[7]!)
    expect(sums).toEqual(values.map(() => 64))
    expect(await rounds).toBe(0)
    for (const answer of await Promise.all(said))
      expect(answer).toMatchObject({ wrong: 0, options: { policy: 'order-then-wait' } })
    const { segments, sites, lanes } = device.snapshot()
    const live = segments.flatMap(({ blocks }) => blocks.filter(({ state }) => state === 'live'))
    const words = live.map(({ site }) => sites[site]?.[0]?.name)
    for (const seed of [1, 2, 3]) expect(words).toContain(`kept by worker ${seed}`)
    expect(lanes.map(lane => lane.name)).toEqual(expect.arrayContaining(['writer 1', 'reader 3']))
    const ended = workers.map(worker => new Promise(resolve => worker.once('exit', resolve)))
    for (const worker of workers) worker.postMessage('end')
    await Promise.all(ended)
    // What a share still held is free when it has closed.
    expect(device.stats()['allocated_bytes.all.current']).toBe(base)
  })

  it('a session and a free-standing lane share a block: the next owner comes after the read', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { policy: 'order-then-wait' } })())
    const reader = device.lane({ name: 'reader' })
    const bytes = 2 ** 22
    const seen = device.pinned(bytes)
    const block = device.malloc(bytes)
    device.defaultLane.fill32(block, 41)
    reader.wait(device.defaultLane.record())
    const gate = hold(device, reader)
    copyUnseen(reader, seen, block) // waits at the gate
    block.recordUse(reader)
    block.free()
    // A session of the same size may take the freed block at once; its ticks come after the held read.
    const session = open(orThrow(compile(net, { mode: 'eager', storage: 'planned' })), { device })()
    await pause(20)
    gate.open()
    await using running = orThrow(await session)
    for await (using out of running.run({ x: pulled([feed]), w: pulled([feed]) })) expect(out.y[0]).toBe(64)
    await reader.synchronize()
    expect(new Uint32Array(seen.view()).every(word => word === 41)).toBe(true)
  })
})
