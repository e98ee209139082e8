// No depth of a graph overflows the stack: a chain as long as the tick, and scans within scans.

import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  type DeviceFlow,
  download,
  type Graph,
  graph,
  interpret,
  mul,
  orThrow,
  parsePlan,
  scan,
  type Tensor,
  tensor,
  toJSON,
  upload,
  verify,
} from '../../../dsl/index.js'

const spec = tensor('f32', [1])
type Value = DeviceFlow<Tensor<'f32', readonly [1]>>
type Net = Graph<{ x: typeof spec }, { y: typeof spec }>

const over = (body: (x: Value) => Value): Net =>
  graph('deep', { x: spec }, ({ x }) => ({ y: body(x.pipe(upload())).pipe(download()) })) as Net

const chain = (length: number): Net =>
  over(x => {
    let value = x
    for (let i = 0; i < length; i++) value = value.pipe(mul(i % 2 === 0 ? 2 : 0.5))
    return value
  })

/** Each scan adds what the scan within its body yields to its own state. */
const nested = (depth: number): Net => {
  const within = (left: number, x: Value): Value =>
    left === 0 ? x : x.pipe(scan((acc: Value, next: Value) => within(left - 1, next).pipe(add(acc)), 0))
  return over(x => within(depth, x))
}

const run = async (net: Net, ticks: number): Promise<number[]> => {
  const x = Array.from({ length: ticks }, () => Float32Array.of(1))
  const outputs = await lastValueFrom(interpret(net)({ x }).pipe(toArray()))
  return outputs.map(({ y }) => (y as Float32Array)[0]!)
}

const isSound = (net: Net): void => {
  const plan = orThrow(compile(net))
  const read = orThrow(parsePlan(toJSON(plan)))
  expect(verify(read, { safety: true })).toEqual([])
}

describe('depth', () => {
  it('of a chain of 30,000 operations', async () => {
    const net = chain(30_000)
    expect(await run(net, 1)).toEqual([1])
    isSound(net)
  })

  it.each([255, 256, 257, 600, 3_000])('of %i scans, one in the body of the other', async depth => {
    const net = nested(depth)
    // In the first tick every state is x. In the second each adds what is within it to its own.
    expect(await run(net, 2)).toEqual([1, depth + 1])
    expect(net.ir.nodes.every(({ id, op, inputs }) => op === 'delay' || inputs.every(i => i < id))).toBe(true)
    isSound(net)
  })

  it('of a scan whose body yields its own result is an error, not an endless search', () => {
    const results: Value[] = []
    const within = (left: number, x: Value): Value => {
      const result = x.pipe(
        scan(
          (acc: Value, next: Value) => (left === 0 ? results[0]! : within(left - 1, next).pipe(add(acc))),
          0,
        ),
      )
      if (left === 0) results.push(result)
      return result
    }
    const compiled = compile(over(x => within(256, x)))
    if (compiled._tag === 'Right') throw new Error('its delay is not closed')
    expect(compiled.left[0]).toMatchObject({ _tag: 'UnboundDelay', found: "the scan's own result" })
  })
})
