import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { RandomSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  elements,
  type FloatType,
  isFloat,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { hostArray, writer } from '../values.js'
import { apply } from './apply.js'
import type { Parts } from './composition.js'
import type { Attrs, Operator } from './operator.js'
import { named } from './options.js'
import { stateNode } from './state.js'

interface RandomAttrs {
  readonly seed: number
  readonly stream: number
  readonly to: RandomSpec['dtype']
}

/** The high and the low half of a product of two words. */
const product = (a: number, b: number): readonly [high: number, low: number] => {
  const [ah, al, bh, bl] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff]
  const middle = ah * bl + ((al * bl) >>> 16)
  const other = al * bh + (middle & 0xffff)
  return [(ah * bh + Math.floor(middle / 65536) + Math.floor(other / 65536)) >>> 0, Math.imul(a, b) >>> 0]
}

export type Words = readonly [number, number, number, number]

/** Ten rounds of Philox4x32. */
export const philox = (counter: Words, key: readonly [number, number]): Words => {
  let [c0, c1, c2, c3] = counter
  let [k0, k1] = key
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = product(0xd2511f53, c0)
    const [high1, low1] = product(0xcd9e8d57, c2)
    ;[c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0]
    k0 = (k0 + 0x9e3779b9) >>> 0
    k1 = (k1 + 0xbb67ae85) >>> 0
  }
  return [c0, c1, c2, c3]
}

const bitsOf = { f32: 24, f16: 11, bf16: 8 } as const

const spec = (output: BoundSpec, attrs: Attrs): RandomSpec => {
  const { seed, stream, to } = attrs as unknown as RandomAttrs
  return { kind: 'random', count: elements(output.shape), seed, stream, dtype: to }
}

/** Random numbers in the shape of the first input; the second counts the values that were drawn before. */
export const randomOperator: Operator = {
  name: 'random',
  infer: ([x], attrs) => E.right({ dtype: (attrs as unknown as RandomAttrs).to, shape: x!.shape }),
  lower: (_inputs, output, attrs) => ({
    as: 'run',
    kernel: spec(output, attrs),
    flops: 20 * elements(output.shape),
    movedBytes: tensorBytes(output),
    workspace: 0,
  }),
  reference: ([, counter], _specs, output, attrs) => {
    const { count, seed, stream, dtype } = spec(output, attrs)
    const result = hostArray(dtype, count)
    const write = writer(dtype)
    const key = [seed >>> 0, Math.floor(seed / 2 ** 32)] as const
    for (let i = 0; i < count; i += 4) {
      const block = i / 4
      const words = philox([block >>> 0, Math.floor(block / 2 ** 32), counter![0]! >>> 0, stream], key)
      for (let j = 0; j < 4 && i + j < count; j++) {
        const word = words[j]!
        if (dtype === 'i32') result[i + j] = word | 0
        else result[i + j] = write((word >>> (32 - bitsOf[dtype])) * 2 ** -bitsOf[dtype])
      }
    }
    return result
  },
  tolerance: () => 0,
}

export interface RandomOptions<E extends FloatType = FloatType> {
  /** A whole number from 0. Other seeds give other numbers; two calls with one seed draw the same. */
  readonly seed: number
  /** The element type of the result; f32 where it is left out. */
  readonly dtype?: E
  /**
   * The name of the state that counts the draws, so that a checkpoint finds it again where the program draws
   * elsewhere too. Without one it is called by its number, as `delay[0]`.
   */
  readonly name?: string
}

/** What is drawn, and the name of the count. */
export interface Draw {
  readonly attrs: Omit<RandomAttrs, 'stream'>
  readonly name: unknown
}

export const randomOptions = ['seed', 'dtype', 'name'] as const

export const randomOf = (options: unknown): E.Either<UnplacedError, Draw> => {
  const { seed, dtype = 'f32', name } = named(options)
  return Number.isSafeInteger(seed) &&
    (seed as number) >= 0 &&
    typeof dtype === 'string' &&
    isFloat(dtype as never)
    ? E.right({ attrs: { seed: seed as number, to: dtype as RandomAttrs['to'] }, name })
    : E.left(
        badAttribute(
          'seed: a whole number from 0, and a float type',
          show(options),
          "as in { seed: 7, dtype: 'bf16' }",
        ),
      )
}

/** State: how many values a node has yielded before. */
export const drawnBefore = (parts: Parts, x: FlowValue, { name }: Draw): FlowValue => {
  const { builder } = x
  const spec: TensorSpec = { dtype: 'i32', shape: [] }
  const state = { next: builder.nodes.length, init: 0, options: name === undefined ? undefined : { name } }
  const before = stateNode(x, parts.at, 'the counter', spec, state)
  builder.close(before.id, parts.map(n => n.add(1), before).id)
  return before
}

export const drawn = (at: Where, x: FlowValue, counter: FlowValue, attrs: RandomAttrs): FlowValue =>
  apply(randomOperator, at, x, [['the counter', counter]], attrs as unknown as Attrs)
