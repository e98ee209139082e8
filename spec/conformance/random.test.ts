// Random numbers on every device: those of `interpret`, tick by tick, also in graphs and beside each other.
import { describe, expect, it } from 'vitest'
import { type CompileOptions, download, graph, normal, tensor, uniform, upload } from '../../dsl/index.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { opened, present } from './devices.js'
import { expectMeant, meantOf, outputsOf } from './meant.js'

const net = graph({ x: tensor('f32', [3, 7]) }, ({ x }) => {
  const at = x.pipe(upload())
  return {
    flat: at.pipe(uniform({ seed: 2 ** 53 - 1 }), download()),
    half: at.pipe(uniform({ seed: 7, dtype: 'bf16' }), download()),
    bell: at.pipe(normal({ seed: 7 }), download()),
    halfBell: at.pipe(normal({ seed: 7, dtype: 'f16' }), download()),
  }
})
const made: Sample = {
  graph: net as never,
  dims: {},
  inFlight: 2,
  params: {},
  feeds: { x: Array.from({ length: 5 }, () => new Float32Array(21)) },
  ticks: 5,
  outputs: { flat: 'f32', half: 'bf16', bell: 'f32', halfBell: 'f16' },
  text: '',
}

const ways: readonly CompileOptions[] = [
  { fuse: false },
  { fuse: true },
  { storage: 'planned', mode: 'graph' },
]

it('allow a device no rounding of its own', async () => {
  for (const { allowed } of await meantOf(made))
    expect(allowed).toEqual({ flat: 0, half: 0, bell: 0, halfBell: 0 })
})

describe.each(present)('random numbers on %s', device => {
  it.each(ways)('are those of interpret, compiled with %o', async compile => {
    await using session = await opened(net as never, device, { compile: { inFlight: 2, ...compile } })
    const got = await outputsOf(session as never, made)
    await expectMeant(made, got)
    expect(new Set(got.map(({ flat }) => flat![0])).size).toBe(5)
  })
})
