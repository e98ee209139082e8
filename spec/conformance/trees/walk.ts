// Launches of random trees: handles that are disposed of at random, readers outside of the tree that are held
// up, every executable closed once on the way. Throws where a value is wrong, an address moves, or something
// is left behind.
import assert from 'node:assert/strict'
import {
  add,
  download,
  type Graph,
  graph,
  type Keep,
  mul,
  orThrow,
  owned,
  type Plan,
  ring,
  type Tensor,
  tree,
  until,
  upload,
} from '../../../dsl/index.js'
import { hold } from '../../../runtime/device/testing.js'
import {
  type Block,
  type Device,
  type Handle,
  type Lane,
  type PlanTree,
  planTree,
  TreeError,
} from '../../../runtime/index.js'
import { numbersFrom } from '../../fixtures/trees.js'
import { all, copy, only, planned, row, width } from './kit.js'

interface Made {
  readonly inputs: readonly string[]
  readonly outputs: ReadonlyMap<string, number>
  readonly next: readonly string[]
  readonly keep: Readonly<Record<string, Keep>>
}

/** Every output is the sum of the inputs and of `x`, times a half, plus a number of its own. */
const planOf = (name: string, { inputs, outputs }: Made, mode: 'eager' | 'graph'): Plan => {
  const ports = Object.fromEntries(['x', ...inputs].map(input => [input, row])) as Record<string, typeof row>
  const body = graph(name, ports, flows => {
    const x = flows['x']!.pipe(upload(copy))
    const sum = inputs.reduce((left, input) => left.pipe(add(flows[input]!.pipe(upload(copy)))), x)
    return Object.fromEntries(
      [...outputs].map(([output, more]) => [output, sum.pipe(mul(0.5), add(more), download(copy))]),
    )
  })
  return planned(body as unknown as Graph<Record<string, Tensor>, Record<string, Tensor>>, { mode }) as Plan
}

const meaning = ({ inputs }: Made, x: number, given: ReadonlyMap<string, number>, more: number): number =>
  Math.fround(
    Math.fround(inputs.reduce((sum, input) => Math.fround(sum + given.get(input)!), x) * 0.5) + more,
  )

const randomTree = (random: () => number): Readonly<Record<string, Made>> => {
  const pick = (most: number): number => Math.floor(random() * most)
  const names = ['a', 'b', 'c'].slice(0, 1 + pick(3))
  const values = ['u', 'v', 'w']
  const some = <A>(items: readonly A[]): A[] => items.filter(() => pick(3) > 0)
  return Object.fromEntries(
    names.map(name => {
      const outputs = new Map(['out', ...some(values)].map((output, i) => [output, i + pick(10)] as const))
      const keep: Record<string, Keep> = {}
      for (const output of outputs.keys()) {
        const kind = pick(6)
        if (kind === 0) keep[output] = ring(1 + pick(2))
        if (kind === 1) keep[output] = until(names[pick(names.length)]!, 1 + pick(2))
        if (kind === 2) keep[output] = { lives: 'run' }
        if (kind === 3 && pick(3) === 0) keep[output] = owned
      }
      return [name, { inputs: some(values), outputs, next: some(names), keep }]
    }),
  )
}

interface Value {
  readonly plan: string
  readonly output: string
  readonly value: number
}

/** What the arena holds for the next launch, by what was declared. */
const survivors = (made: Readonly<Record<string, Made>>, held: readonly Value[], plan: string): Value[] => {
  const ages = new Map<string, number>()
  return [...held]
    .reverse()
    .filter(({ plan: from, output }) => {
      const key = `${from} ${output}`
      const age = ages.get(key) ?? 0
      ages.set(key, age + 1)
      const keep = made[from]!.keep[output]
      if (keep?.lives === 'until') return !(keep.plan === plan && age === 0)
      return keep?.lives === 'ring' && age + (from === plan ? 1 : 0) < keep.count
    })
    .reverse()
}

/** Whether the value may be an input now: of the plan before, or kept longer. */
const offered = (
  made: Readonly<Record<string, Made>>,
  last: string | undefined,
  plan: string,
  output: string,
): boolean => {
  const lives = made[plan]!.keep[output]?.lives
  return plan === last || lives === 'until' || lives === 'ring'
}

export interface Walked {
  readonly launches: number
  /** Launches that the tree refused, since the plan may not come then or too many values are kept. */
  readonly refused: number
  readonly reads: number
  readonly executables: number
  readonly remade: number
}

/** A random tree on a device, and so many launches of it. */
export const walk = async (device: Device, seed: number, launches: number): Promise<Walked> =>
  new Walk(device, seed).run(launches)

/** A value that somebody still has a handle of. */
interface Alive {
  readonly handle: Handle
  readonly value: number
}

class Walk {
  private readonly random: () => number
  private readonly made: Readonly<Record<string, Made>>
  private readonly names: readonly string[]
  private readonly foreign: Lane
  private tree!: PlanTree
  private alive: Alive[] = []
  private readonly pending: Promise<unknown>[] = []
  private readonly blocks: Block[] = []
  /** What the arena holds for launches to come, by what was declared. */
  private held: readonly Value[] = []
  private last: string | undefined
  /** Where the arena may begin, by the addresses that were seen so far. */
  private starts: readonly number[] | undefined
  private counts = { launches: 0, refused: 0, reads: 0 }

  constructor(
    private readonly device: Device,
    seed: number,
  ) {
    this.random = numbersFrom(seed)
    this.made = randomTree(this.random)
    this.names = Object.keys(this.made)
    this.foreign = device.lane({ name: 'foreign' })
  }

  private pick(most: number): number {
    return Math.floor(this.random() * most)
  }

  async run(launches: number): Promise<Walked> {
    const { made, names } = this
    const of = <A>(part: (one: Made, name: string) => A) =>
      Object.fromEntries(names.map(name => [name, part(made[name]!, name)])) as never
    const mode = this.pick(2) === 0 ? 'eager' : 'graph'
    const spec = tree({
      plans: of((one, name) => planOf(name, one, mode)),
      start: [names[0]!] as never,
      then: of(({ next }) => next),
      keep: of(({ keep }) => keep),
    })
    const budget = this.pick(2) === 0 ? {} : { executables: 1 }
    const opened = await planTree(spec, { device: this.device, poison: true, ...budget })()
    this.tree = orThrow(opened) as unknown as PlanTree
    const half = launches >> 1
    while (this.counts.launches < launches) {
      this.launch()
      this.ask()
      const { launches: now } = this.counts
      if ((now + this.counts.refused) % 40 === 39) await this.settled()
      // Every executable is closed; those that are launched again have to find everything where it was.
      if (now === half) await this.tree.evict()
    }
    await this.settled()
    const { executables, layouts } = this.tree.stats()
    assert(executables.made - executables.remade <= layouts)
    await this.tree.close()
    this.foreign[Symbol.dispose]()
    return { ...this.counts, executables: executables.made, remade: executables.remade }
  }

  private async settled(): Promise<void> {
    await Promise.all(this.pending.splice(0))
    for (const block of this.blocks.splice(0)) block.free()
  }

  private launch(): void {
    const name = this.names[this.pick(this.names.length)]!
    const one = this.made[name]!
    if (this.pick(30) === 0) {
      this.tree.begin()
      this.held = []
      this.last = undefined
    }
    const follows = this.last !== undefined && this.made[this.last]!.next.includes(name)
    const before = follows ? this.held : []
    const { feeds, given, x } = this.feeds(one, before)
    let launched: ReturnType<PlanTree['launch']>
    try {
      launched = this.tree.launch(name as never, feeds as never)
    } catch (error) {
      // It may not be launched now: nothing has changed.
      assert(
        error instanceof TreeError && ['NotASuccessor', 'TooManyKept'].includes(error._tag),
        String(error),
      )
      this.counts.refused++
      // A tree whose launches are all refused goes on from the start.
      if (this.counts.refused % 50 === 49) this.restart()
      return
    }
    this.counts.launches++
    const results = [...one.outputs].map(([output, more]) => ({
      ...{ plan: name, output },
      value: meaning(one, x, given, more),
    }))
    this.held = [...survivors(this.made, before, name), ...results]
    this.last = name
    for (const result of results) this.take(launched, result)
  }

  private restart(): void {
    this.tree.begin()
    this.held = []
    this.last = undefined
  }

  private feeds({ inputs }: Made, before: readonly Value[]) {
    const x = this.pick(50)
    const given = new Map<string, number>()
    const feeds: Record<string, Float32Array> = { x: all(x) }
    for (const input of inputs) {
      const value = before.findLast(
        ({ plan, output }) => output === input && offered(this.made, this.last, plan, output),
      )
      const host = this.counts.launches % 7
      given.set(input, value?.value ?? host)
      if (value === undefined) feeds[input] = all(host)
    }
    return { feeds, given, x }
  }

  /** Where an output went: to the host, out of the arena, or to a handle that is kept or let go. */
  private take(launched: ReturnType<PlanTree['launch']>, { output, value }: Value): void {
    const handles = launched.handles as unknown as Record<string, Handle>
    const taken = launched.owned as unknown as Record<string, Promise<Block>>
    if (output in taken) this.pending.push(this.readBlock(taken[output]!, value))
    else if (!(output in handles))
      this.pending.push(
        launched.values.then(values =>
          assert.equal(only((values as Record<string, Float32Array>)[output]!), value),
        ),
      )
    else if (this.pick(8) === 0) handles[output]![Symbol.dispose]()
    else this.alive.push({ handle: handles[output]!, value })
  }

  private async readBlock(taken: Promise<Block>, value: number): Promise<void> {
    const block = await taken
    const lane = this.device.defaultLane
    using host = this.device.pinned(4 * width, lane)
    using written = block.lane.record()
    lane.wait(written)
    lane.copy(host, block)
    block.recordUse(lane)
    block.free()
    await lane.synchronize()
    assert.equal(only(new Float32Array(host.view().slice(0)).slice(0, width)), value)
  }

  /** Old handles say that they are stale, or have their values. */
  private ask(): void {
    for (const { handle, value } of this.alive.splice(0, this.pick(4))) {
      if (handle.stale) {
        assert.throws(() => handle.check('test'), /StaleHandle/)
        continue
      }
      this.counts.reads++
      if (this.pick(2) === 0) this.pending.push(handle.read().then(found => assert.equal(only(found), value)))
      else this.readLate(handle, value)
    }
  }

  /** A lane of its own reads, which is held up first. */
  private readLate(handle: Handle, value: number): void {
    const { foreign, device } = this
    const block = device.pinned(4 * width, foreign)
    this.blocks.push(block)
    const gate = hold(device, foreign)
    const used = handle.use(foreign, span => {
      this.place(handle, span.address)
      foreign.copy(block, span)
    })
    if (this.pick(4) === 0) setTimeout(() => gate.open(), this.pick(2))
    else setImmediate(() => gate.open())
    this.pending.push(
      used
        .then(() => foreign.synchronize())
        .then(() => assert.equal(only(new Float32Array(block.view().slice(0)).slice(0, width)), value)),
    )
  }

  /**
   * The values of a tree lie at the places of its layouts, in an arena that begins at one address for good.
   */
  private place({ plan, output }: Handle, address: number): void {
    const places = this.tree.layouts.flatMap(({ plan: of, outputs }) =>
      of === plan && outputs[output] !== undefined ? [outputs[output]] : [],
    )
    const starts = places.map(place => address - place)
    this.starts = this.starts === undefined ? starts : this.starts.filter(start => starts.includes(start))
    assert(this.starts.length > 0, `${plan}.${output} lies at ${address}, where no layout has it`)
  }
}
