// Commands that come flat, and nodes and buffers that are still to be made, are input like any other: what is derived in them is not believed, and where they contradict
// themselves it is their lists that are judged.
import { beforeAll, describe, expect, test } from 'vitest'
import type { Plan, PlanBuffer, PlanNode } from '../../../dsl/ir/plan.js'
import { commandTableOf } from '../../../dsl/order/command-table.js'
import { type FlatCommands, Op } from '../../../dsl/order/flat-commands.js'
import { isUnmade, type Listing, packedOf, planOf } from '../../../dsl/order/packed.js'
import { fingerprintOf, fingerprintOfTable } from '../../../dsl/verify/fingerprint.js'
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
const flatly = (walk: FlatCommands): Plan => {
  const { commands: _, ...parts } = plan
  return planOf(parts, walk)
}

beforeAll(() => {
  plan = largePlan('layered', layeredOf(33_000), 4)
  const { commands, op, lane, named, events, recordOf, uses, useCommand, useEvent } = commandTableOf(plan)
  const { eventId, accesses, accessStart, accessNamed, accessMode, carries, recordsFirst, whole } =
    commandTableOf(plan)
  // Events as a compiler numbers them: in the order of their records.
  const rank = new Int32Array(events)
  Array.from(recordOf, (c, e) => [c, e] as const)
    .sort(([a], [b]) => a - b)
    .forEach(([, e], i) => {
      rank[e] = i
    })
  const renamed = named.map((id, c) => (op[c] === Op.record || op[c] === Op.wait ? rank[id]! : id))
  flat = {
    ...{
      commands,
      op,
      lane,
      named: renamed,
      events,
      uses,
      useCommand,
      accesses,
      accessStart,
      accessNamed,
      accessMode,
    },
    eventId: eventId.map((_, e) => e),
    recordOf: recordOf.slice().sort(),
    useEvent: useEvent.map(e => rank[e]!),
    ...{ carries, recordsFirst, whole },
  }
})

test('flat commands are judged as their lists are', () => {
  const whole = flatly(copy())
  expect(packedOf(whole)).toBeDefined()
  expect(verify(whole)).toEqual([])
  expect(packedOf(whole)).toBeDefined()
  const print = fingerprintOfTable(commandTableOf(whole))
  expect(fingerprintOf(whole.commands)).toBe(print)
  expect(verify(whole)).toEqual([])
})

describe('a contradiction is not believed', () => {
  const first = (code: number, from = 0): number => flat.op.indexOf(code, from)
  const lies: Readonly<Record<string, (walk: FlatCommands) => object | undefined>> = {
    'an earlier record': ({ recordOf }) => void recordOf[recordOf.length - 1]!--,
    'a record of another event': ({ recordOf }) => void (recordOf[1] = recordOf[0]!),
    'no record': ({ recordOf }) => void (recordOf[0] = -1),
    'a use elsewhere': ({ useCommand }) => void useCommand[0]!++,
    'a free on another lane': ({ lane }) => void (lane[first(Op.free)] = (lane[first(Op.free)]! + 1) % 4),
    'no such lane': ({ lane }) => void (lane[first(Op.run)] = 4),
    'no such buffer': ({ named }) => void (named[first(Op.alloc)] = plan.buffers.length),
    'no such event': ({ named }) => void (named[first(Op.wait)] = flat.events),
    'no such access': ({ accessNamed }) => void (accessNamed[0] = plan.buffers.length),
    'writes before reads': ({ accessMode }) => {
      const write = accessMode.findIndex((mode, a) => mode === 1 && accessMode[a - 1] === 0)
      accessMode[write - 1] = 1
      accessMode[write] = 0
      return undefined
    },
    'accesses that overlap': ({ accessStart }) => void accessStart[first(Op.run) + 1]!--,
    'one event under two numbers': ({ eventId }) => void (eventId[1] = 0),
    'waits for the tick before': () => ({ carries: true }),
    'a wait before its record': ({ named }) => void (named[first(Op.wait)] = flat.events - 1),
    'an event recorded twice': ({ op, named, recordOf }) => {
      const waited = new Set(named.filter((_, c) => op[c] === Op.wait))
      const again = recordOf.findLastIndex((_, e) => !waited.has(e))
      named[recordOf[again]!] = 0
      recordOf[again] = -1
      return undefined
    },
    'records behind their waits': () => ({ recordsFirst: false }),
    'a command that is none': ({ op }) => void (op[first(Op.wait)] = Op.broken),
  }
  for (const [name, lie] of Object.entries(lies))
    test(name, () => {
      const told = copy()
      const liar = flatly({ ...told, ...lie(told) })
      const read = commandTableOf(liar)
      // The lists were read, so they are what is judged.
      expect(packedOf(liar)).toBeUndefined()
      expect(fingerprintOfTable(read)).toBe(fingerprintOf(liar.commands))
    })
})

describe('nodes and buffers that nobody has asked for', () => {
  /** `items`, of which item `at` says something else; and how often any was made. */
  const lazily = <A>(items: readonly A[], at = -1, said: Partial<A> = {}): Listing<A> & { made: number } => ({
    length: items.length,
    made: 0,
    at(i) {
      this.made++
      return i === at ? { ...items[i]!, ...said } : items[i]
    },
  })
  const lazyPlan = (nodes: Listing<PlanNode>, buffers: Listing<PlanBuffer>): Plan => {
    const { commands: _, ...parts } = plan
    return planOf({ ...parts, nodes, buffers }, copy())
  }
  const lawsOf = (lazy: Plan): string[] => [...new Set(verify(lazy).map(({ law }) => law))]

  test('are proved one by one, and made once, when they are asked for', () => {
    const [nodes, buffers] = [lazily(plan.nodes), lazily(plan.buffers)]
    const lazy = lazyPlan(nodes, buffers)
    expect(verify(lazy)).toEqual([])
    expect(isUnmade(lazy, 'nodes')).toBe(true)
    expect(isUnmade(lazy, 'buffers')).toBe(true)
    expect(packedOf(lazy)).toBeDefined()
    const list = lazy.nodes
    expect(list).toEqual(plan.nodes)
    expect(lazy.buffers).toEqual(plan.buffers)
    expect(Object.isFrozen(list) && Object.isFrozen(list[0]) && Object.isFrozen(lazy.buffers[0])).toBe(true)
    const { made } = nodes
    expect(lazy.nodes).toBe(list)
    expect(nodes.made).toBe(made)
    expect(isUnmade(lazy, 'nodes') || isUnmade(lazy, 'buffers')).toBe(false)
    expect(verify(lazy)).toEqual([])
  })

  test('are believed no more than those of a list', () => {
    const last = plan.nodes.length - 1
    const node = (said: Partial<PlanNode>) => lazyPlan(lazily(plan.nodes, 7, said), lazily(plan.buffers))
    const buffer = (said: Partial<PlanBuffer>) => lazyPlan(lazily(plan.nodes), lazily(plan.buffers, 7, said))
    expect(lawsOf(node({ id: 8 }))).toEqual(['L1'])
    expect(lawsOf(node({ after: [[last, 'finish']] }))).toEqual(['L10'])
    const collective = { kind: 'allReduce', communicator: 3, count: 1, dtype: 'f32' } as const
    expect(lawsOf(node({ collective }))).toEqual(['L8'])
    expect(lawsOf(buffer({ id: 8 }))).toContain('L3')
    expect(lawsOf(buffer({ home: 99 }))).toContain('L3')
    expect(lawsOf(buffer({ alias: 8, aliasOffset: 1 }))).toContain('L3')
    expect(lawsOf(buffer({ bytes: Number.NaN }))).toEqual(['L7'])
    expect(lawsOf(buffer({ bytes: 2 ** 50 }))).toContain('L9')
  })
})
