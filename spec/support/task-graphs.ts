// A task graph as a graph of the language: each task one fused addition of the values of the tasks that it depends on, on the lane it is given.
import type { GraphIR, GraphNode, LaneSpec } from '../../dsl/ir/graph.js'
import { cholesky, greedyLanes, layered, type TaskGraph } from './families.js'

/** Every task that nobody reads is read by the task `width` further on as well, so that only the last `width` are outputs and none is dead. */
const allRead = ({ deps, lane }: TaskGraph, width: number): TaskGraph => {
  const read = new Uint8Array(deps.length)
  const more = deps.map((after, task) => {
    for (const before of after) read[before] = 1
    const above = task - width
    if (above < 0 || read[above] === 1) return after
    read[above] = 1
    return [...after, above]
  })
  return lane === undefined ? { deps: more } : { deps: more, lane }
}

/** About `nodes` tasks of a family, none of them dead. */
export const tasksOf = (family: 'cholesky' | 'layered', nodes: number): TaskGraph => {
  if (family === 'layered') return allRead(layered(nodes, 16, 4, 7), 16)
  let tiles = 1
  while (((tiles + 1) * (tiles + 2) * (tiles + 3)) / 6 <= nodes) tiles++
  return cholesky(tiles)
}

const spec = { dtype: 'f32', shape: [64, 64] } as const

/** The sum of so many operands, as an expression of elementwise nodes. */
const sums = new Map<number, readonly (readonly [string, ...number[]])[]>()
const sumOf = (operands: number): readonly (readonly [string, ...number[]])[] => {
  let code = sums.get(operands)
  if (code === undefined) {
    const reads = Array.from({ length: operands }, (_, i) => ['operand', i] as const)
    const adds = Array.from({ length: operands - 1 }, (_, i) => ['add', i === 0 ? 0 : operands + i - 1, i + 1] as const)
    code = [...reads, ...adds]
    sums.set(operands, code)
  }
  return code
}

/** Tasks without dependencies read the one input; those that no task reads are the outputs. No two are of one meaning, so `simplify` keeps all. */
export const graphOf = (name: string, tasks: TaskGraph, lanes: number): GraphIR => {
  const laneOf = greedyLanes(tasks, lanes)
  const specs = Array.from({ length: lanes }, (_, i): LaneSpec => ({ name: `lane${i}`, priority: 'normal' }))
  const at = 'spec/support/task-graphs.ts:1:1'
  const read = new Uint8Array(tasks.deps.length)
  const nodes: GraphNode[] = [
    { id: 0, op: 'input', name: 'x', inputs: [], attrs: {}, spec, place: 'host', lane: undefined, at },
    { id: 1, op: 'upload', name: 'x', inputs: [0], attrs: {}, spec, place: 'device', lane: undefined, at },
  ]
  tasks.deps.forEach((after, task) => {
    for (const before of after) read[before] = 1
    const inputs = after.length === 0 ? [1] : after.map(before => before + 2)
    const attrs = { code: sumOf(inputs.length), task }
    const lane = specs[laneOf[task]!]
    nodes.push({ id: task + 2, op: 'map', name: `task[${task}]`, inputs, attrs, spec, place: 'device', lane, at })
  })
  const outputs: { name: string; node: number }[] = []
  for (let task = 0; task < tasks.deps.length; task++) {
    if (read[task] === 1) continue
    const id = nodes.length
    const output = `y${outputs.length}`
    nodes.push({
      id,
      op: 'download',
      name: output,
      inputs: [task + 2],
      attrs: {},
      spec,
      place: 'host',
      lane: undefined,
      at,
    })
    outputs.push({ name: output, node: id })
  }
  return { name, nodes, outputs, problems: [] }
}
