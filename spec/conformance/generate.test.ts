// The example that writes text: the decoder with a cache means what a forward pass over the whole text means,
// and a device does what it means; checkpoints of the right shapes are read, others are refused.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { firstValueFrom, lastValueFrom, toArray } from 'rxjs'
import { afterAll, describe, expect, it } from 'vitest'
import { compile, interpret, orThrow } from '../../dsl/index.js'
import { hostArray } from '../../dsl/language/values.js'
import { type Model, openCheckpoint, tensorsOf, vocabulary } from '../../examples/generate/checkpoint.js'
import { compareWithMeaning, isInterpreted } from '../../examples/generate/meant.js'
import { decoder, forward } from '../../examples/generate/network.js'
import { writeSafetensors } from '../../runtime/index.js'
import { valuesOf } from '../fixtures/graphs/random.js'
import { opened, present } from './devices.js'
import { outputsOf } from './meant.js'

const folder = mkdtempSync(join(tmpdir(), 'braid-generate-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const tiny: Model = { dtype: 'f32', width: 8, layers: 2, heads: 2, context: 6 }
const weightsOf = (model: Model) =>
  Object.fromEntries(
    Object.entries(tensorsOf(model)).map(([name, shape], i) => [
      name,
      valuesOf(
        model.dtype,
        shape.reduce((product, size) => product * size, 1),
        i + 1,
      ),
    ]),
  )
/** As many bytes as there are positions; the last one is the decoder's own. */
const text = [66, 114, 97, 105, 100, -1]
const feeds = { forced: text.map(byte => Int32Array.of(byte)) }

const apart = (found: Float32Array, wanted: Float32Array): number => {
  const scale = Math.max(...wanted.map(Math.abs))
  return Math.max(...found.map((value, i) => Math.abs(value - wanted[i]!))) / scale
}

describe('a decoder with a cache', () => {
  it('means what a forward pass over the whole text means', async () => {
    const params = weightsOf(tiny)
    const ticks = await lastValueFrom(
      interpret(decoder(tiny, { temperature: 0, seed: 1 }), { params })(feeds).pipe(toArray()),
    )
    const read = Int32Array.from(text, (byte, i) => (byte < 0 ? ticks[i - 1]!.byte[0]! : byte))
    const { logits } = await firstValueFrom(
      interpret(forward(tiny, text.length), { params })({ text: [read] }),
    )
    expect(ticks).toHaveLength(text.length)
    for (const [i, tick] of ticks.entries()) {
      const row = logits.subarray(i * vocabulary, (i + 1) * vocabulary)
      expect(apart(tick.logits, row)).toBeLessThan(1e-5)
      // The likeliest byte, where there is no other as likely.
      expect(row[tick.byte[0]!]).toBeCloseTo(Math.max(...row), 4)
    }
  })

  it.each([0, 0.7])(
    'draws the same bytes from one seed, and others from another: temperature %s',
    async temperature => {
      const params = weightsOf(tiny)
      const bytes = async (seed: number) => {
        const run = interpret(decoder(tiny, { temperature, seed }), { params })({
          forced: [65, -1, -1, -1, -1, -1].map(byte => Int32Array.of(byte)),
        })
        return (await lastValueFrom(run.pipe(toArray()))).map(({ byte }) => byte[0])
      }
      expect(await bytes(1)).toEqual(await bytes(1))
      if (temperature === 0) expect(await bytes(1)).toEqual(await bytes(2))
      else expect(await bytes(1)).not.toEqual(await bytes(2))
    },
  )

  it('writes its cache in place', () => {
    const net = decoder(tiny, { temperature: 0, seed: 1 })
    const [apart, joined] = [false, true].map(fuse => orThrow(compile(net, { fuse })))
    expect(apart!.nodes.filter(({ kernel }) => kernel?.kind === 'append')).toHaveLength(4)
    // Each layer's attention writes the new rows of its keys and its values.
    expect(joined!.nodes.filter(({ kernel }) => kernel?.kind === 'append')).toHaveLength(0)
    for (const { nodes } of [apart!, joined!])
      expect(nodes.filter(({ name }) => /store\(h\./.test(name))).toEqual([])
  })
})

describe.each(present)('a decoder on %s', device => {
  it.each(['f32', 'bf16'] as const)('yields what it means: %s', async dtype => {
    const model = { ...tiny, dtype }
    const net = decoder(model, { temperature: 0.7, seed: 3 })
    const params = weightsOf(model)
    const meant = await lastValueFrom(interpret(net, { params: params as never })(feeds).pipe(toArray()))
    await using session = await opened(net, device, { params: params as never, compile: { inFlight: 2 } })
    const got = await outputsOf(session as never, { feeds })
    expect(got).toHaveLength(text.length)
    for (const [i, { logits }] of meant.entries())
      expect(apart(got[i]!['logits'] as Float32Array, logits)).toBeLessThan(dtype === 'f32' ? 1e-4 : 0.05)
  })
})

describe('a checkpoint', () => {
  const write = async (model: Model, change: Record<string, readonly number[]> = {}, before = '') => {
    const path = join(folder, `${Math.random()}.safetensors`)
    const entries = Object.entries({ ...tensorsOf(model), ...change }).map(([name, shape]) => {
      const length = shape.reduce((product, size) => product * size, 1)
      const { buffer } = hostArray(model.dtype, length)
      return { name: before + name, dtype: model.dtype, shape, bytes: new Uint8Array(buffer as ArrayBuffer) }
    })
    orThrow(await writeSafetensors(path, entries)())
    return path
  }

  it('of random weights is made once, and is of a model', async () => {
    const first = await openCheckpoint(undefined, undefined, folder)
    await first.file.close()
    const again = await openCheckpoint(undefined, undefined, folder)
    await again.file.close()
    expect([first.seeded, again.path, again.model]).toEqual([true, first.path, first.model])
  })

  it('is any with the names and shapes of GPT-2', async () => {
    const path = await write({ ...tiny, dtype: 'bf16' }, {}, 'transformer.')
    const { model, seeded, file, params } = await openCheckpoint(path, 4)
    await file.close()
    expect(model).toEqual({ ...tiny, dtype: 'bf16', heads: 4 })
    expect([seeded, Object.keys(params)]).toEqual([false, Object.keys(tensorsOf(tiny))])
  })

  it('is refused with what is wrong', async () => {
    const refused = async (path: string, heads: number | undefined, words: RegExp) =>
      expect(openCheckpoint(path, heads)).rejects.toThrow(words)
    await refused(
      await write(tiny, { 'h.1.mlp.c_fc.weight': [32, 8] }),
      2,
      /c_fc.weight: wanted f32\[8, 32\], found f32\[32, 8\]/,
    )
    await refused(await write(tiny, { 'wte.weight': [50257, 8] }), 2, /a token is a byte, found \[50257, 8\]/)
    await refused(await write(tiny), 3, /heads that divides the width of 8, found 3/)
    await refused(await write(tiny), undefined, /give --heads/)
  })
})

it('compares a run with its meaning, and finds what is wrong', async () => {
  const params = weightsOf(tiny)
  const net = decoder(tiny, { temperature: 0.7, seed: 3 })
  const ticks = await lastValueFrom(interpret(net, { params })(feeds).pipe(toArray()))
  const found = ticks.map(({ byte, logits }) => ({ byte: byte[0]!, logits }))
  const read = Int32Array.from(text, (byte, i) => (byte < 0 ? found[i - 1]!.byte : byte))
  expect(isInterpreted(tiny)).toBe(true)
  expect(isInterpreted({ ...tiny, width: 768, layers: 12 })).toBe(false)
  expect(await compareWithMeaning(net, params, read, found)).toMatchObject({
    ticks: 6,
    apart: 0,
    holds: true,
  })
  const wrongByte = found.map((each, i) => (i === 4 ? { ...each, byte: (each.byte + 1) % vocabulary } : each))
  expect(await compareWithMeaning(net, params, read, wrongByte)).toMatchObject({ holds: false })
  const wrongScore = found.map((each, i) =>
    i === 5 ? { ...each, logits: each.logits.map(x => 1.01 * x) } : each,
  )
  const wrong = await compareWithMeaning(net, params, read, wrongScore)
  expect(wrong.holds).toBe(false)
  expect(wrong.apart).toBeGreaterThan(wrong.allowed)
})

it('the program checks itself', { timeout: 60_000 }, () => {
  const main = new URL('../../examples/generate/main.ts', import.meta.url).pathname
  const run = (...args: string[]) =>
    spawnSync(process.execPath, ['--import', 'tsx', main, ...args], { encoding: 'utf8' })
  const { status, stdout, stderr } = run('Braid ', '--bytes', '6')
  expect([status, stderr]).toEqual([0, ''])
  expect(stdout).toMatch(/random weights/)
  expect(stdout).toMatch(/4 states, 4 of them written in place/)
  expect(stdout).toMatch(/✓ scores of 11 bytes/)
  expect(stdout).toMatch(/✓ first 10 bytes and their scores, against interpret: within \S+ \(allowed: \S+\)/)
})
