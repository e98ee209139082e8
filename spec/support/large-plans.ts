import { peakOf } from '../../dsl/ir/peak.js'
import type { Command, Plan } from '../../dsl/ir/plan.js'
import { cholesky, greedyLanes, layered, type TaskGraph } from './families.js'

/** Cholesky of as many tiles as come nearest to `tasks` tasks. */
export const choleskyOf = (tasks: number): TaskGraph => cholesky(Math.round(Math.cbrt(6 * tasks) - 1))
export const layeredOf = (tasks: number): TaskGraph => layered(tasks, 64, 3)

/**
 * A plan of a task graph that no pass of the compiler had a part in, for sizes at which only a linear verifier ends. Each task writes one buffer of its
 * own on its lane and reads those of the tasks it is after; a buffer is freed right after its last reader is issued. Waits are the transitive reduction's,
 * uses the maximal antichain of readers that the home lane does not know of, both by vector clocks, so every law holds, L6 included.
 */
export const largePlan = (name: string, graph: TaskGraph, lanes: number): Plan => {
  const { deps } = graph
  const count = deps.length
  const lane = greedyLanes(graph, lanes)
  const point = new Int32Array(count)
  const known = new Int32Array(lanes * lanes)
  /** What a lane knows once task v has run: frontier[v · lanes ..]. */
  const frontier = new Int32Array(count * lanes)
  const wanted = new Uint8Array(count)
  const last = new Int32Array(count)
  deps.forEach((after, v) => {
    last[v] = v
    for (const d of after) last[d] = v
  })
  const dying: number[][] = deps.map(() => [])
  last.forEach((v, b) => void dying[v]!.push(b))
  const readers = new Int32Array(count * lanes).fill(-1)

  const covers = (from: Int32Array, at: number, d: number): boolean => from[at * lanes + lane[d]!]! >= point[d]!
  /** Of some tasks, those that no other of them comes after. */
  const maximal = (tasks: readonly number[]): number[] =>
    tasks.filter(d => !tasks.some(other => other !== d && covers(frontier, other, d)))

  const commands: Command[] = []
  /** Where the record of task v goes, if anybody wants it: right after its run. */
  const runAt = new Int32Array(count)
  const newest = new Int32Array(lanes)
  for (let v = 0; v < count; v++) {
    const l = lane[v]!
    newest.fill(-1)
    for (const d of deps[v]!) {
      readers[d * lanes + l] = v
      if (lane[d] !== l && !covers(known, l, d) && (newest[lane[d]!]! < 0 || d > newest[lane[d]!]!))
        newest[lane[d]!] = d
    }
    for (const d of maximal(Array.from(newest).filter(d => d >= 0))) {
      wanted[d] = 1
      commands.push(['wait', d, l])
      for (let m = 0; m < lanes; m++) known[l * lanes + m] = Math.max(known[l * lanes + m]!, frontier[d * lanes + m]!)
    }
    commands.push(['alloc', v, l])
    runAt[v] = commands.length
    commands.push(['run', v, l, deps[v]!, [v]])
    point[v] = ++known[l * lanes + l]!
    for (let m = 0; m < lanes; m++) frontier[v * lanes + m] = known[l * lanes + m]!
    for (const b of dying[v]!) {
      const home = lane[b]!
      const foreign: number[] = []
      for (let m = 0; m < lanes; m++) {
        const reader = readers[b * lanes + m]!
        if (m !== home && reader >= 0 && !covers(known, home, reader)) foreign.push(reader)
      }
      for (const reader of maximal(foreign)) {
        wanted[reader] = 1
        commands.push(['use', b, lane[reader]!, reader])
      }
      commands.push(['free', b])
    }
  }
  const recorded: Command[] = []
  commands.forEach((command, c) => {
    recorded.push(command)
    if (command[0] === 'run' && runAt[command[1]] === c && wanted[command[1]] === 1)
      recorded.push(['record', command[1], command[2]])
  })
  const plan: Plan = {
    plan: 1,
    name,
    devices: 1,
    inFlight: 2,
    storage: 'pooled',
    bound: { device: [0], pinned: 0 },
    lanes: Array.from({ length: lanes }, (_, id) => ({ id, name: `l${id}`, device: 0, priority: 0 })),
    buffers: Array.from(lane, (home, id) => ({
      id,
      name: `b${id}`,
      bytes: 65536,
      space: 'device',
      device: 0,
      home,
      life: 'tick',
    })),
    nodes: deps.map((_, id) => ({ id, op: 'task', name: `t${id}`, at: '' })),
    commands: recorded,
  }
  const { device, pinned } = peakOf(plan)
  return { ...plan, bound: { device, pinned } }
}
