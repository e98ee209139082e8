import type { Sink } from './report.js'
import { Op, type Tables } from './tables.js'

/**
 * L8: on every communicator all ranks issue the same collectives in the same order; sends match receives with no buffering
 * assumed. It compares the plans of several ranks (verify-ranks.ts); of one plan alone there is only to ask that it has the communicators that it names.
 */
export const checkCollectives = ({ plan, op, subject, commands }: Tables, sink: Sink): void => {
  if (!plan.nodes.some(({ collective }) => collective !== undefined)) return
  for (let c = 0; c < commands && !sink.full; c++) {
    if (op[c] !== Op.run) continue
    const collective = plan.nodes[subject[c]!]!.collective
    if (collective === undefined || plan.communicators?.[collective.communicator] !== undefined) continue
    sink.add(
      'L8',
      c,
      {},
      () =>
        `its ${collective.kind} is over communicator ${collective.communicator}, and the plan has ${plan.communicators?.length ?? 0}`,
    )
  }
}
