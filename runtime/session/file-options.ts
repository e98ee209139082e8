import * as E from 'fp-ts/lib/Either.js'
import type { TaskEither } from 'fp-ts/lib/TaskEither.js'
import { badOption, type Check, check, object } from '../device/settings/checks.js'
import { type DeviceError, together } from '../errors.js'
import type { Safetensors, SafetensorsFaults } from '../files/safetensors.js'
import { untilAborted } from '../lending.js'
import { thrown } from '../values.js'
import { cancelled, fromFile, type Kind } from './messages.js'
import type { ParamSources } from './params.js'

// Values of parameters and states that a file has under their names.

/** A file of values by name: open, or as `safetensors(path)`, which Braid then opens and closes. */
export type ParamFile = Safetensors | TaskEither<SafetensorsFaults, Safetensors>

/** What an option is once its file, if it has one, is open. */
export type Opened<A> = Exclude<A, TaskEither<SafetensorsFaults, Safetensors>>

/** The options that may be a file, in `open` and in `swap`. */
type FileOptions = { readonly [K in Kind]?: unknown }
export type WithOpenFiles<O extends FileOptions> = Omit<O, Kind> & {
  readonly [K in Kind]?: Opened<O[K]>
}

/** The checks of these options, by which a value that is no file is refused too. */
export const fileChecks: Readonly<Record<Kind, Check>> = {
  params: check(
    "values by name, safetensors('model.safetensors'), or what params(device, …) made",
    object.holds,
  ),
  state: check(
    "values of states by name, or safetensors('state.safetensors')",
    value => object.holds(value) && !(value instanceof URL),
  ),
}

export const isFile = (given: object): given is Safetensors =>
  'source' in given &&
  typeof given.source === 'function' &&
  'tensors' in given &&
  given.tensors instanceof Map

/** The tensors of a file, each as the source of the parameter of its name. */
export const sourcesOfFile = (file: Safetensors): ParamSources =>
  Object.fromEntries(
    [...file.tensors.keys(), ...file.foreign.keys()].map(name => [name, file.source(name)] as const),
  )

/** Values by name, or a file's. */
export const sourcesFrom = (given: ParamSources | Safetensors): ParamSources =>
  isFile(given) ? sourcesOfFile(given) : given

/**
 * Runs the body with the files of those options that say how to open one, and closes them again: each once no
 * read of it is under way, for which nobody waits once the signal is aborted. In all other options, values of
 * the wrong kind too, the body has what was given.
 */
export const withFiles = async <O extends FileOptions, A>(
  options: O,
  [name, ...others]: readonly Kind[],
  signal: AbortSignal | undefined,
  body: (options: WithOpenFiles<O>) => Promise<E.Either<DeviceError, A>>,
): Promise<E.Either<DeviceError, A>> => {
  if (name === undefined) return await body(options as WithOpenFiles<O>)
  const rest = (more: O): Promise<E.Either<DeviceError, A>> => withFiles(more, others, signal, body)
  let opening: unknown
  try {
    opening = options[name]
  } catch {
    // The check of the options meets it too, and says so.
  }
  if (typeof opening !== 'function') return await rest(options)
  const refused = badOption(name, fileChecks[name].wanted, opening)
  let opened: unknown
  try {
    const begun: unknown = opening()
    opened = await untilAborted(Promise.resolve(begun), signal).catch(reason => {
      if (signal?.aborted) void Promise.resolve(begun).then(closeFile, () => undefined)
      throw reason
    })
  } catch (cause) {
    if (signal?.aborted && cause === signal.reason) return E.left(cancelled(cause))
    return E.left({ ...refused, found: `a function that threw: ${thrown(cause)}`, cause })
  }
  if (isLeftOfFile(opened)) {
    const [first, ...more] = opened.left
    return E.left(together([fromFile(first, name), ...more.map(fault => fromFile(fault, name))]))
  }
  if (!isRightOfFile(opened)) return E.left(refused)
  const file = opened.right
  try {
    return await rest({ ...options, [name]: file })
  } finally {
    await untilAborted(closing(file), signal).catch(() => undefined)
  }
}

/** Closing a file that has failed may fail as well, of which its reads have told. */
const closing = async (file: Safetensors): Promise<void> => {
  await file[Symbol.asyncDispose]()
}

/** A file that was opened too late. */
const closeFile = (opened: unknown): void => {
  if (isRightOfFile(opened)) void closing(opened.right).catch(() => undefined)
}

const isTagged = (value: unknown, tag: string): boolean =>
  typeof value === 'object' && value !== null && '_tag' in value && value._tag === tag
const isLeftOfFile = (value: unknown): value is E.Left<SafetensorsFaults> =>
  isTagged(value, 'Left') && Array.isArray((value as E.Left<unknown>).left)
const isRightOfFile = (value: unknown): value is E.Right<Safetensors> => {
  const right = isTagged(value, 'Right') ? (value as E.Right<unknown>).right : undefined
  return typeof right === 'object' && right !== null && isFile(right)
}
