import * as E from 'fp-ts/lib/Either.js'
import type { CompileError, GraphNode } from '../../ir/graph.js'
import { type BoundSpec, isEmpty, showSpec } from '../../ir/tensor.js'
import { boundKernel } from '../../language/bound-kernel.js'
import { fillAttrs } from '../../language/operators/fill.js'
import { fault, unless } from '../analysis/faults.js'
import { GraphRebuild } from '../analysis/graph-rebuild.js'
import type { Checked } from '../analysis/ir.js'
import { kernelAttrs, operatorOf } from '../analysis/operators.js'
import { type Passed, pass } from '../analysis/pass.js'

//   x: f32[0, 4] · u = upload(x) · r = relu(u) → y · s = sum(u, axis 0) → z
//   → x: f32[0, 4] · r: empty → y · s = fill 0: f32[4] → z
//
// After this pass no value without elements is computed or read. Inputs, parameters, states and outputs may
// have none: no operation is made for them. A result that has elements although an operand has none is a
// fill with one number, or is made of the other operands. A user's kernel of which some result has elements
// runs, and what it reads of no elements is a fill too. A graph whose values all have elements is unchanged.

/** What becomes of a node. */
type Form =
  | { readonly as: 'itself' }
  /** Every element is one number. */
  | { readonly as: 'fill'; readonly value: number }
  /** The same operator of some of its inputs. */
  | { readonly as: 'of'; readonly inputs: readonly number[] }
  | { readonly as: 'alias'; readonly of: number }
  /** It has no elements. It stays where an output is without elements. */
  | { readonly as: 'nothing' }

const itself: Form = { as: 'itself' }
const nothing: Form = { as: 'nothing' }

const isSource = ({ op }: GraphNode): boolean => op === 'input' || op === 'param' || op === 'delay'

/** Whether some result of a user's kernel has elements. */
const writesElements = ({ specs, settings }: Checked, node: GraphNode): boolean =>
  boundKernel(
    kernelAttrs(node),
    node.inputs.map(input => specs[input]!),
    Object.fromEntries(settings.dims),
  ).writes.some(write => !isEmpty(write))

/** What becomes of a node that has elements, of whose inputs some have none. */
const formOf = ({ specs }: Checked, { op, inputs, attrs }: GraphNode): Form | undefined => {
  if (op === 'after') return { as: 'alias', of: inputs[0]! }
  const given = inputs.map(input => specs[input]!)
  const left = operatorOf(op)?.withEmpty?.(given, attrs)
  if (left === undefined) return undefined
  if (typeof left === 'number') return { as: 'fill', value: left }
  const [first, ...others] = left.map(i => inputs[i]!)
  if (first === undefined) return undefined
  return others.length === 0 ? { as: 'alias', of: first } : { as: 'of', inputs: [first, ...others] }
}

const noForm = ({ specs }: Checked, { at, name, op, inputs }: GraphNode): CompileError =>
  fault(
    'Unsupported',
    at,
    name,
    `operands of ${op} that have elements`,
    inputs.map(input => showSpec(specs[input]!)).join(', '),
    'leave the operand without elements out',
  )

class Emptying {
  readonly faults: CompileError[] = []
  private readonly forms: readonly Form[]
  readonly rebuild: GraphRebuild

  constructor(private readonly ir: Checked) {
    this.rebuild = new GraphRebuild(ir)
    this.forms = ir.nodes.map(node => this.form(node))
    if (this.faults.length > 0) return
    const alive = this.alive()
    for (const node of ir.nodes) if (alive[node.id] === 1) this.rebuild.renumbered[node.id] = this.made(node)
    for (const node of ir.nodes) if (node.op === 'delay') this.close(node)
  }

  private isEmpty(id: number): boolean {
    return isEmpty(this.ir.specs[id]!)
  }

  private form(node: GraphNode): Form {
    if (isSource(node)) return itself
    if (node.op === 'kernel') return writesElements(this.ir, node) ? itself : nothing
    if (this.isEmpty(node.id)) return nothing
    // A port that has elements is of a kernel that runs.
    if (node.op === 'port' || !node.inputs.some(input => this.isEmpty(input))) return itself
    const form = formOf(this.ir, node)
    if (form === undefined) this.faults.push(noForm(this.ir, node))
    return form ?? itself
  }

  /** The nodes that a node is made of: earlier ones, but for a state's next value. */
  private reads({ id, op, inputs }: GraphNode): readonly number[] {
    const form = this.forms[id]!
    if (form.as === 'alias') return [form.of]
    if (form.as === 'of') return form.inputs
    if (form.as !== 'itself') return []
    return op === 'port' ? inputs : inputs.filter(input => !this.isEmpty(input))
  }

  /** What an output or a state needs. Inputs, parameters and states stay, since callers name them. */
  private alive(): Uint8Array {
    const { nodes, outputs } = this.ir
    const alive = new Uint8Array(nodes.length)
    const needed = [...outputs.flatMap(({ node, parts }) => parts?.nodes ?? [node])]
    for (const node of nodes) if (isSource(node)) needed.push(node.id)
    for (let id = needed.pop(); id !== undefined; id = needed.pop()) {
      if (alive[id] === 1) continue
      alive[id] = 1
      needed.push(...this.reads(nodes[id]!))
    }
    return alive
  }

  private made(node: GraphNode): number {
    const { id, op } = node
    const { renumbered } = this.rebuild
    const spec = this.ir.specs[id]!
    const form = this.forms[id]!
    switch (form.as) {
      case 'alias':
        return renumbered[form.of]!
      case 'fill':
        return this.fill(node, spec, form.value, id)
      case 'nothing':
        return this.rebuild.add({ ...node, op: 'empty', attrs: {} }, [], spec, id)
    }
    const inputs =
      op === 'delay'
        ? []
        : op === 'kernel'
          ? this.operands(node)
          : this.reads(node).map(read => renumbered[read]!)
    return this.rebuild.add(node, inputs, spec, id)
  }

  private fill(node: GraphNode, spec: BoundSpec, value: number, like: number): number {
    return this.rebuild.add({ ...node, op: 'fill', attrs: fillAttrs(spec, value) }, [], spec, like)
  }

  /** What a user's kernel reads; of no elements a fill of its own, which it may change. */
  private operands({ id, inputs, lane }: GraphNode): readonly number[] {
    return inputs.map(input => {
      if (!this.isEmpty(input)) return this.rebuild.renumbered[input]!
      const { name, at, spec } = this.ir.nodes[input]!
      const node: GraphNode = {
        ...{ id: input, op: 'fill', name: `empty(${name})`, inputs: [], attrs: {} },
        ...{ spec, place: 'device', lane, at },
      }
      return this.fill(node, this.ir.specs[input]!, 0, id)
    })
  }

  /** A state takes over its next value, which may come after it; of no elements nothing, so itself. */
  private close({ id, inputs }: GraphNode): void {
    const { renumbered } = this.rebuild
    const state = renumbered[id]!
    this.rebuild.close(state, this.isEmpty(id) ? state : renumbered[inputs[0]!]!)
  }
}

export const empty = pass('empty', (ir: Checked): Passed<Checked> => {
  if (!ir.specs.some(isEmpty)) return E.right(ir)
  const emptying = new Emptying(ir)
  return unless(emptying.faults, () => emptying.rebuild.result())
})
