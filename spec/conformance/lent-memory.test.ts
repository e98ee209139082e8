// Memory that a source fills goes to nobody else before the source has settled, whatever becomes of its owner
// meanwhile. A FIFO is the slow file: its reads write memory outside of JavaScript.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { compile, download, graph, mul, orThrow, param, tensor, tree, upload } from '../../dsl/index.js'
import { Device, open, params, planTree } from '../../runtime/index.js'
import { lending } from '../../runtime/lending.js'
import { runs } from '../fixtures/runs.js'
import { pause, present, turn, until } from './devices.js'

const size = 1 << 14
const bytes = 4 * size
const row = tensor('f32', [size])
const folder = fs.mkdtempSync(join(tmpdir(), 'braid-lent-'))
afterAll(() => fs.rmSync(folder, { recursive: true }))

const plain = orThrow(compile(graph('plain', { x: row }, ({ x }) => ({ y: x.pipe(upload(), download()) }))))
const ofHost = graph('of host', { x: row }, ({ x }) => {
  const w = param('w', row, { on: 'host' })
  return { y: x.pipe(upload(), mul(w.pipe(upload())), download()) }
})
const pinned = orThrow(compile(ofHost))
const planned = orThrow(compile(ofHost, { storage: 'planned' }))
const resident = orThrow(
  compile(
    graph('resident', { x: row }, ({ x }) => ({ y: x.pipe(upload(), mul(param('w', row)), download()) })),
  ),
)

/** A source that has begun to read, and reads until it is told to end. */
class Slow {
  static count = 0
  begun = false
  private readonly file: number
  private ended: Promise<void> | undefined

  constructor() {
    const path = join(folder, `${Slow.count++}`)
    execFileSync('mkfifo', [path])
    this.file = fs.openSync(path, fs.constants.O_RDWR)
  }

  readonly source = (into: Uint8Array): Promise<void> => {
    this.begun = true
    this.ended = new Promise(resolve =>
      fs.read(this.file, into, 0, into.byteLength, null, () => resolve(undefined)),
    )
    return this.ended
  }

  async end(): Promise<void> {
    fs.writeSync(this.file, Buffer.alloc(4096, 0xee))
    await this.ended
    fs.closeSync(this.file)
  }
}

/** What is given up while a source fills memory. */
interface Scene {
  /** Gives it up. Resolves though the source goes on. */
  giveUp(): Promise<unknown>
  /** Once the source has ended. */
  free?(): Promise<unknown>
}

type Make = (device: Device, slow: Slow, name: string) => Promise<Scene>

const scenes: Readonly<Record<string, Make>> = {
  'an open with a parameter in host memory': async (device, { source }) => {
    const abort = new AbortController()
    const opening = open(pinned, { device, params: { w: source }, signal: abort.signal })()
    return {
      giveUp: async () => {
        abort.abort()
        expect(await opening).toMatchObject({ left: { _tag: 'Cancelled' } })
      },
    }
  },
  'an open with a parameter on the device': async (device, { source }) => {
    const abort = new AbortController()
    const opening = open(resident, { device, params: { w: source }, signal: abort.signal })()
    return {
      giveUp: async () => {
        abort.abort()
        expect(await opening).toMatchObject({ left: { _tag: 'Cancelled' } })
      },
    }
  },
  'an open with shared parameters, which others may use yet': async (device, { source }) => {
    const abort = new AbortController()
    const shared = await params(device, { w: source })
    const opening = open(resident, { device, params: shared, signal: abort.signal })()
    return {
      giveUp: async () => {
        abort.abort()
        expect(await opening).toMatchObject({ left: { _tag: 'Cancelled' } })
      },
      free: async () => {
        const session = orThrow(await open(resident, { device, params: shared })())
        await session.close()
        await shared[Symbol.asyncDispose]()
      },
    }
  },
  'shared parameters': async (device, { source }) => {
    const abort = new AbortController()
    const shared = await params(device, { w: source })
    const opening = open(resident, { device, params: shared, signal: abort.signal })()
    return {
      giveUp: async () => {
        abort.abort()
        await opening
        await shared[Symbol.asyncDispose]()
      },
    }
  },
  'the device of shared parameters': async (_, { source }, name) => {
    const device = orThrow(await Device.open(name)())
    const shared = await params(device, { w: source })
    const opening = open(resident, { device, params: shared })()
    return {
      giveUp: () => device.close(),
      free: async () => {
        expect(await opening).toMatchObject({ _tag: 'Left' })
        await shared[Symbol.asyncDispose]()
      },
    }
  },
  'a swap': async (device, { source }) => {
    const session = orThrow(await open(plain, { device })())
    const abort = new AbortController()
    const swapping = session
      .swap(pinned, { params: { w: source }, signal: abort.signal })
      .catch(error => error)
    return {
      giveUp: async () => {
        abort.abort()
        expect(await swapping).toMatchObject({ errors: [{ _tag: 'Cancelled' }] })
      },
      free: () => session.close(),
    }
  },
  'a session that swaps': async (device, { source }) => {
    const session = orThrow(await open(plain, { device })())
    const swapping = session.swap(pinned, { params: { w: source } }).catch(error => error)
    return {
      giveUp: async () => {
        await session.close()
        expect(await swapping).toBeInstanceOf(Error)
      },
    }
  },
  'a plan tree': async (device, { source }) => {
    const spec = tree({ plans: { planned }, start: ['planned'] })
    const made = orThrow(await planTree(spec, { device, params: { w: source } })())
    const preparing = made.prepare()
    return {
      giveUp: async () => {
        await made.close()
        await preparing
      },
    }
  },
  'a pinned block': async (device, { source }) => {
    const block = device.pinned(bytes)
    const filling = lending(new Uint8Array(block.view()), () => source(new Uint8Array(block.view())))
    return { giveUp: async () => block.free(), free: async () => filling }
  },
}

const inTime = async (work: Promise<unknown>, what: string): Promise<void> => {
  const late = Symbol('late')
  if ((await Promise.race([work, pause(20_000).then(() => late)])) === late)
    throw new Error(`${what} waits for its source`)
}

describe.runIf(process.platform === 'linux').each(present)('memory that is lent to sources, on %s', name => {
  const names = Object.keys(scenes)
  // Reads that wait take threads of a pool of four.
  const schedule = fc.record({
    given: fc.shuffledSubarray(names, { minLength: 1, maxLength: 2 }),
    endsInOrder: fc.boolean(),
  })

  const check = async (given: readonly string[], endsInOrder: boolean): Promise<void> => {
    await using device = orThrow(await Device.open(name)())
    const held = (): number => device.stats('pinned')['allocated_bytes.all.current']!
    const before = held()
    const made: { readonly slow: Slow; readonly scene: Scene }[] = []
    for (const each of given) {
      const slow = new Slow()
      const scene = await scenes[each]!(device, slow, name)
      await until(() => slow.begun)
      made.push({ slow, scene })
    }
    const others: Uint8Array[] = []
    for (const [i, { scene }] of made.entries()) {
      await inTime(scene.giveUp(), given[i]!)
      for (let turns = 0; turns < 3; turns++) await turn()
      for (let n = 0; n < 6; n++) others.push(new Uint8Array(device.pinned(bytes).view()).fill(7))
    }
    for (const { slow, scene } of endsInOrder ? made : made.reverse()) {
      await slow.end()
      await scene.free?.()
      expect(others.every(block => block.every(byte => byte === 7))).toBe(true)
    }
    await until(() => held() === before + others.length * bytes)
  }

  it.each(names)('of %s', async each => check([each], true))

  it('in any order', async () => {
    await fc.assert(
      fc.asyncProperty(schedule, ({ given, endsInOrder }) => check(given, endsInOrder)),
      { numRuns: runs(25) },
    )
  })
})
