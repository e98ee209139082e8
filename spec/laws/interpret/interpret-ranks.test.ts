import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  allReduce,
  BraidError,
  communicator,
  delay,
  download,
  every,
  graph,
  hold,
  interpret,
  interpretRanks,
  param,
  reshape,
  scan,
  tensor,
  upload,
  window,
} from '../../../dsl/index.js'

describe('ranks in lock-step', () => {
  const f32 = (...values: number[]) => new Float32Array(values)
  const world = communicator('world', 2)

  it('parameters are shared or by rank; a shared parameter is requested once', async () => {
    const net = graph({}, () => {
      const w = param('w', tensor('f32', [2]))
      return { sum: w.pipe(allReduce(world, 'sum'), download()), own: w.pipe(download()) }
    })
    let asked = 0
    const w = (bytes: Uint8Array) => {
      asked++
      new Float32Array(bytes.buffer).set([1, 2])
    }
    const [a, b] = [f32(1, 2), f32(30, 40)]
    expect(await lastValueFrom(interpretRanks(net, { params: { w } })([{}, {}]))).toEqual([
      { sum: f32(2, 4), own: f32(1, 2) },
      { sum: f32(2, 4), own: f32(1, 2) },
    ])
    expect(asked).toBe(1)
    expect(await lastValueFrom(interpretRanks(net, { params: [{ w: a }, { w: b }] })([{}, {}]))).toEqual([
      { sum: f32(31, 42), own: a },
      { sum: f32(31, 42), own: b },
    ])
  })

  it('each rank has its own state, fresh in each subscription; the shortest feed ends all', async () => {
    const net = graph({ x: tensor('f32', [1]) }, ({ x }) => {
      const y = x.pipe(upload())
      const total = y.pipe(scan((sum, own) => sum.pipe(add(own), add(own.pipe(allReduce(world, 'max')))), 0))
      return { y: total.pipe(download()) }
    })
    const rows = interpretRanks(net)([{ x: [f32(1), f32(2), f32(3)] }, { x: [f32(10), f32(-10)] }])
    const wanted = [
      [{ y: f32(11) }, { y: f32(20) }],
      [{ y: f32(15) }, { y: f32(12) }],
    ]
    for (let again = 0; again < 2; again++) expect(await lastValueFrom(rows.pipe(toArray()))).toEqual(wanted)
  })

  it('rates and collectives commute: the window of a reduced flow is the reduced window', async () => {
    const after = graph({ x: tensor('i32', [2]) }, ({ x }) => ({
      y: x.pipe(upload(), allReduce(world, 'sum'), window(3), download()),
    }))
    const before = graph({ x: tensor('i32', [2]) }, ({ x }) => ({
      y: x.pipe(upload(), window(3), allReduce(world, 'sum'), download()),
    }))
    const feeds = [0, 1].map(rank => ({
      x: Array.from({ length: 7 }, (_, tick) => Int32Array.of(tick, 100 * rank + 10 * tick)),
    }))
    const rows = await lastValueFrom(interpretRanks(after)(feeds).pipe(toArray()))
    expect(rows).toEqual(await lastValueFrom(interpretRanks(before)(feeds).pipe(toArray())))
    expect(rows.map(ranks => [...ranks[1]!.y])).toEqual([
      [0, 100, 2, 120, 4, 140],
      [6, 160, 8, 180, 10, 200],
    ])
  })

  it('slow reductions, also of a parameter, combine with fast flows and with earlier values', async () => {
    const net = graph({ x: tensor('f32', [1]) }, ({ x }) => {
      const fast = x.pipe(upload())
      const slow = fast.pipe(every(2), allReduce(world, 'sum'), hold(0))
      const bias = param('b', tensor('f32', [1])).pipe(allReduce(world, 'product'))
      return {
        y: fast.pipe(add(slow), add(bias), add(fast.pipe(delay(0))), window(2), reshape([2]), download()),
      }
    })
    const feeds = [1, 10].map(by => ({ x: [1, 2, 3, 4].map(value => f32(value * by)) }))
    const params = [{ b: f32(1000) }, { b: f32(2) }]
    const rows = await lastValueFrom(interpretRanks(net, { params })(feeds).pipe(toArray()))
    expect(rows.map(ranks => ranks.map(({ y }) => [...y]))).toEqual([
      [
        [2001, 2025],
        [2010, 2052],
      ],
      [
        [2027, 2051],
        [2072, 2114],
      ],
    ])
  })

  describe('reports missing arguments', () => {
    const net = graph({ x: tensor('f32', [1]) }, ({ x }) => ({
      y: x.pipe(upload(), add(param('w', tensor('f32', [1]))), allReduce(world, 'sum'), download()),
    }))
    const one = { x: [f32(1)] }
    const params = { w: f32(1) }
    const faults = async (given: unknown, options: unknown = { params }): Promise<string> => {
      const error: unknown = await lastValueFrom(interpretRanks(net, options as never)(given as never)).catch(
        e => e,
      )
      expect(error).toBeInstanceOf(BraidError)
      return (error as BraidError).message
    }

    it('feeds by rank', async () => {
      for (const given of [undefined, one, []])
        expect(await faults(given)).toMatch(/the feeds of each rank, in a list/)
      for (const given of [[one], [one, one, one]])
        expect(await faults(given)).toMatch(/feeds of 2 ranks, which 'world' of 2 ranks has/)
      for (const given of [
        [one, {}],
        [one, undefined],
      ])
        expect(await faults(given)).toMatch(/a feed for every input of rank 1/)
      expect(await faults([one, { x: [f32(1, 2)] }])).toMatch(/1 elements for the input of rank 1/)
    })

    it('parameters by rank', async () => {
      expect(await faults([one, one], { params: [params] })).toMatch(/parameters of 2 ranks/)
      expect(await faults([one, one], { params: [params, {}] })).toMatch(/for the parameter of rank 1/)
      expect(await faults([one, one], { params: [params, undefined] })).toMatch(/for the parameter of rank 1/)
    })

    it('interpret refuses several ranks and names interpretRanks', async () => {
      const error: unknown = await lastValueFrom(interpret(net, { params })(one)).catch(e => e)
      expect((error as BraidError).faults).toMatchObject([{ _tag: 'Unsupported', subject: 'allReduce[0]' }])
      expect((error as BraidError).message).toMatch(/interpretRanks/)
    })
  })
})
