import type { Plan, PlanBuffer } from '../ir/plan.js'
import { rounded } from '../memory/range-pool.js'
import { commandTableOf, Op } from '../order/command-table.js'
import { Replay } from '../order/replay.js'
import { type ByteRange, without } from './byte-ranges.js'
import type { Body, Layout } from './layout.js'
import type { ResidentPlan } from './resident.js'

/** A plan as a tree lays it out: its body, and which buffer of the plan each of the body's buffers is. */
export interface PlanBody {
  readonly source: ResidentPlan
  readonly body: Body
  readonly buffers: readonly number[]
}

/**
 * Whether a buffer has bytes of the arena: what lives within one launch, and the ports. A workspace is a
 * state without a first value; what lives on from launch to launch has memory of its own.
 */
export const isPlaced = ({ space, alias, life, init }: PlanBuffer): boolean => {
  if (space !== 'device' || alias !== undefined || life === 'param') return false
  return life !== 'state' || init === undefined
}

export const bodyOf = (source: ResidentPlan): PlanBody => {
  const { plan, inputs, outputs } = source
  const given = new Set(inputs.values())
  const left = new Map([...outputs].map(([name, id]) => [id, name] as const))
  const buffers = plan.buffers.filter(buffer => isPlaced(buffer) && !given.has(buffer.id)).map(({ id }) => id)
  const times = timesOf(plan)
  /** Those that are there for the whole launch, or to its end and beyond. */
  const lasts = (id: number): boolean => left.has(id) || plan.buffers[id]!.life === 'state'
  const isBefore = (a: number, b: number): boolean =>
    !lasts(a) && plan.buffers[b]!.life !== 'state' && times.isBefore(a, b)
  return {
    source,
    buffers,
    body: {
      name: plan.name,
      inputs: new Map([...inputs].map(([name, id]) => [name, plan.buffers[id]!.bytes])),
      sizes: buffers.map(id => plan.buffers[id]!.bytes),
      outputs: new Map(buffers.flatMap((id, at) => (left.has(id) ? [[left.get(id)!, at] as const] : []))),
      mayShare: (a, b) => isBefore(buffers[a]!, buffers[b]!) || isBefore(buffers[b]!, buffers[a]!),
    },
  }
}

/** When each buffer is accessed, by the order that the plan's own waits give its commands in one launch. */
const timesOf = (plan: Plan) => {
  const table = commandTableOf(plan)
  const replay = new Replay(table)
  const { lanes, op, lane, accessStart, accessRoot, buffers, commands } = table
  /**
   * By buffer and lane: the lane's last access, and what of the lane is before every access of the buffer.
   */
  const last = new Int32Array(buffers * lanes)
  const since = new Int32Array(buffers * lanes).fill(0x7fffffff)
  replay.begin()
  for (let c = 0; c < commands; c++) {
    const l = lane[c]!
    if (op[c] === Op.run)
      for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
        const at = accessRoot[a]! * lanes
        for (let m = 0; m < lanes; m++) since[at + m] = Math.min(since[at + m]!, replay.known[l * lanes + m]!)
        last[at + l] = replay.now(l) + 1
      }
    replay.step(c)
  }
  const isBefore = (a: number, b: number): boolean => {
    for (let m = 0; m < lanes; m++) if (last[a * lanes + m]! > since[b * lanes + m]!) return false
    return true
  }
  return { isBefore }
}

/** The plan with the places of a layout: what a node runs. */
export const placed = ({ source, buffers }: PlanBody, layout: Layout): Plan => {
  const { plan, inputs } = source
  const offset = new Map<number, number>()
  for (const [name, id] of inputs) offset.set(id, layout.inputs.get(name)!)
  for (const [at, id] of buffers.entries()) offset.set(id, layout.offsets[at]!)
  return {
    ...plan,
    arena: [layout.top],
    buffers: plan.buffers.map(buffer => {
      const { offset: _, ...rest } = buffer
      const at = offset.get(buffer.id)
      return at === undefined ? rest : { ...rest, offset: at }
    }),
  }
}

/**
 * The plan of a node in terms of the laws: its inputs and all that is kept are parameters, which nothing may
 * write and nothing lies over; at the end one run on a lane that has waited for all others reads the outputs,
 * so that nothing has taken their bytes. If it obeys the laws about safety, the node does what its plan does.
 */
export const proofOf = (body: PlanBody, layout: Layout, kept: readonly ByteRange[]): Plan => {
  const plan = placed(body, layout)
  const { inputs, outputs } = body.source
  const lives = new Map<number, PlanBuffer['life']>()
  for (const id of inputs.values()) lives.set(id, 'param')
  for (const id of outputs.values()) lives.set(id, 'tick')
  const buffers: PlanBuffer[] = plan.buffers.map(buffer => {
    const life = lives.get(buffer.alias ?? buffer.id)
    if (life !== undefined) return { ...buffer, life }
    // What has memory of its own is not in the arena: for the laws it lies above it.
    const isApart = buffer.space === 'device' && buffer.alias === undefined && buffer.offset === undefined
    return isApart ? { ...buffer, offset: 0 } : buffer
  })
  // An input that is kept is one parameter.
  const given = [...inputs].map(([name, id]) => {
    const from = layout.inputs.get(name)!
    return { from, to: from + rounded(plan.buffers[id]!.bytes) }
  })
  let end = Math.max(layout.top, ...kept.map(({ to }) => to))
  for (const buffer of buffers) {
    if (plan.buffers[buffer.id]!.offset !== undefined || buffer.offset === undefined) continue
    buffers[buffer.id] = { ...buffer, offset: end }
    end += buffer.bytes
  }
  for (const { from, to } of without(kept, given))
    buffers.push({
      id: buffers.length,
      name: `kept ${from}`,
      bytes: to - from,
      space: 'device',
      device: 0,
      home: 0,
      life: 'param',
      offset: from,
    })
  const event = plan.commands.reduce((most, command) => {
    if (command[0] !== 'record' && command[0] !== 'wait') return most
    return Math.max(most, command[1])
  }, -1)
  const ends = plan.lanes
    .slice(1)
    .flatMap(({ id }) => [['record', event + id, id] as const, ['wait', event + id, 0] as const])
  // Nothing writes an output without elements.
  const reads = [...outputs.values()].filter(id => plan.buffers[id]!.bytes > 0)
  const leave = { id: plan.nodes.length, op: 'leave', name: 'leave', at: '' }
  return {
    ...plan,
    arena: [end],
    bound: { device: [Number.MAX_SAFE_INTEGER], pinned: Number.MAX_SAFE_INTEGER },
    buffers,
    nodes: [...plan.nodes, leave],
    commands: [...plan.commands, ...ends, ['run', leave.id, 0, reads, []]],
  }
}
