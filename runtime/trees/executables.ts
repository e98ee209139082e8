import { placed } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeDevice, NativeSequence } from '../addon.js'
import { warnOfKeptFiles } from '../device/kept-files.js'
import { openFailure } from '../device/open-failure.js'
import { type DeviceError, together } from '../errors.js'
import { loadParams, type ParamSources } from '../session/params.js'
import { specOf } from '../session/ports.js'
import { type References, referencesFor } from '../session/references.js'
import { OpeningFailed, type SharedParams, withBlocks } from '../session/shared-params.js'
import { size, type ValueSpec } from '../values.js'
import { type Executable, ProgramExecutable, specInArena } from './executable.js'
import { closedTree, noRoomFor, sourceGivenUp } from './messages.js'
import { brokenBy, type PreparedTree } from './prepare.js'

/** What an executable is made with. */
export interface ExecutableParts {
  readonly tree: PreparedTree
  readonly device: NativeDevice
  readonly sequence: NativeSequence
  /** The block of the arena, and its bytes; 0: there is none. */
  readonly arena: number
  readonly arenaBytes: number
  readonly params: ParamSources
  /** Parameters and states of the plans, by the names of `apartName`. */
  readonly apart: SharedParams
  readonly inFlight: number
  readonly references: References
  /**
   * Bytes beside the arena that executables may take; then the ones that were launched longest ago are
   * closed.
   */
  readonly budget: number
  readonly onFree: () => void
}

/** A parameter is one for all plans; a state belongs to its plan. */
export const apartName = (plan: string, buffer: Plan['buffers'][number]): string =>
  buffer.life === 'param' ? buffer.name : `state ${plan} ${buffer.name}`

/** Buffers of a plan whose memory is not the arena's and outlives executables. */
export const apartOf = (plan: Plan): readonly Plan['buffers'][number][] =>
  plan.buffers.filter(
    ({ space, alias, life, init }) =>
      space === 'device' &&
      alias === undefined &&
      (life === 'param' || (life === 'state' && init !== undefined)),
  )

/** Why the executable of a node was made, and closed. */
export interface ExecutableHistory {
  made: number
  wantedBy: Want
  closedBy: string | undefined
  isOpen: boolean
}

type Want = 'a launch' | 'prepare()'

interface Entry {
  readonly opening: Promise<Executable>
  executable: Executable | undefined
  used: number
  /** How many wait to launch it: it is not closed before. */
  holders: number
}

/** The executables of a tree, by node, within a budget of bytes. */
export class Executables {
  /** How many were made, and how many of them for a node that had had one before. */
  made = 0
  remade = 0
  private readonly entries = new Map<number, Entry>()
  private readonly histories = new Map<number, ExecutableHistory>()
  private readonly closing = new Set<Promise<void>>()
  private uses = 0
  /** Whether one was in use when it should have been closed to keep to the budget. */
  private overBudget = false
  /** Aborted when the tree closes: what is being made is given up. */
  private readonly ending = new AbortController()
  /** Aborted when nobody waits for the sources of parameters any more. */
  private readonly filling = new AbortController()

  constructor(private readonly parts: ExecutableParts) {}

  get open(): number {
    return this.entries.size
  }

  /** Undefined: it was never made. */
  history(node: number): ExecutableHistory | undefined {
    return this.histories.get(node)
  }

  get bytes(): number {
    return [...this.entries.values()].reduce((sum, { executable }) => sum + (executable?.bytes ?? 0), 0)
  }

  get graphLaunches(): number {
    return [...this.entries.values()].reduce(
      (sum, { executable }) => sum + (executable?.graphLaunches ?? 0),
      0,
    )
  }

  /** The executable of a node, if it is ready. */
  ready(node: number): Executable | undefined {
    const entry = this.entries.get(node)
    if (entry === undefined) return undefined
    entry.used = ++this.uses
    return entry.executable
  }

  /** Makes the executable of a node, unless there is one. */
  async prepare(node: number): Promise<void> {
    await this.entryOf(node, 'prepare()').opening
  }

  /** Runs a body with the executable of a node, which stays open until the body has ended. */
  async hold<A>(node: number, body: (executable: Executable) => Promise<A>): Promise<A> {
    const entry = this.entryOf(node, 'a launch')
    entry.holders++
    try {
      return await body(await entry.opening)
    } finally {
      entry.holders--
      this.freed()
    }
  }

  /** One of them may have become idle. */
  freed(): void {
    if (this.overBudget) this.shrink()
  }

  private entryOf(node: number, by: Want): Entry {
    const known = this.entries.get(node)
    if (known !== undefined) {
      known.used = ++this.uses
      return known
    }
    if (this.ending.signal.aborted) throw closedTree('tree.prepare')
    const entry: Entry = {
      opening: this.make(node, by),
      executable: undefined,
      used: ++this.uses,
      holders: 0,
    }
    this.entries.set(node, entry)
    entry.opening.then(
      executable => {
        entry.executable = executable
        this.shrink()
      },
      () => this.entries.delete(node),
    )
    return entry
  }

  /** Why an executable of a node could not be made, or memory for a launch of it not be taken. */
  reasonOf(node: number, cause: unknown): DeviceError {
    if (cause instanceof OpeningFailed) return cause.failure
    const { tree } = this.parts
    const { name, source } = tree.plans[tree.layouts.nodes[node]!.plan]!
    const reason = openFailure(cause, name, source)
    return reason._tag === 'OutOfMemory' ? noRoomFor(node, reason, this.open) : reason
  }

  /** Closes those that are idle. Their layouts stay. */
  async evict(): Promise<void> {
    for (const [node, entry] of this.entries) this.drop(node, entry, 'evict()')
    await Promise.all(this.closing)
  }

  /** Whatever waits for a source of parameters, or would call one from now on, is not made. */
  giveUpSources(): void {
    this.filling.abort()
  }

  /**
   * Refuses to make any from now on, and closes all. Those that are being made are given up: they do not wait
   * for the sources of their parameters.
   */
  async close(): Promise<void> {
    this.giveUpSources()
    this.ending.abort(closedTree('tree.prepare'))
    await Promise.allSettled([...this.entries.values()].map(({ opening }) => opening))
    const all = [...this.entries.values()].map(({ executable }) => executable?.close())
    await Promise.all([...all, ...this.closing])
    this.entries.clear()
  }

  /** Closes those that were used longest ago, down to the budget; the newest one stays. */
  private shrink(): void {
    const oldest = [...this.entries].sort((a, b) => a[1].used - b[1].used).slice(0, -1)
    for (const [node, entry] of oldest) {
      if (this.bytes <= this.parts.budget) break
      this.drop(node, entry, `the budget of ${size(this.parts.budget)}`)
    }
    this.overBudget = this.bytes > this.parts.budget
  }

  private drop(node: number, { executable, holders }: Entry, by: string): void {
    if (executable === undefined || holders > 0 || executable.ticks.flying > 0) return
    this.entries.delete(node)
    const history = this.histories.get(node)!
    history.closedBy = by
    history.isOpen = false
    const closed = executable.close()
    this.closing.add(closed)
    closed.then(
      () => this.closing.delete(closed),
      () => this.closing.delete(closed),
    )
  }

  private async make(node: number, by: Want): Promise<Executable> {
    // An executable of the same node that is being closed has the same pinned parameters and streams to give
    // back.
    await Promise.all(this.closing)
    const { tree, arena, arenaBytes, inFlight, apart, device, sequence, onFree } = this.parts
    const { plan: index, layout } = tree.layouts.nodes[node]!
    const [broken] = this.histories.has(node) || node < tree.layouts.ahead ? [] : brokenBy(tree, node)
    if (broken !== undefined) throw new OpeningFailed(broken)
    const { name, source, body } = tree.plans[index]!
    const plan = { ...placed(body, layout), inFlight }
    const roots = apartOf(plan)
    const specs = roots.map((buffer): ValueSpec => ({ ...specOf(buffer), name: apartName(name, buffer) }))
    const { signal } = this.ending
    const opening = async (blocks: ReadonlyMap<string, number>): Promise<Executable> => {
      const byBuffer = new Map(roots.map((buffer, i) => [buffer.id, blocks.get(specs[i]!.name)!] as const))
      const { spec, flat, arena: whole } = specInArena(plan, arenaBytes, byBuffer)
      const onHost = device.info.kind === 'host'
      const references = onHost ? referencesFor(source, flat, this.parts.references) : { byKernel: {} }
      if ('errors' in references) throw new OpeningFailed(together(references.errors))
      const program = await device.program(spec, {
        shared: [...byBuffer, ...(arena === 0 ? [] : [[whole, arena] as const])],
        sequence,
        ...(onHost ? { references: references.byKernel } : {}),
      })
      warnOfKeptFiles()
      try {
        // States have their first values already, and keep the present ones.
        const filled = new Set(byBuffer.keys())
        const failure = await loadParams(plan, program, this.parts.params, filled, this.filling.signal)
        if (failure !== undefined) throw new OpeningFailed(failure)
        signal.throwIfAborted()
      } catch (error) {
        await program.close()
        if (error === this.filling.signal.reason) throw new OpeningFailed(sourceGivenUp(name))
        throw error
      }
      return new ProgramExecutable(plan, program, device, onFree)
    }
    const executable = await withBlocks(apart, specs, opening, signal)
    this.made++
    const before = this.histories.get(node)
    if (before !== undefined) this.remade++
    this.histories.set(node, {
      made: (before?.made ?? 0) + 1,
      wantedBy: by,
      closedBy: before?.closedBy,
      isOpen: true,
    })
    return executable
  }
}
