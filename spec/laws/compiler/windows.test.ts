// Under `memory: BYTES` uploads that the user gave no window get the windows, and the graph the order, with
// the shortest predicted tick that fits.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { compile as compileGraph } from '../../../dsl/compiler/compile.js'
import {
  add,
  after,
  type CompileOptions,
  download,
  type Graph,
  graph,
  matmul,
  on,
  orThrow,
  param,
  relu,
  slice,
  tensor,
  upload,
  verify,
} from '../../../dsl/index.js'
import { lane } from '../../../dsl/language/lane.js'
import { machineOf } from '../../../dsl/machine/load.js'
import { simulate } from '../../../dsl/machine/simulate/simulate.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { fitted } from '../../fixtures/plans/fitted.js'
import { runs } from '../../fixtures/runs.js'

const KiB = 2 ** 10
const modes = fc.constantFrom('eager' as const, 'graph' as const, 'auto' as const)

/**
 * Windows are compared with what `fitted` finds of a graph as it is, so no operations are joined, in pooled
 * memory.
 */
const compile = (net: Graph, options: CompileOptions = {}) =>
  compileGraph(net, { fuse: false, mode: 'eager', ...options })

interface Stream {
  /** Of each layer: units of width, and whether it comes on a second lane. */
  readonly layers: readonly { readonly width: number; readonly second: boolean }[]
  readonly inFlight: number
}

const streams = fc.record({
  layers: fc.array(fc.record({ width: fc.integer({ min: 1, max: 4 }), second: fc.boolean() }), {
    minLength: 2,
    maxLength: 10,
  }),
  inFlight: fc.constantFrom(1, 2),
})

/**
 * A machine on which copies and products take about as long as each other, and issuing nothing: there windows
 * make or break a tick.
 */
const machine = {
  extends: 'h200',
  name: 'even',
  device: {
    multiprocessors: 1,
    flops: { f32: 1e9 },
    kernelLatency: 1_000,
    waitLatency: 1_000,
    h2d: { engines: 1, rate: 0.4e9, latency: 1_000 },
  },
  host: { launch: 100, copy: 100, record: 1, wait: 1, allocate: 1 },
}

/** Weights of many sizes streamed through a chain of layers, with no window of the user's. */
const graphOf = ({ layers }: Stream): Graph =>
  graph('stream', {}, () => {
    let y = param('x', tensor('f32', [8, 64])).pipe(on(lane('math')))
    layers.forEach(({ width, second }, i) => {
      const to = 64 * width
      const lanes = second ? lane('second') : lane('copy')
      const w = param(`w${i}`, tensor('f32', [64, to]), { on: 'host' }).pipe(upload(lanes))
      y = y.pipe(matmul(w), relu(), slice(1, 0, 64)) as typeof y
    })
    return { y: y.pipe(slice(0, 0, 4), download(lane('out'))) }
  }) as unknown as Graph

interface Offload {
  readonly layers: number
  readonly inFlight: number
  /** Rows of the input and of every activation, in eighths of a weight's. */
  readonly rows: number
  /** Every so many layers an activation goes to the host. */
  readonly every: number
}

const offloads = fc.record({
  layers: fc.integer({ min: 3, max: 6 }),
  inFlight: fc.integer({ min: 1, max: 3 }),
  rows: fc.integer({ min: 1, max: 12 }),
  every: fc.integer({ min: 2, max: 4 }),
})

/**
 * Weights streamed in on one lane, the input on another of the same engine, activations out; `ahead` as a
 * hand would write it.
 */
const offloadOf = ({ layers, rows, every }: Offload, ahead?: number): Graph =>
  graph('offload', {}, () => {
    let y = param('x', tensor('f32', [8 * rows, 64]), { on: 'host' }).pipe(upload())
    const kept: Record<string, unknown> = {}
    for (let i = 0; i < layers; i++) {
      const w = param(`w${i}`, tensor('f32', [64, 64]), { on: 'host' })
      y = y.pipe(
        matmul(w.pipe(upload(lane('weights'), ahead === undefined ? {} : { ahead }))),
        relu(),
      ) as typeof y
      if (i % every === every - 1 && i + 1 < layers) kept[`a${i}`] = y.pipe(download())
    }
    return { ...kept, y: y.pipe(download()) } as never
  }) as unknown as Graph

const least = (refused: ReturnType<typeof compile>): number => {
  if (E.isRight(refused)) throw new Error('the plan fits')
  expect(refused.left[0]._tag).toBe('OverBudget')
  return Number(/^(\d+) bytes at the least/.exec(refused.left[0].found)![1])
}

describe('uploads that nothing holds back', () => {
  it('come before what the user orders after them, whichever run reads them later', () => {
    const row = tensor('f32', [64])
    for (const when of ['start', 'finish'] as const) {
      const net = graph('asked', { x: row }, ({ x }) => {
        const w = param('w', row, { on: 'host' }).pipe(upload(lane('copy')))
        const y = x.pipe(upload(lane('rows')), after(w, when), relu(), relu())
        return { y: y.pipe(add(w), download()) }
      })
      const { nodes, commands } = orThrow(compile(net as unknown as Graph))
      const runs = commands.flatMap(command => (command[0] === 'run' ? [nodes[command[1]]!.name] : []))
      expect(runs.indexOf('w')).toBeLessThan(runs.indexOf('relu[0]'))
    }
  })
})

describe('windows that the compiler chooses', () => {
  it.each([1, 2, 3])('are %i wide where the memory is for one buffer more', ahead => {
    const memory = streamedLeast(ahead)
    const asked = orThrow(compile(streamed(12, ahead), { memory }))
    const found = orThrow(compile(streamed(12), { memory }))
    expect(found.commands).toEqual(asked.commands)
    expect(found.bound).toEqual(asked.bound)
    expect(verify(found)).toEqual([])
  })

  it('are none where all fits', () => {
    const { choice } = fitted(streamed(12), { memory: 2 ** 30 })
    expect(choice?.chosen.windows).toEqual([])
  })

  it('are 0 wide where the memory is for one buffer, as the error for less memory reports', () => {
    const memory = streamedLeast(0)
    const { choice } = fitted(streamed(12), { memory })
    expect(choice?.chosen.windows).toEqual([{ lane: 'copy', ahead: 0 }])
    expect(least(compile(streamed(12), { memory: memory - 1 }))).toBe(memory)
  })

  it('fit, verify, and are never slower for more memory by more than predictions resolve', () => {
    fc.assert(
      fc.property(
        streams,
        fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 2, maxLength: 4 }),
        (made, at) => {
          const net = graphOf(made)
          const { inFlight } = made
          const most = orThrow(compile(net, { machine, inFlight })).bound.device[0]!
          const small = orThrow(compile(net, { machine, inFlight, memory: 'small' })).bound.device[0]!
          expect(small).toBeLessThanOrEqual(most)
          const budgets = at.sort((a, b) => a - b).map(part => Math.floor(small + part * (most - small)))
          let before = Number.POSITIVE_INFINITY
          for (const memory of budgets) {
            const plan = orThrow(compile(net, { machine, inFlight, memory }))
            expect(plan.bound.device[0]).toBeLessThanOrEqual(memory)
            expect(verify(plan)).toEqual([])
            const { tick } = fitted(net, { machine, inFlight, memory }).choice!.chosen
            expect(tick).toBeLessThanOrEqual(before * 1.01)
            before = tick
          }
          const fast = fitted(net, { machine, inFlight, memory: 'fast' }).choice!.chosen
          expect(fast.tick).toBeLessThanOrEqual(before * 1.01)
        },
      ),
      { numRuns: runs(15) },
    )
  })

  it('are as good as the best that a hand would write, by what is predicted of whole plans', () => {
    fc.assert(
      fc.property(offloads, made => {
        const { inFlight } = made
        const written = [1, 2].map(ahead => {
          const plan = orThrow(compile(offloadOf(made, ahead), { machine, inFlight }))
          return { memory: plan.bound.device[0]!, tick: simulate(plan, orThrow(machineOf(machine))).tickMs }
        })
        for (const { memory } of written) {
          const found = orThrow(compile(offloadOf(made), { machine, inFlight, memory }))
          const best = Math.min(...written.filter(other => other.memory <= memory).map(({ tick }) => tick))
          expect(simulate(found, orThrow(machineOf(machine))).tickMs).toBeLessThanOrEqual(best * 1.03)
        }
      }),
      { numRuns: runs(5) },
    )
  })

  it('are chosen by the tick that the whole plan is predicted to have', () => {
    fc.assert(
      fc.property(offloads, fc.constantFrom(undefined, 1, 2), (made, ahead) => {
        const { inFlight } = made
        const idle = { ...machine, host: { ...machine.host, product: 100, tick: 0, turnaround: 0 } }
        const { choice } = fitted(offloadOf(made, ahead), { machine: idle, inFlight })
        const plan = orThrow(compile(offloadOf(made, ahead), { machine: idle, inFlight }))
        const { tickMs } = simulate(plan, orThrow(machineOf(idle)))
        expect(choice!.chosen.tick * 1e-6).toBeGreaterThan(tickMs * 0.97)
        expect(choice!.chosen.tick * 1e-6).toBeLessThan(tickMs * 1.03)
      }),
      { numRuns: runs(20) },
    )
  })

  it('have no wait that only the final lifetimes make redundant', () => {
    const made = { layers: 5, inFlight: 2, rows: 3, every: 2 }
    for (const ahead of [1, 2]) {
      const memory = orThrow(compile(offloadOf(made, ahead), { machine, inFlight: 2 })).bound.device[0]!
      const plan = orThrow(compile(offloadOf(made), { machine, inFlight: 2, memory }))
      expect(verify(plan)).toEqual([])
      expect(plan.bound.device[0]).toBeLessThanOrEqual(memory)
    }
  })

  it('name, where nothing fits, the least that does', () => {
    fc.assert(
      fc.property(streams, made => {
        const net = graphOf(made)
        const { inFlight } = made
        const memory = least(compile(net, { inFlight, memory: 16 * KiB }))
        expect(orThrow(compile(net, { machine, inFlight, memory })).bound.device[0]).toBeLessThanOrEqual(
          memory,
        )
        expect(orThrow(compile(net, { machine, inFlight, memory: 'small' })).bound.device[0]).toBe(memory)
      }),
      { numRuns: runs(12) },
    )
  })

  it('leave every graph compilable in what the error names', () => {
    fc.assert(
      fc.property(
        sample({ steps: 10 }),
        fc.boolean(),
        modes,
        ({ graph: net, dims, inFlight }, fuse, mode) => {
          const refused = compile(net, { dims, inFlight, fuse, mode, memory: 1 })
          const memory = least(refused)
          const plan = orThrow(compile(net, { dims, inFlight, fuse, mode, memory }))
          const small = orThrow(compile(net, { dims, inFlight, fuse, mode, memory: 'small' }))
          expect(small.bound.device[0]).toBe(memory)
          expect(plan.bound.device[0]).toBeLessThanOrEqual(memory)
          expect(verify(plan)).toEqual([])
        },
      ),
      { numRuns: runs(20) },
    )
  })
})
