// How long `compile` takes, verifier included, and how it grows: random layered graphs of small tensors, and many chains that meet now and then.
import { isLeft } from 'fp-ts/lib/Either.js'
import type { Graph } from '../../dsl/graph.js'
import { compile, render } from '../../dsl/index.js'
import type { GraphIR, GraphNode, LaneSpec } from '../../dsl/ir/graph.js'
import { xorshift } from '../support/families.js'

const spec = { dtype: 'f32', shape: [16] } as const
const lanesOf = (count: number): LaneSpec[] =>
  Array.from({ length: count }, (_, i) => ({ name: `lane${i}`, priority: 'normal' }))
const code = [
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
] as const

interface Shape {
  readonly shape: 'layered' | 'chains'
  readonly nodes: number
  readonly lanes: number
}

/** A graph of `nodes` additions over one uploaded input; each reads two earlier values that `pick` names. */
export const generated = ({ shape, nodes, lanes }: Shape): GraphIR => {
  const random = xorshift(7)
  const width = 4 * lanes
  const lane = lanesOf(lanes)
  const at = 'spec/bench/compile.ts:1:1'
  const node = (id: number, op: string, inputs: readonly number[], more: Partial<GraphNode> = {}): GraphNode => ({
    id,
    op,
    name: `${op}[${id}]`,
    inputs,
    attrs: {},
    spec,
    place: 'device',
    lane: undefined,
    at,
    ...more,
  })
  const list: GraphNode[] = [node(0, 'input', [], { name: 'x', place: 'host' }), node(1, 'upload', [0])]
  const layerOf = (i: number): number => Math.floor(i / width)
  for (let i = 0; list.length < nodes; i++) {
    const id = list.length
    const above = (back: number): number => Math.max(1, 2 + (layerOf(i) - back) * width + Math.floor(random() * width))
    const own = Math.max(1, id - width)
    const layer = 1 + Math.floor(random() * random() * 4)
    const inputs = shape === 'layered' ? [above(1), above(layer)] : [own, random() < 0.05 ? above(1) : own]
    list.push(
      node(
        id,
        'add',
        inputs.map(input => (input < id ? input : 1)),
        { attrs: { code, salt: i }, lane: lane[i % lanes] },
      ),
    )
  }
  // The last few are added up, so that no node is dead for long: every value reaches the output or is dropped by the compiler.
  const first = list.length - width
  let sum = first
  for (let i = 1; i < width; i++) {
    const id = list.length
    list.push(node(id, 'add', [sum, first + i], { attrs: { code, salt: -i }, lane: lane[0] }))
    sum = id
  }
  const id = list.length
  list.push(node(id, 'download', [sum], { place: 'host', name: 'y' }))
  return { name: `${shape} ${nodes}`, nodes: list, outputs: [{ name: 'y', node: id }], problems: [] }
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!

const measure = (shape: Shape, times: number) => {
  const source = { ir: generated(shape) } as unknown as Graph
  const ms: number[] = []
  let commands = 0
  let operations = 0
  for (let run = 0; run < times; run++) {
    const began = performance.now()
    const plan = compile(source)
    ms.push(performance.now() - began)
    if (isLeft(plan)) throw new Error(render(plan.left[0]))
    commands = plan.right.commands.length
    operations = plan.right.nodes.length
  }
  return { commands, operations, median: median(ms), least: Math.min(...ms), most: Math.max(...ms) }
}

const limitMs = 3_000

export const bench = {
  name: 'compile',
  title: 'compile, verifier included: milliseconds, and microseconds a node as graphs grow',
  run: async (log: (line: string) => void): Promise<{ rows: Record<string, number | string>[]; ok: boolean }> => {
    const rows: Record<string, number | string>[] = []
    let ok = true
    measure({ shape: 'layered', nodes: 2_000, lanes: 4 }, 2)
    for (const shape of ['layered', 'chains'] as const)
      for (const lanes of [4, 8])
        for (const nodes of [10_000, 30_000, 100_000]) {
          const { commands, operations, median: ms, least, most } = measure({ shape, nodes, lanes }, 3)
          const perNode = (1000 * ms) / nodes
          rows.push({ shape, lanes, nodes, operations, commands, ms, least, most, perNode })
          ok &&= ms < limitMs
          log(
            `  ${shape.padEnd(8)} ${String(nodes).padStart(7)} nodes, ${lanes} lanes: ${ms.toFixed(0).padStart(5)} ms (${least.toFixed(0)} to ${most.toFixed(0)}), ${perNode.toFixed(1)} µs a node, ${commands} commands`,
          )
        }
    log(`  100,000 nodes within ${limitMs} ms: ${ok ? 'yes' : 'no'}`)
    return { rows, ok }
  },
}
