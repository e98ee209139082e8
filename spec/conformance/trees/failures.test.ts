// Launches that fail: before the device has anything of them, and later.
import { lastValueFrom, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { download, graph, mul, orThrow, owned, tree, upload } from '../../../dsl/index.js'
import {
  type Block,
  Device,
  drive,
  type HostOptions,
  OutOfMemoryError,
  type PlanTree,
  planTree,
  StaleHandleError,
  TreeError,
} from '../../../runtime/index.js'
import { present } from '../devices.js'
import { affine, all, copy, only, planned, type Row, renamed, row, treeOn } from './kit.js'

/** out = in · factor, as an executable graph. */
const times = <const In extends string, const Out extends string>(
  name: string,
  input: In,
  output: Out,
  factor: number,
) =>
  renamed<Record<In, Row>, Record<Out, Row>>(
    planned(
      graph(name, { x: row }, ({ x }) => ({ y: x.pipe(upload(copy), mul(factor), download(copy)) })),
      { mode: 'graph' },
    ),
    { x: input, y: output },
  )

const chain = tree({
  plans: { a: times('a', 'x', 'y', 2), b: times('b', 'y', 'z', 3), c: times('c', 'z', 'y', 5) },
  start: ['a'],
  then: { a: ['b'], b: ['c', 'a'], c: ['b'] },
})

type HostFault = NonNullable<HostOptions['faults']>[number]

const rejected = (promise: Promise<unknown>): Promise<TreeError> =>
  promise.then(
    () => expect.fail('it did not fail'),
    error => error as TreeError,
  )

const failing = (...faults: readonly HostFault[]): Promise<PlanTree<typeof chain>> =>
  treeOn('host', chain, { host: { faults }, poison: false })
const status = 2
/** A plan with an input of the host has two executable graphs: one for each launch in flight. */
const noExecutable = (nth: number): HostFault => ({ call: 'graphInstantiate', nth, status })

describe('a launch whose executable cannot be made', () => {
  it('87 fails with the cause, as do those behind it, and has changed nothing', async () => {
    // Those of a are the first two; then come b's and c's.
    const t = await failing(noExecutable(4))
    const a = t.launch('a', { x: all(1) })
    const b = a.next('b')
    await t.drained()
    const before = t.stats()
    const places = [b.handles.z].map(({ stale }) => stale)
    const c = b.next('c')
    const behind = c.next('b')
    expect(t.last).toBe('b')
    const [read, readBehind] = [c.handles.y.read(), behind.handles.z.read()].map(rejected)
    const error = await read!
    expect(error).toBeInstanceOf(TreeError)
    expect(error).toMatchObject({
      _tag: 'NotLaunched',
      subject: 'c',
      at: expect.stringMatching(/failures\.test\.ts:\d+:\d+$/),
      found: expect.stringMatching(/CUDA_ERROR_OUT_OF_MEMORY in graphInstantiate/),
      next: expect.stringMatching(/evict.*launch again: the tree is as it was before the launch$/),
      cause: { code: 'CUDA_ERROR_OUT_OF_MEMORY', op: 'graphInstantiate' },
    })
    for (const message of [error, await rejected(behind.values)].map(({ message }) => message))
      expect(message).not.toMatch(/earlier/)
    expect(await readBehind).toMatchObject({
      _tag: 'NotLaunched',
      wanted: expect.stringMatching(/^the launch of c at .*failures\.test\.ts/),
      cause: { op: 'graphInstantiate' },
    })
    expect(t.stats()).toEqual(before)
    expect(t.last).toBe('b')
    expect([b.handles.z].map(({ stale }) => stale)).toEqual(places)
    expect(only(await b.handles.z.read())).toBe(6)
    // Their handles stay refused, whatever is launched from now on, and so is what was to follow them.
    expect(() => c.next('b')).toThrow(/the launch of c at/)
    const again = b.next('c')
    expect(only(await again.handles.y.read())).toBe(30)
    const last = again.next('b')
    expect(only(await last.handles.z.read())).toBe(90)
    for (const { y } of [c.handles]) {
      expect(y.stale).toBe(true)
      expect(() => y.read()).toThrow(StaleHandleError)
      expect(() => y.read()).toThrow(/its launch could not begin: CUDA_ERROR_OUT_OF_MEMORY/)
    }
    expect(() => behind.handles.z.read()).toThrow(StaleHandleError)
    expect(() => behind.next('c')).toThrow(TreeError)
    await t.close()
  })

  it('keeps a run that was begun meanwhile, and gives the first launch of a tree back', async () => {
    const t = await failing(noExecutable(1), noExecutable(4))
    await expect(t.launch('a', { x: all(1) }).values).rejects.toMatchObject({ _tag: 'NotLaunched' })
    expect([t.last, t.stats().values, t.stats().launches]).toEqual([undefined, 0, 0])
    const a = t.launch('a', { x: all(1) })
    await a.values
    const b = a.next('b')
    t.begin()
    await rejected(b.values)
    expect(t.last).toBeUndefined()
    expect(() => t.launch('b')).toThrow(/may begin with: a/)
    const { handles } = t.launch('a', { x: all(4) }).next('b')
    expect(only(await handles.z.read())).toBe(24)
    await t.close()
  })

  it('has copied nothing out, and lets those before it end', async () => {
    const spec = tree({
      plans: { a: times('a', 'x', 'y', 2), b: times('b', 'y', 'z', 3) },
      start: ['a'],
      then: { a: ['b'] },
      keep: { b: { z: owned } },
    })
    const t = await treeOn('host', spec, { host: { faults: [noExecutable(3)] }, poison: false })
    const a = t.launch('a', { x: all(1) })
    const b = a.next('b')
    expect(await rejected(b.owned.z)).toMatchObject({ _tag: 'NotLaunched', subject: 'b' })
    expect(await a.values).toEqual({})
    expect(only(await a.handles.y.read())).toBe(2)
    const block = await a.next('b').owned.z
    block.free()
    await t.close()
  })

  it('is an error of prepare() too, which can be called again', async () => {
    const t = await failing(noExecutable(3))
    expect(await rejected(t.prepare())).toMatchObject({
      ...{ _tag: 'NotMade', subject: 'b, layout 1' },
      at: expect.stringMatching(/failures\.test\.ts:\d+:\d+$/),
      wanted: 'memory beside the arena for a launch of layout 1',
      found: expect.stringMatching(/CUDA_ERROR_OUT_OF_MEMORY in graphInstantiate/),
      next: expect.stringMatching(/^await tree\.evict\(\)/),
      cause: { op: 'graphInstantiate' },
    })
    expect(t.stats().executables.open).toBe(1)
    await t.prepare()
    expect(t.stats().executables.open).toBe(t.layouts.length)
    await t.close()
  })

  const calls =
    'memAllocate pinnedAllocate streamCreate prepare graphCreate nodeAdd graphInstantiate execUpload userObjectCreate'
  it.each(calls.split(' '))('leaves the tree usable, whichever call of %s fails', async call => {
    let refused = 0
    for (let nth = 1; nth <= 24; nth++) {
      const opened = await planTree(chain, { device: 'host', host: { faults: [{ call, nth, status }] } })()
      if (opened._tag === 'Left') continue
      const t = opened.right
      let failed = 0
      const until = async <A>(launch: () => { readonly values: Promise<unknown> } & A): Promise<A> => {
        for (;;) {
          const launched = launch()
          try {
            await launched.values
            return launched
          } catch (error) {
            expect(error).toMatchObject({ _tag: 'NotLaunched' })
            expect(++failed).toBeLessThan(3)
          }
        }
      }
      const a = await until(() => t.launch('a', { x: all(1) }))
      const b = await until(() => a.next('b'))
      const c = await until(() => b.next('c'))
      const read = () => c.handles.y.read().catch(() => c.handles.y.read())
      expect(only(await read())).toBe(30)
      refused += failed
      await t.close()
    }
    // Memory of the device, and pinned memory, is taken when the tree opens.
    if (!/Allocate|prepare/.test(call)) expect(refused).toBeGreaterThan(0)
  })
})

describe.each(present)('a launch without memory for its values on %s', device => {
  it('is taken back with those behind it, and is launched again when there is some', async () => {
    await using own = orThrow(await Device.open(device, { allocator: { pinned: { limit: 2 ** 22 } } })())
    const spec = tree({
      plans: { a: affine('a', 'x', 'y', 2, 0), b: affine('b', 'y', 'z', 3, 1) },
      start: ['a'],
      then: { a: ['b'], b: ['a'] },
    })
    await using t = await treeOn('', spec, { device: own, poison: false })
    await t.prepare()
    const a = t.launch('a', { x: all(1) })
    await a.values
    const before = t.stats()
    const full: Block[] = []
    try {
      for (;;) full.push(own.pinned(2 ** 20))
    } catch {
      // Every byte that may be pinned is taken now, but for less than a MiB.
    }
    try {
      for (;;) full.push(own.pinned(64))
    } catch (error) {
      expect(error).toBeInstanceOf(OutOfMemoryError)
    }
    // Its value comes from the host in place of the one in the arena: it is staged in pinned memory.
    const b = a.next('b', { y: all(7) })
    const behind = b.next('a', { x: all(9) })
    const error = await rejected(b.values)
    expect(error).toMatchObject({ _tag: 'NotLaunched', subject: 'b', cause: { _tag: 'OutOfMemory' } })
    expect(error.wanted).toBe('memory beside the arena for a launch of layout 1')
    expect(await rejected(behind.values)).toMatchObject({ _tag: 'NotLaunched', subject: 'a' })
    expect(t.stats()).toEqual(before)
    for (const block of full) block.free()
    expect(only(await a.handles.y.read())).toBe(2)
    expect(only((await a.next('b', { y: all(7) }).values).z)).toBe(22)
  })
})

describe('a launch that fails on the device', () => {
  const fault = { call: 'run', nth: 1, status: 719 }

  it('87 ends the tree with its cause, and everything is given back', async () => {
    const t = await failing({ ...fault, nth: 2 })
    const first = t.launch('a', { x: all(1) })
    const last = first.next('b').next('c')
    await rejected(last.values)
    expect(() => t.launch('a', { x: all(1) })).toThrow(TreeError)
    expect(first.handles.y.stale).toBe(true)
    await t.close()
  })

  it('says so of itself, of what came after it, and of whatever is asked for', async () => {
    const t = await failing(fault)
    const a = t.launch('a', { x: all(1) })
    const lane = t.device.defaultLane
    // A copy that the lane was given before the device has failed resolves.
    const copied = a.handles.y.copy()
    const asked = [
      a.handles.y.read(),
      // Until the device has failed.
      a.handles.y.use(lane, span => {
        for (;;) lane.fill(span, 0)
      }),
      a.values,
    ]
    const b = a.next('b')
    const [copy] = await Promise.allSettled([copied, ...asked])
    for (const promise of copy!.status === 'rejected' ? [...asked, copied] : asked) {
      const error = await rejected(promise)
      expect(error).toBeInstanceOf(TreeError)
      expect(error).toMatchObject({
        ...{ _tag: 'TreeFailed', subject: 'a', wanted: 'a launch that the device completes' },
        at: expect.stringMatching(/failures\.test\.ts:\d+:\d+$/),
        found: expect.stringMatching(/CUDA_ERROR_LAUNCH_FAILED/),
        cause: { code: 'CUDA_ERROR_LAUNCH_FAILED' },
      })
      expect(error.message).not.toMatch(/earlier|suppressed/)
    }
    expect((await rejected(b.values)).found).toMatch(
      /^the launch of a at .*failures\.test.* failed before it:/,
    )
    for (const launch of [() => t.launch('a', { x: all(1) }), () => b.next('c')]) {
      expect(launch).toThrow(TreeError)
      expect(launch).toThrow(/the launch of a at .*failures\.test/)
    }
    expect(() => a.handles.y.read()).toThrow(StaleHandleError)
    expect(() => a.handles.y.read()).toThrow(/the tree has failed: .*CUDA_ERROR_LAUNCH_FAILED/)
    const driven = of({ plan: 'a', feeds: { x: all(1) } } as const).pipe(drive(t))
    await expect(lastValueFrom(driven)).rejects.toMatchObject({ _tag: 'TreeFailed' })
    await t.close()
  })

  it('leaves the error of the body where the body of use throws another one', async () => {
    const t = await failing({ ...fault, nth: 3 })
    const a = t.launch('a', { x: all(1) })
    await a.values
    const own = new Error('mine')
    const used = a.handles.y.use(t.device.defaultLane, () => {
      throw own
    })
    await expect(used).rejects.toBe(own)
    await t.close()
  })
})

describe('an arena that the device has no room for', () => {
  it('is an OutOfMemory that says how many bytes are needed', async () => {
    const least = await failing().then(async t => {
      await t.close()
      return t.stats().arena
    })
    const opened = await planTree(chain, { device: 'host', arena: 2 ** 52 })()
    expect(opened).toMatchObject({
      _tag: 'Left',
      left: {
        ...{ _tag: 'OutOfMemory', at: 'arena', wantedBytes: 2 ** 52 },
        wanted: expect.stringMatching(/^device memory for an arena of /),
        found: expect.stringMatching(/free on the device/),
        next: `planTree(tree, { arena: ${least} }): that much the launches take that are laid out ahead`,
      },
    })
    await using small = orThrow(await Device.open('host', { host: { memory: 2 ** 21 } })())
    const full = small.malloc(2 ** 21)
    const none = await planTree(chain, { device: small })()
    expect(none).toMatchObject({
      _tag: 'Left',
      left: { _tag: 'OutOfMemory', next: expect.stringMatching(/^compile the plans with memory: 'small'/) },
    })
    full.free()
    await orThrow(await planTree(chain, { device: small })()).close()
  })
})
