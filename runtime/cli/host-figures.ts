// What this host takes for what `simulate` asks of a machine's host, measured through sessions as programs
// open them: some seconds.

import { lastValueFrom, tap } from 'rxjs'
import {
  compile,
  download,
  graph,
  lane,
  machines,
  matmul,
  mul,
  on,
  param,
  simulate,
  slice,
  tensor,
  upload,
} from '../../dsl/index.js'
import { type Filled, fillingOf, type HostModel } from '../../dsl/internal.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { DeviceName } from '../device/devices.js'
import { pulled } from '../session/feeds.js'
import { open } from '../session/open.js'
import type { Session } from '../session/session.js'

/**
 * Nanoseconds and bytes a second, as `HostModel` has them. What the issuing thread's calls cost, and how soon
 * it is heard of a tick's end, is a CUDA driver's, so it is measured there alone.
 */
export type HostFigures = Pick<HostModel, 'tick' | 'bandwidth' | 'cache' | 'cacheBandwidth'> &
  Partial<Pick<HostModel, 'turnaround' | 'launch' | 'product' | 'copy'>>

const h200 = machines['h200']!

const sizes = [2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]

/** Nanoseconds of ticks that are looked at, three times over; and the fewest and most ticks. */
const looked = 4e7
const fewest = 6
const most = 2000

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!

function* repeat(value: Uint8Array) {
  for (;;) yield value
}

const opened = async (plan: Plan, device: DeviceName, params = {}): Promise<Session> =>
  orThrow(await open(plan, { device, params })()) as unknown as Session

/**
 * Nanoseconds a tick, between leases. A thread that may fill all slots at once hears of the first ticks late
 * and close together, so those are left out.
 */
const ticks = async (session: Session, value: Uint8Array | undefined, count: number): Promise<number> => {
  const feeds = value === undefined ? {} : { x: pulled(repeat(value)) }
  const warm = 2 * session.inFlight
  let seen = 0
  let began = 0
  let ended = 0
  await lastValueFrom(
    session.run(feeds as never, { ticks: warm + count }).pipe(
      tap(lease => {
        lease[Symbol.dispose]()
        ended = performance.now()
        if (++seen === warm) began = ended
      }),
    ),
  )
  return ((ended - began) / count) * 1e6
}

const fillPlan = (bytes: number, inFlight: number): Plan => {
  const net = graph('fill', { x: tensor('u8', [bytes]) }, ({ x }) => ({
    y: x.pipe(upload(), slice(0, 0, 4), download()),
  }))
  return orThrow(compile(net, { inFlight }))
}

/** A tick that the program's own thread fills with so many bytes, of which the device sends four back. */
const filled = async (bytes: number, inFlight: number, device: DeviceName): Promise<number> => {
  await using session = await opened(fillPlan(bytes, inFlight), device)
  const value = new Uint8Array(bytes).fill(1)
  const about = await ticks(session, value, fewest)
  const count = Math.max(fewest, Math.min(most, Math.round(looked / about)))
  const found = [about]
  for (let repeat = 0; repeat < 3; repeat++) found[repeat] = await ticks(session, value, count)
  return median(found)
}

type Chain = (length: number) => Parameters<typeof compile>[0]

/** Operations one after the other on one lane: the least work there is for each. */
const kernels: Chain = length =>
  graph('launches', {}, () => {
    let y = param('x', tensor('f32', [1024])).pipe(on(lane('lane0')), mul(0.5))
    for (let i = 1; i < length; i++) y = y.pipe(mul(1 + i / length))
    return { y: y.pipe(download(lane('lane0'))) }
  })

const products: Chain = length =>
  graph('products', {}, () => {
    const w = param('x', tensor('bf16', [64, 64]))
    let y = w.pipe(on(lane('lane0')), mul(0.5))
    for (let i = 0; i < length; i++) y = y.pipe(matmul(w))
    return { y: y.pipe(download(lane('lane0'))) }
  })

const copies: Chain = length =>
  graph('copies', {}, () => {
    // Of one parameter all uploads would be one.
    const pairs = Array.from({ length: length >> 1 }, (_, i) => [
      `y${i}`,
      param(`x${i}`, tensor('f32', [1024]), { on: 'host' }).pipe(
        upload(lane('lane0')),
        download(lane('lane0')),
      ),
    ])
    return Object.fromEntries(pairs)
  })

/** Nanoseconds that one more operation of a chain costs the issuing thread. */
const each = async (chain: Chain, device: DeviceName): Promise<number> => {
  const lengths = [16, 64] as const
  const took: number[] = []
  for (const length of lengths) {
    const plan = orThrow(compile(chain(length)))
    const params = plan.buffers.filter(({ life, alias }) => life === 'param' && alias === undefined)
    const zeros = Object.fromEntries(params.map(({ name }) => [name, (into: Uint8Array) => into.fill(0)]))
    await using session = await opened(plan, device, zeros)
    await ticks(session, undefined, 300)
    took.push(session.stats().issueUs.median * 1e3)
  }
  return Math.max(0, (took[1]! - took[0]!) / (lengths[1] - lengths[0]))
}

/**
 * Measures the host on a device of its own: on `cuda:0` what is said of an H200's host, on `host` what the
 * program's own thread takes.
 */
export const measureHost = async (device: DeviceName): Promise<HostFigures> => {
  const periods: Filled[] = []
  for (const bytes of sizes) periods.push({ bytes, nanoseconds: await filled(bytes, 3, device) })
  // What is left of nothing to fill: with far more in flight than it takes to hide how long a tick is under
  // way, or by the two smallest sizes, since a thread that hears of each tick's end by itself takes longer
  // than one that hears of many at once.
  const [a, b] = [periods[0]!, periods[1]!]
  const slope = (b.nanoseconds - a.nanoseconds) / (b.bytes - a.bytes)
  const tick = Math.max(await filled(4, 16, device), a.nanoseconds - slope * a.bytes)
  const filling =
    fillingOf(
      periods
        .map(({ bytes, nanoseconds }) => ({ bytes, nanoseconds: nanoseconds - tick }))
        .filter(({ nanoseconds }) => nanoseconds > tick / 2),
    ) ?? fillingOf(periods)!
  if (device === 'host') return { tick, ...filling }
  const calls = {
    launch: await each(kernels, device),
    product: await each(products, device),
    copy: await each(copies, device),
  }
  // With one tick in flight nothing hides the way back: what the tick's own parts do not explain.
  const host = { ...h200.host, ...filling, ...calls, tick, turnaround: 0 }
  const { tickMs } = simulate(fillPlan(4, 1), { ...h200, host })
  return { tick, turnaround: Math.max(0, (await filled(4, 1, device)) - tickMs * 1e6), ...filling, ...calls }
}
