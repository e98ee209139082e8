import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { type CompileOptions, compile, type Graph, isProved } from '../../../dsl/index.js'
import { textOf } from '../../../dsl/ir/text.js'
import { verify } from '../../../dsl/verify/verify.js'
import { collectives } from '../../golden/collectives.js'
import { convolutions } from '../../golden/convolutions.js'
import { goldens, ordered } from '../../golden/graphs.js'

// To write the plans anew: BRAID_GOLDEN=write npx vitest run spec/laws/compiler/golden.test.ts
const write = process.env['BRAID_GOLDEN'] === 'write'

const kept = (name: string, graph: Graph, options: CompileOptions = {}): void =>
  test(name, () => {
    const file = new URL(`../../golden/${name}.txt`, import.meta.url)
    const plan = compile(graph, options)
    if (isLeft(plan)) throw new Error(JSON.stringify(plan.left, null, 2))
    expect(verify(plan.right)).toEqual([])
    expect(isProved(plan.right)).toBe(true)
    const text = textOf(plan.right)
    if (write) writeFileSync(file, text)
    expect(existsSync(file)).toBe(true)
    expect(text).toBe(readFileSync(file, 'utf8'))
    expect(JSON.stringify(compile(graph, options))).toBe(JSON.stringify(plan))
  })

// In these shapes each operation stands for a task of its own, on a lane of its own.
const shapes = [
  'chains',
  'tree',
  'diamonds',
  'layered',
  'stateful-pipeline',
  'cholesky',
  'task-bench-stencil',
]

describe('golden plans', () => {
  for (const [name, graph] of Object.entries(goldens))
    kept(name, graph as Graph, { mode: 'eager', ...(shapes.includes(name) ? { fuse: false } : {}) })
  kept('ordered', ordered as unknown as Graph, { mode: 'eager' })
  kept('collectives', collectives as unknown as Graph, { mode: 'eager' })
  kept('convolutions', convolutions as unknown as Graph, { mode: 'eager' })
})

describe('golden plans of planned storage', () => {
  for (const name of ['weight-streaming', 'diamond'] as const)
    kept(`${name}.planned`, goldens[name] as unknown as Graph, { mode: 'eager', storage: 'planned' })
})

// Two are taken in graph mode; the one with collectives eagerly.
describe('golden plans without options', () => {
  for (const name of ['diamond', 'weight-streaming'] as const)
    kept(`${name}.default`, goldens[name] as unknown as Graph)
  kept('collectives.default', collectives as unknown as Graph)
})

describe('golden plans of graph mode', () => {
  for (const name of ['weight-streaming', 'diamond', 'state', 'two-devices'] as const)
    kept(`${name}.graph`, goldens[name] as unknown as Graph, { mode: 'graph' })
  kept('collectives.graph', collectives as unknown as Graph, { mode: 'graph' })
})
