import { dotOf } from './explain/dot.js'
import { perfettoOf } from './explain/perfetto.js'
import { type Reasons, reasonsOf } from './explain/reasons.js'
import type { Plan } from './ir/plan.js'

export type { Reasons, WaitFor } from './explain/reasons.js'

const size = (bytes: number): string => (bytes < 2 ** 20 ? `${bytes} bytes` : `${(bytes / 2 ** 20).toFixed(2)} MiB`)

const section = (title: string, says: string, lines: readonly string[]): string[] =>
  lines.length === 0 ? ['', `${title}: none`] : ['', `${title}: ${says}`, ...lines.map(line => `  ${line}`)]

/** `34 for data, 32 for memory`. */
const kindsOf = (waits: Reasons['waits']): string =>
  (['data', 'state', 'memory', 'order'] as const)
    .flatMap(kind => {
      const count = waits.filter(wait => wait.for === kind).length
      return count === 0 ? [] : [`${count} for ${kind}`]
    })
    .join(', ')

const times = (count: number): string =>
  count === 0 ? 'never waits' : count === 1 ? 'waits once a tick' : `waits ${count} times a tick`

const inUse = (bound: number, bytes: number): string =>
  bytes < bound
    ? `${size(bytes)} in use; the other ${size(bound - bytes)} of the bound were freed by operations that may not have ended, so no lane has them yet`
    : `${size(bytes)} in use`

const textOf = (plan: Plan, reasons: Reasons): string => {
  const { lanes, waits, uses, elidedWaits, elidedUses, alive } = reasons
  return `${[
    `${plan.name}: ${plan.nodes.length} operations on ${plan.lanes.length} lanes, ${plan.inFlight} ticks in flight`,
    `bound: ${plan.bound.device.map(size).join(', ')} of device memory, ${size(plan.bound.pinned)} of pinned memory`,
    ...section(
      'lanes',
      'each is a CUDA stream, and does its operations in order',
      lanes.map(
        ({ name, runs, waits: count }) =>
          `${name}: ${runs} ${runs === 1 ? 'operation' : 'operations'}, ${times(count)}`,
      ),
    ),
    ...section(
      `waits (${waits.length})`,
      `${kindsOf(waits)}; a lane goes on only when another has come so far`,
      waits.map(
        ({ lane, for: kind, before, after, because }) =>
          `${kind.padEnd(6)} ${lane}: ${after} waits for ${before}: ${because}`,
      ),
    ),
    ...section(
      `uses (${uses.length})`,
      "where another lane than a buffer's home is done with it, so that its bytes can be given away",
      uses.map(({ buffer, home, lane, access }) => `${buffer} of ${home}: ${lane} is done with it after ${access}`),
    ),
    ...section(
      `dependencies that need no wait of their own (${elidedWaits.length})`,
      'each is ordered already',
      elidedWaits.map(({ before, after, by }) => `${after} after ${before}: ${by}`),
    ),
    ...section(
      `uses that are not needed (${elidedUses.length})`,
      'the home lane is after that access anyway',
      elidedUses.map(
        ({ buffer, home, lane, access, by }) => `${buffer} of ${home}: ${lane} is done with it after ${access}: ${by}`,
      ),
    ),
    ...section(
      `in device memory at the peak (${alive.length})`,
      inUse(
        plan.bound.device[0] ?? 0,
        alive.reduce((sum, { bytes }) => sum + bytes, 0),
      ),
      alive.map(({ name, bytes, life }) => `${name}: ${size(bytes)}${life === 'tick' ? '' : `, ${life}`}`),
    ),
  ].join('\n')}\n`
}

/**
 * Why a plan is as it is, from the plan alone: for each wait the two operations it orders, and whether for data, for state or for memory; for each use the access it stands for,
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
