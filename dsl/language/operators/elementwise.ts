import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction, MapSpec } from '../../ir/kernel-spec.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { roundoff } from '../values.js'
import { runMap, wholeInstructions } from './map-reference.js'
import type { Attrs, Lowering, Misfit, Operator } from './operator.js'
import { broadcast, broadcastStrides, coalesce } from './shapes.js'

/** Attributes of every elementwise node: its expression over its inputs, in the form of `MapSpec.code`; the last value is the result. */
export interface ElementwiseAttrs {
  readonly code: readonly MapInstruction[]
}

export const isFloat = (dtype: DType): boolean => dtype === 'f32' || dtype === 'f16' || dtype === 'bf16'

const codeOf = (attrs: Attrs): readonly MapInstruction[] => (attrs as unknown as ElementwiseAttrs).code

const misfit = (tag: Misfit['_tag'], wanted: string, found: string, next: string): E.Either<Misfit, never> =>
  E.left({ _tag: tag, wanted, found, next })

const showAll = (specs: readonly TensorSpec[]): string => specs.map(showSpec).join(' and ')

/** Inputs agree on their element type and broadcast; the result has that type. */
export const inferElementwise = (
  inputs: readonly TensorSpec[],
  code: readonly MapInstruction[],
): E.Either<Misfit, TensorSpec> => {
  const dtype = inputs[0]?.dtype ?? 'f32'
  if (inputs.some(input => input.dtype !== dtype))
    return misfit(
      'DTypeMismatch',
      'operands of one element type',
      showAll(inputs),
      `cast one of them, as in pipe(cast('${dtype}'))`,
    )
  const shape = broadcast(inputs.map(input => input.shape))
  if (shape === undefined)
    return misfit(
      'ShapeMismatch',
      'shapes that broadcast: trailing dimensions equal, or 1',
      showAll(inputs),
      'reshape one of them',
    )
  if (!isFloat(dtype)) {
    const partial = code.find(([op]) => !wholeInstructions.has(op))
    if (partial)
      return misfit(
        'DTypeMismatch',
        `floats: ${partial[0]} of whole numbers is not one`,
        showAll(inputs),
        "cast first: pipe(cast('f32'))",
      )
    const fraction = code.find(([op, value]) => op === 'const' && !Number.isInteger(value))
    if (fraction)
      return misfit(
        'BadAttribute',
        'whole numbers beside whole numbers',
        String(fraction[1]),
        "cast first: pipe(cast('f32'))",
      )
  }
  return E.right({ dtype, shape })
}

interface Walk {
  readonly inputs: readonly BoundSpec[]
  readonly output: BoundSpec
  /** Which value of the expression is the result. */
  readonly value: number
  readonly walk: Omit<MapSpec, 'code' | 'kind'>
  /** One for all nodes that share their expression too. */
  readonly made: WeakMap<readonly MapInstruction[], Made>
}

/** What a node becomes, and how far a device may be off. */
interface Made {
  readonly lowering: Extract<Lowering, { as: 'run' }> & { readonly kernel: MapSpec }
  readonly tolerance: number
}

// Large graphs repeat few shapes: the nodes of one shape share what follows from it. Those of late are told by looking, others by a key;
// forgotten as a whole when there are many.
const walks = new Map<string, Walk>()
const maxWalks = 1024
const lately: Walk[] = []
const maxLately = 8

const sameSpec = (a: BoundSpec, b: BoundSpec): boolean => {
  if (a === b) return true
  if (a.dtype !== b.dtype || a.shape.length !== b.shape.length) return false
  for (let i = 0; i < a.shape.length; i++) if (a.shape[i] !== b.shape[i]) return false
  return true
}

const isOf = (walk: Walk, inputs: readonly BoundSpec[], output: BoundSpec, value: number): boolean => {
  if (walk.value !== value || walk.inputs.length !== inputs.length || !sameSpec(walk.output, output))
    return false
  for (let i = 0; i < inputs.length; i++) if (!sameSpec(walk.inputs[i]!, inputs[i]!)) return false
  return true
}

const walked = (inputs: readonly BoundSpec[], output: BoundSpec, value: number): Walk => {
  const { shape, strides } = coalesce(
    output.shape,
    [...inputs, output].map(input => broadcastStrides(input.shape, output.shape)),
  )
  const floats = [...inputs, output].some(({ dtype }) => isFloat(dtype))
  const operands = inputs.map(({ dtype }, i) =>
    Object.freeze({ dtype, offset: 0, strides: Object.freeze([...(strides[i] ?? [])]) }),
  )
  const walk: Walk['walk'] = {
    shape: Object.freeze(shape),
    compute: floats ? 'f32' : 'i32',
    operands: Object.freeze(operands),
    results: Object.freeze([Object.freeze({ value, dtype: output.dtype })]),
  }
  return { inputs, output, value, walk, made: new WeakMap() }
}

const walkOf = (inputs: readonly BoundSpec[], output: BoundSpec, value: number): Walk => {
  for (const walk of lately) if (isOf(walk, inputs, output, value)) return walk
  let key = `${value} ${output.dtype} ${output.shape}`
  for (const { dtype, shape } of inputs) key += `|${dtype} ${shape}`
  let walk = walks.get(key)
  if (walk === undefined) {
    if (walks.size >= maxWalks) walks.clear()
    walk = walked(inputs, output, value)
    walks.set(key, walk)
  }
  lately.unshift(walk)
  if (lately.length > maxLately) lately.pop()
  return walk
}

const madeOf = (inputs: readonly BoundSpec[], output: BoundSpec, code: readonly MapInstruction[]): Made => {
  const { walk, made } = walkOf(inputs, output, code.length - 1)
  const known = made.get(code)
  if (known !== undefined) return known
  const { shape, compute, operands, results } = walk
  const lowering = Object.freeze({
    as: 'run' as const,
    kernel: Object.freeze({ kind: 'map' as const, shape, compute, operands, code, results }),
    flops: mapFlops(code, elements(output.shape)),
    movedBytes: inputs.reduce((sum, input) => sum + tensorBytes(input), tensorBytes(output)),
    workspace: 0,
  })
  const found = { lowering, tolerance: mapTolerance(code, output.dtype) }
  made.set(code, found)
  return found
}

/** One fused kernel over the broadcast shape, in as few dimensions as the operands allow. */
export const mapSpec = (
  inputs: readonly BoundSpec[],
  output: BoundSpec,
  code: readonly MapInstruction[],
): MapSpec => madeOf(inputs, output, code).lowering.kernel

// Roundings of f32 that a device may do otherwise than Math does, in units of its last place.
const loose: Readonly<Record<string, number>> = {
  exp: 4,
  log: 4,
  rsqrt: 4,
  tanh: 6,
  erf: 6,
  sigmoid: 6,
  sin: 4,
  cos: 4,
  pow: 16,
}

/** 0 where every step is exactly rounded by IEEE 754; else the looseness of its steps, and of the type it is stored in. */
export const mapTolerance = (code: readonly MapInstruction[], output: DType): number => {
  const units = code.reduce((sum, [op]) => sum + (loose[op] ?? 0), 0)
  return units === 0 ? 0 : 4 * units * roundoff.f32 + (output === 'f32' ? 0 : 2 * roundoff[output])
}

/** Floating-point operations of a map: one for each instruction that computes. */
export const mapFlops = (code: readonly MapInstruction[], count: number): number =>
  count * code.reduce((sum, [op]) => sum + (op === 'operand' || op === 'const' ? 0 : 1), 0)

/** An operator whose every node carries its own expression (`ElementwiseAttrs`), traced when the node was made. */
export const elementwise = (name: string): Operator => ({
  name,
  infer: (inputs, attrs) => inferElementwise(inputs, codeOf(attrs)),
  lower: (inputs, output, attrs) => madeOf(inputs, output, codeOf(attrs)).lowering,
  reference: (inputs, specs, output, attrs) => runMap(mapSpec(specs, output, codeOf(attrs)), inputs)[0]!,
  tolerance: (output, inputs, attrs) => madeOf(inputs, output, codeOf(attrs)).tolerance,
})
