import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction, MapSpec } from '../../ir/kernel-spec.js'
import {
  type BoundSpec,
  type DType,
  elements,
  isFloat,
  sameSpec,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, roundoff } from '../values.js'
import { attrsOfCode, type ElementwiseAttrs } from './code.js'
import { runMap } from './map-reference.js'
import { wholeInstructions } from './map-steps.js'
import type { Attrs, Operator, Read, RunLowering } from './operator.js'
import { broadcast, broadcastStrides, coalesce } from './shapes.js'

const isWhole = (value: number): boolean => Number.isInteger(value) && value >= -(2 ** 31) && value < 2 ** 31

/** The whole numbers that a type of whole numbers holds. */
const wholeRange = { u8: [0, 255], i32: [-(2 ** 31), 2 ** 31 - 1] } as const

/** Whether a type of whole numbers holds the value. */
export const holdsWhole = (dtype: 'u8' | 'i32', value: unknown): boolean => {
  const [least, most] = wholeRange[dtype]
  return Number.isInteger(value) && (value as number) >= least && (value as number) <= most
}

/** The numbers of a type of whole numbers, for messages. */
export const wholeText = (dtype: 'u8' | 'i32'): string => {
  const [least, most] = wholeRange[dtype]
  return `a whole number from ${least} to ${most}`
}

const codeOf = (attrs: Attrs): readonly MapInstruction[] => (attrs as unknown as ElementwiseAttrs).code

const showAll = (specs: readonly TensorSpec[]): string => specs.map(showSpec).join(' and ')

/** Inputs agree on their element type and broadcast; the result has that type. */
export const inferElementwise = (
  inputs: readonly TensorSpec[],
  code: readonly MapInstruction[],
): E.Either<UnplacedError, TensorSpec> => {
  const [first] = inputs
  const dtype = first?.dtype ?? 'f32'
  // Of floats of one type nothing can be wrong: they keep that type, and share it.
  if (first !== undefined && isFloat(dtype) && inputs.every(input => sameSpec(input, first)))
    return E.right(first)
  if (inputs.some(input => input.dtype !== dtype))
    return E.left(
      dtypeMismatch(
        'operands of one element type',
        showAll(inputs),
        `cast one of them, as in pipe(cast('${dtype}'))`,
      ),
    )
  const shape = broadcast(inputs.map(input => input.shape))
  if (shape === undefined)
    return E.left(
      shapeMismatch(
        'shapes that broadcast: trailing dimensions equal, or 1',
        showAll(inputs),
        'reshape one of them',
      ),
    )
  if (!isFloat(dtype)) {
    const partial = code.find(([op]) => !wholeInstructions.has(op))
    if (partial)
      return E.left(
        dtypeMismatch(
          `floats: ${partial[0]} of whole numbers is not one`,
          showAll(inputs),
          "cast first: pipe(cast('f32'))",
        ),
      )
    const other = code.find(([op, value]) => op === 'const' && !isWhole(value))
    if (other)
      return E.left(
        badAttribute(
          'whole numbers that i32 can hold as operands of whole numbers',
          String(other[1]),
          "cast first: pipe(cast('f32'))",
        ),
      )
  }
  return E.right({ dtype, shape })
}

type Run = RunLowering & { readonly kernel: MapSpec }

interface Lowerings {
  readonly byShape: Map<string, Run>
  /**
   * The latest entry: in a large graph the next node mostly has the same shapes, and its key costs more than
   * the rest of the lookup.
   */
  inputs: readonly BoundSpec[]
  output: BoundSpec
  run: Run
}

// Hazard: memory. A graph of a million nodes has few expressions and few shapes, so nodes that share both
// share one frozen lowering. An entry goes with its expression, which the graph's nodes hold.
const lowerings = new WeakMap<readonly MapInstruction[], Lowerings>()

const keyOf = (inputs: readonly BoundSpec[], output: BoundSpec): string => {
  let key = `${output.dtype} ${output.shape}`
  for (const { dtype, shape } of inputs) key += `|${dtype} ${shape}`
  return key
}

const lowered = (inputs: readonly BoundSpec[], output: BoundSpec, code: readonly MapInstruction[]): Run => {
  const known = lowerings.get(code)
  if (
    known !== undefined &&
    known.inputs.length === inputs.length &&
    sameSpec(known.output, output) &&
    known.inputs.every((input, i) => sameSpec(input, inputs[i]!))
  )
    return known.run
  const key = keyOf(inputs, output)
  const run = known?.byShape.get(key) ?? Object.freeze(runOf(inputs, output, code))
  if (known === undefined) lowerings.set(code, { byShape: new Map([[key, run]]), inputs, output, run })
  else {
    known.byShape.set(key, run)
    Object.assign(known, { inputs, output, run })
  }
  return run
}

const runOf = (inputs: readonly BoundSpec[], output: BoundSpec, code: readonly MapInstruction[]): Run => {
  const { shape, strides } = coalesce(
    output.shape,
    [...inputs, output].map(input => broadcastStrides(input.shape, output.shape)),
  )
  return {
    as: 'run',
    kernel: {
      kind: 'map',
      shape,
      compute: [...inputs, output].some(({ dtype }) => isFloat(dtype)) ? 'f32' : 'i32',
      operands: inputs.map(({ dtype }, i) => ({ dtype, offset: 0, strides: strides[i] ?? [] })),
      code,
      results: [{ value: code.length - 1, dtype: output.dtype }],
    },
    flops: mapFlops(code, elements(output.shape)),
    movedBytes: inputs.reduce((sum, input) => sum + tensorBytes(input), tensorBytes(output)),
    workspace: 0,
  }
}

/** One fused kernel over the broadcast shape, in as few dimensions as the operands allow. */
export const mapSpec = (
  inputs: readonly BoundSpec[],
  output: BoundSpec,
  code: readonly MapInstruction[],
): MapSpec => lowered(inputs, output, code).kernel

// The largest error of a device's f32 against Math's result rounded to f32, in units in the last place.
const errorUnits: Readonly<Record<string, number>> = {
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

/**
 * 0 where every step is exactly rounded by IEEE 754; else the sum of the errors of its steps and of the
 * rounding to its type.
 */
export const mapTolerance = (code: readonly MapInstruction[], output: DType): number => {
  const units = code.reduce((sum, [op]) => sum + (errorUnits[op] ?? 0), 0)
  return units === 0 ? 0 : 4 * units * roundoff.f32 + (output === 'f32' ? 0 : 2 * roundoff[output])
}

/** What a map yields where a device is off in each step by as much as it may, in the direction of each element. */
export const runMapOff = (spec: MapSpec, inputs: readonly HostArray[], directions: Int8Array): HostArray =>
  runMap(spec, inputs, { of: op => 4 * (errorUnits[op] ?? 0) * roundoff.f32, directions })[0]!

/** Floating-point operations of a map: one for each instruction that computes. */
export const mapFlops = (code: readonly MapInstruction[], count: number): number =>
  count * code.reduce((sum, [op]) => sum + (op === 'operand' || op === 'const' || op === 'index' ? 0 : 1), 0)

/** The operands of an expression, in their order. */
const operandsOf = (code: readonly MapInstruction[]): readonly number[] => {
  let known = operands.get(code)
  if (known === undefined) {
    const read = code.flatMap(([op, operand]) => (op === 'operand' ? [operand as number] : []))
    operands.set(code, (known = [...new Set(read)].sort((a, b) => a - b)))
  }
  return known
}

const operands = new WeakMap<readonly MapInstruction[], readonly number[]>()

const reads = (inputs: readonly number[], attrs: Attrs): Read | undefined => {
  const code = codeOf(attrs)
  const read = operandsOf(code)
  if (read.length === inputs.length) return undefined
  const own = code.map(
    (instruction): MapInstruction =>
      instruction[0] === 'operand' ? ['operand', read.indexOf(instruction[1])] : instruction,
  )
  return { inputs: read.map(operand => inputs[operand]!), attrs: attrsOfCode(own) }
}

/** An operator whose nodes carry their own expression each (`ElementwiseAttrs`). */
export const elementwise = (name: string): Operator => ({
  name,
  keepsType: true,
  infer: (inputs, attrs) => inferElementwise(inputs, codeOf(attrs)),
  lower: (inputs, output, attrs) => lowered(inputs, output, codeOf(attrs)),
  reads,
  reference: (inputs, specs, output, attrs) => runMap(mapSpec(specs, output, codeOf(attrs)), inputs)[0]!,
  tolerance: (output, _inputs, attrs) => mapTolerance(codeOf(attrs), output.dtype),
  off: (inputs, specs, output, attrs, directions) =>
    runMapOff(mapSpec(specs, output, codeOf(attrs)), inputs, directions),
})
