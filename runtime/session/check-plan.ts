import * as E from 'fp-ts/lib/Either.js'
import { isProved } from '../../dsl/index.js'
import { granule, poolPeakOf, verifyLoaded } from '../../dsl/internal.js'
import { parsePlan } from '../../dsl/ir/load.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import { isRecord } from '../../dsl/ir/record.js'
import type { DeviceError } from '../errors.js'
import { nodesOfSeveralTypes } from './flatten.js'
import * as messages from './messages.js'

/**
 * The plan to run. A plan that this process compiled has been verified. Any other value is parsed and checked
 * against the laws about safety, and only the parsed plan is used.
 */
export const checkedPlan = (plan: Plan): E.Either<readonly DeviceError[], Plan> => {
  if (isProved(plan)) return E.right(plan)
  const other = otherThanPlan(plan)
  if (other) return E.left([other])
  const parsed = parsePlan(plan)
  if (E.isLeft(parsed))
    return E.left(parsed.left.map((fault): DeviceError => ({ ...fault, _tag: 'BadPlan' })))
  const [worst, ...others] = verifyLoaded(parsed.right, { safety: true })
  if (worst) return E.left([messages.brokenLaws(parsed.right, [worst, ...others])])
  return withinPool(parsed.right)
}

// The values that JavaScript callers pass most easily instead of a plan.
const otherThanPlan = (given: unknown): DeviceError | undefined => {
  if (!isRecord(given)) return messages.noPlan(given)
  if ('_tag' in given && (given._tag === 'Right' || given._tag === 'Left')) return messages.eitherForPlan
  if ('ir' in given || ('nodes' in given && 'problems' in given)) return messages.graphForPlan
  return undefined
}

// Without a `boundKind`, law L9 counts bytes and ignores fragmentation. A session's pool allocates whole
// granules, each buffer contiguous. So a hand-written plan may obey every law with a bound below what its
// pool takes, and would run out of memory in a tick. Where the pool's steady state is too far away to be
// replayed, the session enforces the bound, which one tick on an idle device must be within.
const withinPool = (plan: Plan): E.Either<readonly DeviceError[], Plan> => {
  if (plan.storage !== 'pooled' || plan.boundKind !== undefined) return E.right(plan)
  const { device, first, exact } = poolPeakOf(plan)
  const needed = exact ? device : first.slice(0, plan.devices)
  const errors = needed.flatMap((bytes, index) =>
    bytes <= (plan.bound.device[index] ?? 0) ? [] : [messages.boundBelowPool(plan, needed, index, granule)],
  )
  if (errors.length > 0) return E.left(errors)
  return E.right(exact ? plan : { ...plan, boundKind: 'enforced' })
}

/**
 * Why a session cannot run a verified plan: nodes without a kernel, other ranks, operands of several types,
 * buffers of the tick in pinned memory.
 */
export const unrunnable = (plan: Plan): readonly DeviceError[] => {
  const running = new Set<number>()
  for (const command of plan.commands) if (command[0] === 'run') running.add(command[1])
  const withoutKernel = [...running].map(id => plan.nodes[id]!).filter(({ kernel }) => kernel === undefined)
  const shared = withoutKernel.filter(({ collective }) => collective !== undefined)
  const [first, ...others] = shared
  return [
    ...withoutKernel.filter(({ collective }) => collective === undefined).map(messages.noKernel),
    ...(first ? [messages.otherRanks(plan, first, others.length)] : []),
    ...nodesOfSeveralTypes(plan).map(id => messages.severalTypes(plan.nodes[id]!)),
    ...plan.buffers.filter(isPinnedOfTick).map(messages.pinnedOfTick),
  ]
}

const isPinnedOfTick = ({ life, space, alias }: PlanBuffer): boolean =>
  life === 'tick' && space === 'pinned' && alias === undefined
