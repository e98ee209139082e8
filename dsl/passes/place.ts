import * as E from 'fp-ts/lib/Either.js'
import type { LaneSpec } from '../ir/graph.js'
import type { PlanLane } from '../ir/plan.js'
import type { Buffer, Lowered, Operation, Passed, Placed } from './ir.js'

const defaults: Readonly<Record<Operation['kind'], string>> = {
  upload: 'h2d',
  download: 'd2h',
  store: 'main',
  compute: 'main',
}
const priorities: Readonly<Record<LaneSpec['priority'], number>> = { low: -1, normal: 0, high: 1 }

interface Logical {
  readonly name: string
  priority: number
  copies: boolean
  work: number
}

/**
 * Which CUDA stream each logical lane becomes when there may be fewer: the lanes of most work keep their own, copies before compute
 * where there are two; each other lane joins the least busy one of its kind.
 */
const fold = (lanes: readonly Logical[], most: number): Int32Array => {
  const folded = Int32Array.from(lanes.keys())
  if (lanes.length <= most) return folded
  const byWork = (a: number, b: number): number => lanes[b]!.work - lanes[a]!.work || a - b
  const order = [...lanes.keys()].sort(byWork)
  const kept = order.slice(0, most)
  const others = order.slice(most)
  const isCopy = (lane: number): boolean => lanes[lane]!.copies
  // With two streams or more, one carries copies and one compute, if the graph has both.
  for (const kind of [true, false])
    if (most > 1 && !kept.some(lane => isCopy(lane) === kind) && others.some(lane => isCopy(lane) === kind)) {
      const taken = others.findIndex(lane => isCopy(lane) === kind)
      const [lane] = others.splice(taken, 1)
      others.unshift(kept.pop()!)
      kept.push(lane!)
    }
  const load = Float64Array.from(lanes, lane => lane.work)
  for (const lane of others) {
    const alike = kept.filter(other => isCopy(other) === isCopy(lane))
    const target = (alike.length > 0 ? alike : kept).reduce((least, other) =>
      load[other]! < load[least]! ? other : least,
    )
    folded[lane] = target
    load[target]! += load[lane]!
  }
  return folded
}

/** After this pass every operation has a lane (a CUDA stream): the user's where given, and every matmul that wants one its lane's workspace. */
export const place = (ir: Lowered): Passed<Placed> => {
  const { settings, operations } = ir
  const index = new Map<string, number>()
  const logical: Logical[] = []
  const laneOf = new Int32Array(operations.length)
  operations.forEach((operation, i) => {
    const name = operation.lane?.name ?? defaults[operation.kind]
    let lane = index.get(name)
    if (lane === undefined) {
      lane = logical.length
      index.set(name, lane)
      logical.push({ name, priority: 0, copies: true, work: 0 })
    }
    const known = logical[lane]!
    if (operation.lane !== undefined) known.priority = priorities[operation.lane.priority] ?? 0
    if (operation.kind === 'compute' || operation.kind === 'store') known.copies = false
    known.work += nanoseconds(operation)
    laneOf[i] = lane
  })
  const folded = fold(logical, settings.lanes)
  laneOf.forEach((lane, i) => {
    laneOf[i] = folded[lane]!
  })
  const lanes: PlanLane[] = logical.map(({ name }, id) => {
    const members = logical.filter((_, other) => folded[other] === id)
    const names = members.length > 1 ? members.map(member => member.name).join('+') : name
    return {
      id,
      name: names,
      device: 0,
      priority: members.reduce((most, { priority }) => Math.max(most, priority), members.length > 0 ? -1 : 0),
    }
  })
  return E.right({ ...ir, ...workspaces(ir, laneOf, lanes), lanes, laneOf })
}

/** One state buffer for each lane with a matmul that wants scratch, as large as the largest wish. */
const workspaces = (
  ir: Lowered,
  laneOf: Int32Array,
  lanes: readonly PlanLane[],
): Pick<Placed, 'operations' | 'buffers'> => {
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
      life: 'state',
      root: buffers.length,
      offset: 0,
    })
  }
  const operations = ir.operations.map((operation, i) =>
    operation.workspace === 0 ? operation : { ...operation, writes: [...operation.writes, scratch.get(laneOf[i]!)!] },
  )
  return { operations, buffers }
}

/** A guess at how long an operation takes, for choosing between orders: only ratios matter. */
export const nanoseconds = ({ kind, flops, movedBytes, workspace }: Operation): number =>
  2_000 +
  (kind === 'upload' || kind === 'download' ? movedBytes / 2 / 50 : movedBytes / 3_000) +
  flops / (workspace > 0 ? 400_000 : 20_000)
