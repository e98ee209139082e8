// What a graph means, a second time: in f64, by the definition of each operator, one element at a time. Shares
// no code with the operators' references, and none with the rules of gradients.
import type { GraphIR, GraphNode } from '../../dsl/ir/graph.js'
import { convolved } from './conv.js'
import { windows } from './pool.js'

/** Elements in row-major order. */
export interface Value {
  readonly shape: readonly number[]
  readonly data: Float64Array
}

/** By name: the parameters and inputs of one rank. */
export type Point = Readonly<Record<string, ArrayLike<number>>>

// biome-ignore lint/suspicious/noExplicitAny: attributes of any operator
type Attrs = Readonly<Record<string, any>>
type Index = readonly number[]

const count = (shape: Index): number => shape.reduce((n, size) => n * size, 1)

/** Each element by its index. The index is the same array each time. */
const made = (shape: Index, element: (index: Index) => number): Value => {
  const data = new Float64Array(count(shape))
  const index = shape.map(() => 0)
  for (let i = 0; i < data.length; i++) {
    data[i] = element(index)
    for (let d = shape.length - 1; d >= 0 && ++index[d]! === shape[d]; d--) index[d] = 0
  }
  return { shape, data }
}

/** The element at an index, which may have leading dimensions more, along which a value is repeated. */
const at = ({ shape, data }: Value, index: Index): number => {
  const lead = index.length - shape.length
  let place = 0
  for (let d = 0; d < shape.length; d++) place = place * shape[d]! + (shape[d] === 1 ? 0 : index[lead + d]!)
  return data[place]!
}

const replaced = (index: Index, axis: number, place: number): number[] =>
  index.map((i, d) => (d === axis ? place : i))

/** Simpson's rule. */
const erf = (x: number): number => {
  if (Math.abs(x) > 6 || x === 0 || Number.isNaN(x)) return Math.sign(x)
  const parts = 400
  const h = x / parts
  let sum = 1 + Math.exp(-x * x)
  for (let i = 1; i < parts; i++) sum += (i % 2 === 1 ? 4 : 2) * Math.exp(-((i * h) ** 2))
  return ((2 / Math.sqrt(Math.PI)) * sum * h) / 3
}

const evenRound = (x: number): number => {
  const down = Math.floor(x)
  const rest = x - down
  return rest === 0.5 ? down + (Math.abs(down) % 2) : rest < 0.5 ? down : down + 1
}

/** Every instruction of an elementwise expression. */
export const instructions: Readonly<Record<string, (a: number, b: number, c: number) => number>> = {
  neg: a => -a,
  abs: a => (a < 0 ? -a : a),
  exp: a => Math.exp(a),
  log: a => Math.log(a),
  sqrt: a => Math.sqrt(a),
  rsqrt: a => 1 / Math.sqrt(a),
  tanh: a => Math.tanh(a),
  erf,
  sigmoid: a => (a < 0 ? Math.exp(a) / (1 + Math.exp(a)) : 1 / (1 + Math.exp(-a))),
  sin: a => Math.sin(a),
  cos: a => Math.cos(a),
  floor: a => Math.floor(a),
  ceil: a => Math.ceil(a),
  round: evenRound,
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  min: (a, b) => (Number.isNaN(a) || Number.isNaN(b) ? Number.NaN : a < b ? a : b),
  max: (a, b) => (Number.isNaN(a) || Number.isNaN(b) ? Number.NaN : a > b ? a : b),
  pow: (a, b) => (b === 0 ? 1 : a ** b),
  floorDiv: (a, b) => Math.floor(a / b),
  mod: (a, b) => a - b * Math.floor(a / b),
  lt: (a, b) => Number(a < b),
  le: (a, b) => Number(a <= b),
  eq: (a, b) => Number(a === b),
  select: (a, b, c) => (a !== 0 ? b : c),
}

const elementwise = (inputs: readonly Value[], shape: Index, { code }: Attrs): Value => {
  const values: number[] = []
  return made(shape, index => {
    for (const [i, [op, a, b, c]] of code.entries())
      values[i] =
        op === 'operand'
          ? at(inputs[a]!, index)
          : op === 'const'
            ? a
            : instructions[op]!(values[a]!, values[b]!, values[c]!)
    return values[code.length - 1]!
  })
}

/** The elements along axes that a reduction joins, for each element of its result. */
const reduced =
  (join: (values: readonly number[]) => number) =>
  ([x]: readonly Value[], shape: Index, { axis, count: axes = 1, keepDims }: Attrs): Value => {
    const along = x!.shape.slice(axis, axis + axes)
    return made(shape, index => {
      const values: number[] = []
      const [before, after] = [index.slice(0, axis), index.slice(keepDims === true ? axis + axes : axis)]
      made(along, inner => {
        values.push(at(x!, [...before, ...inner, ...after]))
        return 0
      })
      return join(values)
    })
  }

/** Neumaier's sum: what cancels leaves no rounding. */
const total = (values: readonly number[]): number => {
  let [sum, rest] = [0, 0]
  for (const value of values) {
    const next = sum + value
    rest += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum
    sum = next
  }
  return Number.isFinite(sum) ? sum + rest : sum
}

const best = (op: 'min' | 'max') => (values: readonly number[]) =>
  values.reduce((a, b) => instructions[op]!(a, b, 0))

const product = ([x, w]: readonly Value[], shape: Index, { transpose, transposeX }: Attrs): Value => {
  const inner = x!.shape.at(transposeX === true ? -2 : -1)!
  return made(shape, index => {
    const [lead, row, column] = [index.slice(0, -2), index.at(-2)!, index.at(-1)!]
    const own = (y: Value, indices: Index): number =>
      at(y, [...lead.slice(lead.length - (y.shape.length - 2)), ...indices])
    return total(
      Array.from(
        { length: inner },
        (_, q) => own(x!, transposeX ? [q, row] : [row, q]) * own(w!, transpose ? [column, q] : [q, column]),
      ),
    )
  })
}

const attention = (inputs: readonly Value[], shape: Index, attrs: Attrs): Value => {
  const [q, k, v, mask] = inputs as readonly [Value, Value, Value, Value]
  const [heads, queries, size] = q.shape.slice(-3) as [number, number, number]
  const [groups, keys] = k.shape.slice(-3) as [number, number]
  const there = attrs['length'] ? Math.min(keys, inputs.at(-1)!.data[0]!) : keys
  return made(shape, index => {
    const [lead, head, row] = [index.slice(0, -3), index.at(-3)!, index.at(-2)!]
    const group = Math.floor((head * groups) / heads)
    const isSeen = (j: number): boolean =>
      j < there &&
      (attrs['causal'] !== true || j <= there - queries + row) &&
      (attrs['mask'] !== true || at(mask, [...lead, head, row, j]) !== 0)
    const seen = Array.from({ length: keys }, (_, j) => j).filter(isSeen)
    const weights = seen.map(j => {
      const terms = Array.from(
        { length: size },
        (_, d) => at(q, [...lead, head, row, d]) * at(k, [...lead, group, j, d]),
      )
      return Math.exp(total(terms) * attrs['scale'])
    })
    const values = seen.map((j, s) => weights[s]! * at(v, [...lead, group, j, index.at(-1)!]))
    return total(values) / total(weights)
  })
}

const rope = (inputs: readonly Value[], shape: Index, { base, interleaved }: Attrs): Value => {
  const [x, , positions] = inputs
  const size = shape.at(-1)!
  return made(shape, index => {
    const [before, e] = [index.slice(0, -1), index.at(-1)!]
    const pair = interleaved ? Math.floor(e / 2) : e % (size / 2)
    const isSecond = interleaved ? e % 2 === 1 : e >= size / 2
    const other = interleaved ? e + (isSecond ? -1 : 1) : e + (isSecond ? -size / 2 : size / 2)
    const place = positions === undefined ? before.at(-1)! : at(positions, before)
    const angle = place * base ** ((-2 * pair) / size)
    const turn = at(x!, [...before, other]) * Math.sin(angle)
    return at(x!, index) * Math.cos(angle) + (isSecond ? turn : -turn)
  })
}

const conv = ([x, w]: readonly Value[], shape: Index, attrs: Attrs): Value => {
  const { stride, dilation, groups, channels } = attrs
  const last = channels === 'last'
  const spatial = (of: Value): Index => (last ? of.shape.slice(1, -1) : of.shape.slice(2))
  const channelsOf = (of: Value): number => (last ? of.shape.at(-1)! : of.shape[1]!)
  const [size, kernel] = [spatial(x!), spatial(w!)]
  const reach = kernel.map((each, d) => dilation[d] * (each - 1) + 1)
  const pad = size.map((n, d): [number, number] => {
    if (attrs['padding'] !== 'same') return [attrs['padding'][d], attrs['padding'][d]]
    const all = Math.max(0, (Math.ceil(n / stride[d]) - 1) * stride[d] + reach[d]! - n)
    return [Math.floor(all / 2), Math.ceil(all / 2)]
  })
  const { sums } = convolved(
    {
      batch: x!.shape[0]!,
      groups,
      channels: channelsOf(x!) / groups,
      filters: w!.shape[0]! / groups,
      ...{ size, kernel, stride, dilation, pad, last },
    },
    x!.data,
    w!.data,
  )
  return { shape, data: Float64Array.from(sums) }
}

const pool = ([x]: readonly Value[], shape: Index, { how, kernel, stride, channels }: Attrs): Value => {
  const last = channels === 'last'
  const size = last ? x!.shape.slice(1, -1) : x!.shape.slice(2)
  const [pad, dilation] = [size.map((): [number, number] => [0, 0]), size.map(() => 1)]
  const sizes = { batch: x!.shape[0]!, channels: last ? x!.shape.at(-1)! : x!.shape[1]!, size }
  const met = windows({ ...sizes, kernel, stride, pad, dilation, last }, x!.data)
  const join = how === 'max' ? best('max') : (values: readonly number[]) => total(values) / values.length
  return { shape, data: Float64Array.from(met, join) }
}

/** Whether an index is one of an axis. */
const isWithin = (place: number, size: number): boolean => place >= 0 && place < size

const gather = ([x, indices]: readonly Value[], shape: Index, { axis }: Attrs): Value => {
  const rank = indices!.shape.length
  return made(shape, index => {
    const place = at(indices!, index.slice(axis, axis + rank))
    if (!isWithin(place, x!.shape[axis]!)) return 0
    return at(x!, [...index.slice(0, axis), place, ...index.slice(axis + rank)])
  })
}

const scatterAdd = ([x, indices]: readonly Value[], shape: Index, { axis }: Attrs): Value => {
  const terms = Array.from({ length: count(shape) }, (): number[] => [])
  const rank = indices!.shape.length
  made(x!.shape, index => {
    const place = at(indices!, index.slice(axis, axis + rank))
    const to = [...index.slice(0, axis), place, ...index.slice(axis + rank)]
    if (isWithin(place, shape[axis]!))
      terms[to.reduce((n, i, d) => n * shape[d]! + i, 0)]!.push(at(x!, index))
    return 0
  })
  return { shape, data: Float64Array.from(terms, total) }
}

/** Places by value, the best first; of equal ones the first. */
const topK = ([x]: readonly Value[], shape: Index, { axis, largest = true }: Attrs): Value =>
  made(shape, index => {
    const values = Array.from({ length: x!.shape[axis]! }, (_, l) => at(x!, replaced(index, axis, l)))
    const sign = largest ? -1 : 1
    const key = (a: number) => (Number.isNaN(a) ? Number.NEGATIVE_INFINITY : sign * a)
    return values.map((_, l) => l).sort((a, b) => key(values[a]!) - key(values[b]!) || a - b)[index[axis]!]!
  })

const casted = ([x]: readonly Value[], shape: Index, { to }: Attrs): Value =>
  to === 'i32' || to === 'u8' ? made(shape, index => Math.trunc(at(x!, index)) || 0) : x!

type Meaning = (inputs: readonly Value[], shape: Index, attrs: Attrs) => Value

const same: Meaning = ([x], shape) => ({ shape, data: x!.data })

/** The operators that are no expression, by name. */
export const meanings: Readonly<Record<string, Meaning>> = {
  ...{ upload: same, download: same, keep: same, after: same, reshape: same },
  expand: ([x], shape) => made(shape, index => at(x!, index)),
  transpose: ([x], shape, { axes }) =>
    made(shape, index =>
      at(
        x!,
        x!.shape.map((_, d) => index[axes.indexOf(d)]!),
      ),
    ),
  slice: ([x], shape, { axis, from }) =>
    made(shape, index => at(x!, replaced(index, axis, index[axis]! + from))),
  pad: ([x], shape, { axis, before, value }) =>
    made(shape, index => {
      const place = index[axis]! - before
      return isWithin(place, x!.shape[axis]!) ? at(x!, replaced(index, axis, place)) : value
    }),
  concat: (inputs, shape, { axis }) =>
    made(shape, index => {
      let [place, which] = [index[axis]!, 0]
      while (place >= inputs[which]!.shape[axis]!) place -= inputs[which++]!.shape[axis]!
      return at(inputs[which]!, replaced(index, axis, place))
    }),
  cast: casted,
  sum: reduced(total),
  mean: reduced(values => total(values) / values.length),
  max: reduced(best('max')),
  min: reduced(best('min')),
  cumsum: ([x], shape, { axis }) => {
    const sums: Value = { shape, data: new Float64Array(count(shape)) }
    let place = 0
    made(shape, index => {
      const before = index[axis] === 0 ? 0 : at(sums, replaced(index, axis, index[axis]! - 1))
      sums.data[place++] = before + at(x!, index)
      return 0
    })
    return sums
  },
  iota: (_, shape, { axis }) => made(shape, index => index[axis]!),
  oneHot: ([x], shape) => made(shape, index => Number(at(x!, index.slice(0, -1)) === index.at(-1))),
  takeAlong: ([x, indices], shape, { axis }) =>
    made(shape, index => {
      const place = at(indices!, index)
      return isWithin(place, x!.shape[axis]!) ? at(x!, replaced(index, axis, place)) : 0
    }),
  ...{ matmul: product, attention, rope, conv, pool, gather, scatterAdd, topK },
}

const joins: Readonly<Record<string, (values: readonly number[]) => number>> = {
  sum: total,
  mean: values => total(values) / values.length,
  product: values => values.reduce((a, b) => a * b),
  max: best('max'),
  min: best('min'),
}

type Exchange = (values: readonly Value[], place: number, attrs: Attrs) => Float64Array

/** The part of a place, of as many as there are ranks. */
const partOf = ({ data }: Value, place: number, ranks: number): Float64Array =>
  data.slice((place * data.length) / ranks, ((place + 1) * data.length) / ranks)

const joined = (values: readonly Value[], how: string): Value => ({
  shape: values[0]!.shape,
  data: values[0]!.data.map((_, i) => joins[how]!(values.map(value => value.data[i]!))),
})

/** Collectives of all ranks: what the rank at a place gets. */
export const exchanges: Readonly<Record<string, Exchange>> = {
  allReduce: (values, _, { how }) => joined(values, how).data,
  reduceScatter: (values, place, { how }) => partOf(joined(values, how), place, values.length),
  allGather: values => Float64Array.from(values.flatMap(value => [...value.data])),
  allToAll: (values, place) =>
    Float64Array.from(values.flatMap(value => [...partOf(value, place, values.length)])),
}

/** What a node needs, itself too, from the first one on. */
const neededBy = ({ nodes }: GraphIR, id: number): readonly GraphNode[] => {
  const needed = new Set([id])
  for (let i = id; i >= 0; i--)
    if (needed.has(i) && nodes[i]!.op !== 'delay') for (const input of nodes[i]!.inputs) needed.add(input)
  return nodes.filter(node => needed.has(node.id))
}

export interface Evaluator {
  /** The nodes that are computed. */
  readonly nodes: readonly GraphNode[]
  readonly run: (ranks: readonly Point[]) => readonly Value[]
  /** The largest magnitude of what is computed on the way. */
  readonly largest: (ranks: readonly Point[]) => number
}

/**
 * The value of an output on each rank, as a function of what the ranks have by name. What is drawn at random is
 * given by node.
 */
export const evaluator = (
  ir: GraphIR,
  output: string,
  drawn: (node: GraphNode) => ArrayLike<number> = () => [],
): Evaluator => {
  const nodes = neededBy(ir, ir.outputs.find(({ name }) => name === output)!.node)
  const all = (ranks: readonly Point[]): readonly (readonly Value[])[] => {
    const values: (readonly Value[])[] = []
    for (const { id, op, inputs, attrs, spec, name } of nodes) {
      const shape = spec.shape as Index
      const given = (data: ArrayLike<number>): Value => ({ shape, data: Float64Array.from(data) })
      const read = (rank: number): readonly Value[] => inputs.map(input => values[input]![rank]!)
      const exchange = exchanges[op]
      values[id] = ranks.map((point, rank) => {
        if (op === 'param' || op === 'input') return given(point[name]!)
        if (op === 'delay') return given(new Float64Array(count(shape)))
        if (op === 'random') return given(drawn(ir.nodes[id]!))
        if (exchange !== undefined) return { shape, data: exchange(values[inputs[0]!]!, rank, attrs) }
        return attrs['code'] === undefined
          ? meanings[op]!(read(rank), shape, attrs)
          : elementwise(read(rank), shape, attrs)
      })
    }
    return values
  }
  return {
    nodes,
    run: ranks => all(ranks)[nodes.at(-1)!.id]!,
    largest: ranks =>
      all(ranks)
        .flat()
        .reduce((most, { data }) => data.reduce((a, value) => Math.max(a, Math.abs(value)), most), 0),
  }
}
