import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Block } from '../device/block.js'
import { sharedHandle } from '../device/block.js'
import { coreOfDevice, Device } from '../device/device.js'
import type { Lane } from '../device/lane.js'
import { openFailure } from '../device/open-failure.js'
import { OutOfMemoryError } from '../device/out-of-memory.js'
import { type DeviceError, together } from '../errors.js'
import { unreadable, warnCloseFailed } from '../session/messages.js'
import { checkParams, type ParamSource, type ParamSources } from '../session/params.js'
import { specOf } from '../session/ports.js'
import {
  OpeningFailed,
  type SharedParams,
  params as shareParams,
  withBlocks,
} from '../session/shared-params.js'
import { firstState } from '../session/state.js'
import { copied, type ValueSpec } from '../values.js'
import { CopiedOut } from './copied-out.js'
import { apartName, apartOf, Executables } from './executables.js'
import { Launcher } from './launcher.js'
import { noArena } from './messages.js'
import type { TreeOptions } from './options.js'
import { checkTreeOptions } from './options.js'
import { type PreparedTree, prepareTree, readTree } from './prepare.js'
import type { TreeMemory } from './readers.js'

/** All that a tree has open. */
export interface OpenTree {
  readonly tree: PreparedTree
  readonly device: Device
  readonly launcher: Launcher
  readonly executables: Executables
  readonly arenaBytes: number
  /** After the last launch has completed. */
  free(): Promise<void>
}

/** Opens the device, takes the arena, fills parameters and states. After an error nothing stays open. */
export const openTree = async (
  given: unknown,
  options: TreeOptions,
): Promise<E.Either<DeviceError, OpenTree>> => {
  const checked = checkAll(given, options)
  if (E.isLeft(checked)) return E.left(together(checked.left as [DeviceError, ...DeviceError[]]))
  const { tree, params } = checked.right
  const opened = await deviceOf(options)
  if (E.isLeft(opened)) return opened
  const { device, own } = opened.right
  const core = coreOfDevice(device)
  const copiedOut = own ? new CopiedOut(device, core) : undefined
  const undo: (() => unknown)[] = copiedOut === undefined ? [] : [() => copiedOut.end()]
  try {
    const lane = device.lane({ name: 'plan tree' })
    undo.push(() => lane[Symbol.dispose]())
    const arenaBytes = Math.max(tree.layouts.bytes, options.arena ?? 0)
    const arena = arenaOf(lane, arenaBytes, tree.layouts.bytes, options)
    if (arena !== undefined) undo.push(() => arena[Symbol.dispose]())
    const apart = await shareParams(device, sourcesApart(tree, params))
    undo.push(() => apart[Symbol.asyncDispose]())
    // Filled now, so that what a source throws is an error of the opening.
    await withBlocks(apart, specsApart(tree), async () => undefined)
    const memory = { device, core, lane, arena, copiedOut }
    return E.right(assembled({ tree, memory, arenaBytes, apart, params, options, undo }))
  } catch (error) {
    for (const step of undo.reverse()) await step()
    return E.left(error instanceof OpeningFailed ? error.failure : openFailure(error, device.name))
  }
}

const arenaOf = (lane: Lane, bytes: number, least: number, { pool }: TreeOptions): Block | undefined => {
  if (bytes === 0) return undefined
  try {
    return lane.malloc(bytes, { ...(pool === undefined ? {} : { pool }), site: 'plan tree: arena' })
  } catch (error) {
    if (!(error instanceof OutOfMemoryError)) throw error
    throw new OpeningFailed(noArena(openFailure(error, lane.name), bytes, least))
  }
}

/** The tree with its layouts and parameters, or every error of it and of the options. */
const checkAll = (
  given: unknown,
  options: TreeOptions,
): E.Either<readonly DeviceError[], { readonly tree: PreparedTree; readonly params: ParamSources }> => {
  try {
    const wrong = checkTreeOptions(options)
    const spec = readTree(given)
    if (E.isLeft(spec)) return E.left([...wrong, spec.left])
    if (wrong.length > 0) return E.left(wrong)
    const tree = prepareTree(spec.right, options.variants)
    if (E.isLeft(tree)) return tree
    const params = taken(options.params ?? {})
    const missing = tree.right.plans.flatMap(({ source }) => checkParams(source, params, () => undefined))
    return missing.length > 0 ? E.left(missing) : E.right({ tree: tree.right, params })
  } catch (cause) {
    // A getter or proxy of the caller threw.
    return E.left([unreadable(cause)])
  }
}

const deviceOf = async ({
  device = 'auto',
  host,
}: TreeOptions): Promise<E.Either<DeviceError, { readonly device: Device; readonly own: boolean }>> => {
  if (device instanceof Device) return E.right({ device, own: false })
  const opened = await Device.open(device, host === undefined ? {} : { host })()
  return E.isLeft(opened) ? opened : E.right({ device: opened.right, own: true })
}

/** The caller may change its arrays afterwards. */
const taken = (params: ParamSources): ParamSources =>
  Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, ArrayBuffer.isView(value) ? copied(value) : value]),
  )

const specsApart = ({ plans }: PreparedTree): readonly ValueSpec[] =>
  plans.flatMap(({ name, body }) =>
    apartOf(body.source.plan).map(buffer => ({ ...specOf(buffer), name: apartName(name, buffer) })),
  )

/** The first values of what lives on from launch to launch. */
const sourcesApart = (tree: PreparedTree, params: ParamSources): ParamSources => {
  const sources: Record<string, ParamSource> = { ...params }
  for (const { name, source, body } of tree.plans)
    for (const buffer of apartOf(body.source.plan))
      if (buffer.life === 'state')
        sources[apartName(name, buffer)] = into => into.set(stateBytes(source, buffer))
  return sources
}

const stateBytes = (plan: Plan, buffer: Plan['buffers'][number]): Uint8Array => {
  const first = firstState(plan, buffer)
  if (E.isRight(first)) return first.right
  const { subject, wanted, found, cause } = first.left
  throw new Error(`${subject}: wanted ${wanted}, found ${found}`, { cause })
}

interface Parts {
  readonly tree: PreparedTree
  readonly memory: Omit<TreeMemory, 'sequence'>
  readonly arenaBytes: number
  readonly apart: SharedParams
  readonly params: ParamSources
  readonly options: TreeOptions
  readonly undo: readonly (() => unknown)[]
}

const assembled = (parts: Parts): OpenTree => {
  const { tree, memory, arenaBytes, apart, params, options, undo } = parts
  const { device, core, arena } = memory
  const sessions = core.native.sessions(0)
  const sequence = sessions.sequence()
  const inFlight = options.inFlight ?? 2
  // What the addon calls, and what frees a tree that was lost, must not keep the launcher: the places of launches
  // keep the tree, and whatever else called them.
  const reached: { launcher?: WeakRef<Launcher> } = {}
  const executables = new Executables({
    ...{ tree, device: sessions, sequence, arenaBytes, apart, inFlight },
    arena: arena === undefined ? 0 : sharedHandle(arena),
    params,
    references: options.references ?? {},
    budget: options.executables ?? Number.POSITIVE_INFINITY,
    onFree: () => reached.launcher?.deref()?.wake(),
  })
  const launcher: Launcher = new Launcher({
    ...{ tree, executables, inFlight },
    waiting: options.waiting ?? 64 * 2 ** 20,
    memory: { ...memory, sequence },
    poison: options.poison ?? false,
  })
  reached.launcher = new WeakRef(launcher)
  const { uses } = launcher.slots
  const letGoOfUses = (): void => {
    for (const use of uses.flatMap(each => each.splice(0))) {
      if (!core.closed) arena?.keepUntil(use)
      use[Symbol.dispose]()
    }
  }
  const steps = [() => executables.close(), () => sessions.close(), letGoOfUses, ...[...undo].reverse()]
  const free = async (): Promise<void> => {
    for (const step of steps)
      try {
        await step()
      } catch (error) {
        // After a failure of the device nothing that it is asked succeeds.
        if (reached.launcher?.deref()?.failure === undefined) warnCloseFailed(error)
      }
  }
  return { tree, device, launcher, executables, arenaBytes, free }
}
