import fc from 'fast-check'
import type { CollectiveSpec, Command, Plan, PlanCommunicator } from '../../dsl/ir/plan.js'
import { planOf } from './plans.js'

export type Call = CollectiveSpec & { readonly lane: number }

/** A rank's calls in issue order, and waits of each for some that were issued before it. */
export interface Script {
  readonly calls: readonly Call[]
  readonly waits: readonly (readonly [call: number, earlier: number])[]
  /** The first call comes after the last of the tick before. */
  readonly around?: boolean
}

export const lanes = ['math', 'comm', 'far'] as const

export const rankOf = ({ calls, waits, around }: Script, communicators: readonly PlanCommunicator[]): Plan => {
  const commands: Command[] = []
  if (around && calls.length > 0 && calls[0]!.lane !== calls.at(-1)!.lane)
    commands.push(['wait', calls.length - 1, calls[0]!.lane, -1])
  calls.forEach((call, i) => {
    for (const [later, earlier] of waits)
      if (later === i && earlier < i && calls[earlier]!.lane !== call.lane) commands.push(['wait', earlier, call.lane])
    commands.push(['run', i, call.lane, [], []], ['record', i, call.lane])
  })
  const plan = planOf({ name: 'rank', lanes, buffers: [], commands })
  return {
    ...plan,
    communicators,
    nodes: plan.nodes.map((node, i) => {
      const { lane, ...collective } = calls[i]!
      return { ...node, name: `${collective.kind}${i}`, collective }
    }),
  }
}

/** Meetings in one order for all, each call on some lane; then waits for earlier calls, as given. */
export const scripts = (world: number, communicators: number, most: number): fc.Arbitrary<Script[]> =>
  fc
    .array(
      fc.record({
        kind: fc.constantFrom<CollectiveSpec['kind']>('allReduce', 'broadcast', 'send'),
        communicator: fc.nat(communicators - 1),
        count: fc.integer({ min: 1, max: 2 }),
        ends: fc.tuple(fc.nat(world - 1), fc.nat(world - 2)),
        lane: fc.array(fc.nat(lanes.length - 1), { minLength: world, maxLength: world }),
      }),
      { minLength: 1, maxLength: most },
    )
    .chain(meetings =>
      fc
        .array(fc.array(fc.tuple(fc.nat(most - 1), fc.nat(most - 1)), { maxLength: 2 * most }), {
          minLength: world,
          maxLength: world,
        })
        .map(waits =>
          waits.map((own, rank): Script => {
            const calls = meetings.flatMap(({ kind, communicator, count, ends: [a, skip], lane }): Call[] => {
              const call = { communicator, count, dtype: 'f32' as const, lane: lane[rank]! }
              if (kind === 'allReduce') return [{ ...call, kind, how: 'sum' }]
              if (kind === 'broadcast') return [{ ...call, kind, root: a }]
              const b = skip >= a ? skip + 1 : skip
              return rank === a
                ? [{ ...call, kind: 'send', peer: b }]
                : rank === b
                  ? [{ ...call, kind: 'recv', peer: a }]
                  : []
            })
            return { calls, waits: own.filter(([later]) => later < calls.length) }
          }),
        ),
    )
