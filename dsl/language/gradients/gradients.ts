import { show } from '../../ir/show.js'
import { type DType, type FloatType, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { type Builder, builderOf, FlowValue, type Recomputed } from '../builder.js'
import { badAttribute, dtypeMismatch, noGradient, shapeMismatch, unrelated } from '../messages.js'
import { operators } from '../operators/registry.js'
import type { Device, Floats, OneElement, Shape } from '../operators/types.js'
import { here } from '../where.js'
import { Again } from './again.js'
import { Backward, type Choice, type Differentiated, type Within } from './backward.js'
import { fromParts } from './layout.js'
import { constants, rules, withoutRule } from './rules.js'

type Values = Readonly<Record<string, Device<FloatType, Shape>>>

/** A gradient is as the value that it is by. */
export type Gradients<B extends Values> = {
  readonly [K in keyof B]: B[K] extends Device<infer D, infer S> ? Device<D, S> : never
}

/** The way from a loss back to the values that it follows from. */
class Reverse {
  /** By node up to the loss: whether the loss may change with it through one of the values asked for. */
  private readonly varies: Uint8Array
  /** By node: what its gradient is the sum of. */
  private readonly terms = new Map<number, (FlowValue | Within)[]>()
  private readonly choices = new Map<number, Choice>()
  private readonly unrounded = new Map<number, FlowValue>()
  private readonly again = new Map<Recomputed, Again>()
  /** By node outside of such parts: the view that stands for it on the way back. */
  private readonly views = new Map<number, number>()

  constructor(
    private readonly loss: FlowValue,
    values: readonly FlowValue[],
    private readonly at: ReturnType<typeof here>,
  ) {
    this.varies = new Uint8Array(loss.id + 1)
    const asked = new Set(values.map(({ id }) => id))
    for (let id = 0; id <= loss.id; id++) {
      const { op, spec } = this.builder.nodes[id]!
      const reads = constants.has(op) ? [] : this.inputsOf(id)
      const may = asked.has(id) || reads.some(input => this.varies[input] === 1)
      this.varies[id] = isFloat(spec.dtype) && may && !this.builder.constants.has(id) ? 1 : 0
    }
  }

  private get builder(): Builder {
    return this.loss.builder
  }

  /** What a node, or the operator whose value it is, reads. */
  private inputsOf(id: number): readonly number[] {
    return this.builder.composites.get(id)?.inputs ?? this.builder.nodes[id]!.inputs
  }

  /** The gradients of all nodes that the loss may change with. */
  run(): ReadonlyMap<number, FlowValue> {
    const { loss } = this
    const gradients = new Map<number, FlowValue>()
    if (this.varies[loss.id] !== 1) return gradients
    this.terms.set(loss.id, [this.makerOf(loss.id).one(loss)])
    for (let id = loss.id; id >= 0; id--) {
      const terms = this.terms.get(id)
      if (terms === undefined) continue
      const gradient = this.sumOf(id, terms)
      gradients.set(id, gradient)
      this.pass(id, gradient)
    }
    return gradients
  }

  private sumOf(id: number, terms: readonly (FlowValue | Within)[]): FlowValue {
    const make = this.makerOf(id)
    const whole = terms.filter(term => term instanceof FlowValue)
    const parts = terms.filter((term): term is Within => !(term instanceof FlowValue))
    const own = parts.length === 0 ? [] : [fromParts(parts, make.value(this.builder, id), make)]
    return [...whole, ...own].reduce((a, b) => make.add(a, b))
  }

  /** Where a node's gradient is computed: on its own lane, or where a collective's value comes from. */
  private makerOf(id: number): Backward {
    const { nodes } = this.builder
    const { attrs, lane, inputs } = nodes[id]!
    const compute = attrs['communicator'] === undefined ? lane : nodes[inputs[0]!]!.lane
    return new Backward(this.at, compute, this.choices, this.unrounded)
  }

  /**
   * The node whose value the rule of `reader` reads in place of another node's. A rule within a part reads what
   * other parts yielded: these values were kept. A view of a value that is made again is a view of the new value.
   */
  private madeAgain(reader: number, gradient: FlowValue): (id: number) => number {
    const { builder, again } = this
    const { recomputing } = builder
    if (recomputing.size === 0) return id => id
    const within = recomputing.get(reader)
    const found = (id: number): number => {
      const part = recomputing.get(id)
      if (part === undefined) return within === undefined ? this.viewed(id, found) : id
      if (within !== undefined && part !== within) return id
      const copy = again.get(part) ?? new Again(builder, part, [reader, gradient.id])
      again.set(part, copy)
      return copy.of(id)
    }
    return found
  }

  private viewed(id: number, found: (id: number) => number): number {
    const before = this.views.get(id)
    if (before !== undefined) return before
    const { name: _, ...node } = this.builder.nodes[id]!
    const [first, ...others] = node.inputs
    const source = operators[node.op]?.mayBeView === true ? found(first!) : first
    const view = source === first ? id : this.builder.node({ ...node, inputs: [source!, ...others] })
    this.views.set(id, view)
    return view
  }

  /** Adds what each input of a node gets of the node's gradient. */
  private pass(id: number, gradient: FlowValue): void {
    const { builder } = this
    const inputs = this.inputsOf(id)
    if (!inputs.some(input => this.varies[input] === 1) || constants.has(builder.nodes[id]!.op)) return
    const node = builder.nodes[id]!
    const whole = builder.composites.get(id)
    const op = whole?.op ?? node.op
    const rule = rules[op]
    if (rule === undefined) {
      const next = withoutRule[op] ?? 'write the gradient out'
      builder.report(this.at, 'gradients', noGradient(node.name, node.at, next))
      return
    }
    builder.parts(node.name, () => {
      const make = this.makerOf(id)
      const read = this.madeAgain(id, gradient)
      const of: Differentiated = {
        op,
        attrs: whole?.attrs ?? node.attrs,
        inputs: inputs.map(input => make.value(builder, read(input))),
        output: make.value(builder, read(id)),
        lane: node.lane,
      }
      rule(of, make.here(gradient), make).forEach((made, i) => {
        const input = inputs[i]!
        if (made === undefined || this.varies[input] !== 1) return
        const known = this.terms.get(input)
        if (known === undefined) this.terms.set(input, [made()])
        else known.push(made())
      })
    })
  }
}

/** The values by name, as flows of the builder; undefined, with an error reported, if it is no such object. */
const valuesOf = (
  builder: Builder,
  by: unknown,
  at: ReturnType<typeof here>,
): Readonly<Record<string, FlowValue>> | undefined => {
  if (typeof by !== 'object' || by === null || by instanceof FlowValue || Array.isArray(by)) {
    const found = by instanceof FlowValue ? 'one flow' : show(by)
    const wanted = 'an object of the values by which the loss is to change'
    builder.report(at, 'gradients', badAttribute(wanted, found, 'name them: gradients(loss, { w })'))
    return undefined
  }
  return Object.fromEntries(
    Object.entries(by).map(([name, flow]) => {
      const value = builder.take(flow, 'device', at, 'gradients', name)
      if (!isFloat(value.spec.dtype))
        builder.report(
          at,
          'gradients',
          dtypeMismatch(`floats as ${name}: f32, f16 or bf16`, showSpec(value.spec), 'leave it out'),
        )
      return [name, value]
    }),
  )
}

const isOne = ({ dtype, shape }: TensorSpec): boolean => isFloat(dtype) && shape.every(size => size === 1)

/**
 * What a loss changes by, for each of some values: `const { w, b } = gradients(loss, { w: s.w, b: s.b })`
 * (torch.autograd.grad, jax.grad). The loss is one float. A value is any flow of floats of the same graph
 * that the loss follows from: a parameter, a state, an input, or what lies between; its gradient is of its
 * type. The gradients are flows like others, computed in the same tick, each step on the lane of the operation
 * that it is of.
 *
 * A state holds what the tick before left, which is a constant here. Of collectives it is the gradient of the
 * sum of all ranks' losses. At a corner, such as relu's at 0, the gradient is 0; equal largest elements share
 * it, of several ranks too. Where an operator that is not linear yields NaN, its gradient is NaN. An operator without a gradient between a value and the loss is a `NoGradient`, as is a value that the
 * loss does not follow from.
 */
export const gradients = <D extends DType, S extends Shape, const B extends Values>(
  loss: Device<D, S> & Floats<D> & OneElement<S>,
  by: B,
): Gradients<B> => {
  const at = here()
  const builder = builderOf(loss)
  const { reports } = builder
  const taken = builder.take(loss, 'device', at, 'gradients', 'the loss')
  const values = valuesOf(builder, by, at)
  const isGuess = builder.guesses.has(taken.id)
  if (!isOne(taken.spec) && !isGuess)
    builder.report(
      at,
      'gradients',
      shapeMismatch('one float as the loss', showSpec(taken.spec), 'reduce it first: pipe(mean())'),
    )
  if (values === undefined) return {} as Gradients<B>
  if (isGuess || builder.reports > reports) return values as unknown as Gradients<B>
  const made = builder.parts('gradients', () => {
    const known = new Reverse(taken, Object.values(values), at).run()
    return Object.entries(values).map(([name, value]) => {
      const gradient = known.get(value.id)
      if (gradient === undefined) {
        builder.report(at, 'gradients', unrelated(name))
        return [name, value] as const
      }
      const make = new Backward(at, builder.nodes[value.id]!.lane)
      const whole = make.whole(gradient, value)
      return [name, new FlowValue(builder, whole.id, whole.spec, 'device', value.hint)] as const
    })
  })
  return Object.fromEntries(made) as unknown as Gradients<B>
}
