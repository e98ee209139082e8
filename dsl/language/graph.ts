import type { GraphIR, Place, Where } from '../ir/graph.js'
import { show } from '../ir/show.js'
import { Builder, FlowValue, placeOf, within } from './builder.js'
import type { AnyFlow, Flow } from './flow.js'
import { badAttribute } from './messages.js'
import type { AnyTensor, OnDevice, Ports } from './tensor.js'
import { here } from './where.js'

declare const ports: unique symbol

/** The pure description of one tick: typed inputs and outputs by name. `ir` is what the compiler reads. */
export interface Graph<I extends Ports = Ports, O extends Ports = Ports> {
  readonly ir: GraphIR
  readonly [ports]?: readonly [I, O]
}

/** The flows of a set of ports, all at one place. */
export type FlowsOf<P extends Place, R extends Ports> = { readonly [K in keyof R]: Flow<P, R[K]> }

/**
 * Outputs of a body. One that is downloaded is leased as an array; one that is left on the device is leased
 * as a block of it.
 */
export type Outputs = Readonly<Record<string, AnyFlow>>

export type PortsOf<O extends Outputs> = {
  readonly [K in keyof O]: O[K] extends Flow<'host', AnyTensor> ? O[K]['spec'] : OnDevice<O[K]['spec']>
}

export type InputsOf<G> = G extends Graph<infer I, infer _O> ? I : never
export type OutputsOf<G> = G extends Graph<infer _I, infer O> ? O : never

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof FlowValue)

const declareInputs = (builder: Builder, inputs: unknown, at: Where): Record<string, FlowValue> => {
  const flows: Record<string, FlowValue> = {}
  if (!isRecord(inputs))
    builder.report(
      at,
      builder.name,
      badAttribute(
        "inputs by name, such as { x: tensor('f32', [64]) }",
        show(inputs),
        'give an object of tensors, or {} for none',
      ),
    )
  for (const [name, value] of Object.entries(isRecord(inputs) ? inputs : {})) {
    const spec = builder.spec(value, at, name)
    flows[name] = builder.flow({ op: 'input', name, inputs: [], spec, place: 'host', at })
  }
  return flows
}

// A download without a name of its own takes its output's, so that plans name it as the user does.
const nameDownload = (builder: Builder, flow: FlowValue, name: string): void => {
  const node = builder.nodes[flow.id]
  if (node?.op === 'download' && /^download\[\d+\]$/.test(node.name)) builder.rename(flow.id, name)
}

const declareOutputs = (builder: Builder, outputs: unknown, at: Where): void => {
  const entries = isRecord(outputs) ? Object.entries(outputs) : []
  if (!isRecord(outputs) || typeof outputs['then'] === 'function')
    builder.report(at, builder.name, {
      _tag: 'NotAFlow',
      wanted: 'outputs by name, such as { y }',
      found: show(outputs),
      next: 'return an object of flows from the body; the body may not be async',
    })
  else if (entries.length === 0)
    builder.report(at, builder.name, {
      _tag: 'NoOutputs',
      wanted: 'at least one output',
      found: 'none',
      next: 'return a downloaded flow: { y: y.pipe(download()) }',
    })
  for (const [name, value] of entries) {
    const flow = builder.take(value, placeOf(value), at, name, `the output ${name}`)
    nameDownload(builder, flow, name)
    builder.outputs.push({ name, node: flow.id })
  }
}

const build = (name: string, inputs: unknown, body: unknown, at: Where): GraphIR => {
  const builder = new Builder(name)
  const flows = declareInputs(builder, inputs, at)
  if (typeof body === 'function') {
    try {
      declareOutputs(
        builder,
        within(builder, () => {
          const outputs: unknown = body(flows)
          builder.bodies.finish()
          for (const report of builder.unset.values()) report()
          return outputs
        }),
        at,
      )
    } finally {
      builder.open = false
    }
  } else {
    builder.open = false
    builder.report(
      at,
      name,
      badAttribute(
        'a body: a function from input flows to output flows',
        show(body),
        'pass ({ x }) => ({ y })',
      ),
    )
  }
  return { name, ...builder.bodies.resolved(builder.nodes, builder.outputs), problems: builder.problems }
}

interface GraphOf {
  <const I extends Ports, O extends Outputs>(
    inputs: I,
    body: (inputs: FlowsOf<'host', I>) => O,
  ): Graph<I, PortsOf<O>>
  <const I extends Ports, O extends Outputs>(
    name: string,
    inputs: I,
    body: (inputs: FlowsOf<'host', I>) => O,
  ): Graph<I, PortsOf<O>>
}

/**
 * One tick of a pipeline: `graph({ x: tensor('f32', ['batch', 64]) }, ({ x }) => ({ y: … }))`, with an
 * optional name before the inputs. The body runs once, immediately, and only describes. An exception of the
 * body is passed on; errors in flows are kept for `compile`, which reports all of them.
 */
export const graph: GraphOf = (...args: readonly unknown[]) => {
  const at = here()
  const named = typeof args[0] === 'string'
  const [name, inputs, body] = named ? args : ['graph', ...args]
  return Object.freeze({ ir: build(name as string, inputs, body, at) })
}

/** The graph as data, from the public object or from data itself. */
export const irOf = (source: Graph<Ports, Ports> | GraphIR): GraphIR => ('ir' in source ? source.ir : source)
