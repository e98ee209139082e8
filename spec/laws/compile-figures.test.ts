import * as E from 'fp-ts/lib/Either.js'
import { expect, test } from 'vitest'
import { h200 } from '../../dsl/machine/h200.js'
import type { Buffer, Operation, Ordered } from '../../dsl/passes/ir.js'
import { lifetimes } from '../../dsl/passes/lifetimes.js'
import type { Settings } from '../../dsl/passes/options.js'
import { synchronize } from '../../dsl/passes/synchronize.js'
import { cholesky, fsdp, greedyLanes, layered, type TaskGraph, taskBench } from '../support/families.js'
import { figures } from '../support/figures.js'

const families: Readonly<Record<string, () => TaskGraph>> = {
  'cholesky(16)': () => cholesky(16),
  'cholesky(40)': () => cholesky(40),
  "taskBench('stencil', 16, 64)": () => taskBench('stencil', 16, 64),
  "taskBench('fft', 16, 64)": () => taskBench('fft', 16, 64),
  "taskBench('sweep', 16, 64)": () => taskBench('sweep', 16, 64),
  "taskBench('random', 16, 64, 7)": () => taskBench('random', 16, 64, 7),
  'layered(4000, 12, 4, 7)': () => layered(4000, 12, 4, 7),
  'layered(100000, 16, 4, 7)': () => layered(100_000, 16, 4, 7),
  'fsdp(32)': () => fsdp(32),
  'fsdp(64, 2)': () => fsdp(64, 2),
}

const settings: Settings = {
  name: 'tasks',
  dims: new Map(),
  inFlight: 2,
  memory: 'fast',
  storage: 'pooled',
  lanes: 1,
  placement: 'chains',
  machine: h200,
  profile: new Map(),
}

/** Each task writes one buffer of its own and reads those of the tasks it depends on. */
const ordered = (graph: TaskGraph, lanes: number): Ordered => {
  const buffers = graph.deps.map(
    (_, id): Buffer => ({ name: `b${id}`, bytes: 4, space: 'device', life: 'tick', root: id, offset: 0 }),
  )
  const operations = graph.deps.map(
    (reads, id): Operation => ({
      op: 'task',
      name: `t${id}`,
      at: 'here',
      kernel: undefined,
      flops: 0,
      movedBytes: 0,
      reads,
      writes: [id],
      after: reads,
      kind: 'compute',
      lane: undefined,
      workspace: 0,
      ahead: undefined,
      tolerance: 0,
      user: undefined,
    }),
  )
  return {
    settings: { ...settings, lanes },
    operations,
    buffers,
    lanes: Array.from({ length: lanes }, (_, id) => ({ id, name: `l${id}`, device: 0, priority: 0 })),
    laneOf: greedyLanes(graph, lanes),
    windows: [],
    keep: false,
  }
}

for (const { graph, lanes, tasks, waits, records, uses } of figures)
  test(`${graph} on ${lanes} lanes`, () => {
    const made = families[graph]!()
    expect(made.deps.length).toBe(tasks)
    const synchronized = synchronize(ordered(made, lanes))
    if (E.isLeft(synchronized)) throw new Error('synchronize found a mistake')
    expect(synchronized.right.waitOn.length).toBe(waits)
    expect(new Set(synchronized.right.waitOn).size).toBe(records)
    const lived = lifetimes(synchronized.right)
    if (E.isLeft(lived)) throw new Error('lifetimes found a mistake')
    expect(lived.right.useBuffer.length).toBe(uses)
  })
