// Measures the figures of this host that `simulate` needs, through sessions as programs open them. Takes some
// seconds.

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
 * Figures of a `HostModel`, in its units. The costs of the issuing thread's calls and the turnaround depend
 * on the CUDA driver, so they are measured on cuda only.
 */
export type HostFigures = Pick<HostModel, 'tick' | 'bandwidth' | 'cache' | 'cacheBandwidth'> &
  Partial<Pick<HostModel, 'turnaround' | 'launch' | 'product' | 'copy'>>

const h200 = machines['h200']!

const sizes = [2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]

/** A measurement runs ticks for this many nanoseconds, three times; at least and at most so many ticks. */
const measured = 4e7
const fewest = 6
const most = 2000

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!

function* repeat(value: Uint8Array) {
  for (;;) yield value
}

const opened = async (plan: Plan, device: DeviceName, params = {}): Promise<Session> =>
  orThrow(await open(plan, { device, params })()) as unknown as Session

/**
 * Nanoseconds a tick, between leases. The first ticks are left out: the thread fills all slots before it
 * takes the first lease, so those leases arrive late and close together.
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
  return orThrow(compile(net, { inFlight, mode: 'eager' }))
}

/**
 * Nanoseconds of a tick whose input of `bytes` bytes the program's own thread fills; its output is four
 * bytes.
 */
const filled = async (bytes: number, inFlight: number, device: DeviceName): Promise<number> => {
  await using session = await opened(fillPlan(bytes, inFlight), device)
  const value = new Uint8Array(bytes).fill(1)
  const about = await ticks(session, value, fewest)
  const count = Math.max(fewest, Math.min(most, Math.round(measured / about)))
  const found = [about]
  for (let repeat = 0; repeat < 3; repeat++) found[repeat] = await ticks(session, value, count)
  return median(found)
}

type Chain = (length: number) => Parameters<typeof compile>[0]

/** A chain of the smallest kernels on one lane. */
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
    // Each copy has a parameter of its own: uploads of one parameter would become one upload.
    const pairs = Array.from({ length: length >> 1 }, (_, i) => [
      `y${i}`,
      param(`x${i}`, tensor('f32', [1024]), { on: 'host' }).pipe(
        upload(lane('lane0')),
        download(lane('lane0')),
      ),
    ])
    return Object.fromEntries(pairs)
  })

/** Nanoseconds of the issuing thread for one more operation of a chain. */
const each = async (chain: Chain, device: DeviceName): Promise<number> => {
  const lengths = [16, 64] as const
  const took: number[] = []
  for (const length of lengths) {
    // What one call takes: neither part of another operation's kernel nor of a graph.
    const plan = orThrow(compile(chain(length), { fuse: false, mode: 'eager' }))
    const params = plan.buffers.filter(({ life, alias }) => life === 'param' && alias === undefined)
    const zeros = Object.fromEntries(params.map(({ name }) => [name, (into: Uint8Array) => into.fill(0)]))
    await using session = await opened(plan, device, zeros)
    await ticks(session, undefined, 300)
    took.push(session.stats().issueUs.median * 1e3)
  }
  return Math.max(0, (took[1]! - took[0]!) / (lengths[1] - lengths[0]))
}

/** Measures the host: on `cuda:0` all figures, on `host` those of the program's own thread. */
export const measureHost = async (device: DeviceName): Promise<HostFigures> => {
  const periods: Filled[] = []
  for (const bytes of sizes) periods.push({ bytes, nanoseconds: await filled(bytes, 3, device) })
  // The time of a tick with nothing to fill is the larger of two measurements: with many ticks in flight, so
  // that a tick's own duration is hidden; and extrapolated from the two smallest sizes, because a thread
  // notified of one completed tick at a time takes longer than one notified of many at once.
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
  // With one tick in flight nothing hides the turnaround: it is the measured time minus the time that
  // `simulate` predicts.
  const host = { ...h200.host, ...filling, ...calls, tick, turnaround: 0 }
  const { tickMs } = simulate(fillPlan(4, 1), { ...h200, host })
  return { tick, turnaround: Math.max(0, (await filled(4, 1, device)) - tickMs * 1e6), ...filling, ...calls }
}
