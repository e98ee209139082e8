import { concatAll, defer, map, type Observable } from 'rxjs'
import { BraidError } from '../ir/braid-error.js'
import type { GraphIR, GraphNode } from '../ir/graph.js'
import { show } from '../ir/show.js'
import { type DType, elements, isEmpty } from '../ir/tensor.js'
import { type Graph, irOf } from '../language/graph.js'
import { operators } from '../language/operators/registry.js'
import type { Ports } from '../language/tensor.js'
import { type HostArray, numbers, roundoff, stored } from '../language/values.js'
import type { Disturb } from './evaluate.js'
import { type HostFeeds, type InterpretOptions, refuseShared } from './interpret.js'
import { isState, type Prepared, prepare } from './prepare.js'
import { type Beginning, begin, beginnings, rowsOf } from './ranks.js'
import { type Repeatable, repeatable } from './repeatable.js'

/** One tick of a graph: its outputs, and how far rounding may take an element of each on a device. */
export interface Meaning {
  readonly values: Readonly<Record<string, HostArray>>
  /** By output, an absolute difference; 0: equal bit for bit. */
  readonly allowed: Readonly<Record<string, number>>
}

/**
 * How many times the largest change that was seen is allowed: a device may round against us in each place,
 * and a sample of roundings is not the worst one.
 */
const safety = 3

type Numbers = HostArray | Float32Array

/** Which way each of `count` elements of a node's value is moved: 1 or -1. */
type Direction = (node: number, count: number, value: () => Numbers) => Int8Array

// A hash of both numbers, so that the directions are the same in every run.
const scattered: Direction = (node, count) => {
  const directions = new Int8Array(count)
  for (let i = 0; i < count; i++) {
    let h = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(node + 1, 0x85ebca6b)
    h ^= h >>> 15
    h = Math.imul(h, 0xc2b2ae35)
    directions[i] = (h ^ (h >>> 13)) & 1 ? 1 : -1
  }
  return directions
}
const upward: Direction = (_node, count) => new Int8Array(count).fill(1)
// A variance sees no shift, and scattered changes cancel in it: what is spread further changes it most.
const awayFromMean: Direction = (_node, count, value) => {
  const directions = new Int8Array(count)
  const given = value()
  const mean = meanOf(given)
  for (let i = 0; i < count; i++) directions[i] = given[i]! > mean ? 1 : -1
  return directions
}

/** The largest finite magnitude. */
const largest = (values: Numbers): number => {
  let most = 0
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]!)
    if (size > most && size < Number.POSITIVE_INFINITY) most = size
  }
  return most
}

const meanOf = (values: Numbers): number => {
  let sum = 0
  for (let i = 0; i < values.length; i++) sum += values[i]!
  return sum / values.length
}

/** The largest relative error that a device may show in the values of a node, of exact operands. */
const toleranceOf = ({ specs, kernels }: Prepared, { id, op, inputs, attrs }: GraphNode): number =>
  op === 'kernel' || op === 'port'
    ? kernels.get(op === 'port' ? inputs[0]! : id)!.tolerance
    : (operators[op]?.tolerance(
        specs[id]!,
        inputs.map(input => specs[input]!),
        attrs,
      ) ?? 0)

/** By node: whether a device may differ in its value at all. */
const inexactNodes = (graph: Prepared): readonly boolean[] => {
  const inexact: boolean[] = graph.specs.map(() => false)
  // A delay passes on what a later node makes, so once through the list is not always enough.
  for (let changed = true; changed; ) {
    changed = false
    for (const node of graph.nodes) {
      if (inexact[node.id]) continue
      const now = node.inputs.some(input => inexact[input]) || toleranceOf(graph, node) > 0
      inexact[node.id] = now
      changed ||= now
    }
  }
  return inexact
}

/**
 * Moves each element of a result by as much as a device may be off: by the operator's own error, or by those
 * of its steps, and, where an operand is inexact, by one unit in the last place at least, since the result may
 * round the other way.
 */
const disturbing =
  (graph: Prepared, inexact: readonly boolean[], direction: Direction): Disturb =>
  (node, reads, value) => {
    const { specs } = graph
    const spec = specs[node.id]!
    const isComputed = node.op in operators || node.op === 'kernel' || node.op === 'port'
    if (!inexact[node.id] || !isComputed || isEmpty(spec)) return value()
    const { dtype } = spec
    const inputs = node.inputs.map(input => specs[input]!)
    const operator = operators[node.op]
    const moved = (from: Numbers, directions: Int8Array, by: number): HostArray => {
      const unit = 2 * roundoff[dtype]
      const result = new Float64Array(from.length)
      for (let i = 0; i < from.length; i++)
        result[i] = from[i]! + directions[i]! * Math.max(by, unit * Math.abs(from[i]!))
      return stored(result, dtype)
    }
    if (operator?.off !== undefined) {
      const directions = direction(node.id, elements(spec.shape), () => numbers(value(), dtype))
      const off = operator.off(reads, inputs, spec, node.attrs, directions)
      return moved(numbers(off, dtype), directions, 0)
    }
    const given = numbers(value(), dtype)
    const beside = operator?.scale?.(
      reads.map((read, i) => largest(numbers(read, inputs[i]!.dtype))),
      inputs,
      node.attrs,
    )
    const by = toleranceOf(graph, node) * Math.max(largest(given), beside ?? 0)
    return moved(
      given,
      direction(node.id, given.length, () => given),
      by,
    )
  }

/** The largest finite difference of an element. What is not finite must be the same on a device. */
const change = (values: HostArray, moved: HostArray, read: (value: HostArray) => HostArray): number => {
  const [a, b] = [read(values), read(moved)]
  let most = 0
  for (let i = 0; i < a.length; i++) {
    const difference = Math.abs(a[i]! - b[i]!)
    if (difference > most && difference < Number.POSITIVE_INFINITY) most = difference
  }
  return most
}

/** What `meaning` yields for a tick, and the states after it, which the next tick overwrites. */
export interface TickMeaning extends Meaning {
  states(): Meaning
}

/** `meaning`, with the states after each tick. */
export const meaningWithStates =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretOptions = {}) =>
  (feeds: HostFeeds<I>): Observable<TickMeaning> =>
    defer(async () => {
      const drawn = repeatable(irOf(graph), options.params)
      const prepared = prepare(drawn.graph, options.dims ?? {})
      refuseShared(prepared)
      const inputs = { params: drawn.params, feeds: feeds ?? {}, between: options.between }
      const rows = rowsOf(prepared, [inputs], options.ticks ?? 1)
      const [beginning] = await beginnings(prepared, [inputs])
      const inexact = inexactNodes(prepared)
      const states = prepared.nodes.filter(isState)
      const first = new Map(states.map(node => [node.id, beginning!.first(node)]))
      await refuseUnrepeatable(drawn, prepared)
      const from: Beginning = { params: beginning!.params, first: ({ id }) => first.get(id)! }
      const directions = inexact.includes(true) ? [scattered, upward, awayFromMean] : []
      const disturbs = directions.map(direction => disturbing(prepared, inexact, direction))
      const runs = [
        begin(prepared, [{ ...inputs, repeats: true }], [from]),
        ...disturbs.map(disturb => begin(prepared, [{ ...inputs, disturb }], [from])),
      ]
      const statesNow = (): Meaning => {
        const named = runs.map(run =>
          Object.fromEntries(states.map(({ name }) => [name, run.states[0]!.read(name)])),
        )
        const ends = states.map(({ name, id }) => ({ name, node: id }))
        return meant(prepared, inexact, ends, named)
      }
      return rows.pipe(
        map(row => {
          const outputs = runs.map(run => run.tick(row)[0]!)
          return { ...meant(prepared, inexact, prepared.ir.outputs, outputs), states: statesNow }
        }),
      )
    }).pipe(concatAll())

/** Asks every source again. */
const refuseUnrepeatable = async ({ params, faults }: Repeatable, prepared: Prepared): Promise<void> => {
  const [again] = await beginnings(prepared, [{ params }])
  for (const node of prepared.nodes.filter(isState)) again!.first(node)
  const found = faults()
  if (found.length > 0) throw new BraidError(found)
}

/**
 * What `interpret` yields, with what rounding is worth in it: the graph is also run with every inexact
 * result moved by as much as its operator lets a device differ, once in scattered directions, once upward
 * and once away from its mean, and the largest change of an output, one unit in the last place at least, is
 * allowed three times. So what is allowed follows from the values themselves: the lengths of the sums, the
 * element types, the depth of the graph, what cancels and what grows. An output with nothing inexact before it
 * must be equal bit for bit. All runs have the same feeds, parameters and first values of states: each is
 * subscribed to, or drawn, once. A function that gives other bytes when it is called again is the Observable's
 * error, since what is compared with it would begin with other values; a kernel's reference likewise.
 * `between` is called for each run, and must do the same in each.
 */
export const meaning =
  <I extends Ports, O extends Ports>(graph: Graph<I, O> | GraphIR, options: InterpretOptions = {}) =>
  (feeds: HostFeeds<I>): Observable<Meaning> =>
    meaningWithStates(
      graph,
      options,
    )(feeds).pipe(map(({ values, allowed }): Meaning => ({ values, allowed })))

/** The values of the exact run, the first one, and what the others say that rounding is worth in each. */
const meant = (
  { specs }: Prepared,
  inexact: readonly boolean[],
  ends: readonly { readonly name: string; readonly node: number }[],
  [values, ...moved]: readonly Meaning['values'][],
): Meaning => {
  const allowed = ends.map(({ name, node }) => {
    const { dtype } = specs[node]!
    const read = (value: HostArray) => numbers(value, dtype)
    const changes = moved.map(other => change(values![name]!, other[name]!, read))
    // Of few elements the changes of a sample may all cancel.
    const unit = inexact[node] ? 2 * roundoff[dtype] * largest(read(values![name]!)) : 0
    return [name, safety * Math.max(unit, ...changes)]
  })
  return { values: values!, allowed: Object.fromEntries(allowed) as Meaning['allowed'] }
}

/** How far values are from what is meant. */
export interface Distance {
  /** The largest difference of an element; infinite where one of the two is not finite, or missing. */
  readonly difference: number
  /** The largest magnitude of a meant element. */
  readonly scale: number
  /** The first element that is further away than is allowed. */
  readonly wrong: number | undefined
}

const numbersOf = (values: HostArray | Float32Array, dtype: DType | undefined): HostArray | Float32Array => {
  if (!(values instanceof Uint16Array)) return values
  if (dtype === 'f16' || dtype === 'bf16') return numbers(values, dtype)
  throw new TypeError(
    `distance: wanted the element type of a Uint16Array, 'f16' or 'bf16'; found ${show(dtype)}. ` +
      "Next: distance(found, meant, allowed, 'bf16')",
  )
}

/**
 * Compares an output with its meaning, element by element. NaN is equal to NaN alone. Values of f16 and bf16 are
 * their bits (`Uint16Array`): `dtype` says of which of the two, and without it a TypeError is thrown.
 */
export const distance = (
  found: HostArray | Float32Array,
  wanted: HostArray | Float32Array,
  allowed: number,
  dtype?: DType,
): Distance => {
  const [got, meant] = [numbersOf(found, dtype), numbersOf(wanted, dtype)]
  let difference = got.length === meant.length ? 0 : Number.POSITIVE_INFINITY
  let wrong = difference === 0 ? undefined : Math.min(got.length, meant.length)
  for (let i = 0; i < Math.min(got.length, meant.length); i++) {
    const [a, b] = [got[i]!, meant[i]!]
    if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue
    const apart = Number.isFinite(a) && Number.isFinite(b) ? Math.abs(a - b) : Number.POSITIVE_INFINITY
    difference = Math.max(difference, apart)
    if (!(apart <= allowed)) wrong ??= i
  }
  return { difference, scale: largest(meant), wrong }
}
