import * as E from 'fp-ts/lib/Either.js'
import { initialValue, provenanceOf } from '../../dsl/internal.js'
import type { Plan, PlanBuffer } from '../../dsl/ir/plan.js'
import type { NativeProgram } from '../addon.js'
import { type DeviceError, together } from '../errors.js'
import { fill } from '../values.js'
import { isFile, type Opened, type ParamFile } from './file-options.js'
import { missingState, paramThrew, unknownState, wrongParam } from './messages.js'
import { fillParam, lateSource, type ParamSource, type ParamSources } from './params.js'
import { specOf } from './ports.js'

/** Values of states before the first tick: by name, for some of them; or a file that has all of them. */
export type StateSources = ParamSources | ParamFile

/** The states of a plan by name. A state without a first value is a workspace, which nobody reads. */
export const statesByName = (plan: Plan): ReadonlyMap<string, PlanBuffer> => {
  const named = new Map<string, PlanBuffer>()
  for (const buffer of plan.buffers) {
    const { name, life, alias, init } = buffer
    if (life === 'state' && alias === undefined && init !== undefined && !named.has(name))
      named.set(name, buffer)
  }
  return named
}

/** The errors of the option `state` that can be found before anything is opened. */
export const checkState = (plan: Plan, given: Opened<StateSources> | undefined): readonly DeviceError[] => {
  if (given === undefined || isFile(given)) return []
  const states = statesByName(plan)
  return Object.entries(given).flatMap(([name, value]) => {
    const buffer = states.get(name)
    if (buffer === undefined) return [unknownState(name, [...states.keys()])]
    const mismatch = typeof value === 'function' ? lateSource(value) : fill(undefined, value, specOf(buffer))
    return mismatch ? [wrongParam(name, mismatch, 'state')] : []
  })
}

/** The source of each state, undefined for those that keep the plan's first value; or what is missing. */
const sourcesOf = (
  plan: Plan,
  given: Opened<StateSources> = {},
  elsewhere: ReadonlySet<number>,
): E.Either<DeviceError, (name: string) => ParamSource | undefined> => {
  if (!isFile(given)) return E.right(name => (Object.hasOwn(given, name) ? given[name] : undefined))
  const states = [...statesByName(plan).values()].filter(({ id }) => !elsewhere.has(id))
  const [first, ...others] = states.filter(({ name }) => !given.tensors.has(name) && !given.foreign.has(name))
  if (first === undefined) return E.right(name => given.source(name))
  const missing = (buffer: PlanBuffer): DeviceError => missingState(specOf(buffer), 'the file of states')
  return E.left(together([missing(first), ...others.map(missing)]))
}

/** The bytes that a state has in the graph before the first tick. */
export const firstState = (plan: Plan, buffer: PlanBuffer): E.Either<DeviceError, Uint8Array> => {
  const spec = specOf(buffer)
  const init = buffer.init === 'given' ? provenanceOf(plan)?.inits.get(buffer.id) : buffer.init
  if (init === undefined)
    return E.left(missingState(spec, 'the plan, which was not compiled in this process'))
  try {
    return E.right(new Uint8Array(initialValue(init, spec, buffer.name).buffer as ArrayBuffer))
  } catch (cause) {
    return E.left(paramThrew(buffer.name, cause, 'state'))
  }
}

/**
 * Gives every state its value before the first tick: that of its source, else the plan's. Those in
 * `elsewhere` get theirs from elsewhere.
 */
export const loadStates = async (
  plan: Plan,
  program: NativeProgram,
  given: Opened<StateSources> | undefined,
  elsewhere: ReadonlySet<number>,
  signal?: AbortSignal,
): Promise<DeviceError | undefined> => {
  const sources = sourcesOf(plan, given, elsewhere)
  if (E.isLeft(sources)) return sources.left
  const named = statesByName(plan)
  for (const buffer of plan.buffers) {
    if (buffer.life !== 'state' || buffer.alias !== undefined || buffer.init === undefined) continue
    if (elsewhere.has(buffer.id)) continue
    signal?.throwIfAborted()
    const source = named.get(buffer.name) === buffer ? sources.right(buffer.name) : undefined
    const first = source === undefined ? firstState(plan, buffer) : E.right(new Uint8Array(buffer.bytes))
    if (E.isLeft(first)) return first.left
    if (source !== undefined) {
      const failure = await fillParam(first.right, source, specOf(buffer), 'state', signal)
      if (failure) return failure
    }
    await program.load(buffer.id, first.right)
  }
  return undefined
}
