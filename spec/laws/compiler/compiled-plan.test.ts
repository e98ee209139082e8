// A compiled plan keeps its commands flat, and makes its lists when they are first read: both hold the same,
// and neither can be changed.
import * as E from 'fp-ts/lib/Either.js'
import { beforeAll, expect, test } from 'vitest'
import { compile, isProved, parsePlan, toJSON, verify } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { eachBuffer, eachNode, flatCommandsOf } from '../../../dsl/order/compiled-plan.js'
import { graphOf, tasksOf } from '../../fixtures/graphs/of-tasks.js'

let plan: Plan
beforeAll(() => {
  const source = { ir: graphOf('layered', tasksOf('layered', 2_000), 8) } as unknown as Graph
  const compiled = compile(source)
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
