// Gradients on the devices are what they mean, and a model learns by them.
import { lastValueFrom, map, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import * as braid from '../../dsl/index.js'
import { pulled } from '../../runtime/index.js'
import { cornerParams, corners, cornersGraph, isAsMeant } from '../fixtures/graphs/gradient-corners.js'
import { drawn, lossCases, paramsOf } from '../fixtures/graphs/gradients.js'
import { opened, present } from './devices.js'
import { expectMeant, outputsOf } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: graphs of any operators
type Any = any

const b = braid as Any

describe.each(present)('gradients on %s', device => {
  it.each(lossCases)('of %s', async (_, { specs, graph }) => {
    const params = paramsOf(specs, drawn(specs, 7))
    const outputs = Object.fromEntries(
      ['loss', ...Object.keys(specs).map(name => `d${name}`)].map(name => [name, 'f32']),
    )
    const sample = { graph, params, dims: {}, feeds: {}, ticks: 1, outputs } as Any
    for (const compile of [{ fuse: false, mode: 'eager' }, { mode: 'graph' }] as const) {
      await using session = await opened(graph, device, { compile, params })
      await expectMeant(sample, await outputsOf(session as never, { feeds: {}, ticks: 1 }))
    }
  })

  it('where there is no slope', async () => {
    for (const compile of [{ fuse: false, mode: 'eager' }, { mode: 'graph' }] as const) {
      await using session = await opened(cornersGraph, device, { compile, params: cornerParams })
      const run = (session as Any).run({}, { ticks: 1 })
      for await (const lease of run) {
        using held = lease
        for (const [name, corner] of Object.entries(corners))
          expect(isAsMeant(held[name], corner), `${name}: ${[...held[name]]}, for ${corner.gradient}`).toBe(
            true,
          )
      }
    }
  })

  it('a transformer learns its text by them', async () => {
    const [tokens, width, heads, classes] = [8, 16, 2, 8]
    const size = width / heads
    const seeded = (seed: number, scale: number) => (memory: Uint8Array) => {
      const into = new Float32Array(memory.buffer, memory.byteOffset, memory.byteLength / 4)
      into.forEach((_, i) => {
        into[i] = Math.sin((i + 1) * 12.9898 * seed) * scale
      })
    }
    const types = {
      table: b.tensor('f32', [classes, width]),
      qkv: b.tensor('f32', [3 * width, width]),
      out: b.tensor('f32', [width, width]),
      norm: b.tensor('f32', [width]),
      up: b.tensor('f32', [4 * width, width]),
      down: b.tensor('f32', [width, 4 * width]),
      last: b.tensor('f32', [classes, width]),
    }
    const init = Object.fromEntries(
      Object.keys(types).map((name, i) => [name, name === 'norm' ? 1 : seeded(i + 1, 0.3)]),
    )
    const moments = (prefix: string) =>
      Object.fromEntries(Object.entries(types).map(([name, type]) => [prefix + name, type]))
    const made = (mark: Any) =>
      b.graph(
        'learning',
        { text: b.tensor('i32', [tokens]), next: b.tensor('i32', [tokens]) },
        (inputs: Any) => {
          const s = b.state(types, init)
          const m = b.state({ ...moments('m'), ...moments('v') })
          const truth = inputs.next.pipe(b.upload(), b.oneHot({ classes }))
          const attended = (x: Any) => {
            const parts = x.pipe(
              b.layerNorm({ scale: s.norm }),
              b.linear(s.qkv),
              b.reshape([tokens, 3, heads, size]),
              b.transpose([1, 2, 0, 3]),
              b.split({ axis: 0, parts: 3 }),
            )
            const [q, k, v] = parts.map((part: Any) => part.pipe(b.reshape([heads, tokens, size])))
            return q.pipe(
              b.rope(),
              b.attention(k.pipe(b.rope()), v, { causal: true }),
              b.transpose([1, 0, 2]),
              b.reshape([tokens, width]),
              b.linear(s.out),
              b.add(x),
            )
          }
          const fed = (x: Any) => x.pipe(b.rmsNorm(), b.linear(s.up), b.gelu(), b.linear(s.down), b.add(x))
          const x = inputs.text.pipe(b.upload(), b.embedding(s.table))
          const h = x.pipe(mark(attended), mark(fed))
          const loss = h.pipe(b.linear(s.last), b.logSoftmax(), b.mul(truth), b.sum(1), b.mean(0), b.neg())
          const { next: _, ...weights } = s
          const found = b.gradients(loss, weights)
          const after: Any = {}
          const averages: Any = {}
          for (const name of Object.keys(types)) {
            const g = found[name]
            averages[`m${name}`] = m[`m${name}`].pipe(
              b.map((a: Any, d: Any) => a.mul(0.9).add(d.mul(0.1)), g),
            )
            averages[`v${name}`] = m[`v${name}`].pipe(
              b.map((a: Any, d: Any) => a.mul(0.9).add(d.mul(d).mul(0.1)), g),
            )
            after[name] = s[name].pipe(
              b.map(
                (w: Any, a: Any, c: Any) => w.sub(a.mul(0.02).div(c.sqrt().add(1e-4))),
                averages[`m${name}`],
                averages[`v${name}`],
              ),
            )
          }
          s.next(after)
          m.next(averages)
          return { loss: loss.pipe(b.download()) }
        },
      )
    const text = [3, 1, 4, 1, 5, 2, 6, 5]
    const next = [1, 4, 1, 5, 2, 6, 5, 3]
    const losses = async (compile: Any, mark = (layer: Any) => layer): Promise<number[]> => {
      await using session = await opened(made(mark), device, { compile })
      const always = (row: number[]) => pulled(Array.from({ length: 60 }, () => Int32Array.from(row)))
      return await lastValueFrom(
        (session as Any).run({ text: always(text), next: always(next) }).pipe(
          map((lease: Any) => {
            using held = lease
            return held.loss[0]
          }),
          toArray(),
        ),
      )
    }
    const fused = await losses({ mode: 'graph' })
    const apart = await losses({ mode: 'eager', fuse: false })
    expect(fused[0]).toBeGreaterThan(1.5)
    expect(fused.at(-1)).toBeLessThan(0.05)
    for (const i of [0, 1, 2, 3]) expect(Math.abs(fused[i]! - apart[i]!)).toBeLessThan(1e-3)
    const again = await losses({ mode: 'graph' }, b.recompute)
    for (const i of [0, 1, 2, 3]) expect(Math.abs(fused[i]! - again[i]!)).toBeLessThan(1e-3)
  })
})
