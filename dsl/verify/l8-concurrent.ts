import { type CommandTable, Op } from '../order/command-table.js'
import { eachNode } from '../order/compiled-plan.js'
import { conflictsOf } from '../order/conflicting-communicators.js'
import { Replay } from '../order/replay.js'
import { type Blame, type Call, callText, type Group, type World } from './l8-matching.js'

/** A call at the moment before it is issued: the lane's frontier has what the calls before it there had. */
export interface Issuing<K, C> {
  readonly call: C
  readonly communicator: K
  readonly tick: number
  readonly lane: number
  /** The point that it gets. */
  readonly point: number
  /** By communicator, the latest call that has been issued. */
  readonly latest: ReadonlyMap<K, Issuing<K, C>>
}

/**
 * The calls of two ticks in issue order, which decide as for L1 and L2. Calls over one communicator begin in
 * issue order whatever their lanes (NCCL's rule), so what is before one of them is before all that follow it
 * there.
 */
export function* callsInOrder<K, C extends { readonly command: number }>(
  replay: Replay,
  calls: readonly C[],
  communicatorOf: (call: C) => K,
): Generator<Issuing<K, C>> {
  const { table, lanes, known } = replay
  const latest = new Map<K, Issuing<K, C>>()
  const frontiers = new Map<K, Int32Array>()
  for (let tick = 0; tick < 2; tick++) {
    replay.begin()
    let next = 0
    for (let c = 0; c < table.commands; c++) {
      const call = calls[next]
      if (call?.command !== c) {
        replay.step(c)
        continue
      }
      next++
      const communicator = communicatorOf(call)
      const lane = replay.laneOf(c)
      const before = frontiers.get(communicator)
      if (before !== undefined) replay.join(lane, before, 0)
      const issuing = { call, communicator, tick, lane, point: replay.now(lane) + 1, latest }
      yield issuing
      replay.step(c)
      latest.set(communicator, issuing)
      frontiers.set(communicator, known.slice(lane * lanes, (lane + 1) * lanes))
    }
  }
}

/**
 * Calls `found` for each call that may be concurrent with the latest one over a communicator that conflicts
 * with its own, in issue order, until it returns true.
 */
const eachConcurrent = <K, C extends { readonly command: number }>(
  replay: Replay,
  calls: readonly C[],
  communicatorOf: (call: C) => K,
  conflicts: (communicator: K) => Iterable<K>,
  found: (call: C, other: C, isOfTickBefore: boolean) => boolean | undefined,
): void => {
  for (const { call, communicator, tick, lane, latest } of callsInOrder(replay, calls, communicatorOf))
    for (const conflicting of conflicts(communicator)) {
      const other = latest.get(conflicting)
      if (other === undefined || replay.isBefore(lane, other.lane, other.point)) continue
      if (found(call, other.call, other.tick < tick) === true) return
    }
}

/**
 * Concurrent calls of a plan that all ranks run, over communicators that share two ranks, whichever group a
 * rank is in.
 */
export class ConcurrentCalls {
  private constructor(
    private readonly replay: Replay,
    private readonly calls: readonly { readonly command: number; readonly communicator: number }[],
    private readonly conflicts: ReturnType<typeof conflictsOf>,
  ) {}

  /** Undefined where no two communicators share two ranks. */
  static of(table: CommandTable): ConcurrentCalls | undefined {
    const { communicators = [] } = table.plan
    if (communicators.length < 2 || !table.shared) return undefined
    const nodes = eachNode(table.plan)
    const conflicts = conflictsOf(communicators)
    if (conflicts.size === 0) return undefined
    const calls = []
    for (let command = 0; command < table.commands; command++) {
      if (table.op[command] !== Op.run) continue
      const communicator = nodes.at(table.subject[command]!)!.collective?.communicator
      if (communicator !== undefined && conflicts.has(communicator)) calls.push({ command, communicator })
    }
    return new ConcurrentCalls(new Replay(table), calls, conflicts)
  }

  /**
   * The commands of the first call that may be concurrent with another one, and of that one, without the wait
   * `dropped` (-1: none).
   */
  find(dropped = -1): readonly [call: number, other: number] | undefined {
    const { replay, calls, conflicts } = this
    let found: readonly [number, number] | undefined
    replay.restart(dropped)
    eachConcurrent(
      replay,
      calls,
      ({ communicator }) => communicator,
      communicator => conflicts.get(communicator)!,
      (call, other) => {
        found = [call.command, other.command]
        return true
      },
    )
    return found
  }
}

/**
 * L8 of several ranks: two communicators that share two ranks or more never have concurrent calls on one of
 * those ranks. A call occupies a part of the device until all of its group have come, so where two ranks
 * begin the two calls in different orders, each may wait for the other for ever. Each rank must order the
 * two; whether the order is the same on all ranks is a question of deadlock (l8-deadlock.ts), since two
 * orders make a cycle of waits.
 */
export const checkConcurrent = (world: World, blame: Blame): void => {
  const conflicts = conflictingGroups(world)
  if (conflicts.size === 0) return
  for (const calls of world.calls)
    if (calls.some(({ group }) => conflicts.has(group))) checkRank(calls, conflicts, blame)
}

type Conflicts = ReadonlyMap<Group, ReadonlyMap<Group, readonly number[]>>

/** By group, the groups with which it shares two ranks or more, and which. */
const conflictingGroups = ({ groups }: World): Conflicts => {
  const conflicts = new Map<Group, Map<Group, readonly number[]>>()
  const groupsOf = new Map<number, Group[]>()
  for (const group of groups)
    for (const rank of group.ranks) groupsOf.set(rank, [...(groupsOf.get(rank) ?? []), group])
  for (const group of groups) {
    const own = new Set(group.ranks)
    for (const other of new Set(group.ranks.flatMap(rank => groupsOf.get(rank)!))) {
      if (other === group) continue
      const shared = other.ranks.filter(rank => own.has(rank))
      if (shared.length < 2) continue
      const known = conflicts.get(group) ?? new Map<Group, readonly number[]>()
      conflicts.set(group, known.set(other, shared))
    }
  }
  return conflicts
}

const checkRank = (calls: readonly Call[], conflicts: Conflicts, blame: Blame): void => {
  const reported = new Set<string>()
  eachConcurrent(
    new Replay(calls[0]!.rank.table),
    calls,
    ({ group }) => group,
    group => conflicts.get(group)?.keys() ?? [],
    (call, other, isOfTickBefore) => {
      const [mine, theirs] = [call.group, other.group]
      const pair = [mine.name, theirs.name].sort().join('\n')
      if (reported.has(pair)) return
      reported.add(pair)
      const shared = conflicts.get(mine)!.get(theirs)!
      blame(
        call,
        () =>
          `it may run at the same time as ${callText(other)}` +
          `${isOfTickBefore ? ', of the tick before' : ''}: ` +
          `'${mine.name}' and '${theirs.name}' share ranks ${shared.join(', ')}, ` +
          'so one must come after the other on each of them, ' +
          'or ranks that begin with different ones wait for each other for ever',
      )
    },
  )
}
