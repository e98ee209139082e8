// Graphs of steps on a few lanes that come after each other by data, and by orders without data of both kinds.
import fc from 'fast-check'
import {
  add,
  after,
  type DeviceFlow,
  download,
  type Graph,
  graph,
  lane,
  neg,
  on,
  tensor,
  upload,
} from '../../dsl/index.js'

export interface Step {
  /** Places before it, from the last one on, that it reads; and that it comes after. */
  readonly reads: readonly number[]
  readonly orders: readonly (readonly [number, 'start' | 'finish'])[]
  readonly lane: number
}

export const steps = (most: number): fc.Arbitrary<readonly Step[]> =>
  fc.array(
    fc.record({
      reads: fc.array(fc.nat({ max: 4 }), { minLength: 1, maxLength: 2 }),
      orders: fc.array(fc.tuple(fc.nat({ max: 5 }), fc.constantFrom('start' as const, 'finish' as const)), {
        maxLength: 2,
      }),
      lane: fc.nat({ max: 3 }),
    }),
    { minLength: 2, maxLength: most },
  )

export const spec = tensor('f32', [16])

/** Each step adds what it reads and negates it, on its lane or one that the compiler chooses; every value that nobody reads is an output. */
export const stepsGraph = (made: readonly Step[], chosen: boolean): Graph =>
  graph('steps', { x: spec }, ({ x }) => {
    const lanes = Array.from({ length: 4 }, (_, i) => lane(`l${i}`))
    const values: DeviceFlow<typeof spec>[] = [x.pipe(upload(lane('in')))]
    const read = new Set<number>()
    for (const step of made) {
      const at = (back: number): number => Math.max(0, values.length - 1 - back)
      const hint = chosen ? (v: DeviceFlow<typeof spec>) => v : on(lanes[step.lane]!)
      let first = values[at(step.reads[0]!)]!
      for (const [back, when] of step.orders) first = first.pipe(after(values[at(back)]!, when))
      for (const back of step.reads) read.add(at(back))
      const operand = step.reads[1] === undefined ? undefined : values[at(step.reads[1])]!
      const from = hint(first) as DeviceFlow<typeof spec>
      values.push(operand === undefined ? from.pipe(neg()) : from.pipe(add(operand)))
    }
    const ends = values.flatMap((value, i) =>
      i > 0 && !read.has(i) ? [[`y${i}`, value.pipe(download(lane('out')))] as const] : [],
    )
    return Object.fromEntries(ends)
  }) as unknown as Graph
