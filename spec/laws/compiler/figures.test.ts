import * as E from 'fp-ts/lib/Either.js'
import { expect, test } from 'vitest'
import { lifetimes } from '../../../dsl/compiler/passes/lifetimes.js'
import { synchronize } from '../../../dsl/compiler/passes/synchronize.js'
import { figured, figures } from '../../fixtures/graphs/figures.js'
import { greedyLanes } from '../../fixtures/graphs/tasks.js'
import { orderedTasks } from '../../fixtures/plans/of-tasks.js'

for (const { graph, lanes, tasks, waits, records, uses } of figures)
  test(`${graph} on ${lanes} lanes`, () => {
    const made = figured[graph]!()
    expect(made.deps.length).toBe(tasks)
    const synchronized = synchronize(
      orderedTasks(made, greedyLanes(made, lanes), () => 4, { storage: 'pooled' }),
    )
    if (E.isLeft(synchronized)) throw new Error('synchronize found an error')
    expect(synchronized.right.waitOn.length).toBe(waits)
    expect(new Set(synchronized.right.waitOn).size).toBe(records)
    const lived = lifetimes(synchronized.right)
    if (E.isLeft(lived)) throw new Error('lifetimes found an error')
    expect(lived.right.useBuffer.length).toBe(uses)
  })
