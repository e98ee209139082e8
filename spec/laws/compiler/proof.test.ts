// What was proved of a plan is relied on only while nobody has changed it.
import { expect, test } from 'vitest'
import { compile, type Graph, isProved, orThrow } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { goldens } from '../../golden/graphs.js'

const made = (): Plan => orThrow(compile(goldens.diamond as Graph))

test('a compiled plan is proved, a copy of it is not', () => {
  const plan = made()
  expect(isProved(plan)).toBe(true)
  expect(isProved({ ...plan })).toBe(false)
})

test('its parts cannot be replaced', () => {
  const plan = made() as unknown as {
    commands: unknown[]
    buffers: { bytes: number }[]
    nodes: { op: string }[]
    name: string
  }
  expect(() => plan.commands.push(['free', 0])).toThrow(TypeError)
  expect(() => {
    plan.commands[0] = ['free', 0]
  }).toThrow(TypeError)
  expect(() => {
    plan.buffers[0]!.bytes = 1
  }).toThrow(TypeError)
  expect(() => {
    plan.nodes[0]!.op = 'other'
  }).toThrow(TypeError)
})

test('a change of any word of any command is seen, and nothing throws', () => {
  const words = (command: unknown[]): unknown[][] =>
    command.flatMap(item => (Array.isArray(item) ? [item] : [])).concat([command])
  const count = made().commands.length
  for (let c = 0; c < count; c++)
    for (let list = 0; list < words(made().commands[c] as unknown as unknown[]).length; list++) {
      const command = made().commands[c] as unknown as unknown[]
      for (let i = 0; i < words(command)[list]!.length; i++)
        for (const other of [999, undefined, 'x', null]) {
          const plan = made()
          words(plan.commands[c] as unknown as unknown[])[list]![i] = other
          expect(isProved(plan)).toBe(false)
        }
    }
})
