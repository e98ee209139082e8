import { placed } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeDevice, NativeSequence } from '../addon.js'
import { together } from '../errors.js'
import { loadParams, type ParamSources } from '../session/params.js'
import { specOf } from '../session/ports.js'
import { type References, referencesFor } from '../session/references.js'
import { type SharedParams, withBlocks } from '../session/shared-params.js'
import type { ValueSpec } from '../values.js'
import { type Executable, ProgramExecutable, specInArena } from './executable.js'
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
  /** Bytes beside the arena that executables may take; then the ones that were launched longest ago are closed. */
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

interface Entry {
  readonly opening: Promise<Executable>
  executable: Executable | undefined
  used: number
}

/** The executables of a tree, by node, within a budget of bytes. */
export class Executables {
  /** How many were made, and how many of them for a node that had had one before. */
  made = 0
  remade = 0
  private readonly entries = new Map<number, Entry>()
  private readonly known = new Set<number>()
  private readonly closing = new Set<Promise<void>>()
  private uses = 0

  constructor(private readonly parts: ExecutableParts) {}

  get open(): number {
    return this.entries.size
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

  get(node: number): Promise<Executable> {
    const known = this.entries.get(node)
    if (known !== undefined) return known.opening
    const entry: Entry = { opening: this.make(node), executable: undefined, used: ++this.uses }
    this.entries.set(node, entry)
    entry.opening.then(
      executable => {
        entry.executable = executable
        this.shrink(node)
      },
      () => this.entries.delete(node),
    )
    return entry.opening
  }

  /** Closes those that are idle. Their layouts stay. */
  async evict(keep = -1): Promise<void> {
    for (const [node, { executable }] of this.entries)
      if (node !== keep && executable !== undefined) this.drop(node, executable)
    await Promise.all(this.closing)
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.entries.values()].map(({ opening }) => opening))
    const all = [...this.entries.values()].map(({ executable }) => executable?.close())
    await Promise.all([...all, ...this.closing])
    this.entries.clear()
  }

  private shrink(newest: number): void {
    const oldest = [...this.entries].sort((a, b) => a[1].used - b[1].used)
    for (const [node, { executable }] of oldest) {
      if (this.bytes <= this.parts.budget) return
      if (node !== newest && executable !== undefined) this.drop(node, executable)
    }
  }

  private drop(node: number, executable: Executable): void {
    if (executable.ticks.flying > 0) return
    this.entries.delete(node)
    const closed = executable.close()
    this.closing.add(closed)
    closed.then(
      () => this.closing.delete(closed),
      () => this.closing.delete(closed),
    )
  }

  private async make(node: number): Promise<Executable> {
    // An executable of the same node that is being closed has the same pinned parameters and streams to give back.
    await Promise.all(this.closing)
    const { tree, arena, arenaBytes, inFlight, apart, device, sequence, onFree } = this.parts
    const { plan: index, layout } = tree.layouts.nodes[node]!
    const [broken] = this.known.has(node) || tree.layouts.isWhole ? [] : brokenBy(tree, node)
    if (broken !== undefined) throw new Error(`${broken.subject}: ${broken.found}`)
    const { name, source, body } = tree.plans[index]!
    const plan = { ...placed(body, layout), inFlight }
    const roots = apartOf(plan)
    const specs = roots.map((buffer): ValueSpec => ({ ...specOf(buffer), name: apartName(name, buffer) }))
    const executable = await withBlocks(apart, specs, async blocks => {
      const byBuffer = new Map(roots.map((buffer, i) => [buffer.id, blocks.get(specs[i]!.name)!] as const))
      const { spec, flat, arena: whole } = specInArena(plan, arenaBytes, byBuffer)
      const onHost = device.info.kind === 'host'
      const references = onHost ? referencesFor(source, flat, this.parts.references) : { byKernel: {} }
      if ('errors' in references) throw new Error(together(references.errors).found)
      const program = await device.program(spec, {
        shared: [...byBuffer, ...(arena === 0 ? [] : [[whole, arena] as const])],
        sequence,
        ...(onHost ? { references: references.byKernel } : {}),
      })
      // States have their first values already, and keep the present ones.
      const failure = await loadParams(plan, program, this.parts.params, new Set(byBuffer.keys()))
      if (failure !== undefined) {
        await program.close()
        throw new Error(failure.found)
      }
      return new ProgramExecutable(plan, program, onFree)
    })
    this.made++
    if (this.known.has(node)) this.remade++
    this.known.add(node)
    return executable
  }
}
