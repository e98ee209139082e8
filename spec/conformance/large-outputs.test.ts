// V8 counts the memory of ArrayBuffers as garbage to come and collects for each 64 MiB. Pinned memory of a
// session is no garbage, however much of it is lent in each tick.
import { PerformanceObserver } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { compile, download, type Graph, graph, orThrow, param, tensor } from '../../dsl/index.js'
import { Device, open } from '../../runtime/index.js'
import { present } from './devices.js'

const MiB = 2 ** 20
const names = Array.from({ length: 6 }, (_, i) => `y${i}`)

/** Six outputs of 16 MiB in each tick. */
const outputs = graph('outputs', {}, () => {
  const x = param('x', tensor('f32', [4 * MiB]))
  return Object.fromEntries(names.map(name => [name, x.pipe(download())]))
}) as Graph<never, never>

const opened = async (name: string) => {
  const plan = orThrow(compile(outputs, { inFlight: 3 }))
  const device = orThrow(await Device.open(name)())
  const session = orThrow(await open(plan, { device, params: { x: new Float32Array(4 * MiB) } as never })())
  return { device, session }
}

type Held = Disposable & Readonly<Record<string, Float32Array>>

/** Collections of the whole heap while it runs. */
const collections = async (body: () => Promise<void>): Promise<number> => {
  let count = 0
  const major = 4
  const observer = new PerformanceObserver(list => {
    for (const { detail } of list.getEntries() as unknown as { readonly detail: unknown }[])
      if ((detail as { kind: number }).kind === major) count++
  })
  observer.observe({ entryTypes: ['gc'] })
  await body()
  await setTimeout(10)
  observer.disconnect()
  return count
}

it.each(present)('ticks of 96 MiB on %s are no garbage to collect', async name => {
  const { device, session } = await opened(name)
  await using _device = device
  await using _session = session
  const most = await collections(async () => {
    let ticks = 0
    for await (const lease of session.run({} as never, { ticks: 40 })) {
      using held = lease as unknown as Held
      expect(held['y5']!.length).toBe(4 * MiB)
      ticks++
    }
    expect(ticks).toBe(40)
  })
  expect(most).toBeLessThan(5)
})
