import { dotOf } from './explain/dot.js'
import { perfettoOf } from './explain/perfetto.js'
import { type Reasons, reasonsOf } from './explain/reasons.js'
import type { Plan } from './ir/plan.js'

export type { Reasons } from './explain/reasons.js'

const size = (bytes: number): string => (bytes < 2 ** 20 ? `${bytes} bytes` : `${(bytes / 2 ** 20).toFixed(2)} MiB`)

const section = (title: string, lines: readonly string[]): string[] => [
  '',
  `${title} (${lines.length})`,
  ...lines.map(line => `  ${line}`),
]

const textOf = (plan: Plan, reasons: Reasons): string => {
  const { lanes, waits, uses, elidedWaits, elidedUses, alive } = reasons
  return `${[
    `${plan.name}: ${plan.nodes.length} operations on ${plan.lanes.length} lanes, ${plan.inFlight} ticks in flight`,
    `bound: ${plan.bound.device.map(size).join(', ')} of device memory, ${size(plan.bound.pinned)} of pinned memory`,
    ...section(
      'lanes',
      lanes.map(({ name, runs, waits: count }) => `${name}: ${runs} operations, waits ${count} times a tick`),
    ),
    ...section(
      'waits, and what each orders',
      waits.map(({ lane, before, after, because }) => `${lane}: ${after} comes after ${before}: ${because}`),
    ),
    ...section(
      'uses, and the access each stands for',
      uses.map(
        ({ buffer, lane, access }) =>
          `${buffer}: ${access} on ${lane} is its last access there; its memory is free for others after it`,
      ),
    ),
    ...section(
      'dependencies that need no wait of their own',
      elidedWaits.map(({ before, after, by }) => `${after} after ${before}: ${by}`),
    ),
    ...section(
      'uses that are not there',
      elidedUses.map(({ buffer, lane, access, by }) => `${buffer}: ${access} on ${lane}: ${by}`),
    ),
    ...section(
      'in device memory at the peak',
      alive.map(({ name, bytes, life }) => `${name}: ${size(bytes)}${life === 'tick' ? '' : `, ${life}`}`),
    ),
  ].join('\n')}\n`
}

/**
 * Why a plan is as it is, from the plan alone: for each wait the two operations it orders, for each use the access it stands for,
 * for each of either that is not there what orders it already; lanes, bound, and what is in memory at the peak. As text; as
 * JSON of the same; as a graph in DOT; or as a timeline for Perfetto, in the plan's own order with guessed durations.
 */
export const explain = (plan: Plan, as: 'text' | 'json' | 'dot' | 'perfetto' = 'text'): string => {
  switch (as) {
    case 'dot':
      return dotOf(plan)
    case 'perfetto':
      return perfettoOf(plan)
    case 'json':
      return `${JSON.stringify(reasonsOf(plan), null, 2)}\n`
    default:
      return textOf(plan, reasonsOf(plan))
  }
}
