// window, every and hold: their meaning against RxJS, and the errors of the clock calculus for flows of
// different rates.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { bufferCount, from, lastValueFrom, map, scan as scanned, toArray } from 'rxjs'
import { describe, expect, it, test } from 'vitest'
import {
  add,
  cast,
  compile,
  delay,
  download,
  every,
  type Flow,
  type Graph,
  graph,
  hold,
  interpret,
  lane,
  mean,
  mul,
  on,
  orThrow,
  param,
  relu,
  renderAll,
  repeat,
  scan,
  state,
  sub,
  sum,
  tensor,
  upload,
  window,
} from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'
import { twiceInPlace } from '../../fixtures/graphs/kernels.js'
import { runs } from '../../fixtures/runs.js'

const one = tensor('f32', [1])
const values = (count: number) => Array.from({ length: count }, (_, i) => new Float32Array([i + 1]))
const numbers = (count: number) => Array.from({ length: count }, (_, i) => i + 1)

/** The values of an output, tick by tick, for a feed of 1, 2, 3 … */
const yielded = async (net: Graph, count: number, options = {}): Promise<number[][]> => {
  const rows = interpret(net, options)({ x: values(count) } as never)
  const ticks = await lastValueFrom(rows.pipe(toArray()))
  return ticks.map(tick => Array.from((tick as { y: Float32Array }).y))
}

describe('the meaning of rates', () => {
  it('of window is bufferCount, but for a window that the feed does not fill', async () => {
    const net = graph({ x: one }, ({ x }) => ({ y: x.pipe(upload(), window(3), download()) }))
    const buffers = await lastValueFrom(from(numbers(11)).pipe(bufferCount(3), toArray()))
    expect(await yielded(net, 11)).toEqual(buffers.filter(({ length }) => length === 3))
    const onHost = graph({ x: one }, ({ x }) => ({ y: x.pipe(window(3)) }))
    expect(await yielded(onHost, 11)).toEqual(await yielded(net, 11))
  })

  it('of every is the last of bufferCount', async () => {
    const net = graph({ x: one }, ({ x }) => ({ y: x.pipe(upload(), every(4), download()) }))
    const last = from(numbers(12)).pipe(
      bufferCount(4),
      map(group => [group.at(-1)!]),
      toArray(),
    )
    expect(await yielded(net, 12)).toEqual(await lastValueFrom(last))
  })

  it('of hold is the newest value, and before it the init; an output has its values in a row', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      return { y: fast.pipe(every(3), hold(-1), add(fast.pipe(mul(0))), download()) }
    })
    expect(await yielded(net, 10)).toEqual([
      [-1, -1, 3],
      [3, 3, 6],
      [6, 6, 9],
    ])
    const said = graph({ x: one }, ({ x }) => ({ y: x.pipe(upload(), hold(0, 2), download()) }))
    expect(await yielded(said, 3)).toEqual([
      [0, 1],
      [1, 2],
      [2, 3],
    ])
  })

  it('holds a value at rates that are no multiple: two of three with the newest of the two', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      const twice = fast.pipe(every(3))
      const thrice = fast.pipe(every(2))
      return { y: twice.pipe(hold(0), add(thrice.pipe(mul(0))), download()) }
    })
    // Of six instants three and six have a new value, and two, four and six ask for it.
    expect(await yielded(net, 12)).toEqual([
      [0, 3, 6],
      [6, 9, 12],
    ])
  })

  it('of delay and scan goes on from value to value, not from tick to tick', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      const total = fast.pipe(scan((acc, value) => acc.pipe(add(value)), 0))
      return { y: total.pipe(delay(-5), window(2), download()) }
    })
    const sums = from(numbers(8)).pipe(
      scanned((acc, value) => acc + value, 0),
      toArray(),
    )
    const delayed = [-5, ...(await lastValueFrom(sums))].slice(0, 8)
    expect((await yielded(net, 8)).flat()).toEqual(delayed)
  })

  it('nests: windows of windows, a window of what every leaves, on the host and on the device', async () => {
    const nested = graph({ x: one }, ({ x }) => ({
      y: x.pipe(window(2), upload(), window(3), sum(0), download()),
    }))
    const pairs = from(numbers(12)).pipe(
      bufferCount(2),
      bufferCount(3),
      map(three => [three.reduce((all, [a]) => all + a!, 0), three.reduce((all, [, b]) => all + b!, 0)]),
      toArray(),
    )
    expect(await yielded(nested, 12)).toEqual(await lastValueFrom(pairs))
    const some = graph({ x: one }, ({ x }) => ({ y: x.pipe(every(2), window(2)) }))
    expect(await yielded(some, 8)).toEqual([
      [2, 4],
      [6, 8],
    ])
  })

  it('lets parameters, and what is made of them alone, be read at every rate', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const w = param('w', one).pipe(mul(10))
      const slow = x.pipe(upload(), mul(w), window(2), sum(0))
      return { y: slow.pipe(add(w), add(w.pipe(window(4), sum(0))), add(w.pipe(every(7))), download()) }
    })
    expect(await yielded(net, 4, { params: { w: new Float32Array([2]) } })).toEqual([[180], [260]])
    expect(verify(orThrow(compile(net)))).toEqual([])
  })

  it('has what follows from parameters alone before the first value: no init, but of a delay, and of a hold that counts', async () => {
    const outputs = (
      of: (w: Flow<'device', typeof one>, x: Flow<'device', typeof one>) => Flow<'device', typeof one>,
    ) =>
      graph({ x: one }, ({ x }) => {
        const w = param('w', one).pipe(mul(10))
        const fast = x.pipe(upload())
        return { y: of(w, fast).pipe(add(fast.pipe(mul(0))), window(2), download()) }
      })
    const wanted: readonly (readonly [Parameters<typeof outputs>[0], number[][]])[] = [
      [
        w => w.pipe(hold(9, 2)),
        [
          [9, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(hold(9)),
        [
          [20, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(hold(9), hold(8)),
        [
          [20, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(repeat(2)),
        [
          [20, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(every(2)),
        [
          [20, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(window(2), sum(0), hold(9)),
        [
          [40, 40],
          [40, 40],
        ],
      ],
      [
        w => w.pipe(delay(9)),
        [
          [9, 20],
          [20, 20],
        ],
      ],
      [
        w => w.pipe(scan((all, each) => all.pipe(add(each)), 9)),
        [
          [29, 49],
          [69, 89],
        ],
      ],
      [
        (w, x) => x.pipe(window(2), sum(0), mul(0), add(w), hold(9)),
        [
          [9, 20],
          [20, 20],
        ],
      ],
    ]
    for (const [of, values] of wanted) {
      const net = outputs(of)
      expect(await yielded(net, 4, { params: { w: new Float32Array([2]) } })).toEqual(values)
      expect(verify(orThrow(compile(net)))).toEqual([])
    }
  })

  it('is held from the n-th instant on by a hold that counts n, in ticks of whole groups of n', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 4 }),
        fc.boolean(),
        async (n, group, isMade) => {
          const net = graph({ x: one }, ({ x }) => {
            const w = param('w', one)
            const slow = isMade ? w.pipe(mul(10)) : w
            const fast = x.pipe(upload(), add(slow.pipe(hold(-5, n))))
            return { y: fast.pipe(window(group), download()) }
          })
          const count = 24
          const wanted = numbers(count).map((x, i) => x + (i < n - 1 ? -5 : isMade ? 20 : 2))
          const got = await yielded(net, count, { params: { w: new Float32Array([2]) } })
          expect(got.flat()).toEqual(wanted)
          expect(verify(orThrow(compile(net)))).toEqual([])
        },
      ),
      { numRuns: runs(30) },
    )
  })

  it('accumulates gradients: weights that are held through a window, and move with its mean', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const weights = x.pipe(
        upload(),
        scan((w, sample) => {
          const step = w.pipe(sub(sample), window(4), mean(0), mul(0.5))
          return w.pipe(every(4), sub(step), hold(0))
        }, 0),
      )
      return { y: weights.pipe(every(4), download()) }
    })
    const byHand = from(numbers(12)).pipe(
      bufferCount(4),
      scanned((w, batch) => w - (0.5 * batch.reduce((all, value) => all + (w - value), 0)) / 4, 0),
      map(w => [w]),
      toArray(),
    )
    expect(await yielded(net, 12)).toEqual(await lastValueFrom(byHand))
    // The weights are one state, though a delay and a hold both remember them.
    expect(orThrow(compile(net)).buffers.filter(({ life }) => life === 'state')).toHaveLength(1)
  })
})

describe('the meaning of repeat', () => {
  const steps = graph({ x: one }, ({ x }) => {
    const s = state({ w: one }, { w: 16 })
    const w = s.w.pipe(repeat())
    const gradient = w.pipe(sub(x.pipe(upload())), window(4), mean(0))
    s.next({ w: s.w.pipe(sub(gradient.pipe(mul(0.5)))) })
    return { y: w.pipe(download()) }
  })

  it('is the value that a state has before, for each value of the faster flow', async () => {
    // Micro-batches 1 … 4, 5 … 8, 9 … 12, of which 2.5, 6.5 and 10.5 are the means.
    const weights = [16, 16 - (16 - 2.5) / 2, 7.875, 9.1875]
    weights[2] = weights[1]! - (weights[1]! - 6.5) / 2
    expect(await yielded(steps, 12)).toEqual(weights.slice(0, 3).map(w => [w, w, w, w]))
  })

  it('is the value of this tick, of an input and what is made of it, where a hold has that of the tick before', async () => {
    const net = graph({ x: one, z: one }, ({ x, z }) => {
      const [fast, slow] = [x.pipe(upload()), z.pipe(upload(), mul(10))]
      const both = slow.pipe(repeat(), mul(100), add(slow.pipe(hold(0))))
      return { y: fast.pipe(mul(0), add(both), every(1), download()), n: fast.pipe(window(2), download()) }
    })
    const slower = graph({ x: one, z: one }, ({ x, z }) => {
      const slow = z.pipe(upload(), mul(10))
      const fast = x.pipe(upload())
      const sums = fast.pipe(window(2), sum(0), add(slow))
      return {
        y: fast.pipe(mul(0), add(slow.pipe(repeat(), mul(100))), add(slow.pipe(hold(0))), download()),
        sums: sums.pipe(download()),
      }
    })
    const rows = interpret(slower)({ x: values(4), z: values(2) })
    const ticks = await lastValueFrom(rows.pipe(toArray()))
    expect(ticks.map(({ y, sums }) => [...y, ...sums])).toEqual([
      [1000, 1010, 13],
      [2010, 2020, 27],
    ])
    expect(isLeft(compile(net))).toBe(true)
  })

  it('nests, and meets a window, every and delay of the slow value', async () => {
    const net = graph({ x: one, z: one }, ({ x, z }) => {
      const slow = z.pipe(upload())
      const inner = slow.pipe(add(slow.pipe(delay(100))), repeat(2))
      const fast = x.pipe(upload(), mul(0), add(inner.pipe(mul(10), repeat(2))))
      return {
        y: fast.pipe(download()),
        two: inner.pipe(window(4), download()),
        last: slow.pipe(every(2), download()),
      }
    })
    const rows = interpret(net)({ x: values(8), z: values(2) })
    const [tick] = await lastValueFrom(rows.pipe(toArray()))
    expect([...tick!.y]).toEqual([...Array(4).fill(1010), ...Array(4).fill(30)])
    expect([...tick!.two]).toEqual([101, 101, 3, 3])
    expect([...tick!.last]).toEqual([2])
  })

  it('of a parameter is the parameter', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const w = param('w', one).pipe(mul(2), repeat())
      return { y: x.pipe(upload(), add(w), window(2), download()) }
    })
    expect(await yielded(net, 2, { params: { w: Float32Array.of(10) } })).toEqual([[21, 22]])
  })

  test('costs no memory: the weights are one state', () => {
    const { buffers } = orThrow(compile(steps))
    expect(buffers.filter(({ life }) => life === 'state').map(({ name }) => name)).toEqual(['w'])
  })

  test('refuses what comes with the last of the values that it would be repeated for', () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      return { y: fast.pipe(sub(fast.pipe(window(4), mean(0), repeat())), download()) }
    })
    const [error, ...others] = faultsOf(net)
    expect(others).toEqual([])
    expect(error).toMatchObject({ _tag: 'RateMismatch', subject: 'repeat[0]' })
    expect(error!.found).toContain("one that follows from 'window[0]'")
  })

  test('is what an error advises for a state, and is asked how often where nothing says it', () => {
    const meets = graph({ x: one }, ({ x }) => {
      const s = state({ w: one })
      const d = x.pipe(upload(), sub(s.w))
      s.next({ w: d.pipe(window(4), mean(0)) })
      return { d: d.pipe(download()) }
    })
    expect(faultsOf(meets)[0]!.next).toContain("read 'w' through repeat(4)")
    const met = graph({ x: one, z: one }, ({ x, z }) => {
      const [fast, slow] = [x.pipe(upload()), z.pipe(upload())]
      const n = fast.pipe(window(4), sum(0), add(slow), download())
      return { n, y: fast.pipe(add(slow), download()) }
    })
    expect(faultsOf(met).map(({ next }) => next)).toEqual([
      "window(4) or every(4) on 'x', or repeat(4) on 'z', bring them to one rate",
    ])
    const alone = graph({ x: one }, ({ x }) => ({ y: x.pipe(upload(), repeat(), download()) }))
    expect(faultsOf(alone)).toMatchObject([{ _tag: 'UnknownRate', next: 'say it: repeat(4)' }])
    const slower = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      return { y: fast.pipe(repeat(), add(fast.pipe(every(2))), download()) }
    })
    expect(faultsOf(slower).map(({ _tag }) => _tag)).toEqual(['RateMismatch'])
  })
})

const faultsOf = (net: Graph) => {
  const plan = compile(net)
  expect(isLeft(plan)).toBe(true)
  return isLeft(plan) ? plan.left : []
}
const lineOf = (text: string): RegExp =>
  new RegExp(`'${text}' \\(spec/laws/language/rates\\.test\\.ts:\\d+:\\d+\\)`)

describe('the clock calculus', () => {
  test('names two combined flows of different rates, their lines, and the operators that align them', () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      return { y: fast.pipe(add(fast.pipe(window(4), mean(0))), download()) }
    })
    const [error, ...others] = faultsOf(net)
    expect(others).toEqual([])
    expect(error).toMatchObject({ _tag: 'RateMismatch', subject: 'add[0]' })
    expect(error!.found).toMatch(lineOf('x'))
    expect(error!.found).toMatch(lineOf('mean\\[0\\]'))
    expect(error!.found).toContain('comes 4 times for each of')
    expect(error!.next).toBe(
      "window(4) or every(4) on 'x', or hold(init) on 'mean[0]', bring them to one rate",
    )
    expect(renderAll([error!])).toContain('Flows of different rates meet')
  })

  test('reports every error at once: different rates, unbounded holds, feedback of another rate', () => {
    const net = graph({ x: one, z: one }, ({ x, z }) => {
      const fast = x.pipe(upload())
      const odd = fast.pipe(every(3))
      return {
        a: fast.pipe(every(2), add(odd), download()),
        b: fast.pipe(add(z.pipe(upload(), hold(0))), download()),
        c: odd.pipe(hold(0), add(odd.pipe(every(2))), download()),
        d: fast.pipe(
          scan((acc, value) => acc.pipe(add(value), every(2)), 0),
          download(),
        ),
      }
    })
    const faults = faultsOf(net)
    expect(faults.map(({ _tag, subject }) => `${_tag} ${subject}`)).toEqual([
      'RateMismatch add[0]',
      'RateMismatch delay[0]',
      'UnknownRate hold[0]',
      'RateMismatch hold[1]',
    ])
    expect(faults[0]!.found).toContain('comes 3 times for 2 of')
    expect(faults[2]!.next).toBe('say it: hold(init, 4)')
    expect(faults[3]!.found).toContain('which comes 2 times for 1')
  })

  test('asks only what some output needs, and lets one slow flow be held at two rates', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      fast.pipe(add(fast.pipe(every(3))), download())
      return { y: fast.pipe(window(2), download()) }
    })
    expect(await yielded(net, 4)).toEqual([
      [1, 2],
      [3, 4],
    ])
    expect(orThrow(compile(net)).buffers[0]).toMatchObject({ name: 'x', rate: 2 })
    const twice = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      const half = fast.pipe(every(2))
      const quarter = half.pipe(every(2))
      const both = quarter.pipe(hold(0), add(half.pipe(mul(0))), window(2), sum(0))
      return { y: quarter.pipe(hold(0), add(fast.pipe(mul(0))), window(4), sum(0), add(both), download()) }
    })
    // Held for four: 0, 0, 0, 4; for two: 0, 4.
    expect(await yielded(twice, 4)).toEqual([[8]])
    expect(verify(orThrow(compile(twice)))).toEqual([])
  })

  test('interpret reports the same', async () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload())
      return { y: fast.pipe(add(fast.pipe(every(2))), download()) }
    })
    await expect(lastValueFrom(interpret(net)({ x: values(2) }))).rejects.toMatchObject({
      faults: faultsOf(net),
    })
  })

  test('bounds a tick: what one flow would bring, one for another, and all together', () => {
    const far = graph({ x: one }, ({ x }) => ({ y: x.pipe(every(4096), upload(), every(2), download()) }))
    const primes = graph({ x: one }, ({ x }) => ({
      y: x.pipe(every(4093), upload(), download()),
      z: x.pipe(every(4091), upload(), download()),
    }))
    const many = graph({ x: one }, ({ x }) => {
      let y = x.pipe(upload())
      for (let i = 0; i < 300; i++) y = y.pipe(relu())
      return { y: y.pipe(every(4000), download()) }
    })
    for (const net of [far, primes, many])
      expect(faultsOf(net as Graph)).toMatchObject([
        { _tag: 'LongPeriod', wanted: expect.stringMatching(/4096.*1048576/) },
      ])
    expect(
      isLeft(compile(graph({ x: one }, ({ x }) => ({ y: x.pipe(every(4096), upload(), download()) })))),
    ).toBe(false)
  })

  test.each([0, -1, 1.5, 4097, '3', null, Number.NaN])('refuses %s values together', n => {
    const net = graph({ x: one }, ({ x }) => ({
      y: x.pipe(window(n as never), upload(), every(n as never), hold(0, n as never), download()),
    }))
    expect(faultsOf(net).map(({ _tag, subject }) => `${_tag} ${subject}`)).toEqual([
      'BadAttribute window',
      'BadAttribute every',
      'BadAttribute hold',
    ])
  })

  test('checks the init of a hold, and a window that makes a tensor of too many dimensions', () => {
    const net = graph({ x: one, z: tensor('f32', ['n', 1, 1, 1, 1, 1, 1, 1]) }, ({ x, z }) => ({
      y: x.pipe(upload(), hold([1, 2], 3), download()),
      z: z.pipe(window(2)),
    }))
    expect(faultsOf(net).map(({ _tag, subject }) => `${_tag} ${subject}`)).toEqual([
      'BadAttribute hold',
      'BadDimension window',
      'UnboundSymbol z',
    ])
    const bound = graph({ x: tensor('f32', ['n']) }, ({ x }) => ({
      y: x.pipe(upload(), hold([1, 2], 3), download()),
    }))
    expect(isLeft(compile(bound, { dims: { n: 2 } }))).toBe(false)
    expect(compile(bound, { dims: { n: 3 } })).toMatchObject({
      left: [{ _tag: 'BadAttribute', subject: 'hold[0]' }],
    })
  })
})

describe('a plan of a graph with rates', () => {
  const math = lane('math')
  const names = (net: Graph) => orThrow(compile(net)).nodes.map(({ name }) => name)

  test('names the unrolled instances, and has none that nothing reads', () => {
    const net = graph({ x: one }, ({ x }) => ({ y: x.pipe(upload(), relu(), every(3), download()) }))
    expect(names(net)).toEqual(['x[2]', 'relu[0][2]', 'y'])
  })

  test('uploads a window of the host in one copy; copies scattered values into one buffer', () => {
    const rowed = graph({ x: one }, ({ x }) => ({ y: x.pipe(window(4), upload(), download()) }))
    expect(names(rowed)).toEqual(['window[0]', 'y'])
    const apart = graph({ x: one }, ({ x }) => ({ y: x.pipe(every(2), window(4), upload(), download()) }))
    const plan = orThrow(compile(apart))
    expect(plan.nodes[0]).toMatchObject({ kernel: { kind: 'copy', bytes: 16, parts: 4 } })
    expect(plan.commands.find(([kind]) => kind === 'run')![3]).toHaveLength(4)
  })

  test('makes a window of one value a view', () => {
    const net = graph({ x: one }, ({ x }) => ({
      y: x.pipe(window(1), upload(), relu(), window(1), sum(0), download()),
    }))
    expect(names(net)).toEqual(['window[0]', 'relu[0]', 'sum[0]', 'y'])
  })

  test('has inputs and outputs as often as they come, their values in a row', () => {
    const net = graph({ x: tensor('f32', [5]) }, ({ x }) => ({
      y: x.pipe(upload(), relu(), download()),
      z: x.pipe(window(3), upload(), sum(0), download()),
    }))
    const ports = orThrow(compile(net)).buffers.filter(
      ({ alias, space }) => alias === undefined && space === 'pinned',
    )
    expect(ports.map(({ name, life, rate, shape }) => ({ name, life, rate, shape }))).toEqual([
      { name: 'x', life: 'input', rate: 3, shape: [3, 5] },
      { name: 'y', life: 'output', rate: 3, shape: [3, 5] },
      { name: 'z', life: 'output', rate: undefined, shape: [5] },
    ])
  })

  test('writes values into their window directly, where one lane makes all and no other reads them', () => {
    const rows = tensor('f32', [4])
    const net = (read: boolean, own: boolean) =>
      graph({ x: rows }, ({ x }) => {
        const y = own ? x.pipe(upload(), on(math), relu()) : x.pipe(upload(), relu())
        const z = y.pipe(window(3), mean(0), download())
        return { z, y: read ? y.pipe(download()) : z }
      })
    const gathers = (made: Graph) => names(made).filter(name => name.startsWith('window'))
    expect(gathers(net(false, true))).toEqual([])
    expect(gathers(net(false, false))).toEqual([])
    // The copies out are on a lane of their own.
    expect(gathers(net(true, true))).toEqual(['window[0]'])
    expect(names(net(false, true)).filter(name => name.startsWith('relu'))).toHaveLength(3)
  })

  test('makes a value of two windows in one of them, and windows within their own', () => {
    const net = graph({ x: tensor('f32', [4]) }, ({ x }) => {
      const y = x.pipe(upload(), on(math), relu())
      return {
        a: y.pipe(window(2), window(3), sum(0), sum(0), download()),
        b: y.pipe(window(6), mean(0), download()),
      }
    })
    const plan = orThrow(compile(net))
    expect(verify(plan)).toEqual([])
    // The values of window[0] and window[1] are written in place; window[2] copies the same values once more.
    expect(plan.nodes.filter(({ op }) => op === 'window').map(({ name }) => name)).toEqual(['window[2]'])
    const views = plan.buffers.filter(({ name, space }) => name.startsWith('relu') && space === 'device')
    expect(views.map(({ alias, aliasOffset }) => [plan.buffers[alias!]!.name, aliasOffset])).toEqual(
      [0, 16, 32, 48, 64, 80].map(offset => ['window[1]', offset]),
    )
  })

  test('gives a kernel memory of its own where other copies read what it takes', () => {
    const net = graph({ x: one }, ({ x }) => {
      const fast = x.pipe(upload(), cast('f32'), relu())
      const held = fast.pipe(every(2), hold(0))
      const taken = twiceInPlace({ x: held }).y
      const before = twiceInPlace({ x: fast.pipe(mul(2)) }).y
      return { y: taken.pipe(add(fast), add(before), download()) }
    })
    const plan = orThrow(compile(net))
    expect(verify(plan)).toEqual([])
    expect(plan.nodes.filter(({ name }) => name.startsWith('copy(')).length).toBe(2)
  })
})
