import { Replay } from '../order/replay.js'
import { callsInOrder } from './l8-concurrent.js'
import { type Blame, type Call, callText, type Group, type Match, type World } from './l8-matching.js'

/** One step of a circle: `rank` is in the group of the step before too, which waits for it. */
interface Step {
  readonly group: Group
  readonly rank: number
}

/** The calls of a tick up to which circles are decided. */
const mostMatches = 1000

/**
 * L8 of several ranks: communicators of which each shares one rank with the next, round a circle. Each of
 * those ranks may hold a call of one while its call of another is awaited elsewhere, and a device is sure to
 * hold only one, so all of them may wait for ever. That is decided exactly, call by call, in two ticks. A
 * circle passes each communicator once: the rows and columns of a mesh make none, since steps along different
 * axes never lead back. Pairs that share two ranks or more are never concurrent (l8-concurrent.ts), and are
 * no steps here.
 */
export const checkCircles = (world: World, matches: readonly Match[], blame: Blame): void => {
  let order: Order | undefined
  for (const circle of circlesOf(world)) {
    if (matches.length > mostMatches) {
      const call = circle[0]!.group.calls.flat()[0]!
      const names = circle.map(step => `'${step.group.name}'`).join(', ')
      const found = `${matches.length} collectives a tick`
      blame(
        call,
        () => `${names} share one rank each, in a circle: not decided for ${found}, over ${mostMatches}`,
      )
      return
    }
    order ??= new Order(world, matches)
    const held = order.heldAround(circle)
    if (held === undefined) continue
    blame(held[0]!, () => {
      const steps = held.map(
        (call, i) =>
          `rank ${call.rank.rank} may hold ${callText(call)}, over '${call.group.name}', ` +
          `which waits for rank ${held[(i + 1) % held.length]!.rank.rank}`,
      )
      return `${steps.join('; ')}: a circle, for ever; order the calls of two of these communicators`
    })
    return
  }
}

/** Circles of three groups or more: different communicators, and different ranks between them. */
function* circlesOf({ groups }: World): Generator<readonly Step[]> {
  if (new Set(groups.map(({ name }) => name)).size < 3) return
  const active = groups.filter(({ calls }) => calls.some(list => list.length > 0))
  const groupsOf = new Map<number, Group[]>()
  for (const group of active)
    for (const rank of group.ranks) groupsOf.set(rank, [...(groupsOf.get(rank) ?? []), group])
  const index = new Map(active.map((group, i) => [group, i]))
  const sharesOne = (a: Group, b: Group): boolean =>
    a.ranks.filter(rank => b.ranks.includes(rank)).length === 1
  /** The ways back to the first group, which has the least index and gets its rank last. */
  function* onFrom(path: readonly Step[]): Generator<readonly Step[]> {
    const [first, last] = [path[0]!, path.at(-1)!]
    for (const rank of last.group.ranks) {
      if (path.some((step, i) => i > 0 && step.rank === rank)) continue
      for (const group of groupsOf.get(rank)!) {
        if (group === first.group) {
          if (path.length > 2 && sharesOne(last.group, group)) yield [{ group, rank }, ...path.slice(1)]
        } else if (
          index.get(group)! > index.get(first.group)! &&
          !path.some(step => step.group.name === group.name) &&
          sharesOne(last.group, group)
        )
          yield* onFrom([...path, { group, rank }])
      }
    }
  }
  for (const group of active) yield* onFrom([{ group, rank: -1 }])
}

/** Bits of a set of calls of two ticks. */
type Calls = Uint32Array
const has = (set: Calls, call: number): boolean => ((set[call >>> 5]! >>> (call & 31)) & 1) === 1
const put = (set: Calls, call: number): void => {
  set[call >>> 5]! |= 1 << (call & 31)
}

/**
 * What is before what in two ticks. A match is a number: its place in the list; in the second tick, that plus
 * the length of the list.
 */
class Order {
  private readonly count: number
  /** By group: its matches of two ticks. */
  private readonly of = new Map<Group, number[]>()
  /** By rank and match: all that has ended, on whichever rank, when that rank may begin the match. */
  private readonly ended: ReadonlyMap<number, Calls>[] = []

  constructor(
    { calls }: World,
    private readonly matches: readonly Match[],
  ) {
    this.count = 2 * matches.length
    const matchOf = new Map<Call, number>()
    matches.forEach((match, m) => {
      for (const call of match) matchOf.set(call, m)
      const { group } = match[0]!
      this.of.set(group, [...(this.of.get(group) ?? []), m, m + matches.length])
    })
    const before = calls.map(own => directlyBefore(own, call => matchOf.get(call)!, matches.length))
    const upTo = this.closed(before)
    for (const own of before)
      this.ended.push(
        new Map(
          [...own].map(([match, earlier]) => {
            const set: Calls = new Uint32Array((this.count + 31) >>> 5)
            for (const e of earlier) upTo[e]!.forEach((bits, i) => void (set[i]! |= bits))
            return [match, set]
          }),
        ),
      )
  }

  /** By match: itself and all that is before it on some rank, and before those. No match is before itself. */
  private closed(before: readonly ReadonlyMap<number, readonly number[]>[]): readonly Calls[] {
    const sets = Array.from({ length: this.count }, (_, m) => {
      const set: Calls = new Uint32Array((this.count + 31) >>> 5)
      put(set, m)
      return set
    })
    const left = new Int32Array(this.count)
    const later: number[][] = sets.map(() => [])
    for (const own of before)
      for (const [match, earlier] of own)
        for (const e of earlier) {
          left[match]!++
          later[e]!.push(match)
        }
    const open = [...left.keys()].filter(m => left[m] === 0)
    for (let m = open.pop(); m !== undefined; m = open.pop())
      for (const next of later[m]!) {
        sets[m]!.forEach((bits, i) => void (sets[next]![i]! |= bits))
        if (--left[next]! === 0) open.push(next)
      }
    return sets
  }

  /**
   * Calls that the ranks of a circle may hold at the same time, each of which waits for the next one's rank:
   * none has to end before another of them may begin.
   */
  heldAround(circle: readonly Step[]): readonly Call[] | undefined {
    const held: number[] = []
    const isFree = (m: number, { rank }: Step, others: readonly number[]): boolean => {
      const ended = this.ended[rank]!.get(m)!
      return others.every(other => !has(ended, other))
    }
    const choose = (): boolean => {
      const step = circle[held.length]
      if (step === undefined) return true
      const awaited = circle[(held.length + 1) % circle.length]!.rank
      for (const m of this.of.get(step.group) ?? []) {
        // A send and its receive are of two ranks of their group.
        const ranks = this.calls(m).map(({ rank }) => rank.rank)
        if (!ranks.includes(step.rank) || !ranks.includes(awaited)) continue
        if (!isFree(m, step, held)) continue
        if (!held.every((other, i) => isFree(other, circle[i]!, [m]))) continue
        held.push(m)
        if (choose()) return true
        held.pop()
      }
      return false
    }
    if (!choose()) return undefined
    return held.map((m, i) => this.calls(m).find(({ rank }) => rank.rank === circle[i]!.rank)!)
  }

  private calls(m: number): Match {
    return this.matches[m % this.matches.length]!
  }
}

/** Of one rank, in two ticks: by match, the matches of its calls that are before its own. */
const directlyBefore = (
  calls: readonly Call[],
  matchOf: (call: Call) => number,
  perTick: number,
): ReadonlyMap<number, readonly number[]> => {
  const before = new Map<number, number[]>()
  if (calls.length === 0) return before
  const replay = new Replay(calls[0]!.rank.table)
  const issued: { readonly match: number; readonly lane: number; readonly point: number }[] = []
  for (const { call, tick, lane, point } of callsInOrder(replay, calls, ({ group }) => group)) {
    const match = matchOf(call) + tick * perTick
    before.set(
      match,
      issued.filter(other => replay.isBefore(lane, other.lane, other.point)).map(other => other.match),
    )
    issued.push({ match, lane, point })
  }
  return before
}
