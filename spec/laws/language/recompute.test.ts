// What gradients make again is what was there, and is not in memory between the forward and the backward pass.
import fc from 'fast-check'
import { firstValueFrom, lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { irOf } from '../../../dsl/language/graph.js'
import { runs } from '../../fixtures/runs.js'

// biome-ignore lint/suspicious/noExplicitAny: graphs of any operators
type Any = any
const b = braid as Any

const [rows, width] = [4, 8]
const fill = (seed: number) => (memory: Uint8Array) => {
  const into = new Float32Array(memory.buffer, memory.byteOffset, memory.byteLength / 4)
  into.forEach((_, i) => {
    into[i] = Math.sin((i + 1) * 12.9898 * seed) * 0.4
  })
}

type Layer = (x: Any, mark: Any) => Any

/** Functions of a value of rows × width: composed, random, of several values, with parts within parts. */
const layers: Readonly<Record<string, Layer>> = {
  gelu: x => x.pipe(b.gelu()),
  norm: x => x.pipe(b.layerNorm()),
  softmax: x => x.pipe(b.softmax()),
  dropout: x => x.pipe(b.dropout({ p: 0.3, seed: 5 })),
  residual: x => x.pipe(b.add(x.pipe(b.silu(), b.cumsum({ axis: 1 })))),
  nested: (x, mark) =>
    x.pipe(
      mark((y: Any) => y.pipe(b.sin(), b.exp())),
      b.sqrt(),
    ),
  split: x => {
    const [left, right] = x.pipe(b.split({ axis: 1, parts: 2 }))
    return left.pipe(b.mul(right), b.concat([right], { axis: 1 }))
  },
  stopped: x => x.pipe(b.mul(x.pipe(b.tanh(), b.stopGradient()))),
}

/** Each layer ends in a product with its own weight. */
const graphOf = (names: readonly string[], mark: (i: number) => (layer: Any) => Any): Any =>
  b.graph('net', { x: b.tensor('f32', [rows, width]) }, ({ x }: Any) => {
    const weights = names.map((_, i) => `w${i}`)
    const types = Object.fromEntries(weights.map(name => [name, b.tensor('f32', [width, width])]))
    const s = b.state(types, Object.fromEntries(weights.map((name, i) => [name, fill(i + 1)])))
    const given = x.pipe(b.upload(), b.on(b.lane('math')))
    const out = names.reduce(
      (h, name, i) => h.pipe(mark(i)((y: Any) => layers[name]!(y, mark(i)).pipe(b.linear(s[weights[i]!])))),
      given,
    )
    const values = Object.fromEntries(weights.map(name => [name, s[name]]))
    const by = b.gradients(out.pipe(b.mul(given), b.sum()), { given, ...values })
    s.next(Object.fromEntries(weights.map(name => [name, s[name].pipe(b.sub(by[name].pipe(b.mul(0.01))))])))
    return Object.fromEntries(Object.entries(by).map(([name, flow]: Any) => [name, flow.pipe(b.download())]))
  })

const plain = () => (layer: Any) => layer
const feeds = [1, 2, 3].map(n =>
  Float32Array.from({ length: rows * width }, (_, i) => Math.cos(i * n) / 2 + 0.6),
)
const meant = (graph: Any): Promise<Any> =>
  lastValueFrom(b.interpret(graph)({ x: feeds }).pipe(toArray())) as Any

describe('values that gradients make again', () => {
  it('are what they were: the same bits, in each tick', async () => {
    const drawn = fc.array(fc.tuple(fc.constantFrom(...Object.keys(layers)), fc.boolean()), {
      minLength: 1,
      maxLength: 4,
    })
    await fc.assert(
      fc.asyncProperty(drawn, async parts => {
        const names = parts.map(([name]) => name)
        const marked = graphOf(names, i => (parts[i]![1] ? b.recompute : (layer: Any) => layer))
        expect(await meant(marked)).toEqual(await meant(graphOf(names, plain)))
        b.orThrow(b.compile(marked))
      }),
      { numRuns: runs(15) },
    )
  })

  it('are in memory on the way there and on the way back alone', () => {
    const names = Array.from({ length: 12 }, () => 'gelu')
    const large = (mark: Any): Any =>
      b.graph('large', { x: b.tensor('f32', [512, 64]) }, ({ x }: Any) => {
        const w = b.param('w', b.tensor('f32', [64, 64]))
        const given = x.pipe(b.upload(), b.on(b.lane('math')))
        const block = (y: Any) => y.pipe(b.linear(w), b.gelu(), b.linear(w), b.gelu(), b.linear(w), b.gelu())
        const loss = names.reduce(h => h.pipe(mark(block)), given).pipe(b.mul(given), b.sum())
        return { by: b.gradients(loss, { w }).w.pipe(b.download()) }
      })
    const bytes = 512 * 64 * 4
    const held = (mark: Any, memory: string) =>
      b.orThrow(b.compile(large(mark), { memory, fuse: false, inFlight: 1 })).bound.device[0] / bytes
    for (const memory of ['fast', 'small']) {
      // Six values of each block; or one of each, and those of the block that is made again, with gradients.
      expect(held((block: Any) => block, memory)).toBeGreaterThan(12 * 6)
      expect(held(b.recompute, memory)).toBeLessThan(12 + 8)
    }
  })

  it('gathers shards again, one ahead of their reader', async () => {
    const world = b.communicator('world', 2)
    const comm = b.lane('comm')
    const sharded = (mark: Any) =>
      b.graph('sharded', { x: b.tensor('f32', [rows, width]) }, ({ x }: Any) => {
        const names = [0, 1, 2, 3].map(i => `w${i}`)
        const shards = Object.fromEntries(
          names.map(name => [name, b.param(name, b.tensor('f32', [width / 2, width]))]),
        )
        const given = x.pipe(b.upload(), b.on(b.lane('math')))
        const out = names.reduce((h, name) => {
          const whole = shards[name].pipe(
            mark(b.allGather(world, comm, { ahead: 1 })),
            b.reshape([width, width]),
          )
          return h.pipe(b.linear(whole), b.gelu())
        }, given)
        const by = b.gradients(out.pipe(b.mean()), shards)
        return Object.fromEntries(names.map(name => [name, by[name].pipe(b.download())]))
      })
    const [kept, again] = [sharded((gather: Any) => gather), sharded(b.recompute)]
    const params = [1, 2].map(rank =>
      Object.fromEntries(
        [0, 1, 2, 3].map(i => [
          `w${i}`,
          Float32Array.from({ length: (width * width) / 2 }, (_, e) => Math.sin(e * rank + i)),
        ]),
      ),
    )
    const ranks = feeds.slice(0, 2).map(x => ({ x: [x] }))
    const run = (graph: Any): Promise<Any> =>
      firstValueFrom(b.interpretRanks(graph, { params })(ranks)) as Any
    expect(await run(again)).toEqual(await run(kept))
    const gathers = (graph: Any) => {
      const plan = b.orThrow(b.compile(graph))
      expect(b.verifyRanks([plan, plan])).toEqual([])
      return plan.nodes.filter(({ collective }: Any) => collective?.kind === 'allGather').length
    }
    // The first layer's input is a constant, so nothing asks for its weight again.
    expect([gathers(kept), gathers(again)]).toEqual([4, 7])
  })

  it('an argument that is no function is an error, and without gradients nothing is made again', () => {
    const type = b.tensor('f32', [2])
    const wrong = b.compile(
      b.graph('wrong', { x: type }, ({ x }: Any) => ({
        y: x.pipe(b.upload(), b.recompute(3), b.download()),
      })),
    )
    expect(wrong.left[0]).toMatchObject({ _tag: 'BadAttribute', subject: 'recompute' })
    const forward = b.graph('forward', { x: type }, ({ x }: Any) => ({
      y: x.pipe(b.upload(), b.recompute(b.relu()), b.download()),
    }))
    expect(irOf(forward).nodes.map(({ op }: Any) => op)).toEqual(['input', 'upload', 'relu', 'download'])
  })
})
