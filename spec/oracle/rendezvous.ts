import type { CollectiveSpec, Plan } from '../../dsl/ir/plan.js'

/**
 * The plans of several ranks executed with nothing buffered, one step after the other, and sharing no code
 * with `verifyRanks`. Every lane is a queue; a collective at its head ends when all ranks of its group have
 * theirs at their heads, a send when its peer has the receive there. A rank's calls over one communicator
 * begin in issue order.
 */
export type Outcome = 'done' | 'stuck' | 'mismatch'

interface Call {
  readonly rank: number
  readonly key: string
  readonly group: readonly number[]
  readonly spec: CollectiveSpec
  /** Its number among the rank's calls over the communicator. */
  readonly number: number
}
type Item =
  | { readonly what: 'record'; readonly mark: string }
  | { readonly what: 'wait'; readonly mark: string | undefined }
  | { readonly what: 'run' }
  | { readonly what: 'call'; readonly call: Call }

/** Ticks that are executed: what one leaves unmet the next may meet wrongly, and the last not at all. */
const ticks = 2

const queuesOf = (plans: readonly Plan[]): Item[][][] =>
  plans.map((plan, rank) => {
    const queues: Item[][] = plan.lanes.map(() => [])
    const numbers = new Map<string, number>()
    for (let tick = 0; tick < ticks; tick++) {
      for (const command of plan.commands) {
        if (command[0] === 'record')
          queues[command[2]]!.push({ what: 'record', mark: `${tick} ${command[1]}` })
        else if (command[0] === 'wait') {
          const at = command[3] === -1 ? tick - 1 : tick
          queues[command[2]]!.push({ what: 'wait', mark: at < 0 ? undefined : `${at} ${command[1]}` })
        } else if (command[0] === 'run') {
          const spec = plan.nodes[command[1]]!.collective
          if (spec === undefined) {
            queues[command[2]]!.push({ what: 'run' })
            continue
          }
          const { name, groups } = plan.communicators![spec.communicator]!
          const group =
            groups === undefined ? plans.map((_, r) => r) : groups.find(ranks => ranks.includes(rank))!
          const key = `${name} ${group.join()}`
          const number = numbers.get(key) ?? 0
          numbers.set(key, number + 1)
          queues[command[2]]!.push({ what: 'call', call: { rank, key, group, spec, number } })
        }
      }
    }
    return queues
  })

class State {
  /** By rank and lane. */
  readonly at: number[][]
  readonly marks: Set<string>[]
  /** By rank: calls that have ended, over each communicator. */
  readonly ended: Map<string, number>[]
  /** By rank: what its one slot holds, where a device has one. */
  readonly slot: (Call | undefined)[]

  constructor(
    readonly queues: readonly Item[][][],
    from?: State,
  ) {
    this.at = from ? from.at.map(lanes => [...lanes]) : queues.map(lanes => lanes.map(() => 0))
    this.marks = from ? from.marks.map(marks => new Set(marks)) : queues.map(() => new Set())
    this.ended = from ? from.ended.map(ended => new Map(ended)) : queues.map(() => new Map())
    this.slot = from ? [...from.slot] : queues.map(() => undefined)
  }

  get key(): string {
    return JSON.stringify([
      this.at,
      this.slot.map(call => (call === undefined ? '' : `${call.key} ${call.number}`)),
    ])
  }

  get over(): boolean {
    return this.queues.every((lanes, r) => lanes.every((queue, l) => this.at[r]![l] === queue.length))
  }

  /** All that needs no other rank. */
  run(): void {
    for (let moved = true; moved; ) {
      moved = false
      this.queues.forEach((lanes, r) => {
        lanes.forEach((queue, l) => {
          const item = queue[this.at[r]![l]!]
          if (item === undefined || item.what === 'call') return
          if (item.what === 'wait' && item.mark !== undefined && !this.marks[r]!.has(item.mark)) return
          if (item.what === 'record') this.marks[r]!.add(item.mark)
          this.at[r]![l]!++
          moved = true
        })
      })
    }
  }

  /** Calls that could begin. */
  heads(): Call[] {
    return this.queues.flatMap((lanes, r) =>
      lanes.flatMap((queue, l) => {
        const item = queue[this.at[r]![l]!]
        if (item?.what !== 'call') return []
        return item.call.number === (this.ended[r]!.get(item.call.key) ?? 0) ? [item.call] : []
      }),
    )
  }

  end(call: Call): void {
    const lane = this.queues[call.rank]!.findIndex((queue, l) => {
      const item = queue[this.at[call.rank]![l]!]
      return item?.what === 'call' && item.call === call
    })
    this.at[call.rank]![lane]!++
    this.ended[call.rank]!.set(call.key, call.number + 1)
    if (this.slot[call.rank] === call) this.slot[call.rank] = undefined
  }
}

const paired = ({ spec }: Call): boolean => spec.kind === 'send' || spec.kind === 'recv'

/** Some calls, of those that have begun, that meet. */
const matching = (begun: readonly Call[]): readonly Call[] | undefined => {
  for (const call of begun) {
    if (call.spec.kind === 'send') {
      const to = call.group[call.spec.peer!]
      const other = begun.find(
        ({ rank, key, group, spec }) =>
          rank === to && key === call.key && spec.kind === 'recv' && group[spec.peer!] === call.rank,
      )
      if (other !== undefined) return [call, other]
    } else if (call.spec.kind !== 'recv') {
      const all = call.group.map(r =>
        begun.find(other => other.rank === r && other.key === call.key && !paired(other)),
      )
      if (all.every(other => other !== undefined)) return all as Call[]
    }
  }
  return undefined
}

const agree = (calls: readonly Call[]): boolean => {
  const say = ({ spec }: Call) =>
    paired(calls[0]!)
      ? `${spec.count} ${spec.dtype}`
      : JSON.stringify([spec.kind, spec.count, spec.dtype, spec.how, spec.root])
  return calls.every(call => say(call) === say(calls[0]!))
}

/**
 * Devices that can hold any number of calls at once: all that can begin has begun, so there is one outcome.
 */
export const execute = (plans: readonly Plan[]): Outcome => {
  const state = new State(queuesOf(plans))
  for (;;) {
    state.run()
    if (state.over) return 'done'
    const calls = matching(state.heads())
    if (calls === undefined) return 'stuck'
    if (!agree(calls)) return 'mismatch'
    for (const call of calls) state.end(call)
  }
}

/** Devices that hold one call at a time, begun in any order: whether some order stops for ever. */
export const canStop = (plans: readonly Plan[]): boolean => {
  const seen = new Set<string>()
  const stops = (state: State): boolean => {
    for (let calls: readonly Call[] | undefined = []; calls !== undefined; ) {
      for (const call of calls) state.end(call)
      state.run()
      calls = matching(state.slot.filter(call => call !== undefined))
    }
    if (state.over) return false
    if (seen.has(state.key)) return false
    seen.add(state.key)
    const next = state.heads().filter(({ rank }) => state.slot[rank] === undefined)
    if (next.length === 0) return true
    return next.some(call => {
      const after = new State(state.queues, state)
      after.slot[call.rank] = call
      return stops(after)
    })
  }
  return stops(new State(queuesOf(plans)))
}
