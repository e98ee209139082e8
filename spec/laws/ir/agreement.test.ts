// The fields of a plan agree with each other, whoever wrote it: of a file and of an object alike.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  add,
  allReduce,
  communicator,
  compile,
  download,
  type Graph,
  graph,
  mul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  slice,
  state,
  tensor,
  toJSON,
  upload,
  verify,
  verifyRanks,
} from '../../../dsl/index.js'
import type { CollectiveSpec } from '../../../dsl/ir/plan.js'
import { dtypes } from '../../../dsl/ir/tensor.js'
import { runs } from '../../fixtures/runs.js'

type Writable = { -readonly [K in keyof Plan['buffers'][number]]: Plan['buffers'][number][K] }

const net = graph({ x: tensor('f32', [4, 4]) }, ({ x }) => {
  const s = state({ acc: tensor('f32', [4, 4]) }, { acc: 0 })
  const acc = s.acc.pipe(add(x.pipe(upload())), add(param('w', tensor('f32', [4, 4]))))
  s.next({ acc })
  return { y: acc.pipe(download()), z: acc.pipe(slice(0, 1, 2), mul(2), download()) }
})
const texts = (['pooled', 'planned'] as const).map(storage =>
  toJSON(orThrow(compile(net as Graph, { mode: 'eager', storage, fuse: false })) as Plan),
)

/** The faults of a plan that was changed, where verify says of the object what the loader says of the file. */
const faultsOf = (text: string, change: (buffers: Writable[]) => void): readonly string[] => {
  const plan = JSON.parse(text) as Plan
  change(plan.buffers as Writable[])
  const parsed = parsePlan(JSON.stringify(plan))
  expect(verify(plan)).toEqual(E.isRight(parsed) ? verify(parsed.right) : expect.anything())
  if (E.isRight(parsed)) return verify(plan, { safety: true }).map(({ message }) => message)
  expect(verify(plan)).not.toEqual([])
  return parsed.left.map(({ _tag, at }) => `${_tag} ${at}`)
}

describe('what a buffer says of itself', () => {
  test.each(texts)('is what it holds, byte for byte', text => {
    const { buffers } = JSON.parse(text) as Plan
    fc.assert(
      fc.property(
        fc.nat(buffers.length - 1),
        fc.constantFrom(...dtypes),
        fc.array(fc.nat(5), { maxLength: 3 }),
        (b, dtype, shape) => {
          // Counted here anew: the plan is accepted only where these are its bytes.
          const size = { u8: 1, f16: 2, bf16: 2, i32: 4, f32: 4 }[dtype]
          let wanted = size
          for (const extent of shape) wanted *= extent
          const { bytes, life, alias } = buffers[b]!
          const isRoom = wanted === 0 && (life === 'tick' || alias !== undefined)
          const faults = faultsOf(text, all => Object.assign(all[b]!, { dtype, shape }))
          expect(faults.length === 0, JSON.stringify({ b, dtype, shape, faults })).toBe(
            wanted === bytes || isRoom,
          )
        },
      ),
      { numRuns: runs(150) },
    )
  })

  test.each(texts)('goes with its life, its place and its name', text => {
    const { buffers, storage } = JSON.parse(text) as Plan
    const of = (life: string) => buffers.findIndex(b => b.life === life && b.alias === undefined)
    const view = buffers.findIndex(b => b.alias !== undefined)
    expect(view).toBeGreaterThan(-1)
    const changed = (b: number, more: Partial<Writable>) =>
      faultsOf(text, all => Object.assign(all[b]!, more))
    for (const life of ['input', 'output'])
      expect(changed(of(life), { offset: 0 })).toEqual([`WrongType buffers[${of(life)}].offset`])
    expect(changed(of('input'), { space: 'device' })[0]).toBe(`WrongType buffers[${of('input')}].space`)
    if (storage === 'pooled')
      expect(changed(of('tick'), { offset: 0 })).toEqual([`WrongType buffers[${of('tick')}].offset`])
    if (storage === 'planned')
      for (const life of ['input', 'output'] as const) expect(changed(of('tick'), { life })).not.toEqual([])
    expect(changed(view, { offset: 0 })).toEqual([`WrongType buffers[${view}].offset`])
    expect(changed(view, { rate: 1, life: 'input' })).not.toEqual([])
    const other = buffers[view]!.life === 'tick' ? 'param' : 'tick'
    expect(changed(view, { life: other })).toEqual([`BadAlias buffers[${view}].alias`])
    expect(changed(of('tick'), { aliasOffset: 0 })).toEqual([`WrongType buffers[${of('tick')}].aliasOffset`])
    expect(changed(of('tick'), { init: 0 })).toEqual([`WrongType buffers[${of('tick')}].init`])
    expect(changed(of('input'), { dtype: undefined } as never)).toEqual([
      `Missing buffers[${of('input')}].dtype`,
    ])
    const outputs = buffers.filter(b => b.life === 'output' && b.alias === undefined)
    expect(outputs.length).toBe(2)
    expect(changed(outputs[1]!.id, { name: outputs[0]!.name })).toEqual([
      `DuplicateName buffers[${outputs[1]!.id}].name`,
    ])
    // An input and an output may have one name.
    expect(changed(outputs[1]!.id, { name: buffers[of('input')]!.name })).toEqual([])
  })

  test('a parameter of several devices is one value', () => {
    const plan = JSON.parse(texts[0]!) as Plan
    const w = plan.buffers.find(b => b.life === 'param')!
    const twice = (more: object) => {
      const buffers = [...plan.buffers, { ...w, id: plan.buffers.length, ...more }]
      const parsed = parsePlan({ ...plan, buffers })
      return E.isLeft(parsed) ? parsed.left.map(({ _tag }) => _tag) : []
    }
    expect(twice({})).toEqual(['DuplicateName'])
    expect(twice({ space: w.space === 'device' ? 'pinned' : 'device' })).toEqual(['DuplicateName'])
    expect(twice({ name: 'other' })).toEqual([])
  })
})

describe('what a collective reads and writes', () => {
  const world = communicator('world', 2)
  const text = toJSON(
    orThrow(
      compile(
        graph({ x: tensor('f32', [16]) }, ({ x }) => ({
          y: x.pipe(upload(), allReduce(world, 'sum'), download()),
        })) as Graph,
        { mode: 'eager' },
      ),
    ) as Plan,
  )
  // In elements: what each of the ranks reads and writes of `count`, in NCCL's terms.
  const terms: Readonly<Record<string, (count: number, size: number) => readonly [number, number]>> = {
    allReduce: count => [count, count],
    allGather: (count, size) => [count, count * size],
    reduceScatter: (count, size) => [count * size, count],
    allToAll: (count, size) => [count * size, count * size],
  }
  const set = (kind: string, count: number, size: number, known: boolean): Plan => {
    const plan = JSON.parse(text) as { nodes: { collective?: object }[]; communicators: object[] } & Plan
    const how = kind === 'allReduce' || kind === 'reduceScatter' ? { how: 'sum' } : {}
    plan.nodes.find(({ collective }) => collective)!.collective = {
      ...{ kind: kind as CollectiveSpec['kind'], communicator: 0, count, dtype: 'f32' },
      ...how,
    } as CollectiveSpec
    plan.communicators.splice(0, 1, { id: 0, name: 'world', ...(known ? { size } : {}) } as never)
    return plan
  }

  test('is all of its buffers, and no more', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...Object.keys(terms)),
        fc.constantFrom(1, 2, 4, 8, 15, 16, 17, 32),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        (kind, count, size, known) => {
          const [reads, writes] = terms[kind]!(count, size)
          const plan = set(kind, count, size, known)
          const fits = reads <= 16 && writes === 16
          const found = verifyRanks(
            Array.from({ length: size }, () => plan),
            { safety: true },
          )
          expect(found.length === 0, JSON.stringify({ kind, count, size, found })).toBe(fits)
          // One plan alone is refused only for what is wrong whatever the others are.
          if (fits) expect(verify(plan, { safety: true })).toEqual([])
          else if (known) expect(verify(plan, { safety: true })).not.toEqual([])
        },
      ),
      { numRuns: runs(120) },
    )
  })
})
