import * as E from 'fp-ts/lib/Either.js'
import { concatMap, map, type OperatorFunction, takeWhile } from 'rxjs'
import type {
  AnyTree,
  GivenAfter,
  GivenAlways,
  GivenOf,
  NextOf,
  OwnedOf,
  PlanName,
  StayingOf,
  StayingValue,
  TreeFeeds,
  TreeValues,
} from '../../dsl/index.js'
import { arenaBytes, here, hereLater, ownBytesFrom, rounded, type TreeNode } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { madeBy } from '../device/arguments.js'
import type { Block } from '../device/block.js'
import type { Device } from '../device/device.js'
import { type DeviceError, DisposedError } from '../errors.js'
import { type AwaitableTask, task } from '../task.js'
import { apartOf } from './executables.js'
import { explainNode } from './explain.js'
import type { Handle } from './handle.js'
import { TreeHold } from './hold.js'
import { type Feeds as Feed, type Launch, noFeeds } from './launch.js'
import * as messages from './messages.js'
import { type OpenTree, openTree } from './open.js'
import type { TreeOptions } from './options.js'

/** A value of an output that stays on the device. */
export type HandleOf<R, N extends PlanName<R>, O extends StayingOf<R, N>> = Omit<Handle, 'read'> & {
  read(): Promise<StayingValue<R, N, O>>
}

/** What a launch gives. */
export interface Launched<R, N extends PlanName<R>> {
  readonly plan: N
  /** Of a plan by shape: the key of the one that was launched. */
  readonly shape: string | undefined
  /** The outputs that stay on the device. */
  readonly handles: { readonly [O in Exclude<StayingOf<R, N>, OwnedOf<R, N>>]: HandleOf<R, N, O> }
  /** The outputs that are copied out of the arena: blocks of the caller's. */
  readonly owned: { readonly [O in OwnedOf<R, N>]: Promise<Block> }
  /** The outputs that go to the host: arrays of the caller's own, when the launch has completed. */
  readonly values: Promise<TreeValues<R, N>>
  /**
   * Launches a plan that may come next; throws where another launch has come in between. An input that this
   * launch leaves in the arena needs no value.
   */
  next<M extends NextOf<R, N>>(plan: M, ...feeds: FeedsArgument<R, M, GivenAfter<R, M, N>>): Launched<R, M>
}

type Feeds<R, N extends PlanName<R>, G> = TreeFeeds<R, N, Handle | HandleLike, G>
type HandleLike = Omit<Handle, 'read'>
/** Feeds may be left out where no input needs one. */
type FeedsArgument<R, N extends PlanName<R>, G> =
  Record<never, never> extends Feeds<R, N, G> ? [feeds?: Feeds<R, N, G>] : [feeds: Feeds<R, N, G>]

/** A decision of the host: the next plan, and its inputs. Types do not know what came before. */
export type Decision<R> = {
  [N in PlanName<R>]: { readonly plan: N; readonly feeds?: Feeds<R, N, GivenOf<R, N>> }
}[PlanName<R>]

/** One node, for people: a plan, and where everything of one of its launches lies. */
export interface TreeLayout {
  /** Its number: `tree.explain(id)`. */
  readonly id: number
  readonly plan: string
  readonly inputs: Readonly<Record<string, number>>
  readonly outputs: Readonly<Record<string, number>>
  /** Bytes that outlive the launch, and bytes that it writes. */
  readonly kept: readonly { readonly from: number; readonly to: number }[]
  readonly clobbers: readonly { readonly from: number; readonly to: number }[]
  /** Where it ends. */
  readonly top: number
}

export interface TreeStats {
  /** Bytes of the arena, which all plans share. */
  readonly arena: number
  /**
   * By plan: what its own arenas would take, one for each tick in flight where it has several. Parameters and
   * states are apart from all of them.
   */
  readonly alone: Readonly<Record<string, number>>
  readonly layouts: number
  readonly launches: number
  readonly inFlight: number
  /** Values that were copied within the arena, and into it from the host. */
  readonly moves: number
  readonly staged: number
  /** Values in the arena whose handles are not stale. */
  readonly values: number
  /** Executables that are open, that were made, and that were made again after they had been closed. */
  readonly executables: {
    readonly open: number
    readonly made: number
    readonly remade: number
    readonly bytes: number
    /** Launches of executable graphs, by those that are open: of plans in graph mode. */
    readonly graphLaunches: number
  }
}

/** For `drive`: a launch at a place of the caller's. Throws where the tree is none. */
let launchOf: (tree: unknown, decision: unknown, at: Where) => Launch

/**
 * Plans that share one arena of a device. The host launches one after the other, each as soon as it likes:
 * the device runs them in that order. Memory is that of the largest launch, whatever is launched first.
 */
export class PlanTree<R extends AnyTree = AnyTree> implements AsyncDisposable {
  readonly #open: OpenTree
  readonly #hold: TreeHold
  #closing: Promise<void> | undefined

  private constructor(open: OpenTree, at: Where) {
    madeBy(open?.launcher !== undefined, 'PlanTree', 'planTree(tree, options)')
    this.#open = open
    this.#hold = new TreeHold(open.launcher)
    const { free, device, arenaBytes } = open
    lost.register(this.#hold, { free, device, arenaBytes, at }, this.#hold)
  }

  static {
    launchOf = (tree, decision, at) => {
      if (typeof tree !== 'object' || tree === null || !(#open in tree))
        throw messages.notAnOpenTree(at, tree)
      if (typeof decision !== 'object' || decision === null) throw messages.notADecision(at, decision)
      const { plan, feeds } = decision as { readonly plan: string; readonly feeds?: Feed }
      return tree.#hold.launch(plan, feeds ?? noFeeds, at)
    }
  }

  /** For `planTree`. */
  static over<R extends AnyTree>(open: OpenTree, at: Where): PlanTree<R> {
    return new PlanTree<R>(open, at)
  }

  get device(): Device {
    return this.#open.device
  }
  get closed(): boolean {
    return this.#closing !== undefined
  }
  /** The plan that was launched last in this run. */
  get last(): PlanName<R> | undefined {
    return this.#open.launcher.last as PlanName<R> | undefined
  }

  /** Every launch that was laid out so far, in the order in which they were found from the start. */
  get layouts(): readonly TreeLayout[] {
    const { plans } = this.#open.tree
    return this.#nodes().map(({ id, plan, contract, layout }) => ({
      id,
      plan: plans[plan]!.name,
      inputs: Object.fromEntries(layout.inputs),
      outputs: Object.fromEntries(layout.outputs),
      kept: contract.kept,
      clobbers: layout.clobbers,
      top: layout.top,
    }))
  }

  /**
   * In words: what a layout, or each of them, is given and leaves, why it is another one than those of its
   * plan before it, and why its executable was made.
   */
  explain(layout?: number): string {
    const { tree, executables, arenaBytes } = this.#open
    const nodes = this.#nodes().filter(({ id }) => layout === undefined || id === layout)
    if (nodes.length === 0) throw messages.noLayout(here(this.explain), layout, this.#nodes().length)
    return nodes.map(node => explainNode(tree, node, arenaBytes, executables.history(node.id))).join('\n\n')
  }

  /**
   * Launches a plan: one that may come after the last one, or else one that a run may begin with. Inputs that
   * lie in the arena are taken from there; the others are given, as arrays, which are copied before this
   * returns or as soon as there is room. Returns at once. Throws a `TreeError`, and has changed nothing,
   * where the launch is refused. Types ask for a value of each input that does not lie there wherever the
   * plan may come; `next` of a launch knows what that launch leaves, and asks for fewer. Launches that wait for
   * their turn take bytes, see `TreeOptions.waiting`; `await tree.room()` keeps within them.
   */
  launch<N extends PlanName<R>>(plan: N, ...feeds: FeedsArgument<R, N, GivenAlways<R, N>>): Launched<R, N> {
    const given = (feeds[0] ?? noFeeds) as Readonly<Record<string, unknown>>
    return this.#hold.launch(plan, given, hereLater()) as unknown as Launched<R, N>
  }

  /**
   * The next launch begins a run: values that are kept for plans to come are given up, and their handles are
   * stale once they are overwritten.
   */
  begin(): void {
    this.#alive('tree.begin')
    this.#open.launcher.begin()
  }

  /**
   * Makes the executables of all layouts that there are now, so that no launch waits for one. Ends early
   * where the tree is closed meanwhile. Rejects with a `TreeError` where one cannot be made; those before it
   * are, and the tree is as it was.
   */
  prepare(): Promise<void> {
    return this.#prepare(hereLater())
  }

  async #prepare(at: Where): Promise<void> {
    this.#alive('tree.prepare')
    const { executables, tree } = this.#open
    for (const { id, plan } of this.#nodes()) {
      if (this.closed || this.device.closed) return
      try {
        await executables.prepare(id)
      } catch (error) {
        if (this.closed) return
        if (error instanceof DisposedError) throw error
        throw messages.notMade(at, tree.plans[plan]!.name, id, executables.reasonOf(id, error))
      }
    }
  }

  /**
   * Closes every executable that is idle. They are made again, at the same addresses, when they are launched.
   */
  async evict(): Promise<void> {
    this.#alive('tree.evict')
    await this.drained()
    await this.#open.executables.evict()
  }

  /**
   * Resolves when every launch so far has been given to the device, so that the next one waits for nothing but
   * room there. A program that awaits it before each launch has at most one that waits. Rejects with a
   * `TreeError` where the tree has failed.
   */
  async room(): Promise<void> {
    this.#alive('tree.room')
    const { launcher } = this.#open
    await launcher.room()
    if (launcher.failure !== undefined) throw messages.treeFailed('tree.room', launcher.failure)
  }

  /** Resolves when every launch so far has completed. Rejects with a `TreeError` where the tree has failed. */
  async drained(): Promise<void> {
    const { launcher } = this.#open
    await launcher.drained()
    if (launcher.failure !== undefined) throw messages.treeFailed('tree.drained', launcher.failure)
  }

  stats(): TreeStats {
    const { tree, launcher, executables, arenaBytes } = this.#open
    const alone = tree.plans.map(({ name, source }) => [name, aloneBytes(source)] as const)
    return {
      arena: arenaBytes,
      alone: Object.fromEntries(alone),
      layouts: this.#nodes().length,
      ...launcher.counts,
      inFlight: launcher.flying,
      values: launcher.slots.count,
      executables: {
        open: executables.open,
        made: executables.made,
        remade: executables.remade,
        bytes: executables.bytes,
        graphLaunches: executables.graphLaunches,
      },
    }
  }

  /**
   * Waits for what is in flight, then frees everything. Idempotent. Launches that still need a source of
   * parameters which has not answered fail: nobody knows when it will.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    lost.unregister(this.#hold)
    const { launcher, executables, free } = this.#open
    const closed = launcher.close()
    executables.giveUpSources()
    await closed
    await free()
  }

  /**
   * The layouts that fit the arena: one that was not found ahead may be higher, and its launch is refused.
   */
  #nodes(): readonly TreeNode[] {
    const { tree, arenaBytes } = this.#open
    return tree.layouts.nodes.filter(({ layout }) => layout.top <= arenaBytes)
  }

  #alive(at: string): void {
    if (this.#closing !== undefined) throw messages.closedTree(at)
    this.#open.launcher.alive(at)
  }
}

type Left = Pick<OpenTree, 'free' | 'device' | 'arenaBytes'> & { readonly at: Where }

// Called some time after a program has let go of a tree, its launches and its handles, and has not closed it.
// Nothing is in flight then: what waits for the end of a launch keeps the launcher.
const lost = new FinalizationRegistry<Left>(({ free, device, arenaBytes, at }) => {
  if (!device.closed) messages.warnLostTree(arenaBytes, at)
  void free()
})

/**
 * The arenas of a plan by itself, one or as many as ticks in flight, without parameters and states, which are
 * no part of a tree's arena either.
 */
const aloneBytes = (plan: Plan): number =>
  apartOf(plan).reduce((left, { bytes }) => left - rounded(bytes), arenaBytes(plan, 0, ownBytesFrom(plan, 0)))

/**
 * Opens a tree of plans on a device. Plans that this process did not compile are judged first; every layout
 * is proved. After an error nothing stays open.
 */
export const planTree = <R extends AnyTree>(
  tree: R,
  options: TreeOptions = {},
): AwaitableTask<DeviceError, PlanTree<R>> => {
  const at = here(planTree)
  return task(async () => {
    const opened = await openTree(tree, options)
    return E.isLeft(opened) ? opened : E.right(PlanTree.over<R>(opened.right, at))
  })
}

/** What a decision led to: the launch, and its host values. `plan` tells which values these are. */
export type Decided<R, N extends PlanName<R> = PlanName<R>> = {
  readonly [P in N]: {
    readonly plan: P
    readonly launched: Launched<R, P>
    readonly values: TreeValues<R, P>
  }
}[N]

const raise = (error: unknown): never => {
  throw error
}

const decided = async <R extends AnyTree>(launched: Launch): Promise<Decided<R>> =>
  ({ plan: launched.plan, launched, values: await launched.values }) as unknown as Decided<R>

/**
 * Drives a tree by a stream of decisions: `decisions$.pipe(drive(tree))`. Each decision is one launch, in
 * order, and yields its values when it has completed. The next decision may be made from them: a decision is
 * launched at once when it comes; where decisions may come faster than the device runs them, let them wait
 * for `tree.room()` first (`concatMap`), or drop some. A refused launch is the Observable's error, after the
 * values of the launches before it, and no decision after it is launched; its place is that of the call of `drive`.
 */
export const drive = <R extends AnyTree>(tree: PlanTree<R>): OperatorFunction<Decision<R>, Decided<R>> => {
  const at = here(drive)
  return decisions =>
    decisions.pipe(
      map(decision =>
        E.tryCatch(
          () => launchOf(tree, decision, at),
          error => error,
        ),
      ),
      takeWhile(E.isRight, true),
      concatMap(async launched => decided<R>(E.isLeft(launched) ? raise(launched.left) : launched.right)),
    )
}
