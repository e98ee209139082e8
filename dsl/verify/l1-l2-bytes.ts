import { seatIn } from '../ir/collective-extents.js'
import { quotedBuffer } from '../ir/names.js'
import type { ByteFault, Runs } from '../ir/run-bytes.js'
import { byteFaults } from '../ir/run-bytes.js'
import { type CommandTable, Kind, Mode, Op } from '../order/command-table.js'
import { eachBuffer, eachNode } from '../order/compiled-plan.js'
import { maxViolations, type Sink } from './report.js'

/**
 * L1 and L2 of the bytes that a kernel reaches (ir/run-bytes.ts). L1: a read of bytes that a kernel left
 * unwritten is after no write. L2: a run writes over bytes that it reads only where its kernel has read them
 * by then. Both follow from issue order alone: the order of runs across lanes is judged in l1-l2-order.ts.
 */
export const checkBytes = (table: CommandTable, sink: Sink): void => {
  for (const fault of faultsOf(table, sink)) {
    const { command, buffer, wanted, found } = fault
    const law = fault.tag === 'Unwritten' ? 'L1' : 'L2'
    const { plan } = table
    sink.add(
      law,
      command,
      { buffer },
      () => `${quotedBuffer(plan, buffer)}: wanted ${wanted}; found: ${found}`,
    )
  }
}

/** A value that parsePlan has not read may have any kernels. */
const faultsOf = (table: CommandTable, sink: Sink): readonly ByteFault[] => {
  try {
    return byteFaults(runsOf(table), maxViolations)
  } catch (error) {
    const why = error instanceof Error ? error.message : 'it throws when it is read'
    sink.add(
      'L1',
      -1,
      {},
      () => `what its kernels read and write cannot be told (${why}): give verify what parsePlan returns`,
    )
    return []
  }
}

const runsOf = ({ plan, root, bytes, kind, ...flat }: CommandTable): Runs => {
  const buffers = eachBuffer(plan)
  const nodes = eachNode(plan)
  const { commands, op, named, accessStart, accessNamed, accessMode } = flat
  return {
    root,
    bytes,
    offset: b => (root[b] === b ? 0 : (buffers.at(b)!.aliasOffset ?? 0)),
    isFilled: b =>
      kind[b] === Kind.param ||
      kind[b] === Kind.input ||
      (kind[b] === Kind.state && buffers.at(b)!.init !== undefined),
    isOutput: b => kind[b] === Kind.output,
    node: n => nodes.at(n)!,
    seat: id => seatIn(plan.communicators?.[id]),
    each: visit => {
      for (let c = 0; c < commands; c++) {
        if (op[c] !== Op.run) continue
        const from = accessStart[c]!
        const end = accessStart[c + 1]!
        let writes = from
        while (writes < end && accessMode[writes] === Mode.read) writes++
        visit(c, named[c]!, accessNamed.subarray(from, writes), accessNamed.subarray(writes, end))
      }
    },
  }
}
