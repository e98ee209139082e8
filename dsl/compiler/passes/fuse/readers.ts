import type { Checked } from '../../analysis/ir.js'
import type { WhyStored } from '../../analysis/provenance.js'

/** By node: the node that alone reads it, once; -1 where there is none, -2 where there are several. */
export const readersOf = ({ nodes, outputs }: Checked): Int32Array => {
  const reader = new Int32Array(nodes.length).fill(-1)
  for (const { id, inputs } of nodes)
    for (const input of inputs) reader[input] = reader[input] === -1 ? id : -2
  for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) reader[id] = -2
  return reader
}

/** Why two nodes cannot be one kernel, by where and when they are computed. */
export const apartBy = (
  { nodes, deviceOf, turnOf }: Checked,
  a: number,
  b: number,
): WhyStored | undefined => {
  if (deviceOf?.[a] !== deviceOf?.[b]) return 'another device'
  if ((nodes[a]!.lane?.name ?? '') !== (nodes[b]!.lane?.name ?? '')) return 'another lane'
  return turnOf?.[a] === turnOf?.[b] ? undefined : 'another rate'
}
