import * as E from 'fp-ts/lib/Either.js'
import type { HostArray } from '../../dsl/index.js'
import { here } from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import { showSpec } from '../../dsl/ir/tensor.js'
import type { NativeFailure } from '../addon.js'
import type { RunError } from '../errors.js'
import { SafetensorsError, writeSafetensors } from '../files/safetensors.js'
import { arrayOver, fill, type ValueSpec } from '../values.js'
import { copyFailed, type Kind, notValues, unknownName, wrongWrite } from './messages.js'
import type { OpenPlan } from './open-plan.js'
import { fillParam, type ParamSource, type ParamSources, paramsByName, putValue } from './params.js'
import { specOf } from './ports.js'
import type { Reader, SharedValue } from './sharing.js'
import { firstState, statesByName } from './state.js'

/** What a session's states and parameters need of it. */
export interface Keeper {
  /** The plan that runs. */
  readonly open: Pick<OpenPlan, 'plan' | 'program' | 'shared' | 'sharing'>
  /** The session closes. */
  readonly over: boolean
  /** Aborted when it closes, or its device has failed; its reason is the error of what has not begun. */
  readonly closing: AbortSignal
  /** Throws once the session was asked to close. */
  alive(): void
  /**
   * Runs the body after all ticks that are submitted, and before any that is not; bodies run in the order of
   * the calls. `next` is the number of the tick that comes after it.
   */
  between<A>(body: (next: number) => Promise<A>): Promise<A>
  /** A write that has failed in part: no tick may see it. */
  broken(failure: RunError): void
}

/** A value that lies on one device, on several, or in pinned memory. */
interface Kept {
  readonly spec: ValueSpec
  readonly buffers: readonly PlanBuffer[]
}

/** A value that is to be written, and its bytes. */
interface Write {
  readonly kept: Kept
  readonly bytes: Uint8Array
}

const keptIn = (plan: Plan, kind: Kind): ReadonlyMap<string, Kept> => {
  const named: readonly (readonly [PlanBuffer, ...PlanBuffer[]])[] =
    kind === 'state' ? [...statesByName(plan).values()].map(buffer => [buffer]) : paramsByName(plan)
  return new Map(named.map(buffers => [buffers[0].name, { spec: specOf(buffers[0]), buffers }]))
}

/**
 * The values of one kind that a session keeps from tick to tick, by name. What is asked of them happens
 * between two ticks: after all ticks that have been submitted when it is called, before all others. Calls
 * that follow one another without an `await` happen between the same two ticks.
 */
class KeptValues {
  #of: Plan | undefined
  #values: ReadonlyMap<string, Kept> = new Map()

  constructor(
    protected readonly kind: Kind,
    protected readonly keeper: Keeper,
  ) {}

  /** Of the plan that runs now. */
  get #kept(): ReadonlyMap<string, Kept> {
    const { plan } = this.keeper.open
    if (this.#of !== plan) {
      this.#of = plan
      this.#values = keptIn(plan, this.kind)
    }
    return this.#values
  }

  /** In the order of the plan. What no output needs is not in the plan. */
  get names(): readonly string[] {
    return [...this.#kept.keys()]
  }

  /** A copy of the value. Rejects with a `RunError`, or with a `DisposedError` once the session is closed. */
  async read(name: string): Promise<HostArray> {
    const at = here().toString()
    this.get(name, at)
    return this.between(() => this.copyOut(this.get(name, at), at))
  }

  /**
   * Sets a value, or several between the same two ticks: all of them or, after an error of the values, none.
   * A value is an array, copied at once; or a function that fills the bytes, where the write comes after what
   * it returns has settled. Resolves to the number of the first tick that sees them. Rejects as `read` does;
   * where the device fails in a write, the session is over.
   */
  write(name: string, value: ParamSource): Promise<number>
  write(values: ParamSources): Promise<number>
  async write(first: string | ParamSources, value?: ParamSource): Promise<number> {
    const at = here().toString()
    if (typeof first !== 'string' && (typeof first !== 'object' || first === null))
      throw notValues(at, this.kind, first)
    const given = typeof first === 'string' ? [[first, value] as const] : Object.entries(first)
    const writes = given.map(([name, source]) => {
      const kept = this.get(name, at)
      if (typeof source === 'function') return { kept, source, bytes: new Uint8Array(kept.spec.bytes) }
      const bytes = new Uint8Array(kept.spec.bytes)
      const mismatch = fill(arrayOver(bytes.buffer, 0, kept.spec), source, kept.spec)
      if (mismatch) throw wrongWrite(at, this.kind, name, mismatch)
      return { kept, bytes }
    })
    for (const { kept, source, bytes } of writes) {
      if (source === undefined) continue
      const { spec } = kept
      const filling = fillParam(bytes, source, spec, this.kind, this.keeper.closing)
      // Not awaited without need: what is called next, as close is, comes after the write.
      const failure = filling instanceof Promise ? await filling : filling
      if (failure) throw wrongWrite(at, this.kind, spec.name, failure, failure.cause)
    }
    return this.carryOut(writes, at)
  }

  protected carryOut(writes: readonly Write[], at: string): Promise<number> {
    return this.between(async next => {
      const now = writes.map(({ kept, bytes }) => ({ kept: this.still(kept, at), bytes }))
      for (const { kept, bytes } of now) await this.copyIn(kept, bytes, at)
      return next
    })
  }

  protected between<A>(body: (next: number) => Promise<A>): Promise<A> {
    this.keeper.alive()
    return this.keeper.between(body)
  }

  /**
   * A value that was looked up before the session may have gone over to another plan, which may have another
   * type.
   */
  protected still(kept: Kept, at: string): Kept {
    const now = this.get(kept.spec.name, at)
    if (now === kept) return now
    if (showSpec(now.spec) === showSpec(kept.spec)) return now
    throw wrongWrite(at, this.kind, kept.spec.name, {
      wanted: `a value of ${showSpec(now.spec)}, as the plan has it that the session went over to meanwhile`,
      found: `one of ${showSpec(kept.spec)}`,
      next: 'write it again',
    })
  }

  protected get(name: unknown, at: string): Kept {
    const kept = this.#kept.get(name as string)
    if (kept === undefined) throw unknownName(at, this.kind, name, this.names)
    return kept
  }

  protected all(): readonly Kept[] {
    return [...this.#kept.values()]
  }

  protected async copyIn({ spec, buffers }: Kept, bytes: Uint8Array, at: string): Promise<void> {
    try {
      await putValue(this.keeper.open.program, buffers, bytes)
    } catch (failure) {
      const error = copyFailed(at, `write ${spec.name}`, failure as NativeFailure, 'the session')
      this.keeper.broken(error)
      throw error
    }
  }

  protected async copyOut({ spec, buffers }: Kept, at: string): Promise<HostArray> {
    const { id, space } = buffers[0]!
    const { program } = this.keeper.open
    try {
      const bytes = space === 'pinned' ? program.view(id, 0).slice(0, spec.bytes) : await program.read(id)
      return arrayOver(bytes, 0, spec)
    } catch (failure) {
      throw copyFailed(at, `read ${spec.name}`, failure as NativeFailure)
    }
  }
}

/** The states of a session by name: what `scan`, `delay` and `hold` keep from tick to tick. */
export class SessionState extends KeptValues {
  constructor(keeper: Keeper) {
    super('state', keeper)
  }

  /**
   * Sets every state to its first value in the graph. Resolves to the number of the first tick that sees it.
   */
  async reset(): Promise<number> {
    const at = here().toString()
    this.keeper.alive()
    const { plan } = this.keeper.open
    const firsts = this.#firsts(at)
    return this.between(async next => {
      const now = this.keeper.open.plan === plan ? firsts : this.#firsts(at)
      for (const [kept, first] of now) await this.copyIn(kept, first, at)
      return next
    })
  }

  #firsts(at: string): readonly (readonly [Kept, Uint8Array])[] {
    const { plan } = this.keeper.open
    return this.all().map(kept => {
      const first = firstState(plan, kept.buffers[0]!)
      if (E.isLeft(first)) throw wrongWrite(at, 'state', kept.spec.name, first.left, first.left.cause)
      return [kept, first.right] as const
    })
  }

  /**
   * Writes all states, as they are between two ticks, to a .safetensors file: whole or not at all.
   * `open(plan, { state: safetensors(path) })` goes on with them. Rejects as `read` does, or with a
   * `SafetensorsError`.
   */
  async save(path: string | URL): Promise<void> {
    const at = here().toString()
    const copies = await this.between(async () => {
      const made: (readonly [ValueSpec, HostArray])[] = []
      for (const each of this.all()) made.push([each.spec, await this.copyOut(each, at)])
      return made
    })
    const entries = copies.map(([{ name, dtype, shape }, { buffer, byteOffset, byteLength }]) => ({
      name,
      dtype,
      shape,
      bytes: new Uint8Array(buffer, byteOffset, byteLength),
    }))
    const written = await writeSafetensors(path, entries)()
    if (E.isLeft(written)) throw new SafetensorsError(written.left)
  }
}

/**
 * The parameters of a session by name. A write to one that lies in memory that sessions share
 * (`params(device, source)`) is a write for all of them: see `SharedParams.write`.
 */
export class SessionParams extends KeptValues {
  constructor(
    keeper: Keeper,
    private readonly reader: Reader,
  ) {
    super('params', keeper)
  }

  protected override async carryOut(writes: readonly Write[], at: string): Promise<number> {
    const { sharing } = this.keeper.open
    const shared = writes.filter(({ kept }) => this.#isShared(kept))
    if (sharing === undefined || shared.length === 0) return super.carryOut(writes, at)
    this.keeper.alive()
    const values = shared.map(
      ({ kept: { spec }, bytes }): SharedValue => ({
        ...{ name: spec.name, spec, bytes },
        source: arrayOver(bytes.buffer as ArrayBuffer, 0, spec),
      }),
    )
    const alone = () =>
      writes
        .map(write => ({ ...write, kept: this.still(write.kept, at, shared.includes(write)) }))
        .filter(({ kept }) => !this.#isShared(kept))
    return sharing.write(values, at, {
      reader: this.reader,
      check: alone,
      copy: async () => {
        for (const { kept, bytes } of alone()) await this.copyIn(kept, bytes, at)
      },
    })
  }

  protected override still(kept: Kept, at: string, mayBeShared = false): Kept {
    const now = super.still(kept, at)
    if (mayBeShared || !this.#isShared(now)) return now
    throw wrongWrite(at, 'params', kept.spec.name, {
      wanted: 'a parameter of this session alone, as it was when the write was called',
      found: 'a parameter that sessions share: the plan that this session swapped to shares it',
      next: 'write it again',
    })
  }

  #isShared({ buffers }: Kept): boolean {
    return buffers.some(({ id }) => this.keeper.open.shared.has(id))
  }
}
