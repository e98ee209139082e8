// The planning of trees: every launch finds its values, and the arena is as large as its largest launch.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { type LaidOutTree, layOutTree, type Transition } from '../../../dsl/trees/tree.js'
import { runs } from '../../fixtures/runs.js'
import {
  anyTree,
  diamonds,
  fanOf,
  leastBytes,
  numbersFrom,
  type TimedPlan,
  type TimedTree,
  treeOf,
} from '../../fixtures/trees.js'
import { SlowArena } from '../../oracle/trees.js'

const launched = (plan: LaidOutTree, state: number, next: number): Transition => {
  const step = plan.transition(state, next)
  if (step === undefined || E.isLeft(step)) throw new Error(`plan ${next} may not come in state ${state}`)
  return step.right
}

/** How many older values of its own a launch of the plan may find kept. */
const olderKept = ({ lifetimes }: TimedPlan): number =>
  [...lifetimes.values()].reduce(
    (sum, lifetime) => sum + (lifetime.lives === 'run' ? 0 : lifetime.count - 1),
    0,
  )

const topOf = ({ nodes }: LaidOutTree): number => Math.max(...nodes.map(({ layout }) => layout.top))

/** Launches at random from the start; what went wrong first, and how high the arena was used. */
const walk = (tree: TimedTree, plan: LaidOutTree, seed: number, launches: number) => {
  const random = numbersFrom(seed)
  let arena = new SlowArena(tree)
  let [state, highest] = [0, 0]
  for (let i = 0; i < launches; i++) {
    const possible = tree.plans.flatMap((_, next) =>
      plan.transition(state, next) === undefined ? [] : [next],
    )
    if (possible.length === 0 || random() < 0.05) {
      highest = Math.max(highest, arena.highest)
      arena = new SlowArena(tree)
      state = 0
      continue
    }
    const next = possible[Math.floor(random() * possible.length)]!
    const step = plan.transition(state, next)!
    if (arena.refuses(next) !== E.isLeft(step)) return { wrong: `refused: ${E.isLeft(step)}`, highest }
    if (E.isLeft(step)) continue
    const { layout } = plan.nodes[step.right.node]!
    const staged = [...tree.plans[next]!.inputs.keys()].filter(input => !step.right.carried.has(input))
    const wrong = arena.launch({ ...layout, plan: next, moves: step.right.moves, staged })
    if (wrong !== undefined) return { wrong, highest }
    state = step.right.to
  }
  return { wrong: undefined, highest: Math.max(highest, arena.highest) }
}

describe('layouts of a tree', () => {
  it('let every launch find its values, and nothing that is kept is overwritten', () => {
    fc.assert(
      fc.property(anyTree, fc.nat(), fc.constantFrom(1, 2, 8), (tree, seed, variants) => {
        const plan = layOutTree(treeOf(tree, { variants, ahead: 20 }))
        const { wrong, highest } = walk(tree, plan, seed, 60)
        expect(wrong).toBeUndefined()
        expect(highest).toBeLessThanOrEqual(topOf(plan))
      }),
      { numRuns: runs(400) },
    )
  })

  it('are at most (variants + 1) · (k + 1) of a plan that finds k older values of its own kept', () => {
    fc.assert(
      fc.property(anyTree, fc.nat(), fc.constantFrom(1, 2, 8), (tree, seed, variants) => {
        const plan = layOutTree(treeOf(tree, { variants, ahead: 200 }))
        expect(walk(tree, plan, seed, 100).wrong).toBeUndefined()
        for (const [index, timed] of tree.plans.entries())
          expect(plan.nodes.filter(node => node.plan === index).length).toBeLessThanOrEqual(
            (variants + 1) * (1 + olderKept(timed)),
          )
      }),
      { numRuns: runs(100) },
    )
  })

  it('make the arena as large as the largest of them', () => {
    fc.assert(
      fc.property(anyTree, tree => {
        const plan = layOutTree(treeOf(tree, { ahead: 50 }))
        expect(plan.bytes).toBe(topOf(plan))
      }),
    )
  })

  it('are the same whatever is visited first: the peak is that of the visited nodes', () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), (seed, order) => {
        const tree = fanOf(seed)
        // Nothing ahead: the layouts are made in the order of the visits.
        const plan = layOutTree(treeOf(tree, { ahead: 0 }))
        const random = numbersFrom(order)
        const visits = [1, 2, 3, 4, 5].map(branch => [random(), branch] as const).sort((a, b) => a[0] - b[0])
        let highest = 0
        for (const [, branch] of visits) {
          const first = launched(plan, 0, 0)
          for (const { node } of [first, launched(plan, first.to, branch)])
            highest = Math.max(highest, plan.nodes[node]!.layout.top)
        }
        expect(highest).toBe(layOutTree(treeOf(tree)).bytes)
      }),
      { numRuns: runs(50) },
    )
  })

  it('take at most 1.02 of the least bytes, 1.001 in the mean, for a plan and one of five after it', () => {
    const ratios = Array.from({ length: 60 }, (_, seed) => {
      const tree = fanOf(seed)
      return layOutTree(treeOf(tree)).bytes / Math.max(...tree.plans.map(plan => leastBytes(plan)))
    })
    const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length
    expect(mean).toBeLessThanOrEqual(1.001)
    expect(Math.max(...ratios)).toBeLessThanOrEqual(1.02)
    expect(Math.min(...ratios)).toBeGreaterThanOrEqual(1)
  })

  it('give sixteen shapes one arena, as large as that of the largest shape', () => {
    const shape = (size: number) => ({
      ...fanOf(7).plans[0]!,
      next: [],
      buffers: fanOf(7).plans[0]!.buffers.map(buffer => ({ ...buffer, bytes: buffer.bytes * size })),
    })
    const sizes = Array.from({ length: 16 }, (_, i) => i + 1)
    const all = layOutTree(treeOf({ plans: sizes.map(shape), start: sizes.map((_, i) => i) }))
    const largest = layOutTree(treeOf({ plans: [shape(16)], start: [0] }))
    expect(all.bytes).toBe(largest.bytes)
    expect(all.nodes).toHaveLength(16)
  })

  it.each([1, 2, 3, 4, 8])('record 3k plans where k choices between two plans meet again: k = %i', stages => {
    fc.assert(
      fc.property(fc.nat(), seed => {
        expect(layOutTree(treeOf(diamonds(seed, stages))).nodes).toHaveLength(3 * stages)
      }),
      { numRuns: runs(20) },
    )
  })

  it('need two nodes for a plan whose output is its own next input', () => {
    const buffers = [{ bytes: 4096, first: 1, last: 1, output: 's' }]
    const step = { name: 'step', inputs: new Map([['s', 4096]]), buffers, next: [0], lifetimes: new Map() }
    const { nodes, bytes } = layOutTree(treeOf({ plans: [step], start: [0] }))
    // The first launch's state comes from the host, and lies where the second launch has its own.
    expect(nodes.length).toBeLessThanOrEqual(3)
    expect(bytes).toBe(2 * 4096)
  })
})
