// Values that say a wrong length, iterators that throw in odd places, and leases that are kept.
import { lastValueFrom, Subscription, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { download, graph, lane, relu, tensor, upload } from '../../dsl/index.js'
import { pulled, RunError } from '../../runtime/index.js'
import { listenForWarnings } from '../fixtures/warnings.js'
import { opened, present, until } from './devices.js'

const copy = lane('copy')
const count = 8
const net = graph({ x: tensor('f32', [count]) }, ({ x }) => ({
  y: x.pipe(upload(copy), relu(), download(copy)),
}))
const ones = (value = 1): Float32Array => new Float32Array(count).fill(value)

describe.each(present)('hostile feeds, on %s', name => {
  it.each([
    ['an own property', () => Object.defineProperty(new Float32Array(2), 'length', { value: count })],
    [
      'a subclass',
      () =>
        new (class extends Float32Array {
          override get length(): number {
            return count
          }
        })(2),
    ],
    [
      'bytes with an own property',
      () => Object.defineProperty(Buffer.alloc(8), 'byteLength', { value: count * 4 }),
    ],
  ])('a length that lies, in %s, is an error of the value', async (_, liar) => {
    await using session = await opened(net, name, { inFlight: 1 })
    const leases = session.run({ x: pulled([ones(), liar() as Float32Array]) })
    const error = await leases
      .forEach(lease => {
        lease[Symbol.dispose]()
      })
      .then(
        () => undefined,
        caught => caught,
      )
    expect(error).toBeInstanceOf(RunError)
    expect((error as RunError)._tag).toBe('WrongValue')
  })

  const broken = (result: () => unknown) => ({ [Symbol.iterator]: () => ({ next: result }) })
  const boom = (): never => {
    throw new Error('boom')
  }
  it.each([
    ['done throws', () => Object.defineProperty({}, 'done', { get: boom })],
    ['value throws', () => Object.defineProperty({ done: false }, 'value', { get: boom })],
    ['then of the result throws', () => ({ then: boom })],
    ['then of the value throws', () => ({ done: false, value: { then: boom } })],
  ])('an iterator whose %s ends the run, and the session runs again', async (_, result) => {
    await using session = await opened(net, name)
    const run = session.run({ x: pulled(broken(result) as unknown as Iterable<Float32Array>) })
    const error = await lastValueFrom(run).then(
      () => undefined,
      caught => caught,
    )
    expect((error as RunError)._tag).toBe('FeedFailed')
    const [out] = await lastValueFrom(session.run({ x: pulled([ones(3)]) }).pipe(toArray()))
    expect(out!.y[0]).toBe(3)
    out![Symbol.dispose]()
  })

  it.each(['abort', 'close', 'unsubscribe'] as const)(
    'a generator that ends its own run by %s is returned once next() has returned',
    async how => {
      const session = await opened(net, name)
      using warned = await listenForWarnings()
      const controller = new AbortController()
      const subscription = new Subscription()
      const ends = {
        abort: () => controller.abort(),
        close: () => void session.close(),
        unsubscribe: () => subscription.unsubscribe(),
      }
      let ended = 0
      const feed = function* () {
        try {
          // More than the slots, so that the run has begun.
          for (let i = 0; i < 4; i++) yield ones()
          ends[how]()
          yield ones()
        } finally {
          ended++
        }
      }
      const run = session.run({ x: pulled(feed()) }, { signal: controller.signal })
      subscription.add(run.subscribe({ next: lease => lease[Symbol.dispose](), error: () => undefined }))
      await until(() => ended > 0)
      await session.close()
      expect(ended).toBe(1)
      expect(warned.messages).toEqual([])
    },
  )

  it('an iterator that ends its own run is returned once, and not where it is done', async () => {
    for (const [at, done, wanted] of [
      ['iterator', false, 1],
      ['next', false, 1],
      ['next', true, 0],
    ] as const) {
      await using session = await opened(net, name)
      const controller = new AbortController()
      let returned = 0
      const end = (here: string): void => {
        if (here === at) controller.abort()
      }
      const iterator = {
        next: () => {
          end('next')
          return { done, value: ones() }
        },
        return: () => {
          returned++
          return { done: true, value: undefined }
        },
      }
      const feed = {
        [Symbol.iterator]: () => {
          end('iterator')
          return iterator
        },
      }
      const run = session.run({ x: pulled(feed as never) }, { signal: controller.signal })
      await expect(lastValueFrom(run)).rejects.toThrow('aborted')
      expect(returned).toBe(wanted)
    }
  })

  it('a lease that is kept takes one slot, and the others go on', async () => {
    await using session = await opened(net, name, { compile: { inFlight: 3 } })
    const seen: number[] = []
    let kept: { y: Float32Array; [Symbol.dispose](): void } | undefined
    const values = Array.from({ length: 20 }, (_, i) => ones(i))
    await session.run({ x: pulled(values) }).forEach(lease => {
      seen.push(lease.y[0]!)
      if (kept === undefined) kept = lease as unknown as typeof kept
      else lease[Symbol.dispose]()
    })
    expect(seen).toEqual(values.map((_, i) => i))
    expect(kept!.y[0]).toBe(0)
    expect(session.stats().credits).toMatchObject({ free: 2, leased: 1 })
    kept![Symbol.dispose]()
    expect(session.stats().credits.free).toBe(3)
  })

  it('with every lease kept the run waits, and the warning names them', async () => {
    await using session = await opened(net, name, { compile: { inFlight: 2 }, leaseWarningMs: 40 })
    using warned = await listenForWarnings()
    const leases: Disposable[] = []
    const run = session.run({ x: pulled([ones(), ones(), ones()]) }).forEach(lease => void leases.push(lease))
    await until(() => warned.warnings.length > 0)
    expect(warned.warnings[0]!.code).toBe('BRAID_LEASES_OUT')
    expect(warned.messages[0]).toContain('the leases of ticks 0, 1')
    for (const lease of leases) lease[Symbol.dispose]()
    await run
    expect(leases.length).toBe(3)
    leases[2]![Symbol.dispose]()
  })
})
