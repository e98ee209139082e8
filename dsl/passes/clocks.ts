import { fault, unless } from './faults.js'
import type { Checked, Passed } from './ir.js'

const changesRate: ReadonlySet<string> = new Set(['window', 'every', 'hold'])

/** How often each node fires in a tick. No operator of this version changes a rate, so the repetition vector is all ones. */
export const repetitions = (ir: Checked): Int32Array => new Int32Array(ir.nodes.length).fill(1)

/**
 * After this pass every flow has a rate and a repetition vector exists. Flows here carry one value a tick, so what is left to
 * check is that no operator claims another rate.
 */
export const clocks = (ir: Checked): Passed<Checked> => {
  const errors = ir.nodes
    .filter(node => changesRate.has(node.op))
    .map(node =>
      fault(
        'Unsupported',
        node.at,
        node.name,
        'an operator of one value a tick',
        node.op,
        'window on the host side, before the feed',
      ),
    )
  return unless(errors, () => ir)
}
