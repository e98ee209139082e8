import { type CommandTable, Op } from '../order/command-table.js'
import { conflictsOf } from '../order/conflicting-communicators.js'
import { Frontiers } from '../order/frontiers.js'
import { eachNode } from '../order/packed.js'

/**
 * Calls `tell` for each call that may run beside the latest one over a rival of its communicator, in issue order, until it says so. Calls over one communicator begin in
 * issue order whatever their lanes, so what is before one is before all that follow it there. Two ticks decide, as for L1 and L2.
 */
export const eachBeside = <K, C extends { readonly command: number }>(
  clock: Frontiers,
  calls: readonly C[],
  of: (call: C) => K,
  rivals: (communicator: K) => Iterable<K>,
  tell: (call: C, beside: C, past: boolean) => boolean | undefined,
): void => {
  const { tables, lanes } = clock
  const last = new Map<K, { call: C; lane: number; point: number; tick: number; frontier: Int32Array }>()
  for (let tick = 0; tick < 2; tick++) {
    clock.begin()
    let next = 0
    for (let c = 0; c < tables.commands; c++) {
      const call = calls[next]
      if (call?.command !== c) {
        clock.step(c)
        continue
      }
      next++
      const own = of(call)
      const l = tables.lane[c]!
      const row = clock.known.subarray(l * lanes, (l + 1) * lanes)
      const before = last.get(own)
      if (before !== undefined)
        for (let m = 0; m < lanes; m++) row[m] = Math.max(row[m]!, before.frontier[m]!)
      for (const other of rivals(own)) {
        const beside = last.get(other)
        if (beside === undefined || row[beside.lane]! >= beside.point) continue
        if (tell(call, beside.call, beside.tick < tick) === true) return
      }
      clock.step(c)
      last.set(own, { call, lane: l, point: row[l]!, tick, frontier: row.slice() })
    }
  }
}

/** A call of a plan alone. */
interface Call {
  readonly command: number
  readonly communicator: number
}

/** L8, across communicators, of a plan that all ranks run: whichever group a rank is in, no two calls that some rank may not have side by side are. */
export class Beside {
  private readonly clock: Frontiers

  private constructor(
    tables: CommandTable,
    private readonly calls: readonly Call[],
    private readonly rivals: ReturnType<typeof conflictsOf>,
  ) {
    this.clock = new Frontiers(tables)
  }

  /** Undefined where no two communicators share two ranks. */
  static of(tables: CommandTable): Beside | undefined {
    const { communicators = [] } = tables.plan
    if (communicators.length < 2 || !tables.shared) return undefined
    const nodes = eachNode(tables.plan)
    const rivals = conflictsOf(communicators)
    if (rivals.size === 0) return undefined
    const calls: Call[] = []
    for (let command = 0; command < tables.commands; command++) {
      if (tables.op[command] !== Op.run) continue
      const communicator = nodes.at(tables.subject[command]!)!.collective?.communicator
      if (communicator !== undefined && rivals.has(communicator)) calls.push({ command, communicator })
    }
    return new Beside(tables, calls, rivals)
  }

  /** The first call that may run beside another, and that one, without the wait `dropped` (-1: none). */
  replay(dropped = -1): readonly [call: number, beside: number] | undefined {
    const { clock, calls, rivals } = this
    let found: readonly [number, number] | undefined
    clock.restart(dropped)
    eachBeside(
      clock,
      calls,
      ({ communicator }) => communicator,
      communicator => rivals.get(communicator)!,
      (call, beside) => {
        found = [call.command, beside.command]
        return true
      },
    )
    return found
  }
}
