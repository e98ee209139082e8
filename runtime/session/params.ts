import type { HostArray } from '../../dsl/index.js'
import { lateFunction, lateResult } from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { NativeProgram } from '../addon.js'
import type { DeviceError } from '../errors.js'
import { lending, makeLendable, untilAborted } from '../lending.js'
import { arrayOver, fill, isThenable, type Mismatch, type ValueSpec } from '../values.js'
import {
  bytesAway,
  type Kind,
  missingParam,
  missingTensor,
  neverFills,
  paramThrew,
  wrongParam,
} from './messages.js'
import { specOf, type Written } from './ports.js'

/** The parameter whose bytes a function fills. */
export type ParamSpec = Pick<ValueSpec, 'name' | 'dtype' | 'shape' | 'bytes'>

/**
 * A parameter's value: a typed array of its elements, or a function that fills its bytes (little-endian,
 * row-major).
 */
export type ParamSource = HostArray | ((into: Uint8Array, spec: ParamSpec) => void | Promise<void>)

export type ParamSources = Readonly<Record<string, ParamSource>>

/**
 * The error of a function that fills nothing when it is called, as a generator does; undefined for any other.
 */
export const lateSource = (source: unknown): Mismatch | undefined => {
  const kind = lateFunction(source)
  return kind === undefined || kind === 'an async function' ? undefined : neverFills(kind)
}

const paramsOf = (plan: Plan): readonly PlanBuffer[] =>
  plan.buffers.filter(({ life, alias }) => life === 'param' && alias === undefined)

/** Parameters by name. A parameter that several devices read is resident on each of them. */
export const paramsByName = (plan: Plan): readonly (readonly [PlanBuffer, ...PlanBuffer[]])[] => {
  const named = new Map<string, [PlanBuffer, ...PlanBuffer[]]>()
  for (const buffer of paramsOf(plan)) {
    const known = named.get(buffer.name)
    if (known === undefined) named.set(buffer.name, [buffer])
    else known.push(buffer)
  }
  return [...named.values()]
}

/**
 * The errors of the given parameters, before anything is opened: missing, or of the wrong type or length. A
 * parameter that the plan does not have is no error, since a plan leaves out parameters that no output needs.
 * Those in `elsewhere` get their values from elsewhere. `path`: the file that all given ones are of.
 */
export const checkParams = (
  plan: Plan,
  given: ParamSources,
  written: Written,
  elsewhere: ReadonlySet<number> = new Set(),
  path?: string,
): readonly DeviceError[] =>
  paramsByName(plan).flatMap(([buffer]) =>
    elsewhere.has(buffer.id)
      ? []
      : problemOf(plan, given, specOf(buffer, written('param', buffer.name)), path),
  )

const problemOf = (
  plan: Plan,
  given: ParamSources,
  spec: ValueSpec,
  path: string | undefined,
): readonly DeviceError[] => {
  const { name } = spec
  const value = Object.hasOwn(given, name) ? given[name] : undefined
  if (value === undefined && path !== undefined) return [missingTensor(spec, path, Object.keys(given))]
  if (value === undefined) {
    const names = new Set(paramsOf(plan).map(param => param.name))
    return [
      missingParam(
        spec,
        Object.keys(given).filter(other => !names.has(other)),
      ),
    ]
  }
  const mismatch = typeof value === 'function' ? lateSource(value) : fill(undefined, value, spec)
  return mismatch ? [wrongParam(name, mismatch)] : []
}

/**
 * Gives every parameter its value, on every device that has it. Pinned parameters are filled in place, device
 * parameters through one staging buffer at a time. Those in `elsewhere` get their values from elsewhere.
 * Stops at the first source that throws.
 */
export const loadParams = async (
  plan: Plan,
  program: NativeProgram,
  given: ParamSources,
  elsewhere: ReadonlySet<number>,
  signal?: AbortSignal,
): Promise<DeviceError | undefined> => {
  for (const all of paramsByName(plan)) {
    const [buffer, ...others] = all.filter(({ id }) => !elsewhere.has(id))
    if (buffer === undefined) continue
    const source = given[buffer.name]!
    if (typeof source === 'function') signal?.throwIfAborted()
    const spec = specOf(buffer)
    const pinned = buffer.space === 'pinned'
    const bytes = pinned ? pinnedBytes(program, buffer) : new Uint8Array(buffer.bytes)
    const failure = await fillParam(bytes, source, spec, 'params', signal)
    if (failure) return failure
    if (!pinned) for (const { id } of [buffer, ...others]) await program.load(id, bytes)
  }
  return undefined
}

/** The bytes of a pinned parameter, in place. */
const pinnedBytes = (program: NativeProgram, { id, bytes }: PlanBuffer): Uint8Array => {
  const view = program.view(id, 0)
  makeLendable(view, () => {
    program.lend(view)
    return () => program.endLoan(view)
  })
  return new Uint8Array(view, 0, bytes)
}

/** Copies a value into each of its buffers: pinned memory, or memory of a device. */
export const putValue = async (
  program: Pick<NativeProgram, 'view' | 'load'>,
  buffers: readonly PlanBuffer[],
  bytes: Uint8Array,
): Promise<void> => {
  for (const { id, space } of buffers)
    if (space === 'pinned') new Uint8Array(program.view(id, 0), 0, bytes.length).set(bytes)
    else await program.load(id, bytes)
}

type Filled = DeviceError | undefined

/**
 * Fills the bytes of a parameter, or of a state, from its source; or the error. A promise only where the
 * source is a function that returns one, so that any other write is placed in the turn of its call. Where the
 * signal is aborted before that settles, its reason is thrown, and the bytes stay lent to the source until it
 * has settled.
 */
export const fillParam = (
  bytes: Uint8Array,
  source: ParamSource,
  spec: ValueSpec,
  kind: Kind = 'params',
  signal?: AbortSignal,
): Filled | Promise<Filled> => {
  if (typeof source !== 'function') {
    const mismatch = fill(arrayOver(bytes.buffer as ArrayBuffer, bytes.byteOffset, spec), source, spec)
    return mismatch && wrongParam(spec.name, mismatch, kind)
  }
  const late = lateSource(source)
  if (late) return wrongParam(spec.name, late, kind)
  const judged = (returned: unknown): Filled => {
    const found = lateResult(returned)
    if (found !== undefined) return wrongParam(spec.name, neverFills(found), kind)
    return bytes.byteLength < spec.bytes ? wrongParam(spec.name, bytesAway, kind) : undefined
  }
  const failed = (cause: unknown): Filled => {
    if (signal?.aborted && cause === signal.reason) throw cause
    return paramThrew(spec.name, cause, kind)
  }
  try {
    const { name, dtype, shape } = spec
    const returned = lending(bytes, () => source(bytes, { name, dtype, shape, bytes: spec.bytes }))
    return isThenable(returned) ? untilAborted(returned, signal).then(judged).catch(failed) : judged(returned)
  } catch (cause) {
    return failed(cause)
  }
}

/** The device parameters of a plan, on the devices that `holds` names: their buffers by name. */
export const deviceParams = (
  plan: Plan,
  holds: (device: number) => boolean,
): readonly { readonly spec: ValueSpec; readonly ids: readonly number[] }[] =>
  paramsByName(plan).flatMap(all => {
    const ids = all.filter(({ space, device }) => space === 'device' && holds(device)).map(({ id }) => id)
    return ids.length === 0 ? [] : [{ spec: specOf(all[0]), ids }]
  })
