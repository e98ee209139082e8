// Scenes for spec/conformance/allocator/disposal.test.ts, each in a process of its own: `node --import tsx allocator-scenes.ts SCENE DEVICE`.
// A scene that goes well prints `well` and ends by itself.
import { parentPort, Worker, workerData } from 'node:worker_threads'
import { orThrow } from '../../dsl/index.js'
import { externalBytes, hold } from '../../runtime/allocator/testing.js'
import { type Block, Device, type DeviceOptions, type Lane } from '../../runtime/index.js'

const [scene, name = 'host'] = (workerData as string[] | null) ?? process.argv.slice(2)
const open = async (options: DeviceOptions = {}): Promise<Device> => orThrow(await Device.open(name!, options)())
const MiB = 2 ** 20
// A wait that is under way is waited for when its thread ends, so it is for work that takes a while and no more.
const slow: DeviceOptions = name === 'host' ? { host: { copyRate: 16 * MiB } } : {}
// A worker does not take over the loader of TypeScript.
const boot = `import('tsx/esm/api').then(({ register }) => (register(), import(${JSON.stringify(import.meta.url)})))`
const well = (): void => console.log('well')
const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))
const until = async (holds: () => boolean): Promise<void> => {
  for (let i = 0; i < 200 && !holds(); ++i) {
    ;(globalThis as { gc?: () => void }).gc?.()
    await pause(10)
  }
  if (!holds()) throw new Error(`not in time: ${holds}`)
}

/** Some of everything, with work outstanding. */
const everything = (device: Device, held = true): readonly unknown[] => {
  const [a, b] = [device.lane({ name: 'a' }), device.lane({ name: 'b' })] as const
  const block = a.malloc(3 * MiB)
  const pinned = device.pinned(MiB, b)
  pinned.view()
  a.fill32(block, 1)
  const event = a.record()
  b.wait(event)
  b.copy(pinned, block)
  block.recordUse(b)
  const freed = a.malloc(MiB)
  freed.recordStream(b)
  freed.free()
  const pool = device.pool({ noSplit: true })
  return [a, b, block, pinned, event, pool, a.malloc(1, { pool }), device.arena(MiB), held && hold(device, a)]
}

const leaks: string[] = []
process.on('warning', warning => {
  if (warning.name === 'BraidLeak') leaks.push(warning.message)
})

const scenes: Readonly<Record<string, () => unknown>> = {
  // The process ends with everything alive, work held back too.
  async alive() {
    everything(await open())
    well()
  },
  async exit() {
    everything(await open())
    well()
    process.exit(0)
  },
  async exitWhileWaiting() {
    const device = await open(slow)
    const lane = device.lane()
    const [block, pinned] = [lane.malloc(MiB), device.pinned(MiB, lane)]
    for (let i = 0; i < 8; ++i) lane.copy(pinned, block)
    void lane.synchronize()
    void device.emptyCache()
    well()
    await pause(20)
    process.exit(0)
  },
  async thrown() {
    everything(await open())
    well()
    throw new Error('on purpose')
  },
  // Nobody holds the device any more.
  async collected() {
    const count = 20
    for (let i = 0; i < count; ++i) {
      const device = await open()
      if (i % 2 === 0) device.defaultLane.malloc(MiB)
    }
    await until(() => true)
    for (let i = 0; i < 10; ++i) {
      ;(globalThis as { gc?: () => void }).gc?.()
      await pause(5)
    }
    well()
  },
  async lost() {
    const device = await open({ development: true })
    const lose = (): void => {
      device.defaultLane.malloc(5 * MiB, { site: 'lost on purpose' })
      device.pinned(MiB).view()
    }
    lose()
    await until(() => leaks.length === 2)
    if (!leaks.some(text => /5,242,880 bytes.*lost.*lost on purpose/s.test(text))) throw new Error(leaks.join())
    if (!leaks.every(text => text.includes('allocator-scenes.ts'))) throw new Error(leaks.join())
    if (device.stats()['allocated_bytes.all.current'] !== 0) throw new Error('not freed')
    if (device.stats('pinned')['allocated_bytes.all.current'] !== 0) throw new Error('not freed')
    const kept = device.defaultLane.malloc(2 * MiB, { site: 'kept' })
    await device.close()
    await pause(5)
    if (!leaks.some(text => /1 block of 2,097,152 bytes .* alive when .* closed.*kept/s.test(text)))
      throw new Error(leaks.join())
    if (!kept.disposed) throw new Error('alive')
    well()
  },
  // A view alone keeps its block.
  async viewed() {
    const device = await open({ development: true })
    const view = new Uint8Array(device.pinned(MiB).view())
    view[0] = 7
    for (let i = 0; i < 10; ++i) {
      ;(globalThis as { gc?: () => void }).gc?.()
      await pause(5)
    }
    if (leaks.length > 0 || view[0] !== 7 || view.length !== MiB) throw new Error('the block went before its view')
    process.removeAllListeners('warning')
    await device.close()
    if (view.length !== 0) throw new Error('the view is still there')
    well()
  },
  // V8 is told of what its objects keep alive, and not at every operation.
  async weight() {
    const device = await open({ host: { memory: 2 ** 34 } })
    const before = externalBytes(device)
    const block = device.defaultLane.malloc(512 * MiB)
    const with_ = externalBytes(device) - before
    if (with_ < 400 * MiB) throw new Error(`V8 was told of ${with_} bytes`)
    block.free()
    for (let i = 0; i < 10_000; ++i) device.defaultLane.malloc(512).free()
    const after = externalBytes(device) - before
    if (after > 64 * MiB) throw new Error(`V8 was not told that ${after} bytes are gone`)
    await device.close()
    well()
  },
  async orders() {
    // Every order of five things, with the device closed at each place.
    const permute = (list: readonly number[]): number[][] =>
      list.length < 2
        ? [[...list]]
        : list.flatMap((one, i) => permute(list.filter((_, j) => j !== i)).map(rest => [one, ...rest]))
    // Opening a GPU takes its time, most of it when nobody else in the process has it open.
    const stays = await open()
    for (const order of permute([0, 1, 2, 3, 4]).filter((_, i) => name === 'host' || i % 7 === 0)) {
      const device = await open()
      const lane = device.lane()
      const block = lane.malloc(MiB)
      const pinned = device.pinned(512, lane)
      pinned.view()
      const event = lane.record()
      lane.copy(pinned, block)
      block.recordUse(device.defaultLane)
      const things: readonly Partial<Disposable & AsyncDisposable>[] = [device, lane, block, pinned, event]
      const waits: unknown[] = []
      for (const i of order) {
        const thing = things[i]!
        if (i === 0) waits.push(thing[Symbol.asyncDispose]!())
        else thing[Symbol.dispose]!()
      }
      await Promise.all(waits)
    }
    await stays.close()
    well()
  },
  async worker() {
    // Devices of its own in each thread; one ends by itself, one is terminated in the middle, one fails. A thread that holds a lane back
    // does nothing after that but end, which lets it go. On cuda a held lane may hold back any other of the process, since streams share
    // the GPU's queues and one thread calls all host functions: whoever held one and then waited for another lane could wait for ever.
    const start = (inner: string): Worker => new Worker(boot, { eval: true, workerData: [inner, name] })
    const ended = (worker: Worker): Promise<unknown> =>
      new Promise(resolve => worker.once('exit', resolve).on('error', () => {}))
    const own = await open()
    everything(own, false)
    const [plain, failing, stopped] = ['inWorker', 'inWorkerThrown', 'inWorkerWaiting'].map(start) as [
      Worker,
      Worker,
      Worker,
    ]
    const ends = [plain, failing, stopped].map(ended)
    await new Promise(resolve => stopped.once('message', resolve))
    await stopped.terminate()
    await Promise.all(ends)
    own.defaultLane.malloc(1).free()
    await own.close()
    well()
  },
  async inWorker() {
    const device = await open()
    everything(device, false)
    await device.close()
    everything(await open())
  },
  async inWorkerThrown() {
    everything(await open())
    throw new Error('on purpose')
  },
  async inWorkerWaiting() {
    const device = await open(slow)
    const lane = device.lane()
    everything(device, false)
    const [block, pinned] = [lane.malloc(MiB), device.pinned(MiB, lane)]
    for (let i = 0; i < 8; ++i) lane.copy(pinned, block)
    void lane.synchronize()
    void device.emptyCache()
    parentPort!.postMessage('ready')
    for (const blocks: Block[] = []; ; blocks.push(lane.malloc(512)))
      if (blocks.length > 1000) for (const block of blocks.splice(0)) block.free()
  },
  // Closing waits for work, frees what is alive, and answers everybody.
  async closing() {
    const device = await open()
    const lane: Lane = device.lane()
    const gate = hold(device, lane)
    const waiting = lane.synchronize()
    const emptying = device.emptyCache()
    setTimeout(() => gate.open(), 30)
    const closes = [device.close(), device.close()]
    if (closes[0] !== closes[1]) throw new Error('closed twice')
    await Promise.allSettled([waiting, emptying, ...closes])
    if (!device.closed) throw new Error('open')
    well()
  },
}

await scenes[scene!]!()
