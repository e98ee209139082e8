import { bufferName, joinNames, laneName, nodeName } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { type CommandTable, commandTableOf } from '../order/command-table.js'
import { growthOf, type ReplayState } from './growth.js'
import { arenaParts } from './held-in-arena.js'
import { type HeldPart, runsTouching, stillToCome, type Touch, type Why } from './held-part.js'
import { lastingPlaces } from './lasting.js'
import { countedPeak, peakFrom } from './peak.js'
import { tracesOf } from './plan-trace.js'
import { type AllocationTrace, When } from './trace.js'

export type { HeldPart, Why } from './held-part.js'

/** What one memory holds at its peak, by law L9: `parts` add up to `bytes`. */
export interface Held {
  readonly space: 'device' | 'pinned'
  readonly device: number
  readonly bytes: number
  /** The command at which the peak is reached; -1: no command is needed for it. */
  readonly command: number
  readonly parts: readonly HeldPart[]
}

/**
 * By buffer that is freed after command `at`: the next allocation on its home lane, if there is one in the
 * tick.
 */
const successors = (plan: Plan, at: number): ReadonlyMap<number, string | undefined> => {
  const next: (string | undefined)[] = plan.lanes.map(() => undefined)
  const found = new Map<number, string | undefined>()
  for (let c = plan.commands.length - 1; c > at; c--) {
    const command = plan.commands[c]!
    if (command[0] === 'alloc') next[command[2]] = bufferName(plan, command[1])
    else if (command[0] === 'free') found.set(command[1], next[plan.buffers[command[1]]!.home])
  }
  return found
}

const lastingParts = (plan: Plan, table: CommandTable, memory: number): HeldPart[] =>
  plan.buffers.flatMap(({ life, bytes }, b): HeldPart[] => {
    const places = lastingPlaces(table, b)
    if (places === 0 || table.memory[b] !== memory) return []
    const part = { buffer: b, name: bufferName(plan, b), bytes: bytes * places }
    if (life === 'input' || life === 'output') {
      const because = `${places} slots of ${bytes} bytes: one for each tick in flight`
      return [{ ...part, why: 'slots', because }]
    }
    const because =
      life !== 'tick'
        ? `a ${life}, kept from tick to tick`
        : places > 1
          ? `pinned, a place of its own for each of ${places} ticks in flight`
          : 'pinned, with a place of its own'
    return [{ ...part, why: 'lasting', because }]
  })

/** The roots that are allocated once event `until` of tick `tick` has been issued. */
const openAt = ({ event, when, buffer }: AllocationTrace, tick: number, until: number): Set<number> => {
  const open = new Set<number>()
  // All ticks but the first are alike, so each leaves what the second one leaves.
  for (const t of new Set([0, Math.min(1, tick), tick]))
    for (let e = 0; e < event.length && (t < tick || e <= until); e++) {
      if (when[e] === (t === 0 ? When.laterTicks : When.firstTick)) continue
      if (event[e]! >= 0) open.add(buffer[e]!)
      else open.delete(buffer[e]!)
    }
  return open
}

/** The parts of one memory that its trace allocates and frees. */
class TracedParts {
  private readonly touching: readonly (readonly Touch[])[]

  constructor(
    private readonly plan: Plan,
    private readonly table: CommandTable,
    private readonly trace: AllocationTrace,
  ) {
    this.touching = runsTouching(table)
  }

  /**
   * Where the replay first takes the memory to `bytes`: what is allocated, and what is freed but not ready
   * for the allocating lane.
   */
  atPeak(fixed: number, bytes: number): HeldPart[] {
    let parts: HeldPart[] = []
    growthOf(this.trace, fixed, {
      ticks: Number.POSITIVE_INFINITY,
      work: Number.POSITIVE_INFINITY,
      enough: bytes - 1,
      // A spread into `push` overflows the stack at some hundred thousand parts.
      stopped: state => {
        parts = [...this.allocated(state.tick, state.event), ...this.waiting(state)]
      },
    })
    return parts
  }

  /** Where command `at` takes the session's pool to its peak: what is allocated. */
  inPool(at: number): HeldPart[] {
    const event = this.trace.command.indexOf(at)
    return event < 0 ? [] : this.allocated(0, event)
  }

  private allocated(tick: number, event: number): HeldPart[] {
    const { plan, table, trace, touching } = this
    const at = trace.command[event]!
    const followers = successors(plan, at)
    return Array.from(openAt(trace, tick, event), (b): HeldPart => {
      const coming = stillToCome(plan, table, touching[b]!, at)
      const next = followers.get(b)
      const kept = !followers.has(b)
        ? 'never freed'
        : next === undefined
          ? 'all operations that access it have been issued; it is kept to the end of the tick, for the next one'
          : `all operations that access it have been issued; it is kept until ${next} takes its place`
      return {
        buffer: b,
        name: bufferName(plan, b),
        bytes: plan.buffers[b]!.bytes,
        why: coming === '' ? 'kept' : 'used',
        because: coming === '' ? kept : coming,
      }
    })
  }

  private waiting({ tick, event, left }: ReplayState): HeldPart[] {
    const { plan, trace } = this
    const { inFlight, frees } = trace
    const parts: HeldPart[] = []
    const bufferOf = new Int32Array(frees)
    trace.event.forEach((e, i) => {
      if (e < 0) bufferOf[-1 - e] = trace.buffer[i]!
    })
    const a = trace.event[event]!
    const taker = laneName(plan, trace.allocLane[a]!)
    for (let age = Math.min(tick, inFlight - 1); age >= 0; age--)
      for (let f = 0; f < frees; f++) {
        const bytes = left[((tick - age) % inFlight) * frees + f]!
        if (bytes === 0) continue
        const b = bufferOf[f]!
        const when = age === 0 ? '' : age === 1 ? ' a tick ago' : ` ${age} ticks ago`
        const unordered = joinNames(this.unordered(a, f, b, age))
        const because = `freed${when}, but ${taker} is not known to be after ${unordered}`
        parts.push({ buffer: b, name: bufferName(plan, b), bytes, why: 'waiting', because })
      }
    return parts
  }

  /** The last accesses of b, which free f of `age` ticks ago gave back, that are not before alloc a. */
  private unordered(a: number, f: number, b: number, age: number): string[] {
    const { plan, table, trace, touching } = this
    const { lanes, length, allocLane, frontier, accesses } = trace
    const runs: number[] = []
    for (let r = accesses.start[f]!; r < accesses.start[f + 1]!; r++) {
      const m = accesses.lane[r]!
      const isBefore = accesses.point[r]! <= frontier[a * lanes + m]! + age * length[m]!
      if (m === allocLane[a] || isBefore) continue
      const last = touching[b]!.findLast(({ run }) => table.lane[run] === m)
      if (last !== undefined) runs.push(last.run)
    }
    return runs
      .sort((one, other) => one - other)
      .map(c => `${nodeName(plan, table.subject[c]!)} on ${laneName(plan, table.lane[c]!)}`)
  }
}

const sumOf = (parts: readonly HeldPart[]): number => parts.reduce((sum, { bytes }) => sum + bytes, 0)

const order: readonly Why[] = ['lasting', 'slots', 'used', 'kept', 'waiting', 'free', 'rest']

/**
 * What each memory of a plan holds at its peak: devices in order, then pinned. A memory that holds nothing is
 * left out.
 */
export const heldAtPeak = (plan: Plan): readonly Held[] => {
  const table = commandTableOf(plan)
  const planned = plan.storage === 'planned'
  const traces = planned ? [] : tracesOf(table)
  const counted = planned || plan.boundKind !== undefined ? undefined : countedPeak(table, traces)
  const peak = counted ?? peakFrom(table, () => traces)
  return [...peak.device, peak.pinned].flatMap((bytes, memory): Held[] => {
    if (bytes === 0) return []
    const isDevice = memory < plan.devices
    const lasting = lastingParts(plan, table, memory)
    const fixed = sumOf(lasting)
    const arena = planned && isDevice ? arenaParts(plan, table, memory) : undefined
    const traced = planned || bytes === fixed ? undefined : new TracedParts(plan, table, traces[memory]!)
    const parts = [
      ...lasting,
      ...(arena?.parts ?? []),
      ...((counted ? traced?.atPeak(fixed, bytes) : traced?.inPool(peak.reachedAt[memory]!)) ?? []),
    ]
    const rest = bytes - sumOf(parts)
    if (rest > 0)
      parts.push({
        buffer: -1,
        name: '',
        bytes: rest,
        why: 'rest',
        because:
          'free, but not ready for the lane that allocates, in no piece that is long enough, ' +
          'or lost to sizes that are no multiple of 512',
      })
    parts.sort(
      (a, b) => order.indexOf(a.why) - order.indexOf(b.why) || b.bytes - a.bytes || a.buffer - b.buffer,
    )
    const command = arena?.command ?? peak.reachedAt[memory]!
    return [{ space: isDevice ? 'device' : 'pinned', device: isDevice ? memory : 0, bytes, command, parts }]
  })
}
