// Random numbers: known answers of Philox, and what users count on.
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { philox } from '../../../dsl/language/operators/random.js'
import { compute, f32, problemsOf, typed } from '../../fixtures/compute.js'

// Random123's kat_vectors of philox4x32-10.
it('Philox yields its known answers', () => {
  const all = 0xffffffff
  expect(philox([0, 0, 0, 0], [0, 0])).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8])
  expect(philox([all, all, all, all], [all, all])).toEqual([0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd])
  expect(philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0])).toEqual([
    0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1,
  ])
})

const count = 4096
const noise = (make: (x: braid.DeviceFlow) => unknown) =>
  braid.graph({ x: braid.tensor('u8', [count]) }, ({ x }) => ({
    y: (make(x.pipe(braid.upload()) as never) as braid.DeviceFlow).pipe(braid.download()),
  }))
const ticksOf = async (make: (x: braid.DeviceFlow) => unknown, ticks: number): Promise<number[][]> => {
  const x = Array.from({ length: ticks }, () => new Uint8Array(count))
  const rows = await lastValueFrom(
    braid
      .interpret(noise(make) as braid.Graph, { ticks })({ x } as never)
      .pipe(toArray()),
  )
  return rows.map(row => Array.from((row as Record<string, Float32Array>)['y']!))
}
const momentsOf = (values: readonly number[]) => {
  const mean = values.reduce((a, b) => a + b, 0) / values.length
  const square = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length
  return { mean, variance: square }
}

describe('uniform and normal', () => {
  it('are of the distribution, others in each tick, and the same in every run', async () => {
    const flat = (x: braid.DeviceFlow) => x.pipe(braid.uniform({ seed: 5 }))
    const [first, second] = (await ticksOf(flat, 2)) as [number[], number[]]
    expect(await ticksOf(flat, 2)).toEqual([first, second])
    expect(first.filter((value, i) => value === second[i]).length).toBeLessThan(3)
    expect(Math.min(...first)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...first)).toBeLessThan(1)
    const { mean, variance } = momentsOf([...first, ...second])
    expect(Math.abs(mean - 1 / 2)).toBeLessThan(0.02)
    expect(Math.abs(variance - 1 / 12)).toBeLessThan(0.005)
    const bell = momentsOf((await ticksOf(x => x.pipe(braid.normal({ seed: 5 })), 2)).flat())
    expect(Math.abs(bell.mean)).toBeLessThan(0.05)
    expect(Math.abs(bell.variance - 1)).toBeLessThan(0.08)
  })

  it('a normal number is that of the two uniform ones that it is made of, but for its last bits', async () => {
    const [got] = await ticksOf(x => x.pipe(braid.normal({ seed: 5 })), 1)
    const numberOf = (i: number, stream: number): number =>
      (philox([Math.floor(i / 4), 0, 0, stream], [5, 0])[i % 4]! >>> 8) * 2 ** -24
    for (const [i, value] of got!.entries()) {
      const radius = Math.sqrt(-2 * Math.log(1 - numberOf(i, 0)))
      const wanted = radius * Math.cos(2 * Math.PI * numberOf(i, 1))
      expect(Math.abs(value - wanted)).toBeLessThanOrEqual(4 * 2 ** -24 * Math.max(radius, 2 ** -12))
    }
  })

  it('dropout drops so many, and leaves the mean', async () => {
    const of = (p: number) => (x: braid.DeviceFlow) =>
      x.pipe(braid.cast('f32'), braid.mul(0), braid.add(3), braid.dropout({ p, seed: 5 }))
    const [first, second] = (await ticksOf(of(0.25), 2)) as [number[], number[]]
    expect(new Set(first)).toEqual(new Set([0, 4]))
    expect(first).not.toEqual(second)
    const { mean } = momentsOf([...first, ...second])
    expect(Math.abs(mean - 3)).toBeLessThan(0.15)
    expect(new Set((await ticksOf(of(0), 1))[0])).toEqual(new Set([3]))
    for (const p of [1, -0.1, Number.NaN, undefined])
      expect(problemsOf([f32([3])], x => x.pipe(braid.dropout({ p: p as never, seed: 1 })))).toEqual([
        'BadAttribute',
      ])
    expect(problemsOf([f32([3])], x => x.pipe(braid.dropout({ p: 0.5 } as never)))).toEqual(['BadAttribute'])
  })

  it('other seeds give other numbers, large ones too; one seed gives the same', async () => {
    const seeds = [0, 1, 2 ** 32, 2 ** 53 - 1]
    const rows = await Promise.all(
      seeds.map(async seed => (await ticksOf(x => x.pipe(braid.uniform({ seed })), 1))[0]!.slice(0, 4)),
    )
    expect(new Set(rows.flat()).size).toBe(16)
    const [difference] = await ticksOf(
      x => x.pipe(braid.uniform({ seed: 3 }), braid.sub(x.pipe(braid.uniform({ seed: 3 })) as never)),
      1,
    )
    expect(new Set(difference)).toEqual(new Set([0]))
  })

  it('count their draws in a state of the given name, whatever draws before them', () => {
    const named = (first: boolean) =>
      noise(x => {
        const other = x.pipe(braid.cast('f32'), first ? braid.normal({ seed: 1 }) : braid.keep())
        const drawn = [braid.uniform({ seed: 2, name: 'dropout' }), braid.normal({ seed: 3, name: 'noise' })]
        return drawn.reduce((sum, draw) => sum.pipe(braid.add(x.pipe(draw) as never) as never), other)
      })
    const statesOf = (graph: braid.Graph): readonly string[] =>
      braid
        .orThrow(braid.compile(graph))
        .buffers.filter(({ life }) => life === 'state')
        .map(({ name }) => name)
    expect(statesOf(named(false))).toEqual(['dropout', 'noise'])
    expect(statesOf(named(true))).toEqual(expect.arrayContaining(['dropout', 'noise']))
    expect(statesOf(named(true))).toHaveLength(3)
    for (const name of ['', 7])
      expect(problemsOf([f32([3])], x => x.pipe(braid.uniform({ seed: 1, name: name as never })))).toEqual([
        'BadAttribute',
      ])
  })

  it('have the shape of the value, and never round to 1', async () => {
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      const got = await compute([typed('i32', [3, 2, 700], ...Array(4200).fill(0))], x =>
        x.pipe(braid.uniform({ seed: 9, dtype })),
      )
      expect([got.dtype, got.shape]).toEqual([dtype, [3, 2, 700]])
      expect(Math.max(...got.values)).toBeLessThan(1)
      const bell = await compute([f32([5], 1, 2, 3, 4, 5)], x => x.pipe(braid.normal({ seed: 9, dtype })))
      expect([bell.dtype, bell.shape]).toEqual([dtype, [5]])
      expect(bell.values.every(Number.isFinite)).toBe(true)
    }
  })

  it('refuse what is no seed, and types that are no floats', () => {
    for (const make of [braid.uniform, braid.normal])
      for (const options of [
        undefined,
        {},
        { seed: -1 },
        { seed: 0.5 },
        { seed: 2 ** 53 },
        { seed: 1, dtype: 'i32' },
        { seed: 1, dtype: 'f64' },
      ])
        expect(problemsOf([f32([2])], x => x.pipe(make(options as never)))).toEqual(['BadAttribute'])
  })
})
