// A pipeline on a device: its steady tick and peaks without a trace, then how long each of its runs takes,
// with one.
import { lastValueFrom, tap } from 'rxjs'
import { orThrow } from '../../dsl/ir/braid-error.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { compareWith, type MeasuredRun, ticksOf } from '../../dsl/machine/simulate/compare.js'
import type { Simulation } from '../../dsl/machine/simulate/simulate.js'
import { pulled } from '../../runtime/index.js'
import { open } from '../../runtime/session/open.js'
import type { Session } from '../../runtime/session/session.js'
import { type Clocks, clocksOf } from './clocks.js'
import type { Pipeline } from './simulate-pipelines.js'
import { bf16Values } from './stream-values.js'

export interface MeasuredOp {
  readonly name: string
  readonly plannedMs: number
  readonly measuredMs: number
}

/**
 * A copy of one tick, in order of when it began: what a lane's copies are among those of others on the same
 * engine.
 */
export interface MeasuredCopy {
  readonly name: string
  readonly lane: string
  readonly startUs: number
}

export interface Measured {
  readonly tickMs: number
  readonly ticks: number
  /** Bytes of device memory: what the session holds, and the furthest that its pool went. */
  readonly reserved: number
  readonly poolPeak: number
  /**
   * Microseconds a tick: of the issuing thread, and of the program's own for filling inputs and for handing
   * over.
   */
  readonly issueUs: number
  readonly fillUs: number
  readonly enqueueUs: number
  readonly operations: readonly MeasuredOp[]
  /** With a trace, whose events take their time too: a tick, and how long the busiest lane works in it. */
  readonly traced: { readonly tickMs: number; readonly busyMs: number }
  readonly copies: readonly MeasuredCopy[]
  readonly clocks: Clocks | undefined
}

const most = 8192 * 8192
let shared: Uint16Array | undefined

/**
 * Random values, small, so that long chains of products stay finite: zeros would let a device run faster than
 * any real work does.
 */
const fill = (into: Uint8Array): void => {
  shared ??= bf16Values(most, 0, 2 ** -6)
  const bytes = new Uint8Array(shared.buffer)
  for (let at = 0; at < into.length; at += bytes.length)
    into.set(bytes.subarray(0, Math.min(bytes.length, into.length - at)), at)
}

const paramsOf = (plan: Plan) =>
  Object.fromEntries(
    plan.buffers
      .filter(({ life, alias }) => life === 'param' && alias === undefined)
      .map(({ name }) => [name, fill]),
  )

function* repeat(value: Float32Array) {
  for (;;) yield value
}

/** The milliseconds between the leases of the first `warm` ticks and the last. */
const drain = async (session: Session, input: number, warm: number, ticks: number): Promise<number> => {
  const feeds = input > 0 ? { x: pulled(repeat(new Float32Array(input / 4).fill(0.5))) } : {}
  let seen = 0
  let began = 0
  let ended = 0
  await lastValueFrom(
    session.run(feeds as never, { ticks: warm + ticks }).pipe(
      tap(lease => {
        lease[Symbol.dispose]()
        ended = performance.now()
        if (++seen === warm) began = ended
      }),
    ),
  )
  return (ended - began) / ticks
}

const budgetMs = 700
const clockedMs = 1500
const warm = 6

/** Uploads in the order in which they began, from the first of a steady tick. */
const uploadsOf = (plan: Plan, ticks: readonly (readonly MeasuredRun[])[]): readonly MeasuredCopy[] => {
  const uploads = new Set(plan.nodes.filter(({ op }) => op === 'upload').map(({ name }) => name))
  const from = ticks[Math.min(4, ticks.length - 1)]!.reduce(
    (least, { name, startMs }) => (uploads.has(name) ? Math.min(least, startMs) : least),
    Number.POSITIVE_INFINITY,
  )
  return ticks
    .flat()
    .filter(({ name, startMs }) => uploads.has(name) && startMs >= from)
    .sort((a, b) => a.startMs - b.startMs)
    .map(({ name, tick, laneId, startMs }) => ({
      name: `${name}@${tick}`,
      lane: plan.lanes[laneId]!.name,
      startUs: (startMs - from) * 1e3,
    }))
}

export const measure = async (
  { plan, input, clocked }: Pipeline,
  predicted: Simulation,
  device: string,
): Promise<Measured> => {
  const params = paramsOf(plan)
  const ticks = Math.max(8, Math.min(2000, Math.round(budgetMs / Math.max(0.05, predicted.tickMs))))
  const tickMs: number[] = []
  let figures: Omit<Measured, 'operations' | 'tickMs' | 'ticks' | 'traced' | 'copies' | 'clocks'>
  let clocks: Clocks | undefined
  {
    await using session = orThrow(
      await open(plan, { device: device as never, params })(),
    ) as unknown as Session
    for (let repeat = 0; repeat < 3; repeat++)
      tickMs.push(await drain(session, input, warm, Math.ceil(ticks / 3)))
    const { peak, poolPeak, issueUs, fillUs, enqueueUs } = session.stats()
    figures = {
      reserved: peak.reserved,
      poolPeak,
      issueUs: issueUs.median,
      fillUs: fillUs.median,
      enqueueUs: enqueueUs.median,
    }
    // In a run of its own: whoever asks for the clock is in the way of others.
    if (clocked)
      clocks = await clocksOf(0, () =>
        drain(session, input, warm, Math.ceil(clockedMs / Math.max(0.05, predicted.tickMs))),
      )
  }
  await using session = orThrow(
    await open(plan, { device: device as never, params, trace: true })(),
  ) as unknown as Session
  await drain(session, input, 3, 10)
  const traced = ticksOf(plan, session.trace())
  if (typeof traced === 'string') throw new Error(`the trace of "${plan.name}": ${traced}`)
  const { operations, tick, lanes } = compareWith(plan, predicted, traced)
  const busyMs = Math.max(...Object.values(lanes).map(({ measuredMs }) => measuredMs))
  return {
    tickMs: tickMs.sort((a, b) => a - b)[1]!,
    ticks,
    ...figures,
    operations,
    traced: { tickMs: tick.measuredMs, busyMs },
    copies: uploadsOf(plan, traced),
    clocks,
  }
}
