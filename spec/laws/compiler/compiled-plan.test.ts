// A compiled plan keeps its commands flat, and makes its lists when they are first read: both hold the same,
// and neither can be changed.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { beforeAll, expect, test } from 'vitest'
import {
  communicator,
  compile,
  download,
  graph,
  isProved,
  kernel,
  orThrow,
  parsePlan,
  permute,
  tensor,
  toJSON,
  upload,
  verify,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { eachBuffer, eachNode, flatCommandsOf } from '../../../dsl/order/compiled-plan.js'
import { graphOf, tasksOf } from '../../fixtures/graphs/of-tasks.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'
import { goldens } from '../../golden/graphs.js'

let plan: Plan
beforeAll(() => {
  const source = { ir: graphOf('layered', tasksOf('layered', 2_000), 8) } as unknown as Graph
  // Fusing looks at the nodes of a plan of this size, and so makes its lists.
  const compiled = compile(source, { mode: 'eager', fuse: false })
  if (E.isLeft(compiled)) throw new Error(JSON.stringify(compiled.left))
  plan = compiled.right
})

test('it is proved and judged without lists', () => {
  expect(isProved(plan)).toBe(true)
  expect(verify(plan)).toEqual([])
  expect(Array.isArray(eachNode(plan)) || Array.isArray(eachBuffer(plan))).toBe(false)
})

test('its nodes and buffers are the same one by one as in their lists', () => {
  const some = [0, 1, 777, eachNode(plan).length - 1]
  const nodes = some.map(i => eachNode(plan).at(i))
  const buffers = some.map(i => eachBuffer(plan).at(i))
  expect(some.map(i => plan.nodes[i])).toEqual(nodes)
  expect(some.map(i => plan.buffers[i])).toEqual(buffers)
  expect(plan.nodes.every(({ id }, i) => id === i) && plan.buffers.every(({ id }, i) => id === i)).toBe(true)
  expect(eachNode(plan)).toBe(plan.nodes)
})

test('its lists hold the same as its flat commands, and are made once', () => {
  const flat = flatCommandsOf(plan)!
  const { commands } = plan
  expect(plan.commands).toBe(commands)
  const read = commandTableOf({ ...plan })
  for (const key of Object.keys(flat) as (keyof typeof flat)[]) expect(read[key], key).toEqual(flat[key])
})

test('as JSON it is the plan, and no list can be changed', () => {
  const parsed = parsePlan(toJSON(plan))
  if (E.isLeft(parsed)) throw new Error(JSON.stringify(parsed.left))
  expect(parsed.right).toEqual({ ...plan })
  expect(verify(parsed.right)).toEqual([])
  const run = plan.commands.find(([op]) => op === 'run') as unknown as [string, number, number, number[]]
  expect(() => {
    run[1] = 2 ** 20
  }).toThrow(TypeError)
  expect(() => run[3].push(0)).toThrow(TypeError)
})

/** Where a value can still be changed: paths of objects and lists that are not frozen. */
const changeable = (value: unknown, path: string, seen = new Set<unknown>()): string[] => {
  if (typeof value !== 'object' || value === null || seen.has(value)) return []
  seen.add(value)
  const inside = Object.entries(value).flatMap(([key, part]) => changeable(part, `${path}.${key}`, seen))
  return Object.isFrozen(value) ? inside : [path, ...inside]
}

test('nothing in it can be changed, however deep, so a plan that was proved stays so', () => {
  fc.assert(
    fc.property(
      sample({ steps: 10 }),
      fc.constantFrom('pooled' as const, 'planned' as const),
      ({ graph, dims, inFlight }, storage) => {
        const made = orThrow(compile(graph, { mode: 'eager', dims, inFlight, storage }))
        expect(changeable(made, 'plan')).toEqual([])
        expect(isProved(made)).toBe(true)
      },
    ),
    { numRuns: runs(60) },
  )
  const ring = communicator('ring', { groups: [[0, 1]] })
  const twice = kernel({
    name: 'twice',
    cuda: 'extern "C" __global__ void twice(const float* x, float* y) {}',
    reads: { x: tensor('f32', ['n']) },
    writes: { y: tensor('f32', ['n']) },
    launch: { grid: 1, block: 1, scalars: [{ f32: 2 }] },
    reference: () => undefined,
  })
  const passed = graph('passed', { x: tensor('f32', [4]) }, ({ x }) => ({
    y: twice({ x: x.pipe(upload(), permute(ring, [[0, 1]])) }).y.pipe(download()),
  }))
  for (const graph of [passed, ...Object.values(goldens)])
    expect(changeable(orThrow(compile(graph as never, { mode: 'eager' })), 'plan')).toEqual([])
})
