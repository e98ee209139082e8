// What sessions and the parameters that they share know of each other. A write to shared parameters happens
// between two ticks of every session that reads them: all of these sessions hold back their next ticks until
// it has ended.
import * as E from 'fp-ts/lib/Either.js'
import type { RunError } from '../errors.js'
import type { ValueSpec } from '../values.js'
import type { ParamSource } from './params.js'

/** A session that reads shared parameters. */
export interface Reader {
  /** The session closes, and its memory is freed. */
  readonly over: boolean
  /** As `Keeper.between`: also while the session closes. */
  between<A>(body: (next: number) => Promise<A>): Promise<A>
  /** The type of a parameter, where the plan that runs has it from these shared parameters. */
  specOf(params: object, name: string): ValueSpec | undefined
  /** Writes the copies that the session has of its own: in pinned memory, and on other devices. */
  copyIn(params: object, name: string, bytes: Uint8Array): Promise<void>
  /** A write that has failed in part: no tick may see it. */
  broken(failure: RunError): void
}

/** A value to write. The type and the bytes are known once a session needs the parameter. */
export interface SharedValue {
  readonly name: string
  readonly source: ParamSource
  spec?: ValueSpec
  bytes?: Uint8Array
}

/** A write to shared parameters; `ended` resolves to its error where a value may be written in part. */
export interface SharedWrite {
  readonly values: readonly SharedValue[]
  readonly ended: Promise<'written' | 'refused' | RunError>
}

/** What a session writes to memory of its own in the same write. */
export interface OwnWrite {
  readonly reader: Reader
  /** Throws where nothing may be written. */
  check(): void
  copy(): Promise<void>
}

/** The shared parameters that a plan is opened with. */
export interface Sharing {
  /** Stands for them. */
  readonly params: object
  /** Whether a parameter of the plan is one of them. */
  readonly has: (name: string) => boolean
  /**
   * The session that runs the plan takes part in all writes from now on. Returns those that the plan's own
   * copies of parameters may lack: they have begun, or happened, since the opening began.
   */
  join(reader: Reader, names: readonly string[]): readonly SharedWrite[]
  leave(reader: Reader): void
  /** Resolves to the number of the first tick of the session that sees the values. */
  write(values: readonly SharedValue[], at: string, own: OwnWrite): Promise<number>
  /** The plan was not opened, or is closed. */
  end(): void
}

/**
 * Holds back the next tick of a session from when its ticks have ended until `until` is settled. Resolves to
 * the number of that tick, or to the failure of a session that runs no more.
 */
export const hold = (reader: Reader, until: Promise<unknown>): Promise<E.Either<unknown, number>> =>
  new Promise(resolve => {
    const held = reader.between(async next => {
      resolve(E.right(next))
      await until
    })
    held.catch(error => resolve(E.left(error)))
  })
