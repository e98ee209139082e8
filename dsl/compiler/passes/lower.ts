import * as E from 'fp-ts/lib/Either.js'
import type { GraphNode } from '../../ir/graph.js'
import { type InitData, isInitData } from '../../language/initial-value.js'
import type { Change, Checked, ControlEdge, Lowered } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'
import { withAppends } from './lower/appends.js'
import { outputs, part, peer, upload, window } from './lower/copies.js'
import { compute, donationHazards, fusedKernel, userKernel, type Writes } from './lower/kernels.js'
import { Lowering } from './lower/lowering.js'
import { states } from './lower/states.js'

//   x = input · u = upload(x) · y = relu(u) · output y
//   → buffers x (pinned), u, y, out (pinned) · operations: copy x → u · relu u → y · copy y → out
//
// After this pass the graph is operations over buffers: each value is a buffer or a view of one, each delay a
// state buffer that its readers read in place and one store at the end writes, each output a pinned buffer
// with a copy of its own.

const source = (low: Lowering, node: GraphNode): void => {
  const spec = low.spec(node.id)
  const fresh = (): number => {
    const rate = node.attrs['rate'] as number | undefined
    if (node.op === 'input')
      return low.fresh(node.name, spec, 'input', 'pinned', rate === undefined ? undefined : { rate })
    if (node.op === 'param')
      return low.fresh(node.name, spec, 'param', node.place === 'host' ? 'pinned' : 'device')
    const init = node.attrs['init'] as number | readonly number[] | InitData
    const id = low.fresh(node.name, spec, 'state', 'device', {
      init: isInitData(init) ? 'given' : init,
      at: node.at,
    })
    if (isInitData(init)) low.inits.set(id, init)
    return id
  }
  low.yields(node.id, fresh(), -1)
}

/**
 * The value itself, with an order for its readers. A value that no operation of this tick makes orders
 * nothing.
 */
const after = (low: Lowering, node: GraphNode): void => {
  const [value, whom] = node.inputs as readonly [number, number]
  low.yields(node.id, low.buffer[value]!, low.maker(value), value)
  const when = node.attrs['when'] as ControlEdge['when']
  const earlier = low.maker(whom)
  low.passOn(node.id, value, earlier < 0 ? [] : [{ earlier, when }])
}

/** Entries of the list for `explain`, at most. */
const mostListed = 4096

const changesOf = ({ taken, ir: { nodes } }: Lowering): readonly Change[] =>
  [...taken.values()].map(({ node, copied, reader }) => {
    const { name, at, inputs } = nodes[node]!
    return {
      name,
      of: nodes[inputs[0]!]!.name,
      at,
      ...(copied === undefined ? {} : { copied }),
      ...(reader === undefined ? {} : { reader: nodes[reader]!.name }),
    }
  })

export const lower = pass('lower', (ir: Checked): Passed<Lowered> => {
  const low = new Lowering(ir)
  const writes: Writes = new Map()
  for (const node of ir.nodes) {
    low.begin(node.id)
    switch (node.op) {
      case 'input':
      case 'param':
      case 'delay':
        source(low, node)
        break
      case 'upload':
        upload(low, node)
        break
      case 'peer':
        peer(low, node)
        break
      case 'download':
      case 'empty':
        break
      case 'after':
        after(low, node)
        break
      case 'window':
        window(low, node)
        break
      case 'part':
        part(low, node)
        break
      case 'fused':
        fusedKernel(low, node, writes)
        break
      case 'kernel':
        userKernel(low, node, writes)
        break
      case 'port': {
        const kernel = node.inputs[0]!
        low.yields(node.id, writes.get(kernel)![node.attrs['index'] as number]!, low.maker(kernel))
        break
      }
      default:
        compute(low, node)
    }
  }
  outputs(low)
  const changes = [...changesOf(low), ...states(low)].slice(0, mostListed)
  donationHazards(low)
  const { buffers, control, communicators } = low
  const lowered: Lowered = {
    settings: ir.settings,
    ...low.operations.done(buffers),
    buffers,
    ...(control.length === 0 ? {} : { control }),
    ...(communicators.length === 0 ? {} : { communicators }),
    ...(low.inits.size === 0 ? {} : { inits: low.inits }),
    ...(changes.length === 0 ? {} : { changes }),
    ...(ir.unrolled ? { gathers: true as const } : {}),
  }
  return E.right(ir.joinsAppends ? withAppends(lowered) : lowered)
})
