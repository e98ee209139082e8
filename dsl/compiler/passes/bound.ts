import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type Peak, peakOver } from '../../memory/peak.js'
import { poolOver, rounded } from '../../memory/pool.js'
import { withScratchArena } from '../../order/scratch-arena.js'
import { devicesOf } from '../analysis/device-of.js'
import { fail, fault } from '../analysis/faults.js'
import type { Bounded, Lifetimes, WindowEdge } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'
import { trafficOf } from '../analysis/turnover.js'
import { lifetimes } from './lifetimes.js'
import { synchronize } from './synchronize.js'

interface Held {
  /** By device. */
  readonly device: readonly number[]
  readonly pinned: number
  readonly settled: boolean
  readonly peak: Peak
}

/** Bytes that live on across ticks: of each device's memory rounded as the pool rounds them and as they are, and of pinned memory likewise. */
const lasting = (ir: Lifetimes) => {
  const { buffers, settings } = ir
  const none = new Array<number>(devicesOf(ir)).fill(0)
  const held = { pool: none.slice(), device: none, slots: 0, pinned: 0 }
  buffers.forEach(({ root, space, life, bytes, device = 0 }, id) => {
    if (root !== id) return
    const times = life === 'input' || life === 'output' ? settings.inFlight : 1
    if (space === 'pinned') held.slots += rounded(bytes) * times
    if (life === 'tick') return
    if (space === 'pinned') held.pinned += bytes * times
    else {
      held.device[device]! += bytes * times
      if (times === 1) held.pool[device]! += rounded(bytes)
    }
  })
  return held
}

/** What devices hold for a plan, each: the larger of the session's pool and the peak of L9. */
const heldBy = (ir: Lifetimes): Held =>
  withScratchArena(room => {
    const { turnovers, commands } = pass('turnover', () => trafficOf(ir, room))(ir)
    const fixed = lasting(ir)
    const peak = pass('peak', () => peakOver(turnovers, [...fixed.device, fixed.pinned], commands))(ir)
    // A session takes whole granules; of a device that holds nothing, none.
    const held = peak.device.map(bytes => (bytes === 0 ? 0 : rounded(bytes)))
    const pool = pass('pool', () => poolOver(turnovers, fixed.pool, commands, undefined, held))(ir)
    return {
      device: pool.device.map((bytes, on) => Math.max(bytes, held[on]!)),
      pinned: Math.max(fixed.slots, peak.pinned),
      settled: pool.settled && peak.settled,
      peak,
    }
  })

/** Replays of commands that looking for needless window waits may cost. */
const maxReplays = 2 ** 22

const without = (ir: Lifetimes, edge: WindowEdge): Lifetimes => {
  const windows = ir.windows.filter(other => other !== edge)
  const again = pipe(synchronize({ ...ir, windows }), E.chain(lifetimes))
  return E.isRight(again) ? again.right : ir
}

/** Whether the edge is a wait of the plan: any other is covered, and costs nothing. */
const isWait = (ir: Lifetimes, { later, earlier, tick }: WindowEdge): boolean => {
  for (let w = ir.waitStart[later]!; w < ir.waitStart[later + 1]!; w++)
    if (ir.waitOn[w] === earlier && ir.waitTick[w] === tick) return true
  return false
}

/** Drops every window wait without which no more memory is held, until each one left is needed. */
const needed = (ir: Lifetimes, most: Held): Lifetimes => {
  let left = maxReplays / Math.max(1, 4 * ir.operations.length)
  for (let dropped = true; dropped; ) {
    dropped = false
    for (const edge of ir.windows) {
      if (!isWait(ir, edge)) continue
      if (left-- < 0) return ir
      const candidate = without(ir, edge)
      const { device, pinned } = heldBy(candidate)
      if (device.some((bytes, on) => bytes > most.device[on]!) || pinned > most.pinned) continue
      ir = candidate
      dropped = true
    }
  }
  return ir
}

/** As `bound`, with all waits of the windows: for plans that are only looked at. */
export const roughBound = pass('bound', (ir: Lifetimes): Passed<Bounded> => {
  const { settled, device, pinned, peak } = heldBy(ir)
  return settled ? E.right({ ...ir, peak, bound: { device, pinned } }) : unsettled(ir)
})

const unsettled = (ir: Lifetimes): Passed<never> =>
  fail(
    fault(
      'Unverified',
      ir.settings.name,
      ir.settings.name,
      'a peak that settles over ticks',
      'none within the work allowed',
      'use fewer lanes, or inFlight: 1',
    ),
  )

/**
 * After this pass the bound is known in bytes, for each device and for pinned memory, and only those waits are left of the windows
 * without which it would be larger.
 */
export const bound = pass('bound', (ir: Lifetimes): Passed<Bounded> => {
  const most = heldBy(ir)
  if (!most.settled) return unsettled(ir)
  const lean = ir.windows.length === 0 ? ir : needed(ir, most)
  const { peak } = lean === ir ? most : heldBy(lean)
  return E.right({ ...lean, peak, bound: { device: most.device, pinned: most.pinned } })
})
