import * as E from 'fp-ts/lib/Either.js'
import { type AttentionSpec, attentionProducts } from '../../ir/kernel-spec.js'
import { type BoundSpec, elements, type TensorSpec, tensorBytes } from '../../ir/tensor.js'
import type { UnplacedError } from '../messages.js'
import { type HostArray, numbers, roundoff, stored } from '../values.js'
import { attentionSpec, eachQuery, inferAttention, largestOf, scoresSeen } from './attention.js'
import type { Attrs, Operator } from './operator.js'

// What gradients of attention are made of. Each reads what attention reads; those by queries, keys and values
// then the gradient of the attended values (dy), and for each query the logarithm of its sum of exp(score) and
// the sum of dy · y:
//
//   weight = exp(score − logarithm)      by score = weight · (dy · v − sum of dy · y) · scale
//
// No scores are stored: each kernel computes them again.

const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> =>
  E.map((attended: TensorSpec): TensorSpec => {
    const [q, k, v] = inputs as readonly [TensorSpec, TensorSpec, TensorSpec]
    if (attrs['result'] === 'logSumExp') return { dtype: 'f32', shape: attended.shape.slice(0, -1) }
    return attrs['result'] === 'byQueries' ? q : attrs['result'] === 'byKeys' ? k : v
  })(inferAttention(inputs, attrs))

const reference = (
  inputs: readonly HostArray[],
  specs: readonly BoundSpec[],
  output: BoundSpec,
  attrs: Attrs,
): HostArray => {
  const spec = attentionSpec(specs, attrs)
  const { result, keys, size, valueSize, scale, dtype } = spec
  const sums = new Float64Array(elements(output.shape))
  if (result === 'logSumExp') {
    eachQuery(spec, inputs, (row, _, found) => {
      const { scores, seen, end } = found
      const largest = largestOf(found)
      const base = largest === Number.NEGATIVE_INFINITY ? 0 : largest
      let total = 0
      for (let j = 0; j < end; j++) if (seen[j] === 1) total += Math.exp(scores[j]! - base)
      sums[row] = base + Math.log(total)
    })
  } else {
    const [q, k, v] = [0, 1, 2].map(i => numbers(inputs[i]!, dtype)) as [HostArray, HostArray, HostArray]
    const dy = numbers(inputs.at(-3)!, dtype)
    const [logs, products] = inputs.slice(-2) as [HostArray, HostArray]
    const add = (to: number, from: HostArray, row: number, width: number, times: number): void => {
      for (let d = 0; d < width; d++) sums[to * width + d]! += times * from[row * width + d]!
    }
    eachQuery(spec, inputs, (row, group, { scores, seen, end }) => {
      for (let j = 0; j < end; j++) {
        if (seen[j] === 0) continue
        const key = group * keys + j
        const weight = Math.exp(scores[j]! - logs[row]!)
        if (result === 'byValues') {
          add(key, dy, row, valueSize, weight)
          continue
        }
        let inner = 0
        for (let n = 0; n < valueSize; n++) inner += dy[row * valueSize + n]! * v[key * valueSize + n]!
        const byScore = weight * (inner - products[row]!) * scale
        if (result === 'byQueries') add(row, k, key, size, byScore)
        else add(key, q, row, size, byScore)
      }
    })
  }
  return stored(sums, output.dtype)
}

/** Terms of a sum that the result is. */
const termsOf = ({ result, heads, groups, queries, keys }: AttentionSpec): number =>
  result === 'byKeys' || result === 'byValues' ? (heads / groups) * queries : keys

/** The largest error of sums of f32, relative to what is added up. */
const ofSums = (spec: AttentionSpec): number =>
  (termsOf(spec) + 2 * (spec.size + spec.valueSize) + 32) * roundoff.f32

/** That, and of weights that are rounded to the type, relative to the largest element. */
const roundedBy = (spec: AttentionSpec): number =>
  ofSums(spec) + (spec.dtype === 'f32' || spec.result === 'logSumExp' ? 0 : 8 * roundoff[spec.dtype])

/** What gradients of attention are made of; users do not call it. */
export const attentionGradientOperator: Operator = {
  name: 'attentionGradient',
  infer,
  lower: (inputs, output, attrs) => {
    const kernel = attentionSpec(inputs, attrs)
    return {
      as: 'run',
      kernel,
      flops: 2 * scoresSeen(kernel) * attentionProducts(kernel),
      movedBytes: inputs.reduce((sum, each) => sum + tensorBytes(each), tensorBytes(output)),
      workspace: 0,
    }
  },
  withEmpty: (_, attrs) => (attrs['result'] === 'logSumExp' ? Number.NEGATIVE_INFINITY : 0),
  reference,
  tolerance: (_output, inputs, attrs) => roundedBy(attentionSpec(inputs, attrs)),
  // What is added up in f32 may cancel. The error of a score moves its weight: the larger the scores, the
  // further.
  scale: (largest, inputs, attrs) => {
    const spec = attentionSpec(inputs, attrs)
    const { result, size, valueSize, scale } = spec
    const [q = 0, k = 0, v = 0] = largest
    const score = size * q * k * Math.abs(scale)
    if (result === 'logSumExp') return 1 + score
    const [dy = 0, logs = 0, products = 0] = largest.slice(-3)
    const byScore = (valueSize * dy * v + products) * Math.abs(scale)
    const added = result === 'byValues' ? dy : byScore * (result === 'byQueries' ? k : q)
    const moved = ofSums(spec) + 2 * (size + 4) * roundoff.f32 * (score + logs)
    return ((result === 'byQueries' ? 1 : termsOf(spec)) * added * moved) / roundedBy(spec)
  },
}
