// Cases 146 to 153: the waits and uses that the compiler must put between operations of different lanes, and
// no others. Each graph is compiled and its plan checked command by command; then all of them run on every
// device with poisoned memory and random timing.

import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  abs,
  add,
  type Command,
  compile,
  download,
  type Flow,
  type Graph,
  graph,
  lane,
  mul,
  neg,
  on,
  orThrow,
  type Plan,
  type Ports,
  parsePlan,
  relu,
  scan,
  type Tensor,
  tensor,
  toJSON,
  upload,
  verify,
} from '../../dsl/index.js'
import { present } from '../conformance/devices.js'
import { expectMeaning } from '../conformance/yields.js'
import { twiceInPlace } from '../fixtures/graphs/kernels.js'
import { without } from '../fixtures/plans/schedules.js'

const copy = lane('copy')
const math = lane('math')
const side = lane('side')
const other = lane('other')
const rows = lane('rows')
const row = tensor('f32', [256])
type Row = Flow<'device', Tensor<'f32', readonly [256]>>

/** One producer on math, with a reader for each output. */
const readBy = (name: string, readers: (value: Row) => Readonly<Record<string, Row>>) =>
  graph(name, { x: row }, ({ x }) => {
    const value = x.pipe(upload(copy), on(math), relu()) as Row
    const read = readers(value)
    return Object.fromEntries(Object.entries(read).map(([y, flow]) => [y, flow.pipe(download(rows))]))
  }) as unknown as Graph<Ports, Ports>

const across = readBy('across', value => ({ y: value.pipe(on(side), neg()) }))
const along = readBy('along', value => ({ y: value.pipe(neg()) }))
const branches = readBy('branches', value => ({
  a: value.pipe(on(side), neg()),
  b: value.pipe(on(other), abs()),
}))
const chained = readBy('chained', value => {
  const first = value.pipe(on(side), neg())
  return { y: value.pipe(on(other), add(first)) }
})
const sideThenHome = readBy('side then home', value => ({
  a: value.pipe(on(side), neg()),
  b: value.pipe(on(math), abs(), mul(2), abs()),
}))
const joined = readBy('joined', value => {
  const first = value.pipe(on(side), neg())
  return { y: value.pipe(on(math), add(first)) }
})
const interleaved = readBy('interleaved', value => {
  // Only side reads each value of math, and has work of its own in between.
  let [own, sum] = [value, value.pipe(on(side), mul(1))]
  for (let i = 2; i <= 5; i++) {
    own = own.pipe(on(math), mul(i))
    sum = sum.pipe(on(side), neg(), add(own.pipe(on(math), neg())), abs())
  }
  return { y: sum }
})
const dead = readBy('dead', value => {
  value.pipe(on(side), neg(), mul(3))
  return { y: value.pipe(on(other), neg()), z: value.pipe(on(other), neg(), abs()) }
})
const alive = readBy('alive', value => {
  const y = value.pipe(on(other), neg())
  return { y, z: y.pipe(abs()) }
})
const kept = graph('kept', { x: row }, ({ x }) => {
  const now = x.pipe(upload(copy))
  const sum = now.pipe(
    on(math),
    scan((total, value) => total.pipe(add(value)), 0),
  )
  return { y: sum.pipe(on(side), neg(), download(rows)) }
}) as unknown as Graph<Ports, Ports>
// other writes the donated memory, after side, the earlier reader, has read it.
const donated = readBy('donated', value => ({
  a: value.pipe(on(side), neg()),
  b: twiceInPlace({ x: value.pipe(on(other)) }).y as Row,
}))

const graphs = {
  across,
  along,
  branches,
  chained,
  sideThenHome,
  joined,
  interleaved,
  dead,
  alive,
  kept,
  donated,
}

const planOf = (net: Graph<Ports, Ports>): Plan => {
  const plan = orThrow(compile(net, { mode: 'eager', fuse: false })) as Plan
  expect(verify(plan)).toEqual([])
  return plan
}

/** The index of a run in the plan, by the name of its node. */
const runOf = (plan: Plan, name: string): { readonly at: number; readonly lane: number } => {
  const at = plan.commands.findIndex(command => command[0] === 'run' && plan.nodes[command[1]]!.name === name)
  if (at < 0) throw new Error(`no run ${name} among ${plan.nodes.map(node => node.name).join(', ')}`)
  return { at, lane: (plan.commands[at] as Command & { 0: 'run' })[2] }
}
const positions = (plan: Plan, which: (command: Command) => boolean): number[] =>
  plan.commands.flatMap((command, c) => (which(command) ? [c] : []))
const written = (plan: Plan, name: string): number =>
  (plan.commands[runOf(plan, name).at] as Command & { 0: 'run' })[4][0]!
const usesOf = (plan: Plan, name: string): (Command & { 0: 'use' })[] =>
  plan.commands.filter(
    (command): command is Command & { 0: 'use' } =>
      command[0] === 'use' && command[1] === written(plan, name),
  )

/** The record that marks the end of this run: right after it on its lane, before that lane's next run. */
const recordAfter = (plan: Plan, name: string): number[] => {
  const { at, lane: on } = runOf(plan, name)
  const next = plan.commands.findIndex((command, c) => c > at && command[0] === 'run' && command[2] === on)
  return positions(plan, command => command[0] === 'record' && command[2] === on).filter(
    c => c > at && (next < 0 || c < next),
  )
}
const waitsFor = (plan: Plan, record: number): number[] =>
  positions(plan, command => command[0] === 'wait' && command[1] === plan.commands[record]![1])

describe('the compiler, between lanes', () => {
  test('146: a value is recorded right after its run, and waited for right before its read', () => {
    const plan = planOf(across)
    const [record, ...others] = recordAfter(plan, 'relu[0]')
    expect(others).toEqual([])
    const [wait, ...more] = waitsFor(plan, record!)
    expect(more).toEqual([])
    const reader = runOf(plan, 'neg[0]')
    expect(plan.commands[wait!]).toEqual(['wait', plan.commands[record!]![1], reader.lane])
    expect(record!).toBeLessThan(wait!)
    expect(wait!).toBeLessThan(reader.at)
    const between = plan.commands.slice(wait! + 1, reader.at)
    expect(between.filter(([kind, , on]) => kind === 'run' && on === reader.lane)).toEqual([])
    expect(verify(without(plan, wait!), { safety: true }).map(({ law }) => law)).toContain('L1')
  })

  test('146: a value read on its own lane is neither recorded nor waited for', () => {
    const plan = planOf(along)
    expect(runOf(plan, 'relu[0]').lane).toBe(runOf(plan, 'neg[0]').lane)
    // The one record after it marks that the upload's memory was read; no lane waits for it.
    expect(recordAfter(plan, 'relu[0]').flatMap(record => waitsFor(plan, record))).toEqual([])
  })

  test('147: records, waits, uses and frees stand in an order that files keep', () => {
    for (const net of Object.values(graphs)) {
      const plan = planOf(net)
      const recorded = new Set<number>()
      const freed = new Set<number>()
      for (const command of plan.commands) {
        if (command[0] === 'record') recorded.add(command[1])
        if (command[0] === 'wait' && command[3] !== -1) expect(recorded).toContain(command[1])
        if (command[0] === 'use') expect(recorded).toContain(command[3])
        if (command[0] === 'use') expect(freed).not.toContain(command[1])
        if (command[0] === 'free') freed.add(command[1])
      }
      expect(orThrow(parsePlan(toJSON(plan))).commands).toEqual(plan.commands)
    }
  })

  test('148: no wait and no use can be left out of any plan, though no command reads their result', () => {
    let left = 0
    for (const net of Object.values(graphs)) {
      const plan = planOf(net)
      for (const c of positions(plan, ([kind]) => kind === 'wait' || kind === 'use')) {
        expect(verify(without(plan, c)), `${plan.name} without ${plan.commands[c]}`).not.toEqual([])
        left++
      }
    }
    expect(left).toBeGreaterThan(30)
  })

  test('148: unread values go with their waits and records, duplicates become one', () => {
    const [wanted, found] = [planOf(alive), planOf(dead)]
    expect(found.commands).toEqual(wanted.commands)
    expect(found.nodes.map(({ op }) => op)).toEqual(wanted.nodes.map(({ op }) => op))
  })

  test('149: a file with a malformed command, or an unknown id, is refused before it runs', () => {
    const plan = planOf(kept)
    const all = planOf(interleaved)
    const kinds = new Set<string>()
    for (const from of [plan, all])
      from.commands.forEach((command, c) => {
        kinds.add(command[0])
        const spoilt: unknown[][] = [
          ...command
            .slice(1)
            .flatMap((operand, i) =>
              (Array.isArray(operand) ? [[1e6], 'none', [-1]] : [1e6, -2, 0.5, 'none', null]).map(bad =>
                [...command].with(i + 1, bad as never),
              ),
            ),
          command.slice(0, -1),
          [...command, 0],
          ['no such', ...command.slice(1)],
        ]
        for (const bad of spoilt) {
          // A wait has a tick or none.
          if (command[0] === 'wait' && bad.length === 3 && command.length === 4) continue
          const file = JSON.stringify({ ...from, commands: from.commands.with(c, bad as never) })
          const parsed = parsePlan(file)
          const refused = E.isLeft(parsed) || verify(parsed.right, { safety: true }).length > 0
          expect(refused, `${JSON.stringify(command)} as ${JSON.stringify(bad)}`).toBe(true)
        }
      })
    expect([...kinds].sort()).toEqual(['alloc', 'free', 'record', 'run', 'use', 'wait'])
  })

  test('150: a value whose last reader is on another lane is freed after a use with that reader', () => {
    const plan = planOf(across)
    const [use, ...others] = usesOf(plan, 'relu[0]')
    expect(others).toEqual([])
    const reader = runOf(plan, 'neg[0]')
    expect(use![2]).toBe(reader.lane)
    expect(plan.commands[recordAfter(plan, 'neg[0]')[0]!]).toEqual(['record', use![3], reader.lane])
    const buffer = use![1]
    const [free] = positions(plan, command => command[0] === 'free' && command[1] === buffer)
    expect(plan.commands.indexOf(use!)).toBeLessThan(free!)
    expect(verify(without(plan, plan.commands.indexOf(use!)), { safety: true })).toMatchObject([
      { law: 'L4', buffer },
    ])
  })

  test('150: each value has its own use, right after its own reader', () => {
    const plan = planOf(interleaved)
    const mathLane = runOf(plan, 'relu[0]').lane
    const sideLane = runOf(plan, 'abs[0]').lane
    const marked = plan.commands.filter(
      (command): command is Command & { 0: 'use' } =>
        command[0] === 'use' && command[2] === sideLane && plan.buffers[command[1]]!.home === mathLane,
    )
    // side is the last reader of each of the five steps' values, or of their negatives.
    expect(marked.length).toBe(5)
    expect(new Set(marked.map(([, buffer]) => buffer)).size).toBe(5)
    // Each use marks its own point: no free waits for the end of side's work.
    expect(new Set(marked.map(([, , , event]) => event)).size).toBe(5)
  })

  test('151: one producer read on two other lanes is recorded once and waited for twice', () => {
    const plan = planOf(branches)
    const [record, ...others] = recordAfter(plan, 'relu[0]')
    expect(others).toEqual([])
    const lanes = waitsFor(plan, record!).map(c => plan.commands[c]![2])
    expect(new Set(lanes)).toEqual(new Set([runOf(plan, 'neg[0]').lane, runOf(plan, 'abs[0]').lane]))
    expect(lanes).toHaveLength(2)
  })

  test('152: with two reading lanes the earlier reader is protected as well as the last one', () => {
    const plan = planOf(branches)
    const readers = [runOf(plan, 'neg[0]').lane, runOf(plan, 'abs[0]').lane]
    const uses = usesOf(plan, 'relu[0]')
    expect(new Set(uses.map(([, , on]) => on))).toEqual(new Set(readers))
    for (const use of uses) {
      const violations = verify(without(plan, plan.commands.indexOf(use)), { safety: true })
      expect(violations).toMatchObject([{ law: 'L4', buffer: use[1], lane: use[2] }])
    }
  })

  test('152: one use is enough where the last reader is after the earlier one', () => {
    const plan = planOf(chained)
    expect(usesOf(plan, 'relu[0]').map(([, , on]) => on)).toEqual([runOf(plan, 'add[0]').lane])
  })

  test('152: a lane that writes into donated memory waits for every earlier reader', () => {
    const plan = planOf(donated)
    const writer = runOf(plan, 'twice[0]')
    const reader = runOf(plan, 'neg[0]')
    expect(writer.lane).not.toBe(reader.lane)
    const [record] = recordAfter(plan, 'neg[0]')
    expect(waitsFor(plan, record!).some(c => plan.commands[c]![2] === writer.lane && c < writer.at)).toBe(
      true,
    )
  })

  test('153: a reader on another lane is protected although the last reader is on the home lane', () => {
    const plan = planOf(sideThenHome)
    const home = runOf(plan, 'relu[0]').lane
    expect(runOf(plan, 'abs[0]').lane).toBe(home)
    const [use, ...others] = usesOf(plan, 'relu[0]')
    expect(others).toEqual([])
    expect(use![2]).toBe(runOf(plan, 'neg[0]').lane)
    expect(verify(without(plan, plan.commands.indexOf(use!)), { safety: true })).toMatchObject([
      { law: 'L4', lane: use![2] },
    ])
  })

  test('153: it needs no use where the home lane has waited for the reader’s result', () => {
    const plan = planOf(joined)
    expect(usesOf(plan, 'relu[0]')).toEqual([])
  })
})

describe.each(present)('the same graphs on %s', device => {
  test.each(Object.entries(graphs))('146-153: %s yields what it means, in shaken timing', async (_, net) => {
    const x = Array.from({ length: 8 }, (_, tick) =>
      Float32Array.from({ length: 256 }, (_, i) => tick * 1000 + i - 128),
    )
    for (const seed of [1, 2, 3]) await expectMeaning(net, device, { x }, { seed })
  })
})
