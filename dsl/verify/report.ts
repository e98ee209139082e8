import { commandText } from '../ir/names.js'
import type { Law, Plan, Violation } from '../ir/plan.js'
import { show } from '../ir/reader.js'
import { shown } from '../ir/show.js'
import { type CommandTable, Op } from '../order/command-table.js'

/** Violations that one verification lists at most. */
export const maxViolations = 1000

/**
 * Receives the violations of a law: a report that writes their sentences, or a probe for whether there is
 * any.
 */
export interface Sink {
  /** The replay may stop. */
  readonly full: boolean
  add(
    law: Law,
    command: number,
    place: { buffer?: number; lane?: number; event?: number },
    sentence: () => string,
  ): void
}

export class Report implements Sink {
  readonly violations: Violation[] = []
  private readonly seen = new Set<string>()

  constructor(private readonly plan: Plan) {}

  get full(): boolean {
    return this.violations.length >= maxViolations
  }

  /**
   * One violation for each law, command and buffer, however many ticks show it. `sentence` completes "L4:
   * commands[17] (free w[3]): …".
   */
  add(
    law: Law,
    command: number,
    place: { buffer?: number; lane?: number; event?: number },
    sentence: () => string,
  ): void {
    const key = `${law} ${command} ${place.buffer} ${place.lane} ${place.event}`
    if (this.full || this.seen.has(key)) return
    this.seen.add(key)
    const where = command < 0 ? 'the plan' : `commands[${command}] (${commandText(this.plan, command)})`
    this.violations.push({ law, command, ...place, message: shown(`${law}: ${where}: ${sentence()}`) })
  }
}

/**
 * Full at the first violation, and writes no sentence: for the exact test of L6, which judges the plan once
 * for each wait.
 */
export class Probe implements Sink {
  full = false
  add(): void {
    this.full = true
  }
}

const forms: ReadonlySet<unknown> = new Set(['alloc', 'free', 'run', 'record', 'wait', 'use'])

/** A text of one line for any value in a list of commands. */
const showCommand = (value: unknown): string =>
  Array.isArray(value)
    ? `[${Array.from(value.slice(0, 6), show).join(', ')}${value.length > 6 ? ', …' : ''}]`
    : show(value)

/**
 * Commands that name ids that the plan does not have. They break L1, L3 or L7, and every other check ignores
 * them.
 */
export const checkIds = (table: CommandTable, sink: Sink): void => {
  for (let c = 0; c < table.commands && !sink.full; c++) {
    if (table.op[c] !== Op.broken) continue
    const command = table.plan.commands[c]
    const law: Law =
      command?.[0] === 'run' ? 'L1' : command?.[0] === 'record' || command?.[0] === 'wait' ? 'L7' : 'L3'
    sink.add(law, c, {}, () =>
      forms.has(command?.[0])
        ? `it names a buffer, lane, node or event that the plan does not have: ${showCommand(command)}`
        : `a command of the format is wanted, and this is ${showCommand(command)}`,
    )
  }
}
