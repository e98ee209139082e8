// Writes to parameters that sessions share: between two ticks of every session that reads them.
import * as E from 'fp-ts/lib/Either.js'
import type { NativeFailure } from '../addon.js'
import { type Block, waitUses } from '../device/block.js'
import { quietly } from '../device/ending.js'
import type { Lane } from '../device/lane.js'
import { type DeviceError, RunError } from '../errors.js'
import { arrayOver, copied, fill, type ValueSpec } from '../values.js'
import { copyFailed, notASource, severalSharedTypes, unknownShared, wrongSharedWrite } from './messages.js'
import { fillParam, type ParamSource } from './params.js'
import {
  hold,
  type OwnWrite,
  type Reader,
  type SharedValue,
  type SharedWrite,
  type Sharing,
} from './sharing.js'

/** A parameter on the device. */
export interface Resident {
  readonly spec: ValueSpec
  readonly block: Block
}

/** The parameters that are written. */
export interface SharedMemory {
  /** Stands for them. */
  readonly params: object
  /** What was written last, or what they were made of. */
  readonly sources: Record<string, ParamSource>
  readonly lane: Lane
  readonly types: ReadonlyMap<string, ValueSpec>
  readonly resident: ReadonlyMap<string, Resident>
  staging(spec: ValueSpec): Block
  /** Frees a parameter that is on the device. */
  drop(name: string, why: string): void
  /** Aborted when they are disposed of. */
  readonly closing: AbortSignal
  /** Throws once they are disposed of. */
  alive(): void
}

/** A write whose turn comes. */
interface Turn {
  readonly values: readonly SharedValue[]
  /** Where it was called. */
  readonly at: string
  /** The sessions that read the values, each with its next tick once it is held back. */
  readonly held: readonly (readonly [Reader, Promise<E.Either<unknown, number>>])[]
  /** The end of the write before. */
  readonly before: Promise<unknown>
  readonly own: OwnWrite | undefined
}

/** A value's type has become known since its write was called, and its source has not filled the bytes. */
const unfilled = new Error('a source that has not been called')

export class SharedWrites {
  /** The end of the last write. */
  last: Promise<unknown> = Promise.resolve()
  /** The sessions, with the names of the parameters that their plans read. */
  readonly #readers = new Map<Reader, Set<string>>()
  /** Writes that have not ended; and for each plan that is being opened, those since its opening began. */
  readonly #writes = new Set<SharedWrite>()
  readonly #missed = new Set<SharedWrite[]>()

  constructor(private readonly parts: SharedMemory) {}

  /** Writes values by name; throws before anything is written where one does not fit. */
  async write(given: readonly (readonly [string, unknown])[], at: string): Promise<void> {
    const { sources } = this.parts
    const values = given.map(([name, source]): SharedValue => {
      if (!Object.hasOwn(sources, name)) throw unknownShared(at, name, Object.keys(sources))
      if (typeof source === 'function') return { name, source: source as ParamSource }
      if (!ArrayBuffer.isView(source)) throw notASource(at, name, source)
      const array = source as Exclude<ParamSource, (...given: never[]) => unknown>
      const spec = this.#typeOf(name)
      return spec === undefined ? { name, source: copied(array) } : valueAs(name, array, spec, at)
    })
    for (;;) {
      const filling = this.#fillAll(values, at)
      // Not awaited without need: what is called next, as disposal is, comes after the write.
      if (filling !== undefined) await filling
      try {
        await this.#write(values, at)
        return
      } catch (failure) {
        if (failure !== unfilled) throw failure
      }
    }
  }

  share(has: (name: string) => boolean): Sharing {
    const missed = [...this.#writes]
    this.#missed.add(missed)
    return {
      params: this.parts.params,
      has,
      join: (reader, names) => {
        this.#missed.delete(missed)
        this.#readers.set(reader, new Set([...(this.#readers.get(reader) ?? []), ...names]))
        return missed.splice(0)
      },
      leave: reader => void this.#readers.delete(reader),
      write: (values, at, own) => this.#write(values, at, own),
      end: () => void this.#missed.delete(missed),
    }
  }

  /** The type of a parameter that a session needs. */
  #typeOf(name: string): ValueSpec | undefined {
    const known = this.parts.types.get(name)
    if (known !== undefined) return known
    for (const reader of this.#readers.keys()) {
      const spec = reader.specOf(this.parts.params, name)
      if (spec !== undefined) return spec
    }
    return undefined
  }

  /** Fills the bytes of all values whose types are known; a promise only where a source returns one. */
  #fillAll(values: readonly SharedValue[], at: string): Promise<void> | undefined {
    for (const value of values) {
      const spec = value.bytes === undefined ? this.#typeOf(value.name) : undefined
      if (spec === undefined) continue
      const bytes = new Uint8Array(spec.bytes)
      const filling = fillParam(bytes, value.source, spec, 'params', this.parts.closing)
      const filled = (failure: DeviceError | undefined): void => {
        if (failure) throw wrongSharedWrite(at, value.name, failure, failure.cause)
        Object.assign(value, { spec, bytes })
      }
      // A type may be known by the time that the source has ended.
      if (filling instanceof Promise) return filling.then(filled).then(() => this.#fillAll(values, at))
      filled(filling)
    }
    return undefined
  }

  /** All sessions are asked at once, so every one of them has the writes in the order of the calls. */
  async #write(values: readonly SharedValue[], at: string, own?: OwnWrite): Promise<number> {
    this.parts.alive()
    let end: (how: Awaited<SharedWrite['ended']>) => void
    const ended: SharedWrite['ended'] = new Promise(resolve => {
      end = resolve
    })
    const write = { values, ended }
    this.#writes.add(write)
    for (const missed of this.#missed) missed.push(write)
    const readers = [...this.#readers].filter(([, names]) => values.some(({ name }) => names.has(name)))
    const held = readers.map(([reader]) => [reader, hold(reader, ended)] as const)
    const carriedOut = this.#carryOut({ values, at, held, before: this.last, own }, how => {
      this.#writes.delete(write)
      end(how)
    })
    this.last = carriedOut.catch(() => undefined)
    return carriedOut
  }

  async #carryOut(turn: Turn, end: (how: Awaited<SharedWrite['ended']>) => void): Promise<number> {
    const { values, held, own } = turn
    const staged: (readonly [to: Block, from: Block])[] = []
    let how: Awaited<SharedWrite['ended']> = 'refused'
    try {
      const next = await this.#begun(turn)
      for (const { name, spec, bytes } of values) {
        const resident = this.parts.resident.get(name)
        if (resident === undefined) continue
        const staging = this.parts.staging(spec!)
        staged.push([resident.block, staging])
        new Uint8Array(staging.view()).set(bytes!)
      }
      how = 'written'
      for (const { name, source } of values) this.parts.sources[name] = source
      for (const [block, staging] of staged) {
        waitUses(block)
        this.parts.lane.copy(block, staging)
      }
      if (staged.length > 0) await this.parts.lane.synchronize()
      for (const [reader] of held)
        for (const { name, bytes } of values)
          if (bytes !== undefined && !reader.over) await reader.copyIn(this.parts.params, name, bytes)
      await own?.copy()
      return next
    } catch (failure) {
      if (how === 'refused') throw failure
      how = this.#broken(failure, turn)
      throw how
    } finally {
      // The sessions that wait for the end hear of it, whatever fails here.
      for (const [, staging] of staged) quietly(() => staging[Symbol.dispose]())
      end(how)
    }
  }

  /** Waits for the turn of a write, when no tick is in flight. Throws where nothing may be written. */
  async #begun({ values, at, held, before, own }: Turn): Promise<number> {
    let next = 0
    for (const [reader, holding] of held) {
      const begun = await holding
      if (E.isLeft(begun)) this.#readers.delete(reader)
      if (reader !== own?.reader) continue
      if (E.isLeft(begun)) throw begun.left
      next = begun.right
    }
    await before
    // No source is called while sessions wait: one that never answers would keep them from closing.
    for (const { name, source, bytes } of values)
      if (bytes === undefined && typeof source === 'function' && this.#typeOf(name) !== undefined)
        throw unfilled
    await this.#fillAll(values, at)
    for (const { spec } of values)
      for (const reader of this.#readers.keys()) {
        const other = spec && reader.specOf(this.parts.params, spec.name)
        if (other !== undefined && (other.bytes !== spec!.bytes || other.dtype !== spec!.dtype))
          throw severalSharedTypes(at, other, spec!)
      }
    own?.check()
    return next
  }

  /**
   * The values may be written in part: no session reads them any more, and later ones read the sources again.
   */
  #broken(failure: unknown, { values, at, held }: Turn): RunError {
    const names = values.map(({ name }) => name)
    const over = 'all sessions that read it'
    const error =
      failure instanceof RunError
        ? failure
        : copyFailed(at, `write ${names.join(', ')}`, failure as NativeFailure, over)
    for (const [reader] of held) reader.broken(error)
    for (const name of names)
      if (this.parts.resident.has(name)) this.parts.drop(name, 'a write to this parameter failed')
    return error
  }
}

/** An array as a value of this type. */
const valueAs = (name: string, given: ParamSource, spec: ValueSpec, at: string): SharedValue => {
  const bytes = new Uint8Array(spec.bytes)
  const source = arrayOver(bytes.buffer, 0, spec)
  const mismatch = fill(source, given, spec)
  if (mismatch) throw wrongSharedWrite(at, name, mismatch)
  return { name, source, spec, bytes }
}
