import { commandText } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { Beside } from './concurrent.js'
import type { Sink } from './report.js'

/**
 * L8: on every communicator all ranks issue the same collectives in the same order; sends match receives with no buffering
 * assumed. It compares the plans of several ranks (verify-ranks.ts); of one plan alone there is only to ask that it has the communicators that it names.
 */
export const checkCollectives = ({ plan, op, subject, commands, shared }: CommandTable, sink: Sink): void => {
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
        `its ${collective.kind} is over communicator ${collective.communicator}, and the plan has ${plan.communicators?.length ?? 0}`,
    )
  }
}

/** L8 of a plan that all ranks are to run: collectives over communicators that share two ranks are never side by side. */
export const checkBeside = (tables: CommandTable, sink: Sink): void => {
  const [call, beside] = Beside.of(tables)?.replay() ?? []
  if (call === undefined || beside === undefined) return
  const { plan, lane } = tables
  sink.add(
    'L8',
    call,
    { lane: lane[call]! },
    () =>
      `it may run beside ${commandText(plan, beside)}, commands[${beside}], over a communicator that shares two ranks with its own`,
  )
}
