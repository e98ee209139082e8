// Collectives of one rank run on every device: a program for any number of ranks is valid for one, and sends
// nothing.
import { describe, expect, it } from 'vitest'
import {
  add,
  allGather,
  allReduce,
  allToAll,
  broadcast,
  type CompileOptions,
  cast,
  communicator,
  compile,
  download,
  every,
  type Graph,
  graph,
  hold,
  lane,
  matmul,
  on,
  orThrow,
  param,
  permute,
  reduceScatter,
  relu,
  tensor,
  upload,
  window,
} from '../../dsl/index.js'
import { type HostArray, hostArray } from '../../dsl/language/values.js'
import { twiceInPlace } from '../fixtures/graphs/kernels.js'
import { present } from './devices.js'
import { expectMeaning } from './yields.js'

const self = communicator('self', 1)
const comm = lane('comm')
const storages = ['pooled', 'planned'] as const

const check = async (
  net: Graph,
  device: string,
  feeds: Readonly<Record<string, readonly HostArray[]>>,
  options: CompileOptions,
  params: Readonly<Record<string, HostArray>> = {},
): Promise<void> => {
  const plan = orThrow(compile(net, options))
  expect([plan.communicators, plan.nodes.filter(({ collective }) => collective !== undefined)]).toEqual([
    undefined,
    [],
  ])
  await expectMeaning(net as never, device, feeds, { compile: options, params, seed: 7 })
}

const counted = (dtype: 'u8' | 'i32' | 'f16' | 'bf16' | 'f32', length: number, tick: number): HostArray =>
  hostArray(dtype, length).map((_, i) => 16 * tick + i + 1) as HostArray

describe.each(present)('collectives of one rank on %s', device => {
  it.each(['u8', 'i32', 'f16', 'bf16', 'f32'] as const)(
    'are the value itself, of %s, and no work',
    async dtype => {
      const net = graph({ x: tensor(dtype, [1, 5]) }, ({ x }) => {
        const y = x.pipe(upload())
        const same = y.pipe(
          allReduce(self, 'sum', comm),
          allToAll(self),
          broadcast(self, 0, comm),
          reduceScatter(self, 'max'),
          allGather(self, comm, { ahead: 1 }),
          permute(self, [[0, 0]]),
        )
        return { same: same.pipe(download()), unsent: same.pipe(permute(self, [], comm), download()) }
      })
      const feeds = { x: [0, 1, 2].map(tick => counted(dtype, 5, tick)) }
      for (const storage of storages) await check(net as never, device, feeds, { storage })
      const { nodes } = orThrow(compile(net))
      expect(nodes.filter(({ op }) => op !== 'upload' && op !== 'download')).toHaveLength(1)
    },
  )

  it('stand between what is there for many ranks', async () => {
    const math = lane('math')
    const net = graph({ x: tensor('f32', [2, 4]) }, ({ x }) => {
      const shard = param('w', tensor('f32', [4, 4]), { on: 'host' })
      const w = shard.pipe(upload(lane('copy'), { ahead: 1 }), allGather(self, comm, { ahead: 1 }), on(math))
      const y = x.pipe(
        upload(),
        on(math),
        matmul(w.pipe(reduceScatter(self, 'mean'))),
        relu(),
        allReduce(self, 'sum', comm),
      )
      return { y: y.pipe(window(2), allReduce(communicator('other', 1), 'max'), cast('i32'), download()) }
    })
    const feeds = { x: [0, 1, 2, 3].map(tick => counted('f32', 8, tick)) }
    const w = Float32Array.from({ length: 16 }, (_, i) => (i % 5) - 2)
    for (const storage of storages) await check(net as never, device, feeds, { storage }, { w })
  })

  it('give away the memory of the value, which others then have of their own', async () => {
    const spec = tensor('f32', [64])
    const net = graph({ x: spec }, ({ x }) => {
      const y = x.pipe(upload())
      const { y: doubled } = twiceInPlace({ x: y.pipe(relu(), broadcast(self, 0)) })
      return { y: doubled.pipe(add(y.pipe(relu())), download()) }
    })
    for (const storage of storages)
      await check(net as never, device, { x: [counted('f32', 64, 1)] }, { storage })
    // What is held is read twice, and taken twice.
    const rated = graph({ x: spec }, ({ x }) => {
      const fast = x.pipe(upload(), relu())
      const { y: doubled } = twiceInPlace({ x: fast.pipe(every(2), hold(0), broadcast(self, 0)) })
      return { y: doubled.pipe(add(fast), download()) }
    })
    const feeds = { x: [0, 1, 2, 3].map(tick => counted('f32', 64, tick)) }
    for (const storage of storages) await check(rated as never, device, feeds, { storage })
  })
})
