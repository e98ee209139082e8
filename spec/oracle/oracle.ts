// A second verifier: each law, asked as it is worded.
import type { Command, Law, Plan } from '../../dsl/ir/plan.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { type PoolTick, slowPoolTicks } from './slow-pool.js'

/**
 * The laws once more, decided the slow way and sharing no code with `verify`: the plan is unrolled over
 * several ticks into an explicit graph of command instances, *before* is reachability in it, and each law is
 * asked literally of every pair. For plans of some dozens of commands. An event's mark is its first record in
 * the tick: a second one breaks L7 and is otherwise as if it were not there. A finding is `law command
 * buffer`, with -1 where there is none.
 */
export const oracle = (given: Plan, quality = true): Set<string> => {
  const found = new Set<string>()
  const say = (law: Law, command: number, buffer = -1) => found.add(`${law} ${command} ${buffer}`)
  places(given, say)
  const plan = { ...given, buffers: given.buffers.map((buffer, id) => ({ ...buffer, id })) }
  const u = unroll(plan, 4)
  events(plan, say)
  order(u, say)
  if (plan.storage === 'planned') planned(u, say)
  else {
    lifetimes(u, say)
    frees(u, say)
  }
  afters(u, say)
  graphs(u, quality, say)
  const byPool = plan.boundKind !== undefined && plan.storage !== 'planned'
  const peak = byPool ? poolPeak(plan, say) : oraclePeak(plan)
  const bound = [...plan.bound.device, plan.bound.pinned]
  peak.bytes.forEach((bytes, m) => {
    const c = peak.reachedAt[m]!
    if (bytes > bound[m]!) say('L9', c, c < 0 ? -1 : (plan.commands[c]![1] as number))
  })
  if (!quality) return found
  const safe = found.size === 0
  precise(plan, say)
  minimal(plan, safe, say)
  return found
}

/**
 * The findings that verify and the oracle must agree on, sorted. L6 is compared only in plans in which every
 * other law holds. Where two buffers share bytes of the arena, one overlap can be reported for several of its
 * accesses; then only its presence is compared.
 */
export const comparable = (plan: Plan, found: readonly string[]): string[] => {
  const safe = found.every(key => key.startsWith('L5') || key.startsWith('L6'))
  const asked = found.filter(key => safe || !key.startsWith('L6'))
  const reported =
    plan.storage === 'planned' ? asked.map(key => (/^L[34]/.test(key) ? 'an overlap' : key)) : asked
  return [...new Set(reported)].sort()
}

type Say = (law: Law, command: number, buffer?: number) => void

interface Unrolled {
  readonly plan: Plan
  readonly ticks: number
  /** Instance of command c in tick t. */
  readonly at: (t: number, c: number) => number
  /** Is instance i before instance j? */
  readonly before: (i: number, j: number) => boolean
  /** Is instance i before the next instance that lane `lane` issues at (t, c)? */
  readonly known: (i: number, lane: number, t: number, c: number) => boolean
  readonly accesses: ReadonlyMap<number, readonly Access[]>
}

/** Whether each tick in flight has an arena and lanes of its own. */
const apart = ({ storage, arenas = 1 }: Plan): boolean => storage === 'planned' && arenas > 1

const laneOf = (command: Command): number =>
  command[0] === 'alloc' || command[0] === 'free' || command[0] === 'use' ? -1 : command[2]

/** `inCallOrder`: calls over one communicator run one after another, in issue order, whatever their lanes. */
const unroll = (plan: Plan, ticks: number, inCallOrder = false): Unrolled => {
  const n = plan.commands.length
  const starts = ticks * n // then one node a tick: the host starts it
  const size = starts + ticks
  const into: number[][] = Array.from({ length: size }, () => [])
  const at = (t: number, c: number) => t * n + c
  const last = plan.lanes.map(() => -1)
  const called = new Map<number, number>()
  for (let t = 0; t < ticks; t++) {
    // With several arenas each tick has lanes of its own.
    if (apart(plan)) last.fill(-1)
    if (t >= plan.inFlight)
      for (let c = 0; c < n; c++)
        if (laneOf(plan.commands[c]!) >= 0) into[starts + t]!.push(at(t - plan.inFlight, c))
    for (let c = 0; c < n; c++) {
      const command = plan.commands[c]!
      const lane = laneOf(command)
      if (lane < 0) continue
      const i = at(t, c)
      into[i]!.push(starts + t)
      if (last[lane]! >= 0) into[i]!.push(last[lane]!)
      last[lane] = i
      const over = inCallOrder ? communicatorOf(plan, command) : undefined
      if (over !== undefined) {
        if (called.has(over)) into[i]!.push(called.get(over)!)
        called.set(over, i)
      }
      if (command[0] !== 'wait') continue
      const record = plan.commands.findIndex(other => other[0] === 'record' && other[1] === command[1])
      if (record < 0) continue
      if (command[3] === -1) {
        if (t > 0) into[i]!.push(at(t - 1, record))
      } else if (record < c) into[i]!.push(at(t, record))
    }
  }
  // Ancestors of each instance, in an order in which all of them come first: tick by tick, its start, then
  // its commands.
  // A row of bits for each instance.
  const words = Math.ceil(size / 32)
  const above = new Uint32Array(size * words)
  const before = (i: number, j: number) => ((above[j * words + (i >>> 5)]! >>> (i & 31)) & 1) === 1
  const close = (i: number) => {
    for (const j of into[i]!) {
      above[i * words + (j >>> 5)]! |= 1 << (j & 31)
      for (let w = 0; w < words; w++) above[i * words + w]! |= above[j * words + w]!
    }
  }
  for (let t = 0; t < ticks; t++) {
    close(starts + t)
    for (let c = 0; c < n; c++) close(at(t, c))
  }
  const known = (i: number, lane: number, t: number, c: number) => {
    if (before(i, starts + t)) return true
    for (let j = at(t, c) - 1; j >= (apart(plan) ? at(t, 0) : 0); j--) {
      if (laneOf(plan.commands[j % n]!) === lane) return i === j || before(i, j)
    }
    return false
  }
  return { plan, ticks, at, before, known, accesses: accessesByRoot(plan, ticks) }
}

const communicatorOf = ({ nodes }: Plan, command: Command): number | undefined =>
  command[0] === 'run' ? nodes[command[1]]?.collective?.communicator : undefined

/**
 * Whether calls that some two ranks have both may be concurrent: those of two communicators in each of
 * which the two are in one group.
 */
const hasConcurrentCalls = (plan: Plan): boolean => {
  const { communicators = [], commands } = plan
  const calls = commands.flatMap((command, c) => {
    const over = communicatorOf(plan, command)
    return over === undefined ? [] : [{ c, over }]
  })
  if (new Set(calls.map(({ over }) => over)).size < 2) return false
  const named = communicators.flatMap(({ groups = [], size = 0 }) => [...groups.flat(), size - 1])
  const all = Array.from({ length: Math.max(1, ...named) + 1 }, (_, rank) => rank)
  const groupOf = (over: number, rank: number): number =>
    communicators[over]!.groups?.findIndex(group => group.includes(rank)) ?? 0
  const meet = (over: number, a: number, b: number): boolean =>
    groupOf(over, a) >= 0 && groupOf(over, a) === groupOf(over, b)
  const conflict = (x: number, y: number): boolean =>
    x !== y && all.some(a => all.some(b => a < b && meet(x, a, b) && meet(y, a, b)))
  const u = unroll(plan, 3, true)
  for (let t = 0; t < u.ticks; t++)
    for (let s = 0; s <= t; s++)
      for (const earlier of calls)
        for (const later of calls)
          if ((s < t || earlier.c < later.c) && conflict(earlier.over, later.over))
            if (!u.before(u.at(s, earlier.c), u.at(t, later.c))) return true
  return false
}

interface Access {
  readonly t: number
  readonly c: number
  readonly lane: number
  readonly named: number
  readonly write: boolean
  /** Bytes of the root, from and to. */
  readonly from: number
  readonly to: number
}

const rootOf = (plan: Plan, b: number): number => plan.buffers[b]!.alias ?? b

/** By root: every access of it in issue order. */
const accessesByRoot = (plan: Plan, ticks: number): ReadonlyMap<number, readonly Access[]> => {
  const byRoot = new Map<number, Access[]>(plan.buffers.map((_, b) => [b, []]))
  for (let t = 0; t < ticks; t++)
    plan.commands.forEach((command, c) => {
      if (command[0] !== 'run') return
      for (const [list, write] of [
        [command[3], false],
        [command[4], true],
      ] as const)
        for (const named of list) {
          const { bytes, aliasOffset = 0 } = plan.buffers[named]!
          const access = { t, c, lane: command[2], named, write, from: aliasOffset, to: aliasOffset + bytes }
          byRoot.get(rootOf(plan, named))!.push(access)
        }
    })
  return byRoot
}

const accessesOf = (u: Unrolled, b: number, ticks = u.ticks): readonly Access[] =>
  (u.accesses.get(b) ?? []).filter(({ t }) => t < ticks)

/** The pieces of [from, to) between which no access begins or ends, each by its first byte. */
const pieces = (all: readonly Access[], from: number, to: number): number[] => [
  ...new Set([from, ...all.flatMap(access => [access.from, access.to]).filter(at => at > from && at < to)]),
]
const has = (access: Access, byte: number): boolean => access.from <= byte && byte < access.to
const meet = (x: Access, y: Access): boolean => x.from < y.to && y.from < x.to

const roots = (plan: Plan) => plan.buffers.filter(buffer => buffer.alias === undefined)

const events = (plan: Plan, say: Say): void => {
  plan.commands.forEach((command, c) => {
    const records = plan.commands.flatMap((other, i) =>
      other[0] === 'record' && other[1] === command[1] ? [i] : [],
    )
    if (command[0] === 'record' && records[0] !== c) say('L7', c)
    if (command[0] === 'wait' && (records.length === 0 || (command[3] !== -1 && records[0]! > c)))
      say('L7', c)
  })
}

/**
 * A run reaches device memory of another device, a buffer's home is of another device, a view leaves its
 * root, an id is not its place.
 */
const places = (plan: Plan, say: Say): void => {
  plan.lanes.forEach(({ id, device }, l) => {
    if (id !== l || device >= plan.devices) say('L7', -1)
  })
  plan.nodes.forEach(({ id }, n) => {
    if (id !== n) say('L1', -1)
  })
  plan.buffers.forEach(({ id, space, home, device, alias, aliasOffset = 0, bytes }, b) => {
    if (id !== b || device >= plan.devices) say('L3', -1, b)
    if (space === 'device' && plan.lanes[home]!.device !== device) say('L3', -1, b)
    if (alias === undefined) return
    const root = plan.buffers[alias]!
    const inside = aliasOffset >= 0 && aliasOffset + bytes <= root.bytes
    if (!inside || root.alias !== undefined || root.device !== device || root.space !== space)
      say('L3', -1, b)
  })
  plan.commands.forEach((command, c) => {
    if (command[0] !== 'run') return
    const { kernel, peerAccess } = plan.nodes[command[1]]!
    if (kernel?.kind === 'copy' || peerAccess) return
    const abroad = (b: number) =>
      plan.buffers[b]!.space === 'device' && plan.buffers[b]!.device !== plan.lanes[command[2]]!.device
    for (const b of command[3]) if (abroad(b)) say('L1', c, b)
    for (const b of command[4]) if (abroad(b)) say('L2', c, b)
  })
}

const order = (u: Unrolled, say: Say): void => {
  for (const buffer of roots(u.plan)) {
    const carried = buffer.life === 'state' || buffer.life === 'param'
    const all = accessesOf(u, buffer.id)
    const written = (byte: number) => all.some(access => access.write && has(access, byte))
    if (buffer.life === 'output' && !pieces(all, 0, buffer.bytes).every(written)) say('L1', -1, buffer.id)
    all.forEach((access, i) => {
      const earlier = all
        .slice(0, i)
        .filter(other => (other.t !== access.t || other.c !== access.c) && (carried || other.t === access.t))
      const here = u.at(access.t, access.c)
      if (access.write) {
        if (buffer.life === 'param') say('L2', access.c, access.named)
        for (const other of earlier)
          if (meet(other, access) && !u.before(u.at(other.t, other.c), here))
            say('L2', access.c, access.named)
        const sameCommand = (other: Access, j: number) =>
          j < i && other.write && other.t === access.t && other.c === access.c
        if (all.some((other, j) => sameCommand(other, j) && meet(other, access)))
          say('L2', access.c, access.named)
      } else {
        const given =
          ['param', 'input'].includes(buffer.life) || (buffer.life === 'state' && buffer.init !== undefined)
        for (const byte of pieces(all, access.from, access.to)) {
          const write = earlier.findLast(other => other.write && has(other, byte))
          if (write === undefined ? !given : !u.before(u.at(write.t, write.c), here))
            say('L1', access.c, access.named)
        }
      }
    })
  }
}

const lifetimes = (u: Unrolled, say: Say): void => {
  const { plan } = u
  plan.buffers.forEach((buffer, b) => {
    const where = (op: string) =>
      plan.commands.flatMap((command, c) => (command[0] === op && command[1] === b ? [c] : []))
    const [allocs, frees, uses] = [where('alloc'), where('free'), where('use')]
    const own = buffer.life === 'tick' && buffer.alias === undefined
    if (!own) {
      for (const c of [...allocs, ...frees]) say('L3', c, b)
      if (buffer.alias === undefined) return
    }
    const root = rootOf(plan, b)
    const open = (c: number): boolean => {
      const first = plan.commands.findIndex(command => command[0] === 'alloc' && command[1] === root)
      const free = plan.commands.findIndex(
        (command, i) => command[0] === 'free' && command[1] === root && i > first,
      )
      return first >= 0 && first < c && (free < 0 || free > c)
    }
    if (buffer.life === 'tick') for (const c of uses) if (!open(c)) say('L3', c, b)
    if (!own) return
    allocs.forEach((c, i) => {
      if (i > 0 || plan.commands[c]![2] !== buffer.home) say('L3', c, b)
    })
    const valid = frees.filter(c => allocs.length > 0 && c > allocs[0]!)
    for (const c of frees) if (c !== valid[0]) say('L3', c, b)
    if (allocs.length > 0 && valid.length === 0) say('L3', allocs[0]!, b)
    const inTick = accessesOf(u, b, 1)
    for (const access of inTick) if (!open(access.c)) say('L3', access.c, access.named)
    inTick.forEach((first, at) => {
      const touched = (byte: number) => inTick.slice(0, at).some(access => has(access, byte))
      if (!open(first.c) || pieces(inTick, first.from, first.to).every(touched)) return
      for (let t = 0; t < u.ticks; t++) {
        for (let i = 0; i < u.at(t, allocs[0]!); i++) {
          const command = plan.commands[i % plan.commands.length]!
          if (
            (command[0] !== 'run' && command[0] !== 'wait') ||
            command[2] !== buffer.home ||
            first.lane === buffer.home
          )
            continue
          if (!u.before(i, u.at(t, first.c))) say('L3', first.c, first.named)
        }
      }
    })
  })
}

const frees = (u: Unrolled, say: Say): void => {
  const { plan } = u
  const marks = (c: number): number => {
    const use = plan.commands[c]!
    if (use[0] !== 'use') return -1
    const record = plan.commands.findIndex(other => other[0] === 'record' && other[1] === use[3])
    return record >= 0 && record < c && plan.commands[record]![2] === use[2] ? record : -1
  }
  plan.commands.forEach((command, c) => {
    if (command[0] === 'use' && marks(c) < 0) say('L4', c, command[1])
    if (command[0] !== 'free') return
    const b = command[1]
    const first = plan.commands.findIndex(other => other[0] === 'alloc' && other[1] === b)
    const earlierFree = plan.commands.findIndex(
      (other, i) => other[0] === 'free' && other[1] === b && i > first,
    )
    if (
      plan.buffers[b]!.life !== 'tick' ||
      plan.buffers[b]!.alias !== undefined ||
      first < 0 ||
      earlierFree !== c
    )
      return
    if (unheld(u, b, c, marks, -1)) say('L4', c, b)
  })
}

/** Is some foreign access of b, in the tick and before its free at c, held back by nothing? */
const unheld = (u: Unrolled, b: number, c: number, marks: (c: number) => number, without: number): boolean =>
  accessesOf(u, b, 1)
    .filter(access => access.c < c && access.lane !== u.plan.buffers[b]!.home)
    .some(access => {
      const i = u.at(0, access.c)
      if (u.known(i, u.plan.buffers[b]!.home, 0, c)) return false
      return !u.plan.commands.some((use, at) => {
        if (use[0] !== 'use' || rootOf(u.plan, use[1]) !== b || at > c || at === without || marks(at) < 0)
          return false
        return u.before(i, u.at(0, marks(at)))
      })
    })

const planned = (u: Unrolled, say: Say): void => {
  const { plan } = u
  plan.commands.forEach((command, c) => {
    if (command[0] === 'alloc' || command[0] === 'free') say('L3', c, command[1])
    if (command[0] === 'use') say('L4', c, command[1])
  })
  const share = (x: number, y: number): boolean => {
    const [a, b] = [plan.buffers[x]!, plan.buffers[y]!]
    if (x === y) return true
    if (a.offset === undefined || b.offset === undefined || a.device !== b.device) return false
    return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
  }
  const ticked = roots(plan)
  const { arenas = 1, inFlight } = plan
  if (arenas > 1 && arenas !== inFlight) say('L4', -1)
  const own = ticked.filter(({ life, offset, bytes }) => life === 'tick' && offset !== undefined && bytes > 0)
  for (const { id, life, offset, bytes, device } of ticked) {
    const kept = life !== 'tick' && offset !== undefined && bytes > 0
    const isBelow = own.every(other => other.device !== device || other.offset! >= offset! + bytes)
    if (arenas > 1 && kept && !isBelow) say('L3', -1, id)
  }
  for (const { id, offset, bytes, device } of ticked)
    if (offset !== undefined && offset + bytes > plan.arena![device]!) say('L9', -1, id)
  for (const x of ticked) {
    for (const y of ticked) {
      if (!share(x.id, y.id)) continue
      if (x.id < y.id && (x.life !== 'tick' || y.life !== 'tick'))
        say('L3', -1, x.life !== 'tick' ? x.id : y.id)
      if (x.life !== 'tick' || y.life !== 'tick') continue
      const [xs, ys] = [accessesOf(u, x.id), accessesOf(u, y.id)]
      for (let t = 0; t < u.ticks; t++) {
        for (let s = t; s < u.ticks; s++) {
          // Other ticks than every `arenas`-th have other bytes.
          if ((s - t) % arenas !== 0) continue
          const mine = xs.filter(access => access.t === t)
          const theirs = ys.filter(access => access.t === s)
          if (mine.length === 0 || theirs.length === 0 || (x.id === y.id && s === t)) continue
          // Which of the two comes first is the one whose first access is issued first.
          if (s === t && mine[0]!.c > theirs[0]!.c) continue
          theirs.forEach((first, at) => {
            const touched = (byte: number) => theirs.slice(0, at).some(access => has(access, byte))
            if (at > 0 && pieces(theirs, first.from, first.to).every(touched)) return
            if (mine.some(access => !u.before(u.at(t, access.c), u.at(s, first.c))))
              say('L4', first.c, first.named)
          })
        }
      }
    }
  }
}

/**
 * Orders without data: the end of a run, or its start, which is whatever its lane ran or waited for last
 * before it. Where each tick has lanes of its own, nothing of another tick is before the first run of a lane.
 */
const afters = (u: Unrolled, say: Say): void => {
  const { commands, nodes } = u.plan
  for (let t = 0; t < u.ticks; t++) {
    commands.forEach((later, c) => {
      if (later[0] !== 'run') return
      for (const [node, when] of nodes[later[1]]?.after ?? []) {
        const earlier = commands.slice(0, c).findLastIndex(other => other[0] === 'run' && other[1] === node)
        let i = u.at(t, earlier)
        if (earlier >= 0 && when === 'start') {
          const lane = laneOf(commands[earlier]!)
          const isPoint = (j: number): boolean => {
            const other = commands[j % commands.length]!
            return (other[0] === 'run' || other[0] === 'wait') && laneOf(other) === lane
          }
          const first = apart(u.plan) ? u.at(t, 0) : 0
          for (i--; i >= first && !isPoint(i); i--) {}
          if (i < first) continue
        }
        if (earlier < 0 || !u.before(i, u.at(t, c))) say('L10', c)
      }
    })
  }
}

/**
 * The edges of a graph are those pairs of its runs of which one is before the other, and no third run is
 * between them. Of edges that are not in order the later ones count as absent.
 */
const graphs = (u: Unrolled, quality: boolean, say: Say): void => {
  const { commands, nodes, graphs = [], storage, arenas = 1 } = u.plan
  if (arenas > 1 && u.plan.graphs === undefined) say('L11', -1)
  if (graphs.length > 0 && storage !== 'planned') return void say('L11', -1)
  let end = 0
  for (const { from, to } of graphs) {
    if (from < end || to <= from || to > commands.length)
      return void say('L11', from < commands.length ? from : -1)
    end = to
  }
  let sound = true
  const wrong = (c: number): void => {
    say('L11', c)
    sound = false
  }
  for (const { from, to } of graphs) {
    let runs = 0
    for (let c = from; c < to; c++) {
      const command = commands[c]!
      if (command[0] === 'record' || command[0] === 'wait') continue
      if (command[0] !== 'run') {
        wrong(c)
        continue
      }
      const { collective, kernel } = nodes[command[1]]!
      if (collective !== undefined || (kernel?.kind === 'cuda' && kernel.graph === false)) wrong(c)
      runs++
    }
    if (runs === 0) wrong(from)
  }
  if (!sound) return
  for (const { from, to, edges } of graphs) {
    const runs = commands.flatMap(([op], c) => (op === 'run' && c >= from && c < to ? [c] : []))
    const before = (a: number, b: number): boolean => u.before(u.at(0, a), u.at(0, b))
    const wanted = runs.flatMap(b =>
      runs
        .filter(a => before(a, b) && !runs.some(x => before(a, x) && before(x, b)))
        .map(a => [a, b] as const),
    )
    const found: (readonly [number, number])[] = []
    for (const [a, b] of edges) {
      if (!runs.includes(a) || !runs.includes(b) || a >= b) {
        say('L11', runs.includes(b) ? b : from)
        continue
      }
      const [x, y] = found.at(-1) ?? [-1, -1]
      if (b < y || (b === y && a <= x)) say('L11', b)
      else found.push([a, b])
    }
    const isIn = (list: typeof found, [a, b]: readonly [number, number]): boolean =>
      list.some(([x, y]) => x === a && y === b)
    for (const edge of wanted) if (!isIn(found, edge)) say('L11', edge[1])
    if (quality) for (const edge of found) if (!isIn(wanted, edge)) say('L11', edge[1])
  }
}

const precise = (plan: Plan, say: Say): void => {
  plan.commands.forEach((use, c) => {
    if (use[0] !== 'use') return
    const record = plan.commands.findIndex(other => other[0] === 'record' && other[1] === use[3])
    if (record < 0 || plan.commands[record]![2] !== use[2]) return
    const touches = (command: Command) =>
      command[0] === 'run' &&
      command[2] === use[2] &&
      [...command[3], ...command[4]].some(b => rootOf(plan, b) === rootOf(plan, use[1]))
    const last = plan.commands.findLastIndex(touches)
    const between = plan.commands
      .slice(last + 1, Math.max(last + 1, record))
      .some(command => command[0] === 'run' && command[2] === use[2])
    if (last < 0 || record < last || between) say('L5', c, use[1])
  })
}

/** The plan without a command, and without graphs, whose edges name commands by their places. */
export const without = ({ graphs: _, ...plan }: Plan, c: number): Plan => ({
  ...plan,
  commands: plan.commands.filter((_, i) => i !== c),
})

// The pool's rule is not the verifier's, so it is taken as it is: a wait is needed, too, where the pool
// outgrows the bound without it.
const fits = (plan: Plan): boolean =>
  plan.storage === 'planned' || poolPeakOf(plan).device.every((bytes, d) => bytes <= plan.bound.device[d]!)

const minimal = (plan: Plan, safe: boolean, say: Say): void => {
  const counted = safe && fits(plan)
  const apart = safe && !hasConcurrentCalls(plan)
  plan.commands.forEach((command, c) => {
    if (command[0] === 'record') {
      const wanted = plan.commands.some(
        other =>
          (other[0] === 'wait' && other[1] === command[1]) || (other[0] === 'use' && other[3] === command[1]),
      )
      if (!wanted && plan.commands.findIndex(other => other[0] === 'record' && other[1] === command[1]) === c)
        say('L6', c)
    }
    if (!safe || (command[0] !== 'wait' && command[0] !== 'use')) return
    if (apart && command[0] === 'wait' && hasConcurrentCalls(without(plan, c))) return
    if (
      oracle(without(plan, c), false).size === 0 &&
      (command[0] === 'use' || !counted || fits(without(plan, c)))
    ) {
      say('L6', c, command[0] === 'use' ? command[1] : -1)
    }
  })
}

/**
 * Ticks within which the pool of a plan with an exact bound must come back to an earlier state. Most do so in
 * the first few; one of seven operations takes 69.
 */
const [fewTicks, poolTicks] = [64, 4096]

/** Whether a tick from `inFlight` on begins as an earlier one began. */
const recurs = ({ inFlight }: Plan, played: readonly PoolTick[]): boolean => {
  const starts = played.slice(inFlight).map(({ start }) => start)
  return new Set(starts).size < starts.length
}

/**
 * L9 of a plan that says how its bound is kept: what the session's pool takes, in one tick on an idle device
 * or in the end.
 */
const poolPeak = (plan: Plan, say: Say): { bytes: number[]; reachedAt: number[] } => {
  const last = Array.from({ length: plan.devices + 1 }, (_, memory) => {
    if (plan.boundKind === 'enforced') return slowPoolTicks(plan, 1, memory)[0]!
    let ticks = fewTicks
    let played = slowPoolTicks(plan, ticks, memory)
    while (!recurs(plan, played) && ticks < poolTicks) {
      ticks *= 2
      played = slowPoolTicks(plan, ticks, memory)
    }
    if (!recurs(plan, played)) say('L9', -1)
    return played.at(-1)!
  })
  return { bytes: last.map(({ peak }) => peak), reachedAt: last.map(({ reachedAt }) => reachedAt) }
}

/**
 * L9, as worded: a list of freed chunks, searched from its oldest, tick after tick until what lies free at
 * the end of one has lain so before. What completed `inFlight` ticks ago is known to every lane, so of that
 * only the bytes count.
 */
export const oraclePeak = (plan: Plan, ticks = 8): { bytes: number[]; reachedAt: number[] } => {
  const u = unroll(plan, ticks)
  const memory = (b: number) => (plan.buffers[b]!.space === 'pinned' ? plan.devices : plan.buffers[b]!.device)
  const bytes = Array.from({ length: plan.devices + 1 }, () => 0)
  const reachedAt = bytes.map(() => -1)
  for (const buffer of roots(plan)) {
    const slots = buffer.life === 'input' || buffer.life === 'output'
    const inArena = plan.storage === 'planned' && buffer.space === 'device'
    if (slots || (!inArena && (buffer.life !== 'tick' || plan.storage === 'planned')))
      bytes[memory(buffer.id)]! +=
        buffer.bytes * (slots ? plan.inFlight : buffer.life === 'tick' ? (plan.arenas ?? 1) : 1)
  }
  if (plan.storage === 'planned') {
    plan.arena!.forEach((size, device) => {
      const places = roots(plan).filter(
        ({ space, life, device: on, offset, bytes }) =>
          space === 'device' && life === 'tick' && on === device && offset !== undefined && bytes > 0,
      )
      const own = size - Math.min(size, ...places.map(({ offset }) => offset!))
      bytes[device]! += size + ((plan.arenas ?? 1) - 1) * Math.ceil(own / 512) * 512
    })
    return { bytes, reachedAt }
  }
  const chunks: { memory: number; bytes: number; accesses: number[] }[] = []
  const open = new Set<number>() // across ticks: what leaks is counted once, since it is L3's to report
  const seen = new Set<string>()
  const lying = (t: number): string => {
    const rows: { memory: number; bytes: number; since: string }[] = []
    for (const { memory, bytes, accesses } of chunks) {
      if (bytes === 0) continue
      const since = accesses
        .map(i => u.at(t + 1, 0) - i)
        .filter(ago => ago <= (plan.inFlight - 1) * plan.commands.length)
        .join()
      const last = rows.findLast(row => row.memory === memory)
      if (last?.since === since && since === '') last.bytes += bytes
      else rows.push({ memory, bytes, since })
    }
    return JSON.stringify(rows)
  }
  for (let t = 0; t < ticks; t++) {
    plan.commands.forEach((command, c) => {
      if (
        command[0] === 'alloc' &&
        !open.has(command[1]) &&
        plan.buffers[command[1]]!.life === 'tick' &&
        plan.buffers[command[1]]!.alias === undefined
      ) {
        open.add(command[1])
        let missing = plan.buffers[command[1]]!.bytes
        for (const chunk of chunks) {
          if (chunk.memory !== memory(command[1]) || !chunk.accesses.every(i => u.known(i, command[2], t, c)))
            continue
          const part = Math.min(chunk.bytes, missing)
          chunk.bytes -= part
          missing -= part
        }
        if (missing === 0) return
        bytes[memory(command[1])]! += missing
        reachedAt[memory(command[1])] = c
      } else if (command[0] === 'free' && open.delete(command[1])) {
        const accesses = accessesOf(u, command[1])
          .filter(access => access.t === t && access.c < c)
          .map(access => u.at(t, access.c))
        chunks.push({ memory: memory(command[1]), bytes: plan.buffers[command[1]]!.bytes, accesses })
      }
    })
    const now = lying(t)
    if (t >= plan.inFlight && seen.has(now)) return { bytes, reachedAt }
    if (t >= plan.inFlight) seen.add(now)
  }
  if (ticks >= 2048) throw new Error(`the peak of '${plan.name}' has no steady state in ${ticks} ticks`)
  return oraclePeak(plan, 2 * ticks)
}
