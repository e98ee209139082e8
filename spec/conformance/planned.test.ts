// Planned storage on every device: one arena a session, allocated when it opens and freed when it ends, of
// the size that the plan states.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { compile, orThrow, type Plan, parsePlan, toJSON } from '../../dsl/index.js'
import { errorsOf, open, pulled } from '../../runtime/index.js'
import { patternGraph, patterns } from '../fixtures/graphs/patterns.js'
import { network, params, width } from '../fixtures/graphs/streamed.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'

const plan = orThrow(compile(network, { mode: 'eager', storage: 'planned' }))
const arena = plan.arena![0]!

const run = async (
  of: Plan,
  device: string,
  options: object,
): Promise<{ answers: number[][]; stats: unknown }> => {
  await using session = orThrow(await open(of, { device, poison: true, ...options })())
  const [x] = of.buffers.filter(({ life }) => life === 'input')
  const rows = Array.from({ length: 6 }, (_, tick) => new Float32Array(x!.bytes / 4).fill(1 + tick))
  const answers: number[][] = []
  await session.run({ x: pulled(rows) } as never).forEach(lease => {
    using held = lease as unknown as Record<string, Float32Array> & Disposable
    answers.push(Object.values(held).flatMap(values => Array.from(values)))
  })
  return { answers, stats: session.stats() }
}
const jittered = (device: string, jitter: number) =>
  device === 'host' ? { host: { jitter, jitterMicroseconds: 120, poison: true } } : {}

describe.each(present)('planned storage on %s', device => {
  it('holds only its arena, whatever the timing, and yields what pooled storage yields', async () => {
    const pooled = await run(orThrow(compile(network, { mode: 'eager' })), device, { params })
    for (let seed = 1; seed <= 8; seed++) {
      const { answers, stats } = await run(plan, device, { params, ...jittered(device, seed) })
      expect(answers).toEqual(pooled.answers)
      expect(stats).toMatchObject({
        peak: { reserved: arena, allocated: arena, pinned: plan.bound.pinned },
        bound: { device: arena, pinned: plan.bound.pinned },
      })
    }
  })

  it('yields what pooled storage yields where lanes rarely wait', async () => {
    await fc.assert(
      fc.asyncProperty(
        patterns(40),
        fc.integer({ min: 1, max: 3 }),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.integer({ min: 1, max: 2 ** 16 }),
        async (pattern, inFlight, memory, jitter) => {
          const made = patternGraph(pattern)
          const pooled = await run(orThrow(compile(made, { mode: 'eager', inFlight })), device, {})
          const planned = orThrow(compile(made, { mode: 'eager', inFlight, memory, storage: 'planned' }))
          const { answers } = await run(planned, device, jittered(device, jitter))
          expect(answers).toEqual(pooled.answers)
        },
      ),
      { numRuns: runs(device === 'host' ? 40 : 20) },
    )
  })

  it('runs from a file as it does from the compiler', async () => {
    const read = orThrow(parsePlan(toJSON(plan)))
    const [own, others] = [await run(plan, device, { params }), await run(read, device, { params })]
    expect(others.answers).toEqual(own.answers)
  })

  const bad = async (mutant: Plan) => {
    const result = await open(orThrow(parsePlan(toJSON(mutant))), { device, params })()
    return E.isLeft(result) ? errorsOf(result.left) : []
  }
  const moved = (id: number, offset: number): Plan => ({
    ...plan,
    buffers: plan.buffers.map(buffer => (buffer.id === id ? { ...buffer, offset } : buffer)),
  })
  const uploads = plan.buffers.filter(
    ({ offset, bytes }) => offset !== undefined && bytes === 4 * width * width,
  )

  it('refuses a file whose buffers lie beyond the arena, before anything runs', async () => {
    expect(await bad(moved(uploads[0]!.id, arena))).toMatchObject([
      { _tag: 'BadPlan', found: expect.stringContaining(`has ${arena}`), violations: [{ law: 'L9' }] },
    ])
  })

  it('refuses a file whose buffers share bytes without an order, or whose waits do not suffice', async () => {
    const apart = uploads.find(({ offset }) => offset !== uploads[0]!.offset)!
    for (const mutant of [
      moved(uploads[0]!.id, apart.offset!),
      { ...plan, commands: plan.commands.filter(([kind]) => kind !== 'wait') },
    ])
      expect(await bad(mutant)).toMatchObject([
        { _tag: 'BadPlan', next: expect.stringContaining('--safety') },
      ])
  })

  it('refuses a file that promises less than its arena', async () => {
    const short = { ...plan, bound: { ...plan.bound, device: [arena - 512] } }
    expect(await bad(short)).toMatchObject([{ _tag: 'BadPlan', violations: [{ law: 'L9' }] }])
  })
})

describe('planned storage on host', () => {
  it('fits a device of just its size, and one byte less is out of memory at opening', async () => {
    const { answers } = await run(plan, 'host', { params, host: { memory: arena } })
    expect(answers).toHaveLength(6)
    const result = await open(plan, { device: 'host', params, host: { memory: arena - 1 } })()
    expect(E.isLeft(result) && errorsOf(result.left)).toMatchObject([
      { _tag: 'OutOfMemory', code: 'CUDA_ERROR_OUT_OF_MEMORY', wantedBytes: arena, freeBytes: arena - 1 },
    ])
  })

  it('allocates nothing in a tick: memory calls that fail from the second on are never met', async () => {
    const faults = [{ call: 'memAllocate', nth: 2 }] as const
    const { answers } = await run(plan, 'host', { params, host: { faults } })
    expect(answers).toHaveLength(6)
  })
})
