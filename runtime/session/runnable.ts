import type { Plan } from '../../dsl/ir/plan.js'
import type { DeviceError } from '../errors.js'
import { nodesOfTwoTypes } from './program.js'

/** Sessions are of one rank: a plan that talks to others is told once, by the first of its collectives. */
const alone = (plan: Plan, [first, ...others]: readonly number[]): readonly DeviceError[] => {
  if (first === undefined) return []
  const { name, at, collective } = plan.nodes[first]!
  const { name: world, groups, size } = plan.communicators?.[collective!.communicator] ?? {}
  const ranks = groups?.[0]?.length ?? size
  const more =
    others.length === 0 ? '' : `, and ${others.length === 1 ? 'one more' : `${others.length} others`}`
  return [
    {
      _tag: 'BadPlan',
      at,
      subject: name,
      wanted: 'a plan of one rank: a session talks to no other ranks so far',
      found: `${collective!.kind} over '${world}' of ${ranks === undefined ? 'all' : ranks} ranks${more}`,
      next: 'verify the plans of all ranks together (verifyRanks, or braid verify with all their files), explain and simulate them; to run the graph here, make its communicators of one rank',
    },
  ]
}

/** What keeps a sound plan from being run: nodes without a kernel, other ranks, operands of several types. */
export function* runnable(plan: Plan): Iterable<DeviceError> {
  const told = new Set<number>()
  const shared: number[] = []
  for (const command of plan.commands) {
    if (command[0] !== 'run' || plan.nodes[command[1]]?.kernel || told.has(command[1])) continue
    told.add(command[1])
    const { name, op, at, collective } = plan.nodes[command[1]]!
    if (collective !== undefined) {
      shared.push(command[1])
      continue
    }
    yield {
      _tag: 'BadPlan',
      at,
      subject: name,
      wanted: 'a kernel for every node that runs',
      found: `a node "${op}" without one`,
      next: 'this plan can be verified and explained, not run: compile the graph again',
    }
  }
  yield* alone(plan, shared)
  for (const node of nodesOfTwoTypes(plan)) {
    const { name, at } = plan.nodes[node]!
    yield {
      _tag: 'BadPlan',
      at,
      subject: name,
      wanted: "operands of the same element types and shapes in every run of a user's kernel",
      found: 'runs of this node on others',
      next: 'give each kind of operands a node of its own',
    }
  }
}
