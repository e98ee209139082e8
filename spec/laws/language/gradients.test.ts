// What gradients are of, where they run, and where there are none. Their values: slopes.test.ts.
import { firstValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { elements } from '../../../dsl/ir/tensor.js'
import { constants, rules, withoutRule } from '../../../dsl/language/gradients/rules.js'
import { operators } from '../../../dsl/language/operators/registry.js'
import { drawn, f32, type Point, paramsOf, type Specs } from '../../fixtures/graphs/gradients.js'

// biome-ignore lint/suspicious/noExplicitAny: graphs of any operators
type Any = any

const { download, gradients, graph, interpret, param, tensor } = braid as Any

const results = async (made: Any, specs: Specs, point: Point, dims = {}): Promise<Any> =>
  firstValueFrom(interpret(made, { params: paramsOf(specs, point), dims })({}) as never)

describe('gradients', () => {
  const b = braid as Any

  it('of f16 and bf16 are of these types, and near those of f32', async () => {
    for (const dtype of ['f16', 'bf16'] as const) {
      const of = (type: 'f32' | 'f16' | 'bf16') => {
        const specs: Specs = { x: [type, [3, 4]], w: [type, [5, 4]], s: [type, [5]] }
        const made = graph('narrow', {}, () => {
          const values = Object.fromEntries(
            Object.entries(specs).map(([name, [own, shape]]) => [name, param(name, tensor(own, shape))]),
          )
          const y = values['x'].pipe(b.linear(values['w']), b.layerNorm({ scale: values['s'] }), b.gelu())
          const found = gradients(y.pipe(b.mul(0.5), b.cast('f32'), b.sum()), values)
          expect(found.w.spec).toEqual({ dtype: type, shape: [5, 4] })
          return Object.fromEntries(
            Object.entries(found).map(([name, flow]) => [
              name,
              (flow as Any).pipe(b.cast('f32'), download()),
            ]),
          )
        })
        return results(made, specs, drawn(specs, 3))
      }
      const [narrow, wide] = [await of(dtype), await of('f32')]
      for (const name of ['x', 'w', 's']) {
        const largest = Math.max(...wide[name].map(Math.abs))
        for (const [i, value] of wide[name].entries())
          expect(Math.abs(narrow[name][i] - value)).toBeLessThan(0.03 * largest)
      }
    }
  })

  const withSymbols: Readonly<Record<string, readonly [Specs, number[], (x: Any, values: Any) => Any]>> = {
    'a mean and a softmax over it': [
      { w: f32(3, 4), c: f32(3) },
      [4],
      (x, { w, c }) => x.pipe(b.linear(w, c), b.softmax({ axis: 0 }), b.mul(c), b.mean(0), b.sum()),
    ],
    'convolutions and pooling': [
      { w: f32(2, 1, 3, 3), c: f32(2) },
      [1, 6, 5],
      (x, { w, c }) =>
        x.pipe(
          b.conv(w, { padding: 1, bias: c }),
          b.maxPool({ kernel: 2, stride: 1 }),
          b.avgPool({ kernel: 3, stride: 2 }),
          b.mean(),
        ),
    ],
    attention: [
      { w: f32(6, 4), c: f32(6) },
      [8, 4],
      (x, { w, c }) => {
        const y = x.pipe(b.linear(w, c), b.reshape([x.spec.shape[0], 4, 2, 6]))
        const q = y.pipe(b.slice(3, 0, 2))
        return q.pipe(
          b.attention(y.pipe(b.slice(3, 2, 4)), y.pipe(b.slice(3, 4)), { causal: true }),
          b.mean(),
        )
      },
    ],
  }
  it.each(Object.entries(withSymbols))(
    'have sizes that are bound later: %s',
    async (_, [specs, sizes, loss]) => {
      const made = (batch: number | string) =>
        graph('sized', { x: tensor('f32', [batch, ...sizes]) }, ({ x }: Any) => {
          const values = Object.fromEntries(
            Object.entries(specs).map(([name, [dtype, shape]]) => [name, param(name, tensor(dtype, shape))]),
          )
          const of = loss(x.pipe(b.upload()), values)
          return Object.fromEntries(
            Object.entries(gradients(of, values)).map(([name, flow]) => [
              name,
              (flow as Any).pipe(download()),
            ]),
          )
        })
      const params = paramsOf(specs, drawn(specs, 5))
      const x = [Float32Array.from({ length: 5 * elements(sizes) }, (_, i) => Math.cos(i))]
      const [late, early] = await Promise.all(
        [[made('batch'), { batch: 5 }] as const, [made(5), {}] as const].map(([each, dims]) =>
          firstValueFrom(interpret(each, { params, dims })({ x }) as never),
        ),
      )
      for (const name of Object.keys(specs))
        for (const [i, value] of (early as Any)[name].entries())
          expect((late as Any)[name][i]).toBeCloseTo(value, 5)
    },
  )

  it('stop where the program says', async () => {
    const specs: Specs = { x: f32(4) }
    const made = graph('stopped', {}, () => {
      const x = param('x', tensor('f32', [4]))
      const still = x.pipe(b.stopGradient())
      const { dx } = { dx: gradients(x.pipe(b.mul(still), b.sum()), { x }).x }
      return { dx: dx.pipe(download()), x: still.pipe(download()) }
    })
    const { dx, x } = await results(made, specs, drawn(specs, 1))
    expect(dx).toEqual(x)
  })

  it('of values in between count all that follows', async () => {
    const specs: Specs = { x: f32(4) }
    const made = graph('between', {}, () => {
      const x = param('x', tensor('f32', [4]))
      const y = x.pipe(b.mul(2))
      const found = gradients(y.pipe(b.mul(y), b.sum()), { x, y })
      return { dx: found.x.pipe(download()), dy: found.y.pipe(download()), y: y.pipe(download()) }
    })
    const { dx, dy, y } = await results(made, specs, drawn(specs, 1))
    for (const i of [0, 1, 2, 3]) {
      expect(dy[i]).toBeCloseTo(2 * y[i], 6)
      expect(dx[i]).toBeCloseTo(4 * y[i], 6)
    }
  })

  it('share the corner of two equal values, and are 0 at the corner of one', async () => {
    const specs: Specs = { x: f32(3), y: f32(3) }
    const point = { x: [1, 0, -1], y: [1, 2, -3] }
    const made = graph('corners', {}, () => {
      const [x, y] = [param('x', tensor('f32', [3])), param('y', tensor('f32', [3]))]
      const two = gradients(x.pipe(b.max(y), b.sum()), { x, y })
      const one = gradients(x.pipe(b.relu(), b.add(x.pipe(b.abs())), b.sum()), { x })
      const most = gradients(x.pipe(b.mul(0), b.max({ axis: 0 })), { x })
      return Object.fromEntries(
        Object.entries({ x: two.x, y: two.y, one: one.x, most: most.x }).map(([name, flow]) => [
          name,
          (flow as Any).pipe(download()),
        ]),
      )
    })
    const found = await results(made, specs, point)
    expect([...found.x]).toEqual([0.5, 0, 1])
    expect([...found.y]).toEqual([0.5, 1, 0])
    expect([...found.one]).toEqual([2, 0, -1])
    for (const each of found.most) expect(each).toBe(0)
  })

  it('of collectives are those of the sum of all losses', async () => {
    const world = b.communicator('world', 2)
    const made = graph('ranks', { scale: tensor('f32', [1]) }, ({ scale }: Any) => {
      const own = scale.pipe(b.upload())
      const shard = param('shard', tensor('f32', [2, 2]))
      const whole = shard.pipe(b.allGather(world), b.reshape([4, 2]))
      const part = whole.pipe(b.mul(own), b.reshape([2, 2, 2]), b.reduceScatter(world, 'mean'), b.sin())
      const mixed = part.pipe(b.reshape([2, 2]), b.allToAll(world), b.mul(own))
      const mean = mixed.pipe(b.allReduce(world, 'mean'), b.mul(part), b.mul(own))
      const loss = mean.pipe(b.allReduce(world, 'sum'), b.mul(own), b.sum())
      return { loss: loss.pipe(download()), shard: gradients(loss, { shard }).shard.pipe(download()) }
    })
    const ranks = [
      [0.3, -0.7, 0.2, 0.9],
      [-0.4, 0.6, 0.8, -0.1],
    ]
    const run = async (shards: readonly (readonly number[])[]): Promise<Any> =>
      firstValueFrom(
        b.interpretRanks(made, { params: shards.map(own => ({ shard: Float32Array.from(own) })) })(
          [0.5, 1.5].map(scale => ({ scale: [Float32Array.of(scale)] })),
        ),
      )
    const here = await run(ranks)
    for (const rank of [0, 1])
      for (const i of [0, 1, 2, 3]) {
        const total = async (step: number): Promise<number> => {
          const moved = ranks.map((own, r) => own.map((x, j) => (r === rank && j === i ? x + step : x)))
          return (await run(moved)).reduce((sum: number, each: Any) => sum + each.loss[0], 0)
        }
        const h = 0.02
        const slope = ((await total(h)) - (await total(-h))) / (2 * h)
        expect(Math.abs(here[rank].shard[i] - slope)).toBeLessThan(2e-3)
      }
  })

  it('of gathers are joined as they say: the mean, in a type, by a communicator and on a lane of their own', async () => {
    const [world, back] = [b.communicator('world', 2), b.communicator('back', 2)]
    const [wire, home] = [b.lane('wire'), b.lane('home')]
    const made = (gradient?: Any) =>
      graph('sharded', { x: tensor('f32', [2]) }, ({ x }: Any) => {
        const shard = param('shard', tensor('f32', [1]))
        const whole = shard.pipe(b.cast('bf16'), b.allGather(world, wire, { gradient }), b.reshape([2]))
        const loss = whole.pipe(b.mul(x.pipe(b.upload(), b.cast('bf16'))), b.cast('f32'), b.sum())
        return { by: gradients(loss, { shard }).shard.pipe(download()) }
      })
    // By rank what its loss changes by: of f32 the sum has bits that bf16 has not.
    const ranks = [
      [1, 256],
      [2 ** -7, 1],
    ].map(values => ({ x: [Float32Array.from(values)] }))
    const params = [0, 1].map(() => ({ shard: Float32Array.of(1) }))
    const found = async (gradient?: Any): Promise<readonly number[]> =>
      ((await firstValueFrom(b.interpretRanks(made(gradient), { params })(ranks) as never)) as Any).map(
        ({ by }: Any) => by[0],
      )
    expect(await found()).toEqual([1 + 2 ** -7, 256])
    expect(await found({ dtype: 'f32' })).toEqual([1 + 2 ** -7, 257])
    expect(await found({ dtype: 'f32', how: 'mean' })).toEqual([0.5 + 2 ** -8, 128.5])
    const plan = b.orThrow(b.compile(made({ dtype: 'f32', communicator: back, lane: home })))
    const reduced = plan.nodes.find(({ collective }: Any) => collective?.kind === 'reduceScatter')
    expect(reduced.collective).toMatchObject({ dtype: 'f32', count: 1 })
    expect(plan.communicators[reduced.collective.communicator].name).toBe('back')
    const run = plan.commands.find(([op, node]: Any) => op === 'run' && node === reduced.id)
    expect(plan.lanes[run[2]].name).toBe('home')
    const wrong = (gradient: Any): Any => b.compile(made(gradient)).left?.[0]
    expect(wrong({ how: 'max' })).toMatchObject({ _tag: 'BadAttribute', found: "'max'" })
    expect(wrong({ dtype: 'i32' })).toMatchObject({
      _tag: 'BadAttribute',
      wanted: expect.stringContaining('dtype'),
    })
    expect(wrong({ rate: 1 })).toMatchObject({ _tag: 'BadAttribute', found: 'rate' })
    expect(wrong({ communicator: b.communicator('turned', { groups: [[1, 0]] }) })).toMatchObject({
      _tag: 'BadAttribute',
      wanted: expect.stringContaining("one of the groups of 'world'"),
    })
  })

  it('run on the lanes of what they are of', () => {
    const [first, second, wire] = [b.lane('first'), b.lane('second'), b.lane('wire')]
    const world = b.communicator('world', 2)
    const made = graph('lanes', {}, () => {
      const w = param('w', tensor('f32', [2, 2]))
      const whole = w.pipe(b.allGather(world, wire), b.on(first), b.reshape([4, 2]), b.exp())
      const loss = whole.pipe(b.on(second), b.sin(), b.mul(whole), b.sum())
      return { w: gradients(loss, { w }).w.pipe(download()) }
    })
    const lanes = new Map<string, string | undefined>()
    for (const { name, lane } of b.irOf?.(made)?.nodes ?? made.ir?.nodes ?? [])
      if (name.startsWith('gradients[0].')) lanes.set(name, lane?.name)
    expect(lanes.get('gradients[0].sin[0].map')).toBe('second')
    expect(lanes.get('gradients[0].exp[0].map')).toBe('first')
    expect(lanes.get('gradients[0].allGather[0].reduceScatter')).toBe('wire')
  })

  it('add up over the values that one is repeated for', async () => {
    const sizes = tensor('f32', [2])
    const steps = (n?: number) =>
      graph('micro', { x: sizes }, ({ x }: Any) => {
        const s = b.state({ w: sizes, b: sizes }, { w: 3, b: 1 })
        const error = s.w.pipe(b.repeat(n), b.mul(x.pipe(b.upload())), b.sub(s.b.pipe(b.repeat(n))))
        const by = gradients(error.pipe(b.mul(error), b.sum()), { w: s.w, b: s.b })
        s.next({ w: s.w.pipe(b.sub(by.w.pipe(b.mul(0.01)))), b: s.b.pipe(b.sub(by.b.pipe(b.mul(0.01)))) })
        return { w: by.w.pipe(download()), b: by.b.pipe(download()) }
      })
    const values = [1, 2, 3, 4].map(k => Float32Array.of(k, -k))
    const { w, b: by } = (await firstValueFrom(interpret(steps(4))({ x: values }) as never)) as Any
    const errors = [1, -1].map(sign => [1, 2, 3, 4].map(k => 3 * sign * k - 1))
    const sum = (all: number[]) => all.reduce((a, c) => a + c, 0)
    for (const i of [0, 1]) {
      expect(w[i]).toBeCloseTo(sum(errors[i]!.map((e, k) => 2 * e * [1, -1][i]! * (k + 1))), 3)
      expect(by[i]).toBeCloseTo(sum(errors[i]!.map(e => -2 * e)), 3)
    }
    const [unknown] = b.compile(steps()).left
    expect(unknown).toMatchObject({ _tag: 'NoGradient', next: 'say how many values: repeat(4)' })
  })

  const problemsOf = (body: () => Any): Any => {
    const plan = b.compile(graph('wrong', {}, body))
    return plan._tag === 'Left' ? plan.left : []
  }

  it('are refused where there are none', () => {
    const wrong = (make: (w: Any) => Any) =>
      problemsOf(() => ({ y: make(param('w', tensor('f32', [2, 2]))).pipe(download()) }))
    expect(wrong(w => gradients(w, { w }).w)).toMatchObject([
      { _tag: 'ShapeMismatch', subject: 'gradients', wanted: 'one float as the loss', found: 'f32[2, 2]' },
    ])
    const loss = (w: Any) => w.pipe(b.mean())
    expect(wrong(w => gradients(loss(w), { v: param('v', tensor('f32', [2])) }).v)).toMatchObject([
      { _tag: 'NoGradient', found: 'v, with which it does not change' },
    ])
    expect(wrong(w => gradients(loss(w.pipe(b.map((a: Any) => a.round()))), { w }).w)).toMatchObject([
      { _tag: 'NoGradient' },
    ])
    expect(wrong(w => gradients(loss(w.pipe(b.cast('i32'), b.cast('f32'))), { w }).w)).toMatchObject([
      { _tag: 'NoGradient' },
    ])
    const cached = (w: Any) => {
      const at = w.pipe(b.iota(), b.slice(0, 0, 1), b.slice(1, 0, 1), b.reshape([1]))
      const s = b.state({ rows: tensor('f32', [4, 2]) })
      const rows = s.rows.pipe(b.append(w, { axis: 0, at }))
      s.next({ rows })
      return gradients(loss(rows), { w }).w
    }
    const [append] = wrong(cached)
    expect(append).toMatchObject({ _tag: 'NoGradient', subject: 'gradients' })
    expect(append.found).toContain('append[0]')
    for (const by of [undefined, null, 7, [], 'w'])
      expect(wrong(w => gradients(loss(w), by).w ?? w)).toMatchObject([{ _tag: 'BadAttribute' }])
    expect(wrong(w => gradients(loss(w), w).w ?? w)).toMatchObject([
      { _tag: 'BadAttribute', found: 'one flow' },
    ])
    expect(wrong(w => gradients(loss(w), { w: 3 }).w)).toMatchObject([{ _tag: 'NotAFlow' }])
    expect(wrong(w => gradients(loss(w), { w: w.pipe(b.cast('i32')) }).w)).toMatchObject([
      { _tag: 'DTypeMismatch' },
    ])
    expect(wrong(w => gradients(3, { w }).w)).toMatchObject([{ _tag: 'NotAFlow' }])
    // What follows from an error is none.
    expect(wrong(w => gradients(loss(w.pipe(b.reshape([3, 3]))), { w }).w)).toMatchObject([
      { _tag: 'ShapeMismatch', subject: 'reshape' },
    ])
  })
})

describe('every operator', () => {
  it('has a gradient, or yields no float that changes with another, or a reason', () => {
    const known = new Set([...Object.keys(rules), ...Object.keys(withoutRule), ...constants])
    const whole = [
      'argmax',
      'argmin',
      'equal',
      'fill',
      'greater',
      'greaterOrEqual',
      'less',
      'lessOrEqual',
      'notEqual',
      'oneHot',
      'topK',
    ]
    expect(Object.keys(operators).filter(name => !known.has(name))).toEqual(whole)
  })
})
