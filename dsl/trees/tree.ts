import * as E from 'fp-ts/lib/Either.js'
import { rounded } from '../memory/range-pool.js'
import { type ByteRange, merged, overlap } from './byte-ranges.js'
import { type Body, type Contract, type Layout, layOut } from './layout.js'

/**
 * How long an output of a plan stays in the arena.
 *
 *   run    until a later launch writes over it; the plans that may come next get it as an input
 *   until  until the plan of that number is launched; at most `count` of them exist at a time
 *   ring   the newest `count` of them exist
 */
export type Lifetime =
  | { readonly lives: 'run' }
  | { readonly lives: 'until'; readonly plan: number; readonly count: number }
  | { readonly lives: 'ring'; readonly count: number }

/** One plan of a tree: what it needs of the arena, and which plans may be launched right after it. */
export interface Member {
  readonly body: Body
  readonly lifetimes: ReadonlyMap<string, Lifetime>
  readonly next: readonly number[]
}

export interface TreeOf {
  readonly members: readonly Member[]
  /** The plans that a run may begin with. */
  readonly start: readonly number[]
  /**
   * Whether an output of one plan is an input of another one: of the same type, by default of the same name.
   */
  carries?(from: number, output: string, to: number, input: string): boolean
  /**
   * Layouts of one plan for values where they lie, for each set of places that its own kept values may have;
   * default 8. Above as many a value is moved to where a layout has it, see `Exploration.nodeFor`.
   */
  readonly variants?: number
  /** States of the arena that are laid out ahead at most; others when they are reached. Default 512. */
  readonly ahead?: number
}

/** A value in the arena, between two launches. */
export interface Held {
  readonly from: number
  readonly output: string
  readonly offset: number
  readonly bytes: number
}

/** What the arena holds for launches to come: values, oldest first, and which plan was launched last. */
export interface State {
  readonly id: number
  /** -1: none, the run begins. */
  readonly last: number
  readonly held: readonly Held[]
}

/** A plan with one layout: what is recorded once, and launched as often as its contract is met. */
export interface TreeNode {
  readonly id: number
  readonly plan: number
  readonly contract: Contract
  readonly layout: Layout
  /** Whether it serves wherever values lie: inputs are copied to it, and no kept value is in its way. */
  readonly isFallback: boolean
}

/** A value that is copied to where the node has it, before the launch. */
export interface Move {
  readonly input: string
  readonly from: number
  readonly to: number
  readonly bytes: number
}

/** What is moved for a launch whose contract got no layout of its own: its plan had as many as it may. */
export interface Moved {
  readonly node: number
  readonly moves: readonly Move[]
}

export interface Transition {
  readonly node: number
  readonly moves: readonly Move[]
  /** Inputs that lie in the arena; the others come from the host. */
  readonly carried: ReadonlyMap<string, Held>
  /** The state after the launch. */
  readonly to: number
}

/** Why a launch is refused: so many values of an output exist, and none of them may be overwritten. */
export interface TooMany {
  readonly output: string
  readonly count: number
}

/** A tree that is laid out before anything runs. */
export interface LaidOutTree {
  /** Nodes and states so far: more are found only where `isWhole` is false. */
  readonly nodes: readonly TreeNode[]
  readonly states: readonly State[]
  /** Whether every launch that the tree allows has been laid out. */
  readonly isWhole: boolean
  /** How many of the nodes were found ahead. */
  readonly ahead: number
  /** `TreeOf.variants`, and each case so far where values are moved. */
  readonly variants: number
  readonly moved: readonly Moved[]
  /** Bytes of the arena: the top of the highest layout that was found ahead. */
  readonly bytes: number
  /**
   * By state and plan; undefined: the plan may not come then. With `instead`, inputs do not get the newest
   * value: they get the one that lies at an offset, or where it is undefined, one from elsewhere.
   */
  transition(state: number, plan: number, instead?: Instead): E.Either<TooMany, Transition> | undefined
}

/** By input: the offset of a value that lies in the arena, or undefined for a value from elsewhere. */
export type Instead = ReadonlyMap<string, number | undefined>

const none: ReadonlyMap<string, number> = new Map()

const rangeOf = ({ offset, bytes }: Held): ByteRange => ({ from: offset, to: offset + rounded(bytes) })

/**
 * Lays out the launches that a tree allows. A layout follows from the plan and from what the arena holds, and
 * from nothing else: so the arena's size is the largest top of a layout, whatever is launched first.
 */
export const layOutTree = (tree: TreeOf): LaidOutTree => new Exploration(tree).explored()

class Exploration {
  private readonly nodes: TreeNode[] = []
  private readonly nodeOf = new Map<string, number>()
  private readonly states: State[] = []
  private readonly stateOf = new Map<string, number>()
  private readonly moved = new Map<string, Moved>()
  private readonly found: Map<number, E.Either<TooMany, Transition> | undefined>[] = []
  private readonly outputOrder: readonly (readonly string[])[]
  private readonly variants: number

  constructor(private readonly tree: TreeOf) {
    this.variants = tree.variants ?? 8
    this.outputOrder = tree.members.map((_, plan) => this.orderOf(plan))
    this.state(-1, [])
  }

  /** Breadth first, so that states that take many launches to reach come last. */
  explored(): LaidOutTree {
    const { nodes, states, tree } = this
    const most = tree.ahead ?? 512
    let id = 0
    for (; id < Math.min(states.length, most); id++)
      for (const plan of this.successors(states[id]!.last)) this.transition(id, plan)
    const bytes = nodes.reduce((most, { layout }) => Math.max(most, layout.top), 0)
    const isWhole = id === states.length
    const transition: LaidOutTree['transition'] = (state, plan, instead) =>
      this.transition(state, plan, instead)
    const { moved, variants } = this
    return {
      ...{ nodes, states, isWhole, ahead: nodes.length, bytes, transition, variants },
      get moved() {
        return [...moved.values()]
      },
    }
  }

  private transition(
    state: number,
    plan: number,
    instead?: Instead,
  ): E.Either<TooMany, Transition> | undefined {
    if (instead !== undefined && this.successors(this.states[state]!.last).includes(plan))
      return this.launch(this.states[state]!, plan, instead)
    const known = this.found[state]!
    if (known.has(plan)) return known.get(plan)
    const now = this.states[state]!
    const made = this.successors(now.last).includes(plan) ? this.launch(now, plan) : undefined
    known.set(plan, made)
    return made
  }

  private successors(last: number): readonly number[] {
    return last === -1 ? this.tree.start : this.tree.members[last]!.next
  }

  private carries(from: number, output: string, to: number, input: string): boolean {
    const { carries } = this.tree
    return carries === undefined ? output === input : carries(from, output, to, input)
  }

  private lifetime(plan: number, output: string): Lifetime {
    return this.tree.members[plan]!.lifetimes.get(output) ?? { lives: 'run' }
  }

  /** Whether some plan that may come next reads an output. */
  private isRead(plan: number, output: string): boolean {
    const { members } = this.tree
    return members[plan]!.next.some(to =>
      [...members[to]!.body.inputs.keys()].some(input => this.carries(plan, output, to, input)),
    )
  }

  /**
   * Outputs that more plans have under one name come first, so that they get the same places in all of them.
   */
  private orderOf(plan: number): readonly string[] {
    const { members } = this.tree
    const { body } = members[plan]!
    const makers = (output: string): number => members.filter(({ body }) => body.outputs.has(output)).length
    const rank = (output: string): number => (this.isRead(plan, output) ? makers(output) : 0)
    const size = (output: string): number => body.sizes[body.outputs.get(output)!]!
    return [...body.outputs.keys()].sort(
      (a, b) => rank(b) - rank(a) || (rank(a) > 0 ? 0 : size(b) - size(a)) || (a < b ? -1 : 1),
    )
  }

  /** The newest value that is this input of the plan. */
  private source(held: readonly Held[], plan: number, input: string): Held | undefined {
    return held.findLast(({ from, output }) => this.carries(from, output, plan, input))
  }

  private launch(now: State, plan: number, instead?: Instead): E.Either<TooMany, Transition> {
    const { body, lifetimes } = this.tree.members[plan]!
    const carried = new Map<string, Held>()
    for (const input of body.inputs.keys()) {
      const held = instead?.has(input)
        ? now.held.filter(({ offset }) => offset === instead.get(input))
        : now.held
      const value = this.source(held, plan, input)
      if (value !== undefined) carried.set(input, value)
    }
    const kept = this.keptThrough(now, plan)
    for (const [output, lifetime] of lifetimes) {
      if (lifetime.lives !== 'until') continue
      const count = kept.filter(({ from, output: other }) => from === plan && other === output).length
      if (count >= lifetime.count) return E.left({ output, count })
    }
    const contract = this.contract(now, plan, carried, kept)
    const { node, moves } = this.nodeFor(plan, contract, carried)
    const { layout } = this.nodes[node]!
    const made = [...layout.outputs]
      .filter(([output]) => this.lifetime(plan, output).lives !== 'run' || this.isRead(plan, output))
      .map(([output, offset]) => {
        const bytes = body.sizes[body.outputs.get(output)!]!
        return { from: plan, output, offset, bytes }
      })
    return E.right({ node, moves, carried, to: this.state(plan, [...kept, ...made]) })
  }

  /** The values that still hold after the launch of the plan. */
  private keptThrough({ held }: State, plan: number): readonly Held[] {
    const released = new Set<Held>()
    const newer = new Map<string, number>()
    for (const value of [...held].reverse()) {
      const lifetime = this.lifetime(value.from, value.output)
      const key = `${value.from} ${value.output}`
      const count = newer.get(key) ?? 0
      newer.set(key, count + 1)
      if (lifetime.lives === 'run') released.add(value)
      // The newest one is what the plan was waited for.
      else if (lifetime.lives === 'until' && lifetime.plan === plan && count === 0) released.add(value)
      else if (lifetime.lives === 'ring' && count >= lifetime.count - (value.from === plan ? 1 : 0))
        released.add(value)
    }
    return held.filter(value => !released.has(value))
  }

  private contract(
    now: State,
    plan: number,
    carried: ReadonlyMap<string, Held>,
    kept: readonly Held[],
  ): Contract {
    const read = new Set(carried.values())
    const others = this.successors(now.last).filter(other => other !== plan)
    const elsewhere = now.held.filter(
      value =>
        !read.has(value) &&
        !kept.includes(value) &&
        others.some(other =>
          [...this.tree.members[other]!.body.inputs.keys()].some(
            input => this.source(now.held, other, input) === value,
          ),
        ),
    )
    return {
      inputs: new Map([...carried].map(([input, { offset }]) => [input, offset])),
      kept: merged(kept.map(rangeOf)),
      elsewhere: merged(elsewhere.map(rangeOf)),
    }
  }

  /**
   * The node of this contract. With k, how many older values of its own a plan may find kept, it has
   * (`variants` + 1) · (k + 1) nodes at most. From `variants` on, the first is used that writes over no kept
   * value, also where inputs are moved to their places. If there is none, a node is made for the contract, up
   * to `variants` · (k + 1); then a fallback.
   *
   * No kept value but those that a fallback makes itself lies where it writes: it is laid out beside all
   * places of kept values so far, and later outputs beside it. So k + 1 fallbacks find a free one.
   */
  private nodeFor(
    plan: number,
    contract: Contract,
    carried: ReadonlyMap<string, Held>,
  ): { readonly node: number; readonly moves: readonly Move[] } {
    const key = JSON.stringify([plan, [...contract.inputs], contract.kept, contract.elsewhere])
    const known = this.nodeOf.get(key)
    if (known !== undefined) return { node: known, moves: [] }
    const own = this.nodes.filter(node => node.plan === plan)
    if (own.length >= this.variants)
      for (const node of own) {
        const moves = movesTo(node, contract, carried)
        if (moves !== undefined) return this.withMoves(node.id, moves)
      }
    const isFallback = own.length >= this.variants * (1 + this.olderKept(plan))
    const elsewhere = merged([...contract.elsewhere, ...this.fallbackBytes()])
    const wanted = isFallback
      ? { inputs: none, kept: merged([...contract.kept, ...this.keepingPlaces()]), elsewhere }
      : { ...contract, elsewhere }
    const layout = layOut(this.tree.members[plan]!.body, wanted, this.outputOrder[plan]!)
    const node = { id: this.nodes.length, plan, contract: isFallback ? wanted : contract, layout, isFallback }
    this.nodes.push(node)
    if (isFallback) return this.withMoves(node.id, movesTo(node, contract, carried)!)
    this.nodeOf.set(key, node.id)
    return { node: node.id, moves: [] }
  }

  private withMoves(node: number, moves: readonly Move[]): Moved {
    const moved = { node, moves }
    if (moves.length > 0) this.moved.set(JSON.stringify([node, moves]), moved)
    return moved
  }

  /** How many values of a plan's own a launch of it finds kept, at most. */
  private olderKept(plan: number): number {
    let count = 0
    for (const lifetime of this.tree.members[plan]!.lifetimes.values())
      if (lifetime.lives !== 'run') count += lifetime.count - 1
    return count
  }

  private fallbackBytes(): readonly ByteRange[] {
    return this.nodes.flatMap(({ isFallback, layout }) => (isFallback ? layout.clobbers : []))
  }

  /** Wherever a layout so far leaves a value that is kept. */
  private keepingPlaces(): readonly ByteRange[] {
    return this.nodes.flatMap(({ plan, layout }) => {
      const { body } = this.tree.members[plan]!
      return [...layout.outputs].flatMap(([output, offset]) =>
        this.lifetime(plan, output).lives === 'run'
          ? []
          : [{ from: offset, to: offset + rounded(body.sizes[body.outputs.get(output)!]!) }],
      )
    })
  }

  private state(last: number, held: readonly Held[]): number {
    const key = JSON.stringify([last, held.map(({ from, output, offset }) => [from, output, offset])])
    const known = this.stateOf.get(key)
    if (known !== undefined) return known
    const id = this.states.length
    this.states.push({ id, last, held })
    this.found.push(new Map())
    this.stateOf.set(key, id)
    return id
  }
}

/**
 * The copies after which a node serves a contract, all at once; undefined where it writes over a value that
 * is kept, or one of the copies would, or where the same values do not lie in the arena.
 */
const movesTo = (
  { contract, layout, isFallback }: TreeNode,
  from: Contract,
  carried: ReadonlyMap<string, Held>,
): readonly Move[] | undefined => {
  const isKept = (written: ByteRange): boolean => from.kept.some(range => overlap(written, range))
  const isSame =
    contract.inputs.size === carried.size && [...carried.keys()].every(k => contract.inputs.has(k))
  if ((!isFallback && !isSame) || layout.clobbers.some(isKept)) return undefined
  const moves: Move[] = []
  for (const [input, { offset, bytes }] of carried) {
    const to = layout.inputs.get(input)!
    if (offset === to) continue
    if (isKept({ from: to, to: to + rounded(bytes) })) return undefined
    moves.push({ input, from: offset, to, bytes })
  }
  return moves
}
