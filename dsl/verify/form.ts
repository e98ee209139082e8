import type { Law, Plan, Violation } from '../ir/plan.js'
import type { PlanFault } from '../ir/reader.js'
import { Report } from './report.js'

const lawOfBytes: { readonly [Tag in PlanFault['_tag']]?: Law } = { Unwritten: 'L1', Overwrite: 'L2' }

/**
 * Faults of form as violations: bytes that nothing has written (L1), operands that are overwritten (L2), places
 * and sizes (L3), others (L7).
 */
export const formViolations = (plan: Plan, faults: readonly PlanFault[]): readonly Violation[] => {
  const report = new Report(plan)
  for (const { _tag, at, subject, wanted, found } of faults) {
    const [, list, index] = /^(commands|buffers)\[(\d+)\]/.exec(at) ?? []
    const law = lawOfBytes[_tag] ?? (list === undefined ? 'L7' : 'L3')
    const command = list === 'commands' ? Number(index) : -1
    const place = list === 'buffers' ? { buffer: Number(index) } : {}
    report.add(law, command, place, () => `${at}, ${subject}: wanted ${wanted}; found ${found}`)
  }
  return report.violations
}
