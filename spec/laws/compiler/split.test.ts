// The pass `split`: few long lines are done in parts, which fill the machine and store nothing that is as
// large as what they read.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import * as braid from '../../../dsl/index.js'
import type { ReduceSpec } from '../../../dsl/ir/kernel-spec.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { runs } from '../../fixtures/runs.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes and operators vary, which no type follows
type Any = any

const planOf = (
  shape: readonly number[],
  make: (x: Any) => Any,
  options: Any = {},
  dtype: Any = 'f32',
): braid.Plan => {
  const made = braid.graph({}, () => ({ y: make(braid.param('x', braid.tensor(dtype, shape as Any))) }))
  return braid.orThrow(braid.compile(made as Any, options))
}
const namesOf = (plan: braid.Plan): readonly string[] => plan.nodes.map(({ name }) => name)
const isSplit = (plan: braid.Plan): boolean => namesOf(plan).some(name => name.endsWith('.parts'))

describe('split', () => {
  test('gives each multiprocessor several equal parts of whole accesses', () => {
    const sizes = fc.tuple(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 22, max: 26 }), fc.boolean())
    fc.assert(
      fc.property(sizes, fc.constantFrom('f32', 'bf16'), ([outer, power, isRow], dtype) => {
        const [length, inner] = isRow ? [2 ** power, 1] : [2 ** (power - 5), 32]
        const plan = planOf([outer, length, inner], x => x.pipe(braid.sum(1)), { fuse: false }, dtype)
        expect(namesOf(plan)).toEqual(['sum[0].parts', 'sum[0]'])
        const [parts, whole] = plan.nodes.map(({ kernel }) => kernel as ReduceSpec)
        expect(parts!.outer * parts!.length).toBe(outer * length)
        expect([whole!.outer, whole!.length, whole!.inner]).toEqual([outer, parts!.outer / outer, inner])
        expect([parts!.output, whole!.input, whole!.output]).toEqual(['f32', 'f32', dtype])
        // A number of parts divides the length, so it may be little more than half of what is wanted.
        const { multiprocessors } = h200.device
        expect(parts!.outer).toBeGreaterThanOrEqual(1.5 * multiprocessors)
        expect(parts!.outer).toBeLessThan(4 * multiprocessors + outer)
      }),
      { numRuns: runs(30) },
    )
  })

  test('leaves many lines, short ones, and those that nothing divides', () => {
    const sum = (x: Any) => x.pipe(braid.sum({ axis: 1 }))
    expect(isSplit(planOf([4096, 4096], sum))).toBe(false)
    expect(isSplit(planOf([4, 8192], sum))).toBe(false)
    expect(isSplit(planOf([1, 16777213], sum))).toBe(false)
    expect(isSplit(planOf([1, 2 ** 24], sum))).toBe(true)
    const small = { machine: { ...h200, device: { ...h200.device, multiprocessors: 2 } } }
    expect(isSplit(planOf([2, 2 ** 24], sum, small))).toBe(false)
    expect(isSplit(planOf([2 ** 22], x => x.pipe(braid.cumsum({ axis: 0 }))))).toBe(true)
    // Its parts are a value as large as it.
    expect(isSplit(planOf([2 ** 22], x => x.pipe(braid.cumsum({ axis: 0 })), { memory: 'small' }))).toBe(
      false,
    )
  })

  const norms = {
    softmax: braid.softmax,
    logSoftmax: braid.logSoftmax,
    layerNorm: braid.layerNorm,
    rmsNorm: braid.rmsNorm,
  }
  test.each(Object.entries(norms))(
    'stores no wide copy of rows that are read several times: %s',
    (_, norm) => {
      for (const shape of [
        [4, 2 ** 20],
        [1, 2 ** 22],
      ]) {
        const plan = planOf(shape, x => x.pipe((norm as Any)()), {}, 'bf16')
        expect(isSplit(plan)).toBe(true)
        const large = plan.buffers.filter(({ bytes }) => bytes >= 2 ** 22)
        expect(large.map(({ life }) => life).sort()).toEqual(['output', 'param'])
      }
    },
  )

  test('computes nothing again that only the reduction reads, nor what takes more bytes than to store it', () => {
    const alone = planOf([2 ** 24], x => x.pipe(braid.mul(x), braid.sum()))
    expect(alone.nodes.map(({ op }) => op)).toEqual(['fused', 'sum'])
    const plan = planOf([2, 2 ** 22], x => {
      const [a, b] = x.pipe(braid.split({ axis: 0, parts: 2 }))
      const sum = a.pipe(braid.add(b))
      return sum.pipe(braid.sub(sum.pipe(braid.mean())))
    })
    expect(isSplit(plan)).toBe(true)
    const x = plan.buffers.find(({ life }) => life === 'param')!.id
    expect(
      plan.commands.filter(([op, , , reads]) => op === 'run' && (reads as Any).includes(x)),
    ).toHaveLength(1)
  })

  test('computes nothing again that is stored anyway, so that a state is changed in its memory', () => {
    const size = 2 ** 22
    const made = braid.graph({}, () => {
      const s = braid.state({ w: braid.tensor('f32', [size]) }) as Any
      const next = s.w.pipe(braid.mul(0.5))
      s.next({ w: next })
      return { y: next.pipe(braid.sum(), braid.download()) }
    })
    const plan = braid.orThrow(braid.compile(made as Any)) as braid.Plan
    expect(isSplit(plan)).toBe(true)
    // One kernel reads the state, changes it in its memory, and sums parts of it.
    const state = plan.buffers.find(({ life }) => life === 'state')!.id
    const readers = plan.commands.filter(([op, , , reads]) => op === 'run' && (reads as Any).includes(state))
    expect(readers).toHaveLength(1)
    expect(plan.bound.device[0]).toBeLessThan(1.5 * 4 * size)
  })

  test('computes nothing again of a value that is changed in its memory, which would be copied for it', () => {
    const made = braid.graph(
      { row: braid.tensor('f32', [1, 1024]), at: braid.tensor('i32', [1]) },
      ({ row, at }) => {
        const s = braid.state({ w: braid.tensor('f32', [2 ** 12, 1024]) }) as Any
        const twice = s.w.pipe(braid.mul(2))
        s.next({
          w: s.w.pipe(braid.append(row.pipe(braid.upload()), { axis: 0, at: at.pipe(braid.upload()) })),
        })
        return {
          y: twice.pipe(braid.sub(twice.pipe(braid.mean())), braid.abs(), braid.mean(), braid.download()),
        }
      },
    )
    const plan = braid.orThrow(braid.compile(made as Any)) as braid.Plan
    expect(isSplit(plan)).toBe(true)
    expect(namesOf(plan).filter(name => name.startsWith('copy'))).toEqual([])
    expect(new Set(namesOf(plan)).size).toBe(plan.nodes.length)
  })

  test('takes whole rows where one kernel of few blocks is predicted to be done sooner', () => {
    const shape = [64, 65536]
    expect(isSplit(planOf(shape, x => x.pipe(braid.layerNorm()), { inFlight: 2 }, 'bf16'))).toBe(false)
    expect(isSplit(planOf(shape, x => x.pipe(braid.rmsNorm()), { inFlight: 2 }, 'bf16'))).toBe(true)
  })

  test('is explained, with both predictions', () => {
    const text = braid.explain(planOf([2 ** 25], x => x.pipe(braid.sum())))
    expect(text).toMatch(
      /\nin parts: long rows and columns, too few to fill the device: a tick of .+, .+ as wholes\n +sum\[0\]: 512 parts +\S*split\.test\.ts:\d+:\d+\n/,
    )
    const rows = braid.explain(planOf([4096, 4096], x => x.pipe(braid.sum(1))))
    expect(rows).not.toContain('in parts')
  })

  test('is done of each instance of a value that comes several times a tick, and of a state', () => {
    const shape = [2 ** 22] as const
    const often = braid.graph({ x: braid.tensor('f32', shape) }, ({ x }) => ({
      y: x.pipe(braid.upload(), braid.sum(), braid.window(2), braid.download()),
      z: x.pipe(
        braid.upload(),
        braid.scan((all, now) => all.pipe(braid.add(now.pipe(braid.mean()))), 0, braid.tensor('f32', [])),
        braid.every(2),
        braid.download(),
      ),
    }))
    const plan = braid.orThrow(braid.compile(often)) as braid.Plan
    expect(namesOf(plan).filter(name => name.includes('.parts'))).toHaveLength(4)
  })
})
