import { commandText } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { ConcurrentCalls } from './l8-concurrent.js'
import type { Sink } from './report.js'

/**
 * L8: on every communicator all ranks issue the same collectives in the same order; sends match receives with
 * no buffering assumed. That compares the plans of several ranks (verify-ranks.ts). One plan alone must have
 * the communicators that its nodes name; and where all ranks are to run it (`everyRank`), collectives over
 * communicators that share two ranks are never concurrent.
 */
export const checkCollectives = (table: CommandTable, everyRank: boolean, sink: Sink): void => {
  const { plan, op, lane, subject, commands, shared } = table
  if (!shared) return
  for (let c = 0; c < commands && !sink.full; c++) {
    if (op[c] !== Op.run) continue
    const collective = plan.nodes[subject[c]!]!.collective
    if (collective === undefined || plan.communicators?.[collective.communicator] !== undefined) continue
    sink.add(
      'L8',
      c,
      {},
      () =>
        `its ${collective.kind} is over communicator ${collective.communicator}, ` +
        `and the plan has ${plan.communicators?.length ?? 0}`,
    )
  }
  if (!everyRank) return
  const [call, other] = ConcurrentCalls.of(table)?.find() ?? []
  if (call === undefined || other === undefined) return
  sink.add(
    'L8',
    call,
    { lane: lane[call]! },
    () =>
      `it may run at the same time as ${commandText(plan, other)}, commands[${other}], ` +
      'over a communicator that shares two ranks with its own',
  )
}
