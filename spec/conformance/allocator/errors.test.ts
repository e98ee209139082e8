// Wrong arguments from JavaScript callers: each gives an error with its place, what was wanted and found, and
// what to do. No other error is thrown, and the device goes on.
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { AllocatorError, Device, DisposedError, errorsOf, params } from '../../../runtime/index.js'
import { hold, KiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { isFault, unreadable } from '../../fixtures/errors.js'
import { present } from '../devices.js'

// biome-ignore lint/suspicious/noExplicitAny: what a JavaScript caller sees
type Anything = any

const nonsense: readonly Anything[] = [
  undefined,
  null,
  'x',
  Number.NaN,
  -1,
  1.5,
  2 ** 53,
  Symbol('s'),
  {},
  [],
  unreadable,
  () => 1,
  5n,
]

describe('Device.open', () => {
  const wrongNames: readonly Anything[] = ['', 'gpu', 'cuda', 'cuda:-1', 'cuda:x', 5, null, {}]
  it.each(wrongNames.map((given, i) => [i, given]))('1 takes no name %i', async (_, given) => {
    const result = await Device.open(given)()
    expect(E.isLeft(result)).toBe(true)
    if (E.isLeft(result)) isFault(result.left)
  })

  const wrongOptions: readonly (readonly [string, Anything])[] = [
    ['no object', null],
    ['a number', 5],
    ['an unknown option', { polite: true }],
    ['a development that is a text', { development: 'yes' }],
    ['an allocator that is a list', { allocator: [] }],
    ['an unknown allocator option', { allocator: { expandabel: true } }],
    ['a host with nonsense', { host: { memory: -1 } }],
    ['options that cannot be read', unreadable],
  ]
  it.each(wrongOptions)('2 takes no %s', async (_, given) => {
    const result = await Device.open('host', given)()
    expect(E.isLeft(result)).toBe(true)
    if (E.isLeft(result)) isFault(result.left)
  })

  it('3 reports every error in the options at once', async () => {
    const result = await Device.open('host', {
      allocator: { limit: -1, policy: 'best' },
      host: { memory: 1.5 },
      development: 0,
    } as Anything)()
    if (E.isRight(result)) throw new Error('opened')
    expect(errorsOf(result.left).map(({ at }) => at)).toEqual([
      'host.memory',
      'development',
      'allocator.policy',
      'allocator.limit',
    ])
  })

  it('4 names a device that does not exist', async () => {
    const result = await Device.open('cuda:973')()
    if (E.isRight(result)) throw new Error('opened')
    expect(['NoDevice', 'NoDriver']).toContain(result.left._tag)
  })
})

describe.each(present)('wrong arguments on %s', name => {
  it('1 for any argument is refused, and the device goes on', async () => {
    await using device = await openOn(name)
    await using other = await openOn('host')
    const lane = device.lane()
    const block = lane.malloc(KiB)
    const foreign = [
      other.defaultLane,
      other.defaultLane.malloc(KiB),
      other.defaultLane.record(),
      other.pool(),
    ]
    const calls: readonly ((given: Anything) => unknown)[] = [
      given => lane.malloc(given),
      given => device.pinned(given),
      given => device.arena(given),
      given => device.pinned(KiB, given ?? null),
      given => block.recordUse(given),
      given => block.recordStream(given),
      given => block.keepUntil(given),
      given => lane.wait(given),
      given => lane.copy(given, block),
      given => lane.copy(block, given),
      given => lane.copy(block, block, given ?? null),
      given => lane.fill32(given, 0),
      given => lane.fill32(block, given),
      given => block.at(given, 1),
      given => block.at(0, given),
      given => device.externalLane(given),
      given => device.onOutOfMemory(typeof given === 'function' ? 5 : given),
      given => device.stats(given ?? null),
      given => lane.malloc(KiB, { pool: given ?? null }),
      given => lane.malloc(KiB, { site: typeof given === 'string' ? 5 : (given ?? null) }),
      given => device.lane({ name: typeof given === 'string' ? '' : (given ?? null) }),
      given => device.lane({ priority: given ?? null }),
      given => device.history.start({ entries: given ?? null }),
      given => device.pool({ noSplit: given ?? null }),
      given => device.pool({ allocator: given ?? null }),
    ]
    for (const [i, call] of calls.entries())
      for (const given of [...nonsense, ...foreign]) {
        // These are whole numbers of 64 bits, so each may be the handle of a stream: only the driver can
        // tell.
        if (i === 15 && typeof given === 'bigint') continue
        // A lane may wait for an event of another device of its kind.
        if (i === 7 && name === 'host' && given === foreign[2]) continue
        const error = thrownBy(() => call(given))
        expect(error, `call ${i} with ${typeof given}: ${error.message}`).toBeInstanceOf(AllocatorError)
        isFault(error)
      }
    block.free()
    lane.malloc(KiB).free()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('2 as options is refused', async () => {
    await using device = await openOn(name)
    for (const given of [null, 5, 'x'] as Anything[]) {
      for (const call of [
        () => device.lane(given),
        () => device.pool(given),
        () => device.defaultLane.malloc(1, given),
        () => device.history.start(given),
      ])
        isFault(thrownBy(call))
    }
    isFault(thrownBy(() => device.pool({ polite: true } as Anything)))
  })

  it('3 as `this` is refused by the language itself', async () => {
    await using device = await openOn(name)
    const { malloc } = device.defaultLane
    const { free } = device.defaultLane.malloc(1)
    for (const call of [() => malloc.call({} as Anything, 1), () => free.call({} as Anything)])
      expect(call).toThrow(TypeError)
  })

  it('4 cannot make a handle: the constructors are private', async () => {
    await using device = await openOn(name)
    const { Block, Event, Lane, MemPool } = (await import('../../../runtime/index.js')) as Anything
    for (const Handle of [Block, Event, Lane, MemPool, Device as Anything]) {
      let made: Anything
      try {
        made = new Handle({}, {}, 1, 1, {}, 0)
      } catch {
        continue
      }
      expect(thrownBy(() => device.defaultLane.copy(made, made))).toBeInstanceOf(Error)
    }
  })

  it('5 sizes larger than any device fail', async () => {
    await using device = await openOn(name)
    for (const bytes of [2 ** 50, Number.MAX_SAFE_INTEGER])
      expect(thrownBy(() => device.defaultLane.malloc(bytes))._tag).toBe('OutOfMemory')
    expect(thrownBy(() => device.defaultLane.malloc(0))._tag).toBe('BadArgument')
  })

  it('6 handles of another device are refused', async () => {
    await using device = await openOn(name)
    await using other = await openOn('host')
    using block = device.defaultLane.malloc(KiB)
    expect(thrownBy(() => block.recordUse(other.defaultLane))._tag).toBe('WrongDevice')
  })
})

describe('a host device that fails', () => {
  const failing = async (call: string, status?: number): Promise<Device> =>
    openOn('host', { host: { faults: [{ call, nth: 1, ...(status === undefined ? {} : { status }) }] } })

  it('1 to record an event reports it, and goes on', async () => {
    await using device = await failing('eventRecord')
    const error = thrownBy(() => device.defaultLane.record())
    expect(error).toMatchObject({ _tag: 'DriverFailed', code: 'CUDA_ERROR_UNKNOWN', at: 'lane.record' })
    using _event = device.defaultLane.record()
  })

  it('2 to make pages reports it, and goes on', async () => {
    await using device = await failing('pagesCreate')
    expect(thrownBy(() => device.defaultLane.malloc(KiB))).toMatchObject({
      _tag: 'DriverFailed',
      at: 'lane.malloc',
    })
    device.defaultLane.malloc(KiB).free()
  })

  it('3 to record a use keeps the block alive, so that its memory is not given out', async () => {
    await using device = await failing('eventRecord')
    using block = device.defaultLane.malloc(KiB)
    expect(thrownBy(() => block.recordUse(device.lane()))._tag).toBe('DriverFailed')
    expect(block.disposed).toBe(false)
  })

  it('4 permanently: every call reports it, nothing crashes, and the device can be closed', async () => {
    const device = await failing('run', 700)
    const lane = device.lane()
    const block = lane.malloc(KiB)
    const pinned = device.pinned(KiB)
    const event = lane.record()
    lane.fill32(block, 1)
    await expect(lane.synchronize()).rejects.toMatchObject({
      _tag: 'DriverFailed',
      code: 'CUDA_ERROR_ILLEGAL_ADDRESS',
    })
    for (const call of [
      () => lane.fill32(block, 1),
      () => lane.copy(pinned, block),
      () => lane.idle,
      () => lane.record(),
      () => lane.malloc(20 << 20),
      () => block.recordUse(device.defaultLane),
    ]) {
      const error = thrownBy(call)
      expect(error).toMatchObject({ _tag: 'DriverFailed', code: 'CUDA_ERROR_ILLEGAL_ADDRESS' })
      expect(error['next']).toMatch(/earlier work has broken/)
    }
    expect(device.stats()['allocation.all.current']).toBe(1)
    device.snapshot()
    event[Symbol.dispose]()
    await device.close()
    expect(thrownBy(() => block.address)).toBeInstanceOf(DisposedError)
    await using again = await openOn('host')
    again.defaultLane.malloc(1).free()
  })

  it('5 while it is opened reports it', async () => {
    const result = await Device.open('host', { host: { faults: [{ call: 'streamCreate', nth: 1 }] } })()
    expect(E.isLeft(result) && result.left._tag).toBe('DriverFailed')
  })

  it('6 with pending work behind a blocked lane can still be closed', async () => {
    const device = await openOn('host')
    const lane = device.lane()
    hold(device, lane)
    lane.fill32(lane.malloc(KiB), 1)
    await device.close()
    expect(device.closed).toBe(true)
  })

  it('7 refuses more lanes than it can order, and makes them again once others are gone', async () => {
    await using device = await openOn('host')
    const lanes: Disposable[] = []
    const error = thrownBy(() => {
      for (;;) lanes.push(device.lane())
    })
    expect(error).toMatchObject({ _tag: 'TooManyLanes', at: 'device.lane' })
    expect(lanes.length).toBeGreaterThan(250)
    lanes[0]![Symbol.dispose]()
    lanes[0] = device.lane()
    expect(thrownBy(() => device.lane())._tag).toBe('TooManyLanes')
  })
  it.each(present)('8 options that throw when they are read are the cause on %s', async name => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    const throws = (field: string): Anything => ({
      get [field]() {
        throw new RangeError('the getter')
      },
    })
    const calls: readonly (() => unknown)[] = [
      () => device.lane(throws('name')),
      () => device.lane(throws('priority')),
      () => device.externalLane(1n, throws('name')),
      () => device.malloc(KiB, lane, throws('site')),
      () => lane.malloc(KiB, throws('pool')),
      () => lane.fill(block, 1, throws('bits')),
      () => lane.fill(block, 1, throws('pitch')),
      () => device.kernel(throws('cuda')),
      () => params(device, throws('w')),
    ]
    for (const call of calls) {
      const error = await new Promise<Anything>(resolve => {
        resolve(call())
      }).then(
        () => expect.fail(String(call)),
        (thrown: unknown): Anything => thrown,
      )
      isFault(error)
      expect(error.cause).toBeInstanceOf(RangeError)
    }
    lane.fill(block, 1)
    await lane.synchronize()
  })
})
