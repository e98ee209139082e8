import type { ByteRange, TreeNode } from '../../dsl/internal.js'
import { size } from '../values.js'
import type { ExecutableHistory } from './executables.js'
import type { PreparedTree } from './prepare.js'

/** A layout in words: what it is given, what it leaves, and why it and its executable were made. */
export const explainNode = (
  tree: PreparedTree,
  node: TreeNode,
  arenaBytes: number,
  history: ExecutableHistory | undefined,
): string => {
  const { name, body } = tree.plans[node.plan]!
  const { contract, layout } = node
  const sizes = body.body
  const inputs = [...layout.inputs].map(([input, from]) => {
    const copied = node.isFallback ? ', copied there' : ', copied there from the host'
    const source = contract.inputs.has(input) ? '' : copied
    return `${input} at ${text(rangeAt(from, sizes.inputs.get(input)!))}${source}`
  })
  const outputs = [...layout.outputs].map(
    ([output, from]) => `${output} at ${text(rangeAt(from, sizes.sizes[sizes.outputs.get(output)!]!))}`,
  )
  const lines: readonly (readonly [string, string])[] = [
    ['inputs', list(inputs)],
    ['outputs', list(outputs)],
    ['kept', list(contract.kept.map(text))],
    ['writes', list(layout.clobbers.map(text))],
    ['ends at', `${size(layout.top)}; the arena has ${size(arenaBytes)}`],
    ['layout', whyLaidOut(tree, node)],
    ...whatIsMoved(tree, node),
    ['executable', whyMade(history)],
  ]
  return [`layout ${node.id}: ${name}`, ...lines.map(([what, says]) => `  ${what.padEnd(11)}${says}`)].join(
    '\n',
  )
}

const rangeAt = (from: number, bytes: number): ByteRange => ({ from, to: from + bytes })
const text = ({ from, to }: ByteRange): string => `${from} to ${to}`
const list = (items: readonly string[]): string => items.join('; ') || 'nothing'

/** In what it differs from the layout of the same plan before it that is most like it. */
const whyLaidOut = (
  { plans, layouts }: PreparedTree,
  { id, plan, contract, isFallback }: TreeNode,
): string => {
  const { name } = plans[plan]!
  const before = layouts.nodes.filter(other => other.plan === plan && other.id < id)
  if (isFallback)
    return `a fallback: each of the ${before.length} layouts of ${name} before it writes over a kept value, and variants is ${layouts.variants}`
  const differences = before
    .map(other => ({ id: other.id, found: differencesOf(contract, other.contract) }))
    .sort((a, b) => a.found.length - b.found.length)
  const [nearest] = differences
  if (nearest === undefined) return `the first of ${name}`
  return `another one than layout ${nearest.id}: ${list(nearest.found)}`
}

/** Values that lie elsewhere when some launches of it come: its plan has no layout for them. */
const whatIsMoved = (
  { plans, layouts }: PreparedTree,
  { id, plan }: TreeNode,
): readonly (readonly [string, string])[] => {
  const moves = layouts.moved.filter(({ node }) => node === id).flatMap(({ moves }) => moves)
  if (moves.length === 0) return []
  const count = layouts.nodes.filter(node => node.plan === plan).length
  const why = `${plans[plan]!.name} has ${count} layout${count === 1 ? '' : 's'}, and variants is ${layouts.variants}`
  const each = moves.map(({ input, from, to }) => `${input}, where it lies at ${from}, to ${to}`)
  return [['moves', `${list(each)}: ${why}`]]
}

const differencesOf = (one: TreeNode['contract'], other: TreeNode['contract']): readonly string[] => {
  const place = (at: number | undefined): string =>
    at === undefined ? 'comes from the host' : `lies at ${at}`
  const inputs = [...new Set([...one.inputs.keys(), ...other.inputs.keys()])].flatMap(input => {
    const [here, there] = [one.inputs.get(input), other.inputs.get(input)]
    return here === there ? [] : [`${input} ${place(here)}, there it ${place(there)}`]
  })
  const ranges = (
    what: string,
    here: readonly ByteRange[],
    there: readonly ByteRange[],
  ): readonly string[] =>
    list(here.map(text)) === list(there.map(text))
      ? []
      : [`${list(here.map(text))} ${what}, there ${list(there.map(text))}`]
  return [
    ...inputs,
    ...ranges('is kept for later plans', one.kept, other.kept),
    ...ranges('is read by plans that may come instead', one.elsewhere, other.elsewhere),
  ]
}

const whyMade = (history: ExecutableHistory | undefined): string => {
  if (history === undefined) return 'none yet: the first launch makes it, or prepare()'
  const { made, wantedBy, closedBy, isOpen } = history
  const times = made === 1 ? `made by ${wantedBy}` : `made ${made} times, the last time by ${wantedBy}`
  if (closedBy === undefined) return times
  return isOpen ? `${times}, since ${closedBy} had closed it` : `${times}; closed by ${closedBy}`
}
