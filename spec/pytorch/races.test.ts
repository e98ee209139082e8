// Cases 133 to 145: races that a checker must find, and orders that it must accept, each as the smallest such
// plan. The checker is `verify`, which runs nothing. In the plans lanes and buffers count from 0, events in
// the order of their records.
import { describe, expect, test } from 'vitest'
import type { Plan } from '../../dsl/ir/plan.js'
import { verify } from '../../dsl/verify/verify.js'
import {
  alloc,
  allocating,
  free,
  read,
  record,
  schedule,
  use,
  wait,
  without,
  write,
} from '../fixtures/plans/schedules.js'

/** The broken laws, each with its command and buffer. */
const broken = (plan: Plan, options?: { readonly safety?: boolean }): readonly string[] =>
  verify(plan, options).map(
    ({ law, command, buffer }) => `${law} ${command}${buffer === undefined ? '' : ` b${buffer}`}`,
  )

describe('a checker of races, over plans', () => {
  test('133: two lanes may read concurrently with no order between them', () => {
    expect(broken(schedule(2, 1, [read(0, 0), read(1, 0)]))).toEqual([])
  })

  test('134: a write concurrent with a read or a write of another lane is a race', () => {
    expect(broken(schedule(2, 1, [read(0, 0), write(1, 0)]))).toEqual(['L2 1 b0'])
    expect(broken(schedule(2, 1, [write(0, 0), read(1, 0)]))).toEqual(['L1 1 b0'])
    expect(broken(schedule(2, 1, [write(0, 0), write(1, 0)]))).toEqual(['L2 1 b0'])
  })

  test('134: accesses of one lane never race', () => {
    expect(broken(schedule(1, 1, [read(0, 0), write(0, 0), read(0, 0), write(0, 0)]))).toEqual([])
  })

  test('134: two ticks in flight race like two lanes', () => {
    const commands = [write(0, 0), record(0, 0), wait(0, 1), read(1, 0)]
    const plan = schedule(2, 1, commands)
    expect(broken(plan)).toEqual([])
    expect(broken({ ...plan, inFlight: 2 })).toEqual(['L2 0 b0'])
  })

  test('135: there is no race if the write waits for an event that was recorded after the read', () => {
    const plan = schedule(2, 1, [read(0, 0), record(0, 0), wait(0, 1), write(1, 0)])
    expect(broken(plan)).toEqual([])
    expect(broken(without(plan, 2), { safety: true })).toEqual(['L2 2 b0'])
  })

  test('135: waiting for an event on another lane, or from before the read, does not help', () => {
    expect(
      broken(schedule(3, 1, [read(0, 0), record(0, 2), wait(0, 1), write(1, 0)]), { safety: true }),
    ).toEqual(['L2 3 b0'])
    expect(
      broken(schedule(2, 1, [record(0, 0), read(0, 0), wait(0, 1), write(1, 0)]), { safety: true }),
    ).toEqual(['L2 3 b0'])
  })

  test('136: a read is checked against the last write only, which is after the writes before it', () => {
    const plan = schedule(3, 1, [
      write(0, 0),
      record(0, 0),
      wait(0, 1),
      write(1, 0),
      record(1, 1),
      wait(1, 2),
      read(2, 0),
    ])
    expect(broken(plan)).toEqual([])
    const beforeIt = plan.commands.map(command =>
      command[0] === 'wait' && command[2] === 2 ? wait(0, 2) : command,
    )
    expect(broken({ ...plan, commands: beforeIt }, { safety: true })).toEqual(['L1 6 b0'])
  })

  test('137: a lane that reads a value may write over it only after the other reader as well', () => {
    const branch = [write(0, 0), record(0, 0), wait(0, 1), wait(0, 2), read(1, 0), read(2, 0)]
    expect(broken(schedule(3, 1, branch))).toEqual([])
    expect(broken(schedule(3, 1, [...branch, write(2, 0)]))).toEqual(['L2 6 b0'])
    expect(broken(schedule(3, 1, [...branch, record(1, 1), wait(1, 2), write(2, 0)]))).toEqual([])
  })

  test('138: order is transitive over ten lanes; without any one link there is a race', () => {
    const links = Array.from({ length: 9 }, (_, i) => [record(i, i), wait(i, i + 1)]).flat()
    const plan = schedule(10, 1, [write(0, 0), ...links, write(9, 0)])
    expect(broken(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] === 'wait') expect(broken(without(plan, c), { safety: true })).toEqual(['L2 18 b0'])
    })
  })

  test('139: an event does not order work that its lane is given after the record', () => {
    const plan = schedule(2, 1, [read(0, 0), record(0, 0), read(0, 0), wait(0, 1), write(1, 0)])
    expect(broken(plan, { safety: true })).toEqual(['L2 4 b0'])
  })

  test('139: a use whose event was recorded before the last read makes the free too early', () => {
    const early = [
      alloc(0, 0),
      write(0, 0),
      record(0, 0),
      wait(0, 1),
      read(1, 0),
      record(1, 1),
      read(1, 0),
      use(0, 1, 1),
      free(0),
    ]
    expect(broken(allocating(2, [{ name: 'b0' }], early))).toEqual(['L4 8 b0', 'L5 7 b0', 'L6 7 b0'])
    const late = early.with(5, early[6]!).with(6, early[5]!)
    expect(broken(allocating(2, [{ name: 'b0' }], late))).toEqual([])
  })

  test('140: an event that is not recorded, or recorded after the wait, orders nothing', () => {
    const plan = schedule(2, 1, [read(0, 0), record(0, 0), wait(0, 1), write(1, 0)])
    expect(broken(without(plan, 1), { safety: true })).toEqual(['L7 1', 'L2 2 b0'])
    const late = schedule(2, 1, [read(0, 0), wait(0, 1), record(0, 0), write(1, 0)])
    expect(broken(late, { safety: true })).toEqual(['L7 1', 'L2 3 b0'])
  })

  test('140: a use whose event was never recorded marks nothing', () => {
    const commands = [alloc(0, 0), write(0, 0), record(0, 0), wait(0, 1), read(1, 0), use(0, 1, 9), free(0)]
    const laws = broken(allocating(2, [{ name: 'b0' }], commands), { safety: true })
    expect(laws).toEqual(['L4 5 b0', 'L4 6 b0'])
  })

  test('140: accesses of a buffer still count when its bytes are given to the next buffer', () => {
    // Two buffers take turns at one offset: the second owner writes on a lane that has not waited for the
    // first one's reader.
    const shared = [
      { name: 'b0', offset: 0, bytes: 1024 },
      { name: 'b1', offset: 0, bytes: 1024, home: 2 },
    ]
    const first = [write(0, 0), record(0, 0), wait(0, 1), read(1, 0)]
    expect(broken(allocating(3, shared, [...first, write(2, 1)], 1024), { safety: true })).toContain(
      'L4 4 b1',
    )
    const joined = [...first, record(1, 1), wait(1, 2), write(2, 1)]
    expect(broken(allocating(3, shared, joined, 1024), { safety: true })).toEqual([])
    // With pooled storage the use at the free keeps the reader.
    const pooled = [alloc(0, 0), ...first, record(1, 1), use(0, 1, 1), free(0)]
    const plan = allocating(2, [{ name: 'b0' }], pooled)
    expect(broken(plan)).toEqual([])
    expect(broken(without(plan, 6), { safety: true })).toEqual(['L4 6 b0'])
  })

  test('141: a writer must be after every reader, on whichever lane', () => {
    const readers = [1, 2, 3, 4].flatMap(lane => [read(lane, 0), record(lane, lane)])
    const plan = schedule(5, 1, [...readers, ...[1, 2, 3, 4].map(event => wait(event, 0)), write(0, 0)])
    expect(broken(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] === 'wait') expect(broken(without(plan, c), { safety: true })).toEqual([`L2 ${11} b0`])
    })
  })

  test('141: a free must come after a use for every reading lane', () => {
    const commands = [
      alloc(0, 0),
      write(0, 0),
      record(0, 0),
      ...[1, 2, 3].flatMap(lane => [wait(0, lane), read(lane, 0), record(lane, lane), use(0, lane, lane)]),
      free(0),
    ]
    const plan = allocating(4, [{ name: 'b0' }], commands)
    expect(broken(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] !== 'use') return
      const found = verify(without(plan, c), { safety: true })
      expect(found.map(({ law, lane }) => `${law} lane${lane}`)).toEqual([`L4 lane${command[2]}`])
    })
  })

  test('142: a run that races over several buffers is reported once for each', () => {
    const plan = schedule(2, 4, [read(0, 0, 1), write(0, 2), ['run', 0, 1, [2], [0, 1, 3]]])
    expect([...broken(plan)].sort()).toEqual(['L1 2 b2', 'L2 2 b0', 'L2 2 b1'])
  })

  test('143: a lane that waits for another lane has the later of both lanes’ points, for each lane', () => {
    const both = [
      write(0, 0),
      write(1, 1),
      record(0, 0),
      record(1, 1),
      write(0, 0),
      write(1, 1),
      record(2, 1),
    ]
    // Lane 1 is after only the first write of lane 0. Waiting for lane 1 does not take lane 0 back behind its
    // own later work.
    expect(
      broken(schedule(2, 2, [...both, wait(0, 1), record(3, 1), wait(3, 0), write(0, 0, 1)]), {
        safety: true,
      }),
    ).toEqual([])
    // Waiting for an older mark of lane 1 afterwards does not undo the wait for the newer one.
    expect(
      broken(schedule(2, 2, [...both, wait(2, 0), wait(1, 0), write(0, 0, 1)]), { safety: true }),
    ).toEqual([])
    // The older mark alone is not enough.
    expect(broken(schedule(2, 2, [...both, wait(1, 0), write(0, 0, 1)]), { safety: true })).toEqual([
      'L2 8 b1',
    ])
  })

  test('144: an event marks one point; a second record of it is refused, and orders nothing', () => {
    const twice = schedule(2, 1, [
      read(0, 0),
      record(0, 0),
      read(0, 0),
      record(0, 0),
      wait(0, 1),
      write(1, 0),
    ])
    expect(broken(twice, { safety: true })).toEqual(['L7 3', 'L2 5 b0'])
    const elsewhere = schedule(3, 1, [read(0, 0), record(0, 2), record(0, 0), wait(0, 1), write(1, 0)])
    expect(broken(elsewhere, { safety: true })).toEqual(['L7 2', 'L2 4 b0'])
    const another = schedule(2, 1, [read(0, 0), read(0, 0), record(1, 0), wait(1, 1), write(1, 0)])
    expect(broken(another)).toEqual([])
  })

  test('145: any number of lanes may wait for one record', () => {
    const lanes = [1, 2, 3, 4, 5]
    const plan = schedule(6, 1, [
      write(0, 0),
      record(0, 0),
      ...lanes.map(lane => wait(0, lane)),
      ...lanes.map(lane => read(lane, 0)),
    ])
    expect(broken(plan)).toEqual([])
    plan.commands.forEach((command, c) => {
      if (command[0] !== 'wait') return
      const found = verify(without(plan, c), { safety: true })
      expect(found.map(({ law, lane }) => `${law} lane${lane}`)).toEqual([`L1 lane${command[2]}`])
    })
  })
})
