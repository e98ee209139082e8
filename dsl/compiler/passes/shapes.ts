import * as E from 'fp-ts/lib/Either.js'
import type { GraphNode } from '../../ir/graph.js'
import { markLive } from '../../language/live.js'
import type { Read } from '../../language/operators/operator.js'
import type { Checked } from '../analysis/ir.js'
import { isView, operatorOf } from '../analysis/operators.js'
import { type Passed, pass } from '../analysis/pass.js'
import { rewritten } from '../analysis/rewritten.js'

//   m = relu(u) · p = iota(m) · y = p + 1   →   p = iota() · y = p + 1
//
// After this pass no node reads a value for its shape alone, and no value is computed that only gave a shape.
// By now every shape is known, and so are the device and the rate that a node has from what it read. A node
// that is ordered by `after` keeps its inputs, since an order is one of readers. A graph whose nodes read all
// of their inputs is unchanged.

const readsOf = ({ op, inputs, attrs }: GraphNode): Read | undefined => operatorOf(op)?.reads?.(inputs, attrs)

/** By node: whether its readers come after another operation. */
const ordersReaders = ({ nodes }: Checked): Uint8Array => {
  const orders = new Uint8Array(nodes.length)
  for (const node of nodes)
    if (node.op === 'after' || (isView(node) && orders[node.inputs[0]!] === 1)) orders[node.id] = 1
  return orders
}

export const shapes = pass('shapes', (ir: Checked): Passed<Checked> => {
  if (!ir.nodes.some(node => readsOf(node) !== undefined)) return E.right(ir)
  const orders = ordersReaders(ir)
  const nodes = ir.nodes.map(node => {
    const read = readsOf(node)
    return read !== undefined &&
      node.inputs.every(input => orders[input] === 0 || read.inputs.includes(input))
      ? { ...node, ...read }
      : node
  })
  // Callers name parameters.
  const alive = markLive(
    { ...ir, nodes },
    id => id,
    ({ op }) => op === 'param',
  )
  const left = nodes.flatMap(({ id }) => (alive[id] === 1 ? [id] : []))
  return E.right(rewritten(ir, left, id => nodes[id]!))
})
