import fc from 'fast-check'
import { EMPTY, firstValueFrom, from, lastValueFrom, NEVER, of, throwError, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  add,
  type Between,
  BraidError,
  compile,
  delay,
  download,
  graph,
  interpret,
  irOf,
  kernel,
  matmul,
  mul,
  param,
  scan,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { numbers } from '../../../dsl/language/values.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

const f32 = (...values: number[]) => new Float32Array(values)
const two = tensor('f32', [2])

const faultsOf = async (running: Promise<unknown>): Promise<readonly { _tag: string; next: string }[]> => {
  const error: unknown = await running.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(BraidError)
  return (error as BraidError).faults
}

describe('interpret', () => {
  it('computes one tick for each row of its feeds and ends with the shortest', async () => {
    const net = graph({ a: two, b: two }, ({ a, b }) => ({
      y: a.pipe(upload(), add(b.pipe(upload())), download()),
    }))
    const rows = interpret(net)({ a: [f32(1, 2), f32(3, 4), f32(5, 6)], b: of(f32(10, 20), f32(30, 40)) })
    expect(await firstValueFrom(rows.pipe(toArray()))).toEqual([{ y: f32(11, 22) }, { y: f32(33, 44) }])
  })

  it('keeps state by delay and scan, fresh with every subscription', async () => {
    const net = graph({ x: two }, ({ x }) => {
      const now = x.pipe(upload())
      return {
        before: now.pipe(delay(7), download()),
        total: now.pipe(
          scan((acc, value) => acc.pipe(add(value)), 1),
          download(),
        ),
      }
    })
    const rows = interpret(net)({ x: [f32(1, 2), f32(3, 4)] })
    const wanted = [
      { before: f32(7, 7), total: f32(2, 3) },
      { before: f32(1, 2), total: f32(5, 7) },
    ]
    expect(await firstValueFrom(rows.pipe(toArray()))).toEqual(wanted)
    expect(await firstValueFrom(rows.pipe(toArray()))).toEqual(wanted)
  })

  it('moves a chain of delays on by one, all at once', async () => {
    const net = graph({ x: tensor('f32', [1]) }, ({ x }) => ({
      y: x.pipe(upload(), delay(-1), delay(-2), download()),
    }))
    const rows = await firstValueFrom(interpret(net)({ x: [f32(1), f32(2), f32(3), f32(4)] }).pipe(toArray()))
    expect(rows.map(({ y }) => y[0])).toEqual([-2, -1, 1, 2])
  })

  it('takes parameters as arrays and as functions that fill bytes, at once or later', async () => {
    const net = graph({ x: tensor('f32', ['rows', 2]) }, ({ x }) => {
      const w = param('w', tensor('f32', [2, 2]))
      const bias = param('bias', two, { on: 'host' }).pipe(upload(undefined, { ahead: 1 }))
      return { y: x.pipe(upload(), matmul(w), add(bias), download()) }
    })
    const fill = async (bytes: Uint8Array) => new Float32Array(bytes.buffer).set([100, 200])
    const rows = interpret(net, { dims: { rows: 1 }, params: { w: f32(1, 2, 3, 4), bias: fill } })({
      x: [f32(1, 1)],
    })
    expect(await lastValueFrom(rows)).toEqual({ y: f32(104, 206) })
  })

  it('runs a graph without inputs as many ticks as asked for', async () => {
    const net = graph({}, () => {
      const w = param('w', tensor('f32', [1]))
      return {
        y: w.pipe(
          scan((acc, x) => acc.pipe(add(x)), 0),
          download(),
        ),
      }
    })
    const rows = interpret(net, { params: { w: f32(2) }, ticks: 3 })({})
    expect(await firstValueFrom(rows.pipe(toArray()))).toEqual([{ y: f32(2) }, { y: f32(4) }, { y: f32(6) }])
  })

  it('runs a kernel by its reference: several writes, a donated one starting as its read', async () => {
    const accumulate = kernel({
      name: 'accumulate',
      cuda: 'extern "C" __global__ void accumulate(const float* x, float* y, float* total) {}',
      reads: { x: tensor('f32', ['n']) },
      writes: { y: tensor('f32', ['n']), total: tensor('f32', [1]) },
      donates: { y: 'x' },
      launch: { grid: 1, block: 1 },
      reference: ({ x }, { y, total }, { n }) => {
        expect(n).toBe(3)
        for (let i = 0; i < x.length; i++) {
          y[i]! += 1
          total[0]! += x[i]!
        }
      },
    })
    const net = graph({ x: tensor('f32', ['rows']) }, ({ x }) => {
      const { y, total } = accumulate({ x: x.pipe(upload()) })
      return { y: y.pipe(download()), total: total.pipe(download()) }
    })
    expect(await lastValueFrom(interpret(net, { dims: { rows: 3 } })({ x: [f32(1, 2, 3)] }))).toEqual({
      y: f32(2, 3, 4),
      total: f32(6),
    })
  })

  it('refuses a reference that fills its writes later or never', async () => {
    const later = (reference: unknown) => {
      const filled = kernel({
        name: 'filled',
        cuda: 'extern "C" __global__ void filled(const float* x, float* y) {}',
        reads: { x: two },
        writes: { y: two },
        launch: { grid: 1, block: 1 },
        reference: reference as () => void,
      })
      return graph({ x: two }, ({ x }) => ({ y: filled({ x: x.pipe(upload()) }).y.pipe(download()) }))
    }
    const declared: readonly [string, unknown][] = [
      ['an async function', async () => undefined],
      ['a generator function', function* () {}],
      ['an async generator function', async function* () {}],
    ]
    for (const [found, reference] of declared) {
      const refused = compile(later(reference))
      expect(refused).toMatchObject({ _tag: 'Left', left: [{ _tag: 'BadAttribute', found }] })
    }
    const returned: readonly [string, unknown][] = [
      ['one that returned a promise', () => Promise.reject(new Error('late'))],
      ['one that returned an iterator', () => [1][Symbol.iterator]()],
    ]
    for (const [found, reference] of returned) {
      const faults = await faultsOf(lastValueFrom(interpret(later(reference))({ x: [f32(1, 2)] })))
      expect(faults).toMatchObject([{ _tag: 'BadAttribute', subject: 'filled[0]', found }])
    }
    const net = later(({ x }: { x: Float32Array }, { y }: { y: Float32Array }) =>
      x.map((value, i) => (y[i] = value)),
    )
    expect(await lastValueFrom(interpret(net)({ x: [f32(1, 2)] }))).toEqual({ y: f32(1, 2) })
  })

  it('requests only parameters that an output depends on, but every feed', async () => {
    const net = graph({ x: two, unused: two }, ({ x, unused }) => {
      unused.pipe(upload(), mul(param('dead', two)))
      return { y: x.pipe(upload(), download()) }
    })
    const rows = interpret(net)({ x: [f32(1, 2), f32(3, 4)], unused: [f32(0, 0)] })
    expect(await firstValueFrom(rows.pipe(toArray()))).toEqual([{ y: f32(1, 2) }])
  })

  it('does not change its inputs, and yields fresh arrays', async () => {
    const net = graph({ x: two }, ({ x }) => ({ same: x, copy: x.pipe(upload(), download()) }))
    const fed = f32(1, 2)
    const { same, copy } = await lastValueFrom(interpret(net)({ x: [fed] }))
    same[0] = 9
    copy[1] = 9
    expect(fed).toEqual(f32(1, 2))
  })

  it('passes on the error of a feed, and drops the others', async () => {
    const net = graph({ a: two, b: two }, ({ a, b }) => ({
      y: a.pipe(upload(), mul(b.pipe(upload())), download()),
    }))
    const broken = throwError(() => new Error('the camera is gone'))
    await expect(lastValueFrom(interpret(net)({ a: NEVER, b: broken }))).rejects.toThrow('the camera is gone')
    expect(await firstValueFrom(interpret(net)({ a: EMPTY, b: NEVER }).pipe(toArray()))).toEqual([])
  })

  it('names the symbol and the option when a feed has another size', async () => {
    const net = graph({ x: tensor('f32', ['batch', 2]) }, ({ x }) => ({ y: x }))
    const one = interpret(net, { dims: { batch: 1 } })
    const [fault] = await faultsOf(lastValueFrom(one({ x: [f32(1, 2, 3, 4)] })))
    expect(fault).toMatchObject({ _tag: 'ShapeMismatch', next: expect.stringMatching(/batch.*dims/) })
    const [wrong] = await faultsOf(lastValueFrom(one({ x: [new Int32Array(2) as never] })))
    expect(wrong).toMatchObject({ _tag: 'DTypeMismatch' })
  })

  it('checks the length of a state’s init against its bound size, as compile does', async () => {
    const rows = tensor('f32', ['rows', 2])
    const nets = [
      graph({ x: rows }, ({ x }) => ({ y: x.pipe(upload(), delay([1, 2, 3, 4]), download()) })),
      graph({ x: rows }, ({ x }) => ({
        y: x.pipe(
          upload(),
          scan((acc, x) => acc.pipe(add(x)), [1, 2, 3, 4]),
          download(),
        ),
      })),
    ]
    for (const net of nets) {
      const fault = {
        _tag: 'BadAttribute',
        at: expect.stringMatching(/^spec\/laws\/interpret\/interpret\.test\.ts:\d+:\d+$/),
        subject: 'delay[0]',
        wanted: expect.stringMatching(/^6 initial values, for f32\[3, 2\]$/),
        found: '4',
      }
      const feed = { x: [f32(0, 0, 0, 0, 0, 0)] }
      expect(await faultsOf(lastValueFrom(interpret(net, { dims: { rows: 3 } })(feed)))).toMatchObject([
        fault,
      ])
      expect(compile(net, { dims: { rows: 3 } })).toMatchObject({ _tag: 'Left', left: [fault] })
      const [first] = await firstValueFrom(
        interpret(net, { dims: { rows: 2 } })({ x: [f32(0, 0, 0, 0)] }).pipe(toArray()),
      )
      expect([...first!.y]).toEqual([1, 2, 3, 4])
      expect(compile(net, { dims: { rows: 2 } })._tag).toBe('Right')
    }
  })

  it('refuses missing feeds, missing parameters, unknown dims, and graphs with errors', async () => {
    const net = graph({ x: two }, ({ x }) => ({ y: x.pipe(upload(), mul(param('w', two)), download()) }))
    expect(await faultsOf(lastValueFrom(interpret(net)({} as never)))).toMatchObject([{ _tag: 'BadOption' }])
    expect(await faultsOf(lastValueFrom(interpret(net)({ x: [f32(1, 2)] })))).toMatchObject([
      { _tag: 'MissingParam' },
    ])
    expect(await faultsOf(lastValueFrom(interpret(net, { dims: { rows: 2 } })({ x: [] })))).toMatchObject([
      { _tag: 'BadOption' },
    ])
    const mistaken = graph({ x: two }, ({ x }) => ({ y: x.pipe(upload(), add(Number.NaN)) as never }))
    const faults = await faultsOf(lastValueFrom(interpret(mistaken)({ x: [] } as never)))
    expect(faults.map(({ _tag }) => _tag)).toEqual(['BadAttribute'])
  })

  it('interprets every generated graph: no errors, all ticks, finite and repeatable values', async () => {
    await fc.assert(
      fc.asyncProperty(sample(), async made => {
        expect(irOf(made.graph).problems).toEqual([])
        const run = () =>
          firstValueFrom(
            interpret(made.graph, { params: made.params, dims: made.dims })(
              Object.fromEntries(
                Object.entries(made.feeds).map(([name, values]) => [name, from(values)]),
              ) as never,
            ).pipe(toArray()),
          )
        const [once, again] = [await run(), await run()]
        expect(once).toHaveLength(made.ticks)
        for (const [t, row] of once.entries())
          for (const [name, dtype] of Object.entries(made.outputs)) {
            expect(numbers(row[name]!, dtype).every(Number.isFinite)).toBe(true)
            expect(again[t]![name]).toEqual(row[name])
          }
      }),
      { numRuns: runs(300) },
    )
  })
})

describe('states between ticks', () => {
  it('are read, written and reset by name', async () => {
    const net = graph('written', { x: tensor('f32', [2]) }, ({ x }) => {
      const s = state({ sum: tensor('f32', [2]), last: tensor('f32', [2]) }, { last: [7, 8] })
      const now = x.pipe(upload())
      s.next({ sum: s.sum.pipe(add(now)), last: now })
      return { y: s.sum.pipe(add(s.last), download()) }
    })
    const seen: unknown[] = []
    const feed = [1, 2, 3, 4].map(value => new Float32Array(2).fill(value))
    const results = await lastValueFrom(
      interpret(net, {
        between: (tick, states) => {
          seen.push([states.read('sum')[0], states.read('last')[0]])
          if (tick === 2) states.write('sum', new Float32Array(2).fill(100))
          if (tick === 3) states.reset()
        },
      })({ x: feed }).pipe(toArray()),
    )
    expect(results.map(({ y }) => [...y])).toEqual([
      [7, 8],
      [2, 2],
      [102, 102],
      [7, 8],
    ])
    expect(seen).toEqual([
      [0, 7],
      [1, 1],
      [3, 2],
      [103, 3],
    ])
  })

  it('are the states that there are, of their types', async () => {
    const net = graph({ x: tensor('f32', [2]) }, ({ x }) => ({
      y: x.pipe(upload(), delay(0, { name: 'd' }), download()),
    }))
    const ran = (between: Between) => lastValueFrom(interpret(net, { between })({ x: [new Float32Array(2)] }))
    await expect(ran((_, states) => states.write('e', new Float32Array(2)))).rejects.toThrow(
      'the name of a state: d',
    )
    await expect(ran((_, states) => states.write('d', new Float32Array(3)))).rejects.toThrow('3 elements')
  })
})
