import type { GraphNode } from '../../../ir/graph.js'
import type { Lowering } from './lowering.js'

/**
 * One store of state: a copy of the next value, or of a temporary where that value is a state which this tick
 * overwrites.
 */
const store = (
  low: Lowering,
  delay: GraphNode,
  temporary: number | undefined,
  after: readonly number[],
): void => {
  const state = low.buffer[delay.id]!
  const next = delay.inputs[0]!
  const { bytes } = low.buffers[state]!
  const lane = (delay.lane?.name === '' ? undefined : delay.lane) ?? low.operations.get(low.maker(next))?.lane
  const from = temporary === undefined ? low.buffer[next]! : low.operations.get(temporary)!.writes[0]!
  const id = low.operation(
    { ...delay, op: 'store', name: `store(${delay.name})`, lane },
    temporary === undefined ? [next] : [],
    [state],
    {
      kind: 'store',
      kernel: { kind: 'copy', bytes },
      movedBytes: 2 * bytes,
      reads: [from],
    },
  )
  low.operations.delay(id, temporary === undefined ? after : [temporary, ...after])
}

export const states = (low: Lowering): void => {
  const delays = low.ir.nodes.filter(node => node.op === 'delay')
  if (delays.length === 0) return
  const root = (id: number): number => low.buffers[low.buffer[id]!]!.root
  const pending = delays.filter(delay => {
    const from = low.buffers[low.buffer[delay.inputs[0]!]!]!
    return !(from.root === low.buffer[delay.id] && from.offset === 0)
  })
  const temporaries = pending.map(delay => {
    const next = delay.inputs[0]!
    if (low.buffers[root(next)]!.life !== 'state') return undefined
    low.begin(delay.id)
    const target = low.fresh(`next(${delay.name})`, low.spec(next), 'tick', 'device')
    return low.copy(delay, [next], target, 'compute', { op: 'copy', name: `next(${delay.name})` })
  })
  const touching = new Map<number, number[]>()
  for (let id = 0; id < low.operations.length; id++)
    for (const buffer of [...low.operations.reads(id), ...low.operations.writes(id)]) {
      const { life, root: of } = low.buffers[buffer]!
      if (life !== 'state') continue
      const others = touching.get(of)
      if (others === undefined) touching.set(of, [id])
      else others.push(id)
    }
  pending.forEach((delay, i) => {
    store(low, delay, temporaries[i], touching.get(low.buffer[delay.id]!) ?? [])
  })
}
