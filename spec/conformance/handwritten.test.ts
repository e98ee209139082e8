// Hand-written plans: every plan that the laws allow runs, even one that the compiler would not write; every
// other plan is refused before it starts.
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { orThrow, type Plan, parsePlan, toJSON, verify } from '../../dsl/index.js'
import type { KernelSpec } from '../../dsl/ir/kernel-spec.js'
import type { Command } from '../../dsl/ir/plan.js'
import { peakOf } from '../../dsl/memory/peak.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { errorsOf, open, pulled, type Session } from '../../runtime/index.js'
import { type BufferSketch, planOf } from '../fixtures/plans/by-hand.js'
import { present } from './devices.js'

type Bytes = Session<
  { x: { dtype: 'u8'; shape: readonly [number] } },
  { y: { dtype: 'u8'; shape: readonly [number] } }
>

// As a file would be read: nothing of this process is known of it.
const written = (
  kernels: readonly KernelSpec[],
  buffers: readonly BufferSketch[],
  commands: readonly Command[],
): Plan => {
  const sketch = planOf({ name: 'by hand', lanes: ['in', 'out'], buffers, commands })
  const nodes = sketch.nodes.map((node, i) => ({ ...node, op: kernels[i]!.kind, kernel: kernels[i]! }))
  const bound = { device: poolPeakOf(sketch).device, pinned: sketch.bound.pinned }
  return orThrow(parsePlan(toJSON({ ...sketch, nodes, bound })))
}

const copy: KernelSpec = { kind: 'copy', bytes: 64 }
const x = { name: 'x', life: 'input', bytes: 64 } as const
const y = { name: 'y', life: 'output', bytes: 64 } as const
const a = { name: 'a', bytes: 64 } as const
const b = { name: 'b', bytes: 64 } as const

const echo = async (plan: Plan, device: string): Promise<readonly number[]> => {
  await using session = orThrow(await open(plan, { device, poison: true })()) as unknown as Bytes
  const rows = Array.from({ length: 5 }, (_, i) => new Uint8Array(64).fill(i + 1))
  const leases = session.run({ x: pulled(rows) } as never) as unknown as AsyncIterable<
    { y: Uint8Array } & Disposable
  >
  const seen: number[] = []
  for await (const lease of leases) {
    using held = lease
    expect(new Set(held.y).size).toBe(1)
    seen.push(held.y[0]!)
  }
  return seen
}

describe.each(present)('a plan by hand, on %s', device => {
  it('1. one copy node that runs in, across and out: each run has its own direction', async () => {
    const plan = written(
      [copy],
      [x, a, b, y],
      [
        ['alloc', 1, 0],
        ['run', 0, 0, [0], [1]],
        ['alloc', 2, 0],
        ['run', 0, 0, [1], [2]],
        ['free', 1],
        ['run', 0, 0, [2], [3]],
        ['free', 2],
      ],
    )
    expect(verify(plan)).toEqual([])
    expect(await echo(plan, device)).toEqual([1, 2, 3, 4, 5])
  })

  it('2. the same on two lanes', async () => {
    const plan = written(
      [copy],
      [x, a, y],
      [
        ['alloc', 1, 0],
        ['run', 0, 0, [0], [1]],
        ['record', 0, 0],
        ['wait', 0, 1],
        ['run', 0, 1, [1], [2]],
        ['record', 1, 1],
        ['use', 1, 1, 1],
        ['free', 1],
      ],
    )
    expect(verify(plan)).toEqual([])
    expect(await echo(plan, device)).toEqual([1, 2, 3, 4, 5])
  })
})

describe('a plan by hand', () => {
  const twice: KernelSpec = {
    kind: 'cuda',
    name: 'twice',
    source:
      'extern "C" __global__ void twice(const unsigned char* x, unsigned char* y) ' +
      '{ y[threadIdx.x] = 2 * x[threadIdx.x]; }',
    grid: [1, 1, 1],
    block: [64, 1, 1],
    sharedBytes: 0,
    scalars: [],
  }
  const commands: readonly Command[] = [
    ['alloc', 1, 0],
    ['run', 0, 0, [0], [1]],
    ['alloc', 2, 0],
    ['run', 1, 0, [1], [2]],
    ['free', 1],
    ['alloc', 4, 0],
    ['run', 1, 0, [2], [4]],
    ['free', 2],
    ['run', 0, 0, [4], [3]],
    ['free', 4],
  ]
  const references = {
    twice: ([from]: readonly Uint8Array[], [to]: readonly Uint8Array[]) => {
      to!.set(from!.map(value => 2 * value))
    },
  } as never

  it("3. a user's kernel that runs twice on operands of one type has one meaning", async () => {
    const plan = written([copy, twice], [x, a, b, y, { name: 'c', bytes: 64 }], commands)
    await using session = orThrow(await open(plan, { device: 'host', references })()) as unknown as Session
    const run = session.run({ x: pulled([new Uint8Array(64).fill(3)]) } as never).pipe(toArray())
    const [lease] = (await lastValueFrom(run)) as unknown as readonly ({ y: Uint8Array } & Disposable)[]
    expect([...new Set(lease!.y)]).toEqual([12])
  })

  it('4. on operands of two types it is refused, by its name', async () => {
    const plan = written([copy, twice], [x, a, b, y, { name: 'c', bytes: 128 }], commands)
    const result = await open(plan, { device: 'host', references })()
    expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([
      {
        _tag: 'BadPlan',
        subject: 'n1',
        at: 'spec/fixtures/plans/by-hand.ts:2:1',
        next: expect.stringContaining('node of its own'),
      },
    ])
  })

  it("5. a bound that the session's pool would pass is refused, with the figure that would do", async () => {
    const plan = written([copy, twice], [x, a, b, y, { name: 'c', bytes: 64 }], commands)
    const short = { ...plan, bound: { ...plan.bound, device: [200] } }
    const result = await open(short, { device: 'host', references })()
    expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([
      {
        _tag: 'BadPlan',
        at: 'bound.device[0]',
        found: '200 bytes',
        wanted: expect.stringContaining('at least 1024 bytes'),
      },
    ])
  })

  it('6. a lawful bound that fragmentation exceeds is refused, and opens when raised', async () => {
    // 0 and 2 are freed while 1, between them, stays: the next request fits their sum, but neither of them.
    const pieces = [0, 1, 2].map(i => ({ name: `piece ${i}`, bytes: 512 }))
    const plan = written(
      [copy, copy, copy, copy, copy, copy],
      [x, ...pieces, { name: 'wide', bytes: 1024 }, y],
      [
        ['alloc', 1, 0],
        ['alloc', 2, 0],
        ['alloc', 3, 0],
        ['run', 0, 0, [0], [1]],
        ['run', 1, 0, [1], [2]],
        ['run', 2, 0, [2], [3]],
        ['free', 1],
        ['free', 3],
        ['alloc', 4, 0],
        ['run', 3, 0, [2], [4]],
        ['free', 2],
        ['run', 4, 0, [4], [5]],
        ['free', 4],
      ],
    )
    expect(plan.bound.device[0]).toBeGreaterThan(1536)
    const least = { ...plan, bound: { ...plan.bound, device: peakOf(plan).device } }
    expect(least.bound.device).toEqual([1536])
    expect(verify(least)).toEqual([])
    const result = await open(least, { device: 'host' })()
    expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([
      {
        _tag: 'BadPlan',
        at: 'bound.device[0]',
        found: '1536 bytes',
        wanted: expect.stringContaining(`at least ${plan.bound.device[0]} bytes`),
        next: expect.stringContaining(`raise bound.device to [${plan.bound.device[0]}]`),
      },
    ])
    expect(await echo(plan, 'host')).toEqual([1, 2, 3, 4, 5])
  })

  it('7. a buffer of the tick in pinned memory is refused, by its place', async () => {
    const plan = written(
      [copy, copy],
      [x, { ...a, space: 'pinned' }, y],
      [
        ['alloc', 1, 0],
        ['run', 0, 0, [0], [1]],
        ['run', 1, 0, [1], [2]],
        ['free', 1],
      ],
    )
    expect(verify(plan)).toEqual([])
    const result = await open(plan, { device: 'host' })()
    expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([
      { _tag: 'BadPlan', at: 'buffers[1].space', subject: 'a' },
    ])
  })
})
