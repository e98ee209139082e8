// A large plan's commands are flat, and its nodes and buffers not made, until somebody asks for the lists; both say the same, and what is changed in a list is judged as it stands there.
import * as E from 'fp-ts/lib/Either.js'
import { beforeAll, expect, test } from 'vitest'
import { compile, isProved, parsePlan, toJSON, verify } from '../../../dsl/index.js'
import type { Command, Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { eachBuffer, eachNode, isUnmade, packedOf } from '../../../dsl/order/packed.js'
import { fingerprintOf, fingerprintOfTable } from '../../../dsl/verify/fingerprint.js'
import { graphOf, tasksOf } from '../../fixtures/graphs/of-tasks.js'

const compiled = (tasks: number): Plan => {
  const source = { ir: graphOf('layered', tasksOf('layered', tasks), 8) } as unknown as Graph
  const plan = compile(source)
  if (E.isLeft(plan)) throw new Error(JSON.stringify(plan.left))
  return plan.right
}

const same = (a: ArrayLike<number>, b: ArrayLike<number>): boolean => {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return a.length === b.length
}

let large: Plan
beforeAll(() => {
  large = compiled(20_000)
})

test('a small plan has lists from the start', () => {
  const plan = compiled(100)
  expect(packedOf(plan)).toBeUndefined()
  expect(Object.getOwnPropertyDescriptor(plan, 'commands')!.value).toBe(plan.commands)
})

test('a large plan is proved, judged and remembered without lists', () => {
  expect(packedOf(large)!.commands).toBeGreaterThan(2 ** 17)
  expect(isProved(large)).toBe(true)
  expect(verify(large)).toEqual([])
  expect(packedOf(large)).toBeDefined()
  expect(isUnmade(large, 'nodes') && isUnmade(large, 'buffers')).toBe(true)
})

test('its nodes and buffers say the same one by one as in their lists', () => {
  const some = [0, 1, 777, eachNode(large).length - 1]
  const nodes = some.map(i => eachNode(large).at(i))
  const buffers = some.map(i => eachBuffer(large).at(i))
  expect(some.map(i => large.nodes[i])).toEqual(nodes)
  expect(some.map(i => large.buffers[i])).toEqual(buffers)
  expect(large.nodes.every(({ id }, i) => id === i) && large.buffers.every(({ id }, i) => id === i)).toBe(
    true,
  )
  expect(eachNode(large)).toBe(large.nodes)
})

test('its lists say the same, and are the same ones from then on', () => {
  const flat = packedOf(large)!
  const print = fingerprintOfTable(commandTableOf(large))
  const { commands } = large
  expect(packedOf(large)).toBeUndefined()
  expect(large.commands).toBe(commands)
  expect(commands.length).toBe(flat.commands)
  expect(fingerprintOf(commands)).toBe(print)
  expect(isProved(large)).toBe(true)
  expect(verify(large)).toEqual([])
  // What the verifier makes of the lists is what it had without them.
  const again = commandTableOf(large)
  for (const key of [
    'op',
    'lane',
    'recordOf',
    'accessStart',
    'accessNamed',
    'accessMode',
    'useCommand',
  ] as const)
    expect(same(again[key], flat[key]), key).toBe(true)
  expect(again.carries).toBe(flat.carries)
  expect(again.recordsFirst).toBe(flat.recordsFirst)
})

test('as JSON it is the plan, and a changed list is judged as it stands', () => {
  const text = toJSON(large)
  const parsed = parsePlan(text)
  if (E.isLeft(parsed)) throw new Error(JSON.stringify(parsed.left))
  expect(fingerprintOf(parsed.right.commands)).toBe(fingerprintOf(large.commands))
  const wait = large.commands.findIndex(([what]) => what === 'wait')
  const command = large.commands[wait] as unknown as [Command[0], number, number]
  command[1] = 2 ** 20
  expect(isProved(large)).toBe(false)
  expect(verify(large).length).toBeGreaterThan(0)
})
