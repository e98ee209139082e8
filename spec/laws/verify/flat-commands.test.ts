// Flat commands, and nodes and buffers that are still to be made, are input like any other: where they
// contradict themselves, their lists are judged.
import { beforeAll, describe, expect, test } from 'vitest'
import type { Plan, PlanBuffer, PlanNode } from '../../../dsl/ir/plan.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { compiledPlan, type Listing } from '../../../dsl/order/compiled-plan.js'
import { type FlatCommands, Op } from '../../../dsl/order/flat-commands.js'
import { verify } from '../../../dsl/verify/verify.js'
import { largePlan, layeredOf } from '../../fixtures/plans/of-tasks.js'

let plan: Plan
let flat: FlatCommands
const copy = (): FlatCommands => {
  const copied: Record<string, unknown> = { ...flat }
  for (const [key, value] of Object.entries(copied))
    if (ArrayBuffer.isView(value)) copied[key] = (value as Int32Array).slice()
  return copied as unknown as FlatCommands
}
const planWith = (commands: FlatCommands): Plan => {
  const { commands: _, ...parts } = plan
  return compiledPlan(parts, commands)
}

beforeAll(() => {
  plan = largePlan('layered', layeredOf(3_000), 4)
  const { commands, op, lane, named, useEventId, accesses, accessStart, accessNamed, accessMode } =
    commandTableOf(plan)
  flat = { commands, op, lane, named, useEventId, accesses, accessStart, accessNamed, accessMode }
})

test('flat commands are judged as their lists are, and hold the same', () => {
  const compiled = planWith(copy())
  expect(verify(compiled)).toEqual([])
  expect(compiled.commands).toEqual(plan.commands)
  expect(verify({ ...compiled })).toEqual([])
})

describe('a contradiction is not believed', () => {
  const first = (code: number): number => flat.op.indexOf(code)
  const lies: Readonly<Record<string, (commands: FlatCommands) => void>> = {
    'a free on another lane': ({ lane }) => void (lane[first(Op.free)] = (lane[first(Op.free)]! + 1) % 4),
    'no such lane': ({ lane }) => void (lane[first(Op.run)] = 4),
    'no such node': ({ named }) => void (named[first(Op.run)] = plan.nodes.length),
    'no such buffer': ({ named }) => void (named[first(Op.alloc)] = plan.buffers.length),
    'no event of a use': ({ useEventId }) => void (useEventId[0] = -1),
    'no such access': ({ accessNamed }) => void (accessNamed[0] = plan.buffers.length),
    'writes before reads': ({ accessMode }) => {
      const write = accessMode.findIndex((mode, a) => mode === 1 && accessMode[a - 1] === 0)
      accessMode[write - 1] = 1
      accessMode[write] = 0
    },
    'an access of the next command': ({ accessStart }) => void accessStart[first(Op.run) + 1]!--,
    'accesses that go back': ({ accessStart }) => void (accessStart[first(Op.run)]! += 99),
    'a command that is none': ({ op }) => void (op[first(Op.wait)] = Op.broken),
  }
  for (const [name, lie] of Object.entries(lies))
    test(name, () => {
      const commands = copy()
      lie(commands)
      const liar = planWith(commands)
      expect(verify(liar)).toEqual(verify({ ...liar }))
    })
})

describe('nodes and buffers that no reader has asked for', () => {
  /** `items`, of which item `at` is changed; and how often any was made. */
  const lazily = <A>(
    items: readonly A[],
    at = -1,
    change: Partial<A> = {},
  ): Listing<A> & { made: number } => ({
    length: items.length,
    made: 0,
    at(i) {
      this.made++
      return i === at ? { ...items[i]!, ...change } : items[i]
    },
  })
  const lazyPlan = (nodes: Listing<PlanNode>, buffers: Listing<PlanBuffer>): Plan => {
    const { commands: _, ...parts } = plan
    return compiledPlan({ ...parts, nodes, buffers }, copy())
  }
  const lawsOf = (lazy: Plan): string[] => [...new Set(verify(lazy).map(({ law }) => law))]

  test('are proved one by one, and made once, when they are asked for', () => {
    const [nodes, buffers] = [lazily(plan.nodes), lazily(plan.buffers)]
    const lazy = lazyPlan(nodes, buffers)
    expect(verify(lazy)).toEqual([])
    const list = lazy.nodes
    expect(list).toEqual(plan.nodes)
    expect(lazy.buffers).toEqual(plan.buffers)
    expect(Object.isFrozen(list) && Object.isFrozen(list[0]) && Object.isFrozen(lazy.buffers[0])).toBe(true)
    const { made } = nodes
    expect(lazy.nodes).toBe(list)
    expect(verify(lazy)).toEqual([])
    expect(nodes.made).toBe(made)
  })

  test('are believed no more than those of a list', () => {
    const last = plan.nodes.length - 1
    const node = (change: Partial<PlanNode>) => lazyPlan(lazily(plan.nodes, 7, change), lazily(plan.buffers))
    const buffer = (change: Partial<PlanBuffer>) =>
      lazyPlan(lazily(plan.nodes), lazily(plan.buffers, 7, change))
    expect(lawsOf(node({ id: 8 }))).toEqual(['L1'])
    expect(lawsOf(node({ after: [[last, 'finish']] }))).toEqual(['L10'])
    const collective = { kind: 'allReduce', communicator: 3, count: 1, dtype: 'f32' } as const
    // It writes one element of its buffer, and the rest is read.
    expect(lawsOf(node({ collective }))).toEqual(['L1', 'L8'])
    expect(lawsOf(buffer({ id: 8 }))).toContain('L3')
    expect(lawsOf(buffer({ home: 99 }))).toContain('L3')
    expect(lawsOf(buffer({ alias: 8, aliasOffset: 1 }))).toContain('L3')
    expect(lawsOf(buffer({ bytes: Number.NaN }))).toEqual(['L7'])
    expect(lawsOf(buffer({ bytes: 2 ** 50 }))).toContain('L9')
  })
})
