// A slow arena: every granule has the value that was written last. It knows nothing of layouts, contracts or
// states; it runs launches step by step and finds every access that does not see its own value.
import type { Timed, TimedPlan, TimedTree } from '../fixtures/trees.js'

const granule = 512

/** A value: who made it, and when. */
interface Value {
  readonly id: number
  readonly plan: number
  readonly output: string
  readonly bytes: number
  readonly offset: number
}

export interface PlacedLaunch {
  readonly plan: number
  readonly inputs: ReadonlyMap<string, number>
  readonly offsets: readonly number[]
  readonly moves: readonly { readonly from: number; readonly to: number; readonly bytes: number }[]
  /** Inputs that come from the host. */
  readonly staged: readonly string[]
}

export class SlowArena {
  private readonly bytes = new Map<number, number>()
  private made = 0
  private last: number | undefined
  /** Every value that some later launch may rely on, oldest first. */
  private held: Value[] = []
  highest = 0

  constructor(private readonly tree: TimedTree) {}

  private write(offset: number, bytes: number): number {
    const id = ++this.made
    for (let at = offset; at < offset + bytes; at += granule) this.bytes.set(at, id)
    this.highest = Math.max(this.highest, Math.ceil((offset + bytes) / granule) * granule)
    return id
  }

  private holds(offset: number, bytes: number, id: number): boolean {
    for (let at = offset; at < offset + bytes; at += granule) if (this.bytes.get(at) !== id) return false
    return true
  }

  /** The values that have to survive the launch of a plan, by what their makers declared. */
  private surviving(plan: number): Value[] {
    const newest = new Map<string, number>()
    const kept = [...this.held].reverse().filter(({ plan: from, output }) => {
      const lifetime = this.tree.plans[from]!.lifetimes.get(output)
      const key = `${from}/${output}`
      const age = newest.get(key) ?? 0
      newest.set(key, age + 1)
      if (lifetime === undefined || lifetime.lives === 'run') return false
      if (lifetime.lives === 'until') return !(lifetime.plan === plan && age === 0)
      return age + (from === plan ? 1 : 0) < lifetime.count
    })
    return kept.reverse()
  }

  /** Whether the launch has to be refused. */
  refuses(plan: number): boolean {
    const kept = this.surviving(plan)
    return [...this.tree.plans[plan]!.lifetimes].some(
      ([output, lifetime]) =>
        lifetime.lives === 'until' &&
        kept.filter(value => value.plan === plan && value.output === output).length >= lifetime.count,
    )
  }

  /** Runs one launch; the first thing that went wrong, in words. */
  launch({ plan, inputs, offsets, moves, staged }: PlacedLaunch): string | undefined {
    const now = this.tree.plans[plan]!
    const kept = this.surviving(plan)
    const sources = new Map<string, Value>()
    for (const input of now.inputs.keys()) {
      const value = this.held.findLast(({ output }) => output === input)
      if (value !== undefined && this.isOffered(value)) sources.set(input, value)
    }
    // All at once: where one writes over what another reads, they go by way of other memory.
    const moved = moves.map(({ from }) => this.held.findLast(candidate => candidate.offset === from))
    for (const [i, { from, bytes }] of moves.entries())
      if (moved[i] === undefined || !this.holds(from, bytes, moved[i].id))
        return `a move from ${from} finds no value`
    for (const [i, { to, bytes }] of moves.entries()) {
      for (let at = 0; at < bytes; at += granule) this.bytes.set(to + at, moved[i]!.id)
      this.highest = Math.max(this.highest, Math.ceil((to + bytes) / granule) * granule)
    }
    const given = new Map<string, number>()
    for (const [input, bytes] of now.inputs) {
      const offset = inputs.get(input)!
      const source = sources.get(input)
      if (source === undefined) {
        if (!staged.includes(input)) return `input ${input} of ${now.name} is nobody's value`
        given.set(input, this.write(offset, bytes))
      } else if (staged.includes(input))
        return `input ${input} of ${now.name} is staged, and lies in the arena`
      else given.set(input, source.id)
    }
    const wrong = this.run(now, inputs, given, offsets)
    if (wrong !== undefined) return wrong
    for (const value of kept)
      if (!this.holds(value.offset, value.bytes, value.id)) return `${now.name} overwrote ${value.output}`
    const ids = this.ids
    this.held = [
      ...kept,
      ...now.buffers.flatMap(({ output, bytes }, at) =>
        output === undefined ? [] : [{ id: ids[at]!, plan, output, bytes, offset: offsets[at]! }],
      ),
    ]
    this.last = plan
    return undefined
  }

  /** A value of the plan before, or one that is kept longer. */
  private isOffered({ plan, output }: Value): boolean {
    return plan === this.last || (this.tree.plans[plan]!.lifetimes.get(output)?.lives ?? 'run') !== 'run'
  }

  private ids: number[] = []

  private run(
    now: TimedPlan,
    inputs: ReadonlyMap<string, number>,
    given: ReadonlyMap<string, number>,
    offsets: readonly number[],
  ): string | undefined {
    const steps = now.buffers.reduce((most, { last }) => Math.max(most, last), 0)
    this.ids = now.buffers.map(() => 0)
    const ends = ({ last, output }: Timed): number => (output === undefined ? last : steps)
    for (let step = 0; step <= steps; step++) {
      now.buffers.forEach(({ bytes, first }, at) => {
        if (first === step) this.ids[at] = this.write(offsets[at]!, bytes)
      })
      for (const [at, buffer] of now.buffers.entries())
        if (
          buffer.first <= step &&
          step <= ends(buffer) &&
          !this.holds(offsets[at]!, buffer.bytes, this.ids[at]!)
        )
          return `buffer ${at} of ${now.name} is overwritten in step ${step}`
      for (const [input, id] of given)
        if (!this.holds(inputs.get(input)!, now.inputs.get(input)!, id))
          return `input ${input} of ${now.name} is overwritten in step ${step}`
    }
    return undefined
  }
}
