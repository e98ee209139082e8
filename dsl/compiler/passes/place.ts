import * as E from 'fp-ts/lib/Either.js'
import type { LaneSpec } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import type { PlanLane } from '../../ir/plan.js'
import { accessesOf } from '../analysis/accesses.js'
import { costsOf } from '../analysis/costs.js'
import { deviceOf, devicesWithBuffers, mostLanesOf } from '../analysis/device-of.js'
import type { Buffer, Lowered, Operation, Placed } from '../analysis/ir.js'
import { changed } from '../analysis/operations.js'
import { noLimit } from '../analysis/options.js'
import type { Passed } from '../analysis/pass.js'
import { fold, type LaneKind, type Logical } from './place/fold.js'
import { inPlace } from './place/in-place.js'
import { isChosen, type Spread, spread } from './place/spread.js'

//   upload · relu · download, none on a lane   →   upload on h2d · relu on main · download on d2h
//
// After this pass every operation has a lane (a CUDA stream) of its device: the user's where given; one for
// each direction of copies and one for collectives; and for all other work of a device as many as shorten the
// predicted tick. Each lane with a matmul that wants scratch has a workspace. The values of a window are made
// in its buffer where they can be.

const defaults: Readonly<Record<Operation['kind'], string>> = {
  upload: 'h2d',
  download: 'd2h',
  peer: 'peer',
  collective: 'comm',
  store: 'main',
  compute: 'main',
}
const priorities: Readonly<Record<LaneSpec['priority'], number>> = { low: -1, normal: 0, high: 1 }
const kinds: Readonly<Partial<Record<Operation['kind'], LaneKind>>> = {
  upload: 'in',
  download: 'out',
  peer: 'in',
  collective: 'comm',
}

/**
 * The most lanes for work without a lane of the user's, unless `lanes` says: more gain nothing on known
 * machines.
 */
const defaultLanes = 8

/** A name that no lane has yet, so that a chosen lane is never one of the user's. */
const unused = (name: string, taken: ReadonlySet<string>): string => {
  for (let n = 1; ; n++) {
    const candidate = n === 1 ? name : `${name}.${n}`
    if (!taken.has(candidate)) return candidate
  }
}

interface LaneDraft {
  readonly names: readonly string[]
  /** By lane. */
  readonly devices: readonly number[]
  readonly laneOf: Int32Array
  readonly tried: NonNullable<Placed['tried']>
}

/**
 * Lanes before folding: the user's, those for copies and collectives, and last those over which other work is
 * spread.
 */
const drafted = (ir: Lowered, most: number): LaneDraft => {
  const { operations } = ir
  const index = new Map<string, number>()
  const taken = new Set<string>()
  let latest: LaneSpec | undefined
  for (const { lane } of operations) {
    if (lane !== undefined && lane !== latest) taken.add(lane.name)
    latest = lane
  }
  const names: string[] = []
  const devices: number[] = []
  const named = (key: string, device: number, naming: () => string): number => {
    const known = index.get(key)
    if (known !== undefined) return known
    const name = naming()
    index.set(key, names.length)
    taken.add(name)
    devices.push(device)
    return names.push(name) - 1
  }
  // Most programs use one object for a lane wherever they give it.
  const known = new Map<LaneSpec, number>()
  const given = (lane: LaneSpec): number => {
    const id = named(`user ${lane.name}`, lane.device ?? 0, () => lane.name)
    known.set(lane, id)
    return id
  }
  const chosen = new Set<number>()
  const laneOf = new Int32Array(operations.length)
  for (let i = 0; i < laneOf.length; i++) {
    const { lane, kind } = operations[i]!
    if (lane !== undefined) laneOf[i] = known.get(lane) ?? given(lane)
    else if (isChosen(operations[i]!)) {
      chosen.add(deviceOf(operations[i]!))
      laneOf[i] = -1
    } else {
      const on = deviceOf(operations[i]!)
      laneOf[i] = named(`${kind} ${on}`, on, () => unused(lanesName(defaults[kind], on), taken))
    }
  }
  const tried: NonNullable<Placed['tried']>[number][] = []
  const left = [...chosen].sort((a, b) => a - b)
  for (let on = left.shift(); on !== undefined; on = left.shift()) {
    const own = devices.filter(device => device === on).length
    const found = spreadOn(
      ir,
      left,
      names.length,
      laneOf,
      Math.max(1, Math.min(most, ir.settings.lanes - own)),
    )
    laneOf.set(found.laneOf)
    for (let lane = names.length; lane < found.lanes; lane++) {
      const name = unused(lanesName(defaults.compute, on), taken)
      taken.add(name)
      devices.push(on)
      names.push(name)
    }
    tried.push(...found.tried)
  }
  // Values without elements may be all that a device has; their buffers have a home too.
  for (const on of devicesWithBuffers(ir))
    if (!devices.includes(on))
      named(`compute ${on}`, on, () => unused(lanesName(defaults.compute, on), taken))
  return { names, devices, laneOf, tried }
}

/**
 * Spreads the work of one device over its lanes, while the devices that are still to come have one lane each.
 */
const spreadOn = (
  ir: Lowered,
  left: readonly number[],
  fixed: number,
  laneOf: Int32Array,
  mostNew: number,
): Pick<Spread, 'lanes' | 'laneOf' | 'tried'> => {
  if (left.length === 0) return spread(ir, fixed, laneOf, mostNew)
  const { operations } = ir
  const elsewhere = (i: number): number => left.indexOf(deviceOf(operations[i]!))
  const given = laneOf.map((lane, i) => (lane !== -1 || elsewhere(i) < 0 ? lane : fixed + elsewhere(i)))
  const { lanes, laneOf: found, tried } = spread(ir, fixed + left.length, given, mostNew)
  return {
    lanes: lanes - left.length,
    laneOf: found.map((lane, i) => (laneOf[i] !== -1 ? lane : elsewhere(i) < 0 ? lane - left.length : -1)),
    tried,
  }
}

const lanesName = (name: string, device: number): string => (device === 0 ? name : `${name}@${device}`)

const logicalOf = (
  { operations }: Lowered,
  { names, laneOf }: Pick<LaneDraft, 'names' | 'laneOf'>,
  alone?: Float64Array,
): Logical[] => {
  const logical = names.map(name => ({ name, kind: undefined as LaneKind | undefined, priority: 0, work: 0 }))
  operations.forEach(({ kind, lane }, i) => {
    const known = logical[laneOf[i]!]!
    const own = kinds[kind] ?? 'work'
    known.kind = known.kind === undefined || known.kind === own ? own : 'work'
    if (lane !== undefined) known.priority = priorities[lane.priority] ?? 0
    if (alone !== undefined) known.work += alone[i]!
  })
  return logical.map(lane => ({ ...lane, kind: lane.kind ?? 'work' }))
}

/** `spreadOver`: the most lanes for work without a lane of the user's. */
export const place =
  (spreadOver = Number.POSITIVE_INFINITY) =>
  (ir: Lowered): Passed<Placed> => {
    const most = ir.settings.lanes === noLimit ? defaultLanes : ir.settings.lanes
    const draft = drafted(ir, Math.min(most, spreadOver))
    // The work of a lane matters only where lanes are folded.
    const allowed = mostLanesOf(ir.settings, 1 + Math.max(0, ...new Set(draft.devices)))
    const folds = draft.names.length > allowed
    const logical = logicalOf(ir, draft, folds ? costsOf(ir.operations, ir.settings).alone : undefined)
    const folded = foldedOn(logical, draft.devices, allowed)
    const laneOf = draft.laneOf.map(lane => folded[lane]!)
    const lanes: PlanLane[] = logical.map(({ name }, id) => {
      const members = logical.filter((_, other) => folded[other] === id)
      const names = members.length > 1 ? members.map(member => member.name).join('+') : name
      return {
        id,
        name: names.length <= limits.name ? names : `${names.slice(0, limits.name - 1)}…`,
        device: draft.devices[id]!,
        priority: members.reduce(
          (most, { priority }) => Math.max(most, priority),
          members.length > 0 ? -1 : 0,
        ),
      }
    })
    const placed = { ...ir, ...workspaces(ir, laneOf, lanes), lanes, laneOf, tried: draft.tried }
    return E.right(inPlace(placed))
  }

/** Each device's lanes become at most so many CUDA streams of that device. */
const foldedOn = (logical: readonly Logical[], devices: readonly number[], most: number): Int32Array => {
  const folded = Int32Array.from(logical.keys())
  for (const on of new Set(devices)) {
    const own = [...logical.keys()].filter(lane => devices[lane] === on)
    const within = fold(
      own.map(lane => logical[lane]!),
      most,
    )
    own.forEach((lane, i) => {
      folded[lane] = own[within[i]!]!
    })
  }
  return folded
}

/**
 * One buffer for each lane with a matmul that wants scratch, of the largest size wanted: a state, which all
 * ticks share; or of each tick's arena, where these are apart.
 */
const workspaces = (
  ir: Lowered,
  laneOf: Int32Array,
  lanes: readonly PlanLane[],
): Pick<Placed, 'operations' | 'buffers' | 'accesses'> => {
  if (ir.operations.every(operation => operation.workspace === 0)) return ir
  const buffers: Buffer[] = [...ir.buffers]
  const wanted = new Map<number, number>()
  ir.operations.forEach(({ workspace }, i) => {
    if (workspace > 0) wanted.set(laneOf[i]!, Math.max(workspace, wanted.get(laneOf[i]!) ?? 0))
  })
  const scratch = new Map<number, number>()
  for (const [lane, bytes] of wanted) {
    scratch.set(lane, buffers.length)
    buffers.push({
      name: `workspace(${lanes[lane]!.name})`,
      bytes,
      space: 'device',
      life: ir.settings.arenas > 1 ? 'tick' : 'state',
      root: buffers.length,
      offset: 0,
      device: lanes[lane]!.device,
    })
  }
  const operations = ir.operations.map((operation, i) =>
    operation.workspace === 0
      ? operation
      : changed(operation, { writes: [...operation.writes, scratch.get(laneOf[i]!)!] }),
  )
  return { operations, buffers, accesses: accessesOf(operations, buffers) }
}
