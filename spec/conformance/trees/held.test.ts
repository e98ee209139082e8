// What a program holds of a tree, and lets go of: blocks that outlive it, blocks that nobody asks for, the tree
// itself; and how much launches hold that wait.
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { concatMap, from, lastValueFrom, map, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { add, download, graph, mul, orThrow, owned, param, tree, upload } from '../../../dsl/index.js'
import {
  type Block,
  Device,
  drive,
  type PlanTree,
  params,
  planTree,
  TreeError,
} from '../../../runtime/index.js'
import { collect, soonCollected } from '../../fixtures/graphs.js'
import { runs } from '../../fixtures/runs.js'
import { listenForWarnings } from '../../fixtures/warnings.js'
import { present } from '../devices.js'
import { all, copy, only, planned, prompt, row, step, tagOf, treeOn, width } from './kit.js'

const twice = planned(
  graph('twice', { x: row }, ({ x }) => ({ y: x.pipe(upload(copy), mul(2), download(copy)) })),
)
const copied = tree({ plans: { twice }, start: ['twice'], keep: { twice: { y: owned } } })
const decoder = tree({
  plans: { prompt, step },
  start: ['prompt'],
  then: { prompt: ['step'], step: ['step'] },
})

const valueIn = async (device: Device, block: Block): Promise<number> => {
  using host = device.pinned(4 * width)
  device.defaultLane.copy(host, block)
  block.recordUse(device.defaultLane)
  await device.defaultLane.synchronize()
  return only(new Float32Array(host.view()).slice(0, width))
}
const active = (device: Device): number => device.stats()['active_bytes.all.current'] ?? 0

describe.each(present)('what is held of a tree on %s', name => {
  it('a tree with a Device of its own leaves blocks to whoever has them, and closes with the last', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.boolean(), { minLength: 1, maxLength: 5 }), async freedBefore => {
        const [first, second] = [await treeOn(name, copied), await treeOn(name, decoder)]
        const blocks = await Promise.all(
          freedBefore.map((_, i) => first.launch('twice', { x: all(i) }).owned.y),
        )
        const handle = second.launch('prompt', { x: all(5) }).handles.state
        blocks.push(await handle.copy(), await handle.copy(second.device.lane()))
        freedBefore.forEach((isFreed, i) => void (isFreed && blocks[i]!.free()))
        await first.close()
        await second.close()
        for (const [i, block] of blocks.entries()) {
          if (freedBefore[i] === true) continue
          const { device } = i < freedBefore.length ? first : second
          expect(await valueIn(device, block)).toBe(i < freedBefore.length ? 2 * i : 10)
          block.free()
        }
        expect([first.device.closed, second.device.closed]).toEqual([true, true])
      }),
      { numRuns: runs(8) },
    )
  })

  it('blocks that nobody asks for are freed, and the others are not', async () => {
    await using device = orThrow(await Device.open(name)())
    await using t = await treeOn('', copied, { device })
    const before = active(device)
    const asked: Promise<Block>[] = []
    const launch = (i: number): void => {
      const launched = t.launch('twice', { x: all(i) })
      if (i % 4 === 0) asked.push(launched.owned.y)
    }
    for (let i = 0; i < 12; i++) launch(i)
    await t.drained()
    const blocks = await Promise.all(asked)
    const kept = blocks.reduce((sum, { size }) => sum + size, 0)
    await soonCollected(() => active(device) === before + kept)
    for (const [i, block] of blocks.entries()) {
      expect(await valueIn(device, block)).toBe(8 * i)
      block.free()
    }
  })

  it('a tree that is lost is closed, with a warning; one of which a launch or a handle is held is not', async () => {
    using warned = await listenForWarnings()
    await using device = orThrow(await Device.open(name)())
    const before = active(device)
    const made = async () => {
      const t: PlanTree<typeof decoder> = await treeOn('', decoder, { device })
      const first = t.launch('prompt', { x: all(1) })
      await t.drained()
      return first.next('step', { token: all(3) })
    }
    // Hazard: a function that waits holds what its steps before left in its registers. So each step is one.
    const held: { launched?: Awaited<ReturnType<typeof made>> } = {}
    const begin = async (): Promise<void> => {
      held.launched = await made()
    }
    const use = async (): Promise<void> => {
      expect(only((await held.launched!.values).seen)).toBe(50)
      expect(only((await held.launched!.next('step', { token: all(1) }).values).seen)).toBe(60)
    }
    await begin()
    await collect()
    await use()
    expect(warned.messages).toEqual([])
    delete held.launched
    await soonCollected(() => active(device) <= before)
    await soonCollected(() => warned.warnings.length > 0)
    expect(warned.messages).toEqual([
      expect.stringMatching(/the plan tree opened at .*kit\.ts.* was lost without being closed/),
    ])
  })

  it('launches that wait take so many bytes, and no more', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 9 }), fc.boolean(), async (most, isPaced) => {
        const bytes = 4 * width + 1024
        await using t = await treeOn(name, decoder, { waiting: most * bytes })
        const launched = []
        let refused = 0
        for (let i = 0; i < 40; i++) {
          if (isPaced) await t.room()
          const before = [t.last, t.stats().launches]
          try {
            launched.push(t.launch('prompt', { x: all(i) }))
          } catch (error) {
            expect(error).toMatchObject({
              _tag: 'QueueFull',
              next: expect.stringMatching(/await tree\.room/),
            })
            expect([t.last, t.stats().launches]).toEqual(before)
            refused++
          }
        }
        // The executable is made first, so all but the refused ones waited.
        expect(launched.length).toBe(isPaced ? 40 : most)
        expect(refused).toBe(isPaced ? 0 : 40 - most)
        await t.drained()
        expect(t.launch('prompt', { x: all(1) }).plan).toBe('prompt')
      }),
      { numRuns: runs(6) },
    )
  })

  it('decisions that wait for room are all driven, and those that do not end at the limit', async () => {
    const decisions = from([...Array(20).keys()]).pipe(
      map(i => ({ plan: 'prompt', feeds: { x: all(i) } }) as const),
    )
    await using t = await treeOn(name, decoder, { waiting: 4096 })
    const paced = decisions.pipe(concatMap(each => t.room().then(() => each)))
    expect(await lastValueFrom(paced.pipe(drive(t), toArray()))).toHaveLength(20)
    await t.evict()
    const seen: unknown[] = []
    await expect(decisions.pipe(drive(t)).forEach(each => void seen.push(each))).rejects.toMatchObject({
      _tag: 'QueueFull',
    })
    expect(seen.length).toBeLessThan(20)
  })

  it('closes though a source of parameters never answers; launches that need none complete', async () => {
    const more = planned(
      graph('more', { x: row }, ({ x }) => {
        const w = param('w', row, { on: 'host' }).pipe(upload(copy))
        return { y: x.pipe(upload(copy), add(w), download(copy)) }
      }),
    )
    const spec = tree({ plans: { more }, start: ['more'], then: { more: ['more'] } })
    const hung = await treeOn(name, spec, { params: { w: () => new Promise<void>(() => {}) } })
    const launched = hung.launch('more', { x: all(1) })
    const failed = launched.values.catch(error => error)
    await setImmediate()
    await hung.close()
    expect(await failed).toMatchObject({ _tag: 'NotLaunched', found: expect.stringMatching(/tree\.close/) })
    const quick = await treeOn(name, spec, { params: { w: all(2) } })
    const { values } = quick.launch('more', { x: all(1) })
    await quick.close()
    expect((await values).y[0]).toBe(3)
  })

  it('parameters that sessions share are refused in words', async () => {
    await using device = orThrow(await Device.open(name)())
    await using shared = await params(device, { w: all(1) })
    const opened = await planTree(decoder, { device, params: shared as never })()
    expect(opened).toMatchObject({
      _tag: 'Left',
      left: { _tag: 'BadOption', at: 'params', found: expect.stringMatching(/sessions share/) },
    })
  })
})

describe('a device that has failed', () => {
  it('is the failure of every tree on it, and of each call after that', async () => {
    const faults = [{ call: 'run', nth: 1, status: 719 } as const]
    await using device = orThrow(await Device.open('host', { host: { faults } })())
    const [one, other] = [await treeOn('', decoder, { device }), await treeOn('', decoder, { device })]
    const tags = async (t: PlanTree<typeof decoder>) => [
      tagOf(() => t.launch('prompt', { x: all(1) })),
      tagOf(() => t.begin()),
      ...(await Promise.all(
        [() => t.prepare(), () => t.evict(), () => t.drained(), () => t.room()].map(async call => {
          const error = await Promise.resolve()
            .then(call)
            .catch((thrown: unknown) => thrown)
          return error instanceof TreeError ? error._tag : 'none'
        }),
      )),
    ]
    for (const t of [one, other]) {
      const { values } = t.launch('prompt', { x: all(1) })
      await expect(values).rejects.toMatchObject({
        _tag: 'TreeFailed',
        next: expect.stringMatching(/close the tree/),
      })
      expect(await tags(t)).toEqual(Array.from({ length: 6 }, () => 'TreeFailed'))
    }
    for (const t of [one, other]) await t.close()
  })
})
