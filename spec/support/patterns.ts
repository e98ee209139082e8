// Graphs whose lanes and sizes are hard on a pool: few or no waits between lanes, sizes of many kinds, values that live long beside short ones.
import fc from 'fast-check'
import {
  abs,
  download,
  type Flow,
  type Graph,
  graph,
  lane,
  neg,
  on,
  slice,
  type Tensor,
  tensor,
  upload,
} from '../../dsl/index.js'
import { xorshift } from './families.js'

export interface Pattern {
  readonly seed: number
  readonly lanes: number
  readonly nodes: number
  /** Sizes of values: all alike, a few powers of two, or any. */
  readonly sizes: 'equal' | 'powers' | 'any'
  /** How far back reads go, and how often they change lanes, in hundredths. */
  readonly reach: number
  readonly crossing: number
}

export const patterns = (nodes: number): fc.Arbitrary<Pattern> =>
  fc.record({
    seed: fc.integer({ min: 1, max: 2 ** 30 }),
    lanes: fc.integer({ min: 1, max: 6 }),
    nodes: fc.integer({ min: 4, max: nodes }),
    sizes: fc.constantFrom('equal', 'powers', 'any'),
    reach: fc.integer({ min: 1, max: 12 }),
    crossing: fc.constantFrom(0, 5, 20, 100),
  })

/** The values of the one input of every such graph. */
export const patternInput = 2048

type Value = Flow<'device', Tensor<'f32', [number]>>

export const patternGraph = ({ seed, lanes, nodes, sizes, reach, crossing }: Pattern): Graph => {
  const random = xorshift(seed)
  const below = (n: number): number => Math.floor(random() * n)
  const size = (): number => (sizes === 'equal' ? 256 : sizes === 'powers' ? 64 << below(6) : 1 + below(patternInput))
  const made = Array.from({ length: lanes }, (_, i) => lane(`lane${i}`))
  return graph('pattern', { x: tensor('f32', [patternInput]) }, ({ x }) => {
    const whole = x.pipe(upload(made[0]!)) as unknown as Value
    const values: { readonly value: Value; readonly lane: number }[] = [{ value: whole, lane: 0 }]
    for (let i = 0; i < nodes; i++) {
      const at = below(lanes)
      const recent = values.slice(-lanes * reach)
      const own = recent.filter(({ lane }) => lane === at)
      const others = own.length > 0 && below(100) >= crossing ? own : recent
      const from = others[below(others.length)]!.value
      // A new size starts from the input: a copy of a view of it.
      const read = below(3) === 0 ? (whole.pipe(slice(0, 0, size())) as unknown as Value) : from
      values.push({ value: read.pipe(on(made[at]!), below(2) === 0 ? neg() : abs()) as Value, lane: at })
    }
    const last = values.slice(-lanes)
    return Object.fromEntries(last.map(({ value }, i) => [`y${i}`, value.pipe(download())]))
  }) as unknown as Graph
}
