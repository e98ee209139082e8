// What was proved of a plan stays true, since nothing of the plan can be changed.
import { expect, test } from 'vitest'
import { compile, type Graph, isProved, orThrow } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { goldens } from '../../golden/graphs.js'

const made = (): Plan => orThrow(compile(goldens.diamond as Graph, { mode: 'eager' }))

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

test('no word of any command can be changed', () => {
  const { commands } = made()
  for (const command of commands)
    for (const words of [command, ...command.filter(Array.isArray)] as unknown[][])
      for (let i = 0; i < words.length; i++)
        expect(() => {
          words[i] = 999
        }).toThrow(TypeError)
})
