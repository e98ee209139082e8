import type { Fault } from '../../dsl/ir/fault.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeFailure } from '../addon.js'
import { failureText, isNativeFailure } from '../device/open-failure.js'
import type { RunErrorTag } from '../errors.js'

/** The error that a failed tick ends its run with. */
export const tickFailure = (
  failure: NativeFailure,
  plan: Plan,
): readonly [Fault<RunErrorTag>, { cause: unknown; code?: string; lane?: string; node?: string }] => {
  const node = failure.node === undefined || failure.node < 0 ? undefined : plan.nodes[failure.node]
  const where = [
    node ? `${node.op} ${node.name}` : undefined,
    failure.lane ? `lane ${failure.lane}` : undefined,
    failure.device && plan.devices > 1 ? failure.device : undefined,
  ]
    .filter(Boolean)
    .join(', ')
  return [
    {
      _tag: 'TickFailed',
      at: node?.at ?? plan.name,
      subject: node?.name ?? plan.name,
      wanted: `a tick without a failure${where === '' ? '' : ` (${where})`}`,
      found: isNativeFailure(failure) ? failureText(failure) : String((failure as Error).message ?? failure),
      next: 'this session is over and freed; the process lives on: open the plan again',
    },
    {
      cause: failure,
      ...(isNativeFailure(failure) ? { code: failure.code } : {}),
      ...(failure.lane ? { lane: failure.lane } : {}),
      ...(node ? { node: node.name } : {}),
    },
  ]
}
