import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { type Peak, peakOf } from '../ir/peak.js'
import type { Plan, PlanNode } from '../ir/plan.js'
import { poolPeakOf, rounded } from '../ir/pool.js'
import { nodesOf, outlineOf } from './emit.js'
import { fail, fault } from './faults.js'
import type { Bounded, Lifetimes, Passed, WindowEdge } from './ir.js'
import { lifetimes } from './lifetimes.js'
import { synchronize } from './synchronize.js'
import { watched } from './watch.js'

interface Held {
  readonly device: number
  readonly pinned: number
  readonly settled: boolean
  readonly peak: Peak
}

/** What the device holds for a plan: the larger of the session's pool and the peak of L9. */
const held = (plan: Plan): Held => {
  const pool = watched('pool', poolPeakOf)(plan)
  const peak = watched('peak', peakOf)(plan)
  const fixed = plan.buffers.reduce((sum, { alias, space, life, bytes }) => {
    if (alias !== undefined || space !== 'pinned') return sum
    return sum + rounded(bytes) * (life === 'input' || life === 'output' ? plan.inFlight : 1)
  }, 0)
  return {
    device: Math.max(pool.device[0]!, peak.device[0]!),
    pinned: Math.max(fixed, peak.pinned),
    settled: pool.settled && peak.settled,
    peak,
  }
}

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
const needed = (ir: Lifetimes, nodes: readonly PlanNode[], most: Held): Lifetimes => {
  let left = maxReplays / Math.max(1, 4 * ir.operations.length)
  for (let dropped = true; dropped; ) {
    dropped = false
    for (const edge of ir.windows) {
      if (!isWait(ir, edge)) continue
      if (left-- < 0) return ir
      const candidate = without(ir, edge)
      const { device, pinned } = held(outlineOf(candidate, nodes))
      if (device > most.device || pinned > most.pinned) continue
      ir = candidate
      dropped = true
    }
  }
  return ir
}

/**
 * After this pass the bound is known in bytes, for the device and for pinned memory, and only those waits are left of the windows
 * without which it would be larger.
 */
export const bound = watched('bound', (ir: Lifetimes): Passed<Bounded> => {
  const nodes = nodesOf(ir)
  const outline = outlineOf(ir, nodes)
  const most = held(outline)
  if (!most.settled)
    return fail(
      fault(
        'Unverified',
        ir.settings.name,
        ir.settings.name,
        'a peak that settles over ticks',
        'none within the work allowed',
        'use fewer lanes, or inFlight: 1',
      ),
    )
  const lean = ir.windows.length === 0 ? ir : needed(ir, nodes, most)
  const bound = { device: [most.device], pinned: most.pinned }
  if (lean === ir) return E.right({ ...ir, outline, peak: most.peak, bound })
  const leaner = outlineOf(lean, nodes)
  return E.right({ ...lean, outline: leaner, peak: peakOf(leaner), bound })
})
