import * as E from 'fp-ts/lib/Either.js'
import type { CompileError, GraphIR, GraphNode } from '../../ir/graph.js'
import { limits } from '../../ir/limits.js'
import { type BoundSpec, elementBytes, sameSpec, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { unboundSymbols } from '../../language/bind.js'
import { kernelError } from '../../language/bound-kernel.js'
import { isCount } from '../../language/operators/count.js'
import { initLength } from '../../language/operators/state.js'
import { windowed } from '../../language/operators/window.js'
import { fault, unless } from '../analysis/faults.js'
import type { Checked } from '../analysis/ir.js'
import { kernelAttrs, operatorOf, structural } from '../analysis/operators.js'
import { normaliseOptions } from '../analysis/options.js'
import { type Passed, pass } from '../analysis/pass.js'
import { donationFaults } from './check/donations.js'

//   x: f32[batch, 784] · matmul(x, w: f32[784, 64]) · dims { batch: 64 }
//   → x: f32[64, 784] · matmul: f32[64, 64]
//
// After this pass names, sizes, types, links and donations agree, every dimension is a number, and the
// options are sound. Otherwise every error is reported; types are examined only where links and sizes are
// sound, so that one mistake is reported once.

const symbolsOf = (nodes: readonly GraphNode[]): ReadonlySet<string> => {
  const symbols = new Set<string>()
  for (const { spec } of nodes) for (const dim of spec.shape) if (typeof dim === 'string') symbols.add(dim)
  return symbols
}

const isBound = (spec: TensorSpec): spec is BoundSpec => spec.shape.every(dim => typeof dim === 'number')

const bind = (spec: TensorSpec, dims: ReadonlyMap<string, number>): BoundSpec =>
  isBound(spec)
    ? spec
    : {
        dtype: spec.dtype,
        shape: spec.shape.map(dim => (typeof dim === 'number' ? dim : (dims.get(dim) ?? 1))),
      }

const sizeFault = (node: GraphNode, spec: BoundSpec): CompileError | undefined => {
  const wrong = spec.shape.find(dim => !Number.isSafeInteger(dim) || dim < 0)
  if (wrong !== undefined) {
    const tooLarge = Number.isInteger(wrong) && wrong > 0
    return fault(
      'BadDimension',
      node.at,
      node.name,
      tooLarge ? 'dimensions below 2^53' : 'dimensions that are whole numbers from 0',
      showSpec(spec),
      tooLarge ? 'make it smaller' : 'correct the shape',
    )
  }
  const bytes = spec.shape.reduce((product, dim) => product * dim, elementBytes[spec.dtype] ?? Number.NaN)
  return Number.isSafeInteger(bytes)
    ? undefined
    : fault(
        'BadDimension',
        node.at,
        node.name,
        'fewer than 2^53 bytes',
        `${showSpec(spec)}, about ${bytes} bytes`,
        'make it smaller',
      )
}

/** The error of a kernel node with every dimension bound: of its ports, its donations or its launch. */
const kernelFault = (
  node: GraphNode,
  reads: readonly BoundSpec[],
  dims: ReadonlyMap<string, number>,
): CompileError | undefined => {
  const error = kernelError(kernelAttrs(node), reads, Object.fromEntries(dims))
  return error && fault(error._tag, node.at, node.name, error.wanted, error.found, error.next)
}

/** Operators of one value whose type is that of the value, or of n of them. */
const keepsType: ReadonlySet<string> = new Set([
  ...['upload', 'download', 'delay', 'window', 'every', 'hold', 'repeat'],
])

/**
 * Types are inferred again once every dimension is a number: only now may `['batch', 4]` and `[8, 'n']`
 * disagree.
 */
const typeFault = (
  node: GraphNode,
  specs: readonly BoundSpec[],
  dims: ReadonlyMap<string, number>,
): CompileError | undefined => {
  const output = specs[node.id]!
  const init = node.op === 'delay' || node.op === 'hold' ? initLength(node.attrs['init'], output) : undefined
  if (init) return fault(init._tag, node.at, node.name, init.wanted, init.found, init.next)
  const counted =
    node.op === 'window' ||
    node.op === 'every' ||
    ((node.op === 'hold' || node.op === 'repeat') && node.attrs['n'] !== undefined)
  if (counted && !isCount(node.attrs['n']))
    return fault(
      'BadAttribute',
      node.at,
      node.name,
      `a whole number from 1 to ${limits.rate}`,
      'another',
      'correct n',
    )
  if (keepsType.has(node.op)) {
    const given = specs[node.inputs[0]!]!
    const input = node.op === 'window' ? (windowed(given, node.attrs['n'] as number) as BoundSpec) : given
    return sameSpec(input, output)
      ? undefined
      : fault(
          input.dtype === output.dtype ? 'ShapeMismatch' : 'DTypeMismatch',
          node.at,
          node.name,
          showSpec(output),
          showSpec(input),
          'give a value of the same type',
        )
  }
  if (node.op === 'kernel')
    return kernelFault(
      node,
      node.inputs.map(input => specs[input]!),
      dims,
    )
  if (structural.has(node.op)) return undefined
  const operator = operatorOf(node.op)
  if (operator === undefined)
    return fault(
      'Unsupported',
      node.at,
      node.name,
      'an operator of this version',
      node.op,
      'use an operator that braid-gpu exports',
    )
  const inferred = operator.infer(
    node.inputs.map(input => specs[input]!),
    node.attrs,
  )
  if (E.isLeft(inferred)) {
    const { _tag, wanted, found, next } = inferred.left
    return fault(_tag, node.at, node.name, wanted, found, next)
  }
  const found = inferred.right as BoundSpec
  return sameSpec(found, output)
    ? undefined
    : fault(
        'ShapeMismatch',
        node.at,
        node.name,
        showSpec(output),
        showSpec(found),
        'bind the symbols of its operands so that they agree',
      )
}

const linkFault = (node: GraphNode, count: number): CompileError | undefined => {
  if (node.op === 'delay' && node.inputs.length === 0)
    return fault(
      'UnboundDelay',
      node.at,
      node.name,
      'the value to remember for the next tick',
      'none',
      'close the delay with the flow that it remembers',
    )
  for (const input of node.inputs) {
    if (!Number.isInteger(input) || input < 0 || input >= count)
      return fault(
        'ForeignFlow',
        node.at,
        node.name,
        'inputs of this graph',
        `node ${String(input)}`,
        'use flows of this graph only',
      )
    if (node.op !== 'delay' && input >= node.id)
      return fault(
        'Cycle',
        node.at,
        node.name,
        'a cycle only through delay or scan',
        'a value that depends on itself within one tick',
        'put a delay into the cycle',
      )
  }
  return undefined
}

const faultsOf = (
  nodes: readonly GraphNode[],
  faultOf: (node: GraphNode) => CompileError | undefined,
): CompileError[] => {
  const faults: CompileError[] = []
  for (const node of nodes) {
    const found = faultOf(node)
    if (found !== undefined) faults.push(found)
  }
  return faults
}

const nameFaults = (ir: GraphIR): CompileError[] => {
  const seen = new Set<string>()
  const faults: CompileError[] = []
  const note = (kind: string, name: string, at: { toString(): string }): void => {
    if (seen.has(`${kind} ${name}`))
      faults.push(fault('DuplicateName', at, name, `one ${kind} of this name`, 'two', 'rename one of them'))
    seen.add(`${kind} ${name}`)
  }
  for (const node of ir.nodes) {
    if (node.op === 'input' || node.op === 'param') note(node.op, node.name, node.at)
    if (node.op === 'delay' || node.op === 'hold') note('state', node.name, node.at)
  }
  for (const output of ir.outputs) note('output', output.name, ir.nodes[output.node]?.at ?? ir.name)
  return faults
}

const outputFaults = (ir: GraphIR): CompileError[] => {
  if (ir.outputs.length === 0 && !ir.problems.some(({ _tag }) => _tag === 'NoOutputs'))
    return [
      fault(
        'NoOutputs',
        ir.name,
        ir.name,
        'at least one output',
        'none',
        'return a downloaded flow: { y: y.pipe(download()) }',
      ),
    ]
  return ir.outputs.flatMap(output =>
    ir.nodes[output.node] === undefined
      ? [
          fault(
            'ForeignFlow',
            ir.name,
            output.name,
            'a flow of this graph',
            `node ${output.node}`,
            'return flows of this graph',
          ),
        ]
      : [],
  )
}

/** What the caller gives as sizes by symbol; whether they are sizes is for the options to say. */
const givenDims = (options: unknown): Readonly<Record<string, unknown>> => {
  const dims = (options as { readonly dims?: unknown } | null | undefined)?.dims
  return typeof dims === 'object' && dims !== null ? (dims as Readonly<Record<string, unknown>>) : {}
}

export const check = (options: unknown): ((ir: GraphIR) => Passed<Checked>) =>
  pass('check', (ir: GraphIR): Passed<Checked> => {
    const settings = normaliseOptions(options, ir.name, symbolsOf(ir.nodes))
    const optionFaults = [
      ...(E.isLeft(settings) ? settings.left : []),
      ...unboundSymbols(ir, givenDims(options)),
    ]
    const dims = E.isRight(settings) ? settings.right.dims : new Map<string, number>()
    const links = faultsOf(ir.nodes, node => linkFault(node, ir.nodes.length))
    const specs = ir.nodes.map(node => bind(node.spec, dims))
    const sizes = faultsOf(ir.nodes, node => sizeFault(node, specs[node.id]!))
    const total = specs.reduce(
      (sum, spec) => sum + spec.shape.reduce((product, dim) => product * dim, elementBytes[spec.dtype]),
      0,
    )
    if (sizes.length === 0 && !(total < Number.MAX_SAFE_INTEGER))
      sizes.push(
        fault(
          'BadDimension',
          ir.name,
          ir.name,
          'fewer than 2^53 bytes in all',
          `about ${total} bytes`,
          'make its tensors smaller',
        ),
      )
    const sound = links.length + sizes.length + ir.problems.length + optionFaults.length === 0
    const deep = sound
      ? [...faultsOf(ir.nodes, node => typeFault(node, specs, dims)), ...donationFaults(ir.nodes, specs)]
      : []
    const known = new Set(ir.problems.map(problem => `${problem._tag} ${problem.at} ${problem.subject}`))
    const fresh = [...links, ...sizes, ...nameFaults(ir), ...outputFaults(ir), ...deep].filter(
      error => !known.has(`${error._tag} ${error.at} ${error.subject}`),
    )
    return unless([...ir.problems, ...optionFaults, ...fresh], () => ({
      settings: (settings as E.Right<Checked['settings']>).right,
      nodes: ir.nodes,
      specs,
      outputs: ir.outputs,
    }))
  })
