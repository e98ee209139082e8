// Outputs that stay on their device: the operation that makes one writes into its slot, where nothing else
// has to stay as it was; all others are copied.
import { describe, expect, test } from 'vitest'
import {
  add,
  compile,
  delay,
  download,
  type Graph,
  graph,
  mul,
  orThrow,
  param,
  slice,
  tensor,
  upload,
  verify,
} from '../../../dsl/index.js'

const vector = tensor('f32', [8])

/** By output: the name of the operation that writes it. */
const writers = (of: unknown): Readonly<Record<string, string>> => {
  const plan = orThrow(compile(of as Graph, { mode: 'eager', inFlight: 2, fuse: false }))
  expect(verify(plan)).toEqual([])
  return Object.fromEntries(
    plan.buffers.flatMap(({ name, life }, buffer) =>
      life === 'output'
        ? plan.commands.flatMap(command =>
            command[0] === 'run' && command[4].includes(buffer)
              ? [[name, plan.nodes[command[1]]!.op] as const]
              : [],
          )
        : [],
    ),
  )
}

describe('an output that stays on its device', () => {
  test('is written by the operation that makes it, and read in the tick as any other value', () => {
    const of = graph('made', { x: vector }, ({ x }) => {
      const y = x.pipe(upload(), add(1))
      return { y, z: y.pipe(mul(2), download()) }
    })
    expect(writers(of)).toEqual({ y: 'add', z: 'download' })
  })

  test('is copied where it has two names, once', () => {
    const of = graph('twice', { x: vector }, ({ x }) => {
      const y = x.pipe(upload(), add(1))
      return { y, z: y }
    })
    expect(writers(of)).toEqual({ y: 'add', z: 'copy' })
  })

  test('is copied where it is a part of a value, or has parts, or outlives the tick by itself', () => {
    const of = graph('kept', { x: vector }, ({ x }) => {
      const sum = x.pipe(upload(), add(1))
      const before = sum.pipe(mul(3), delay(0))
      return {
        whole: sum,
        part: sum.pipe(slice(0, 0, 4)),
        weights: param('w', vector),
        before,
        left: x.pipe(upload(), mul(before)),
      }
    })
    expect(writers(of)).toEqual({ whole: 'copy', part: 'copy', weights: 'copy', before: 'copy', left: 'mul' })
  })
})
