// The pass `shapes`: positions need the shape of a value alone, so no plan makes, keeps or waits for the value.
import { describe, expect, test } from 'vitest'
import {
  type AnyTensor,
  add,
  after,
  compile,
  cumsum,
  type DeviceFlow,
  delay,
  device,
  download,
  type Graph,
  graph,
  iota,
  keep,
  lane,
  less,
  matmul,
  mul,
  on,
  orThrow,
  type Plan,
  param,
  relu,
  reshape,
  sum,
  tensor,
  topK,
  transpose,
  upload,
  where,
} from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'

const matrix = tensor('f32', [8, 8])
type Matrix = DeviceFlow<typeof matrix>

const graphOf = (body: (x: Matrix) => Record<string, DeviceFlow<AnyTensor>>): Graph =>
  graph({ x: matrix }, ({ x }) =>
    Object.fromEntries(Object.entries(body(x.pipe(upload()))).map(([name, y]) => [name, y.pipe(download())])),
  ) as unknown as Graph

const planOf = (made: Graph, fuse: boolean): Plan => {
  const plan = orThrow(compile(made, { fuse })) as Plan
  expect(verify(plan)).toEqual([])
  return plan
}

/** What a plan does, in the order of the graph, but for the copies to and from the host. */
const opsOf = ({ nodes }: Plan): readonly string[] =>
  nodes.map(({ op }) => op).filter(op => op !== 'upload' && op !== 'download')

const uploadsOf = ({ nodes }: Plan): number => nodes.filter(({ op }) => op === 'upload').length

const places = iota({ axis: 0 })

describe('shapes', () => {
  test.each<[string, (x: Matrix) => DeviceFlow<AnyTensor>]>([
    ['what was uploaded', x => x],
    ['an elementwise value', x => x.pipe(relu(), mul(2))],
    ['a product', x => x.pipe(matmul(x))],
    ['a running sum', x => x.pipe(cumsum({ axis: 0 }))],
    ['a reduction', x => x.pipe(sum({ axis: 0, keepDims: true }))],
    ['a choice', x => x.pipe(topK({ k: 2 })).values as DeviceFlow<AnyTensor>],
    ['what is kept', x => x.pipe(relu(), keep())],
    ['a view', x => x.pipe(relu(), reshape([64]))],
    ['a copy', x => x.pipe(relu(), transpose([1, 0]))],
    ['the value before', x => x.pipe(relu(), delay(0))],
    ['other positions', x => x.pipe(places)],
  ])('makes nothing that gives positions their shape alone: %s', (_, body) => {
    for (const fuse of [false, true]) {
      const plan = planOf(
        graphOf(x => ({ y: body(x).pipe(places) })),
        fuse,
      )
      expect(opsOf(plan)).toEqual(['iota'])
      expect(uploadsOf(plan)).toBe(0)
      expect(plan.buffers.some(({ life }) => life === 'input')).toBe(true)
    }
  })

  test('gives a kernel of positions alone no operands', () => {
    const made = graphOf(x => ({ y: x.pipe(relu(), places, add(1), mul(3)) }))
    const [{ kernel }] = planOf(made, true).nodes.filter(({ op }) => op === 'fused') as [
      Plan['nodes'][number],
    ]
    expect(kernel).toMatchObject({ kind: 'map', operands: [] })
  })

  test('leaves what something else reads', () => {
    const made = graphOf(x => {
      const made = x.pipe(relu())
      return { y: made.pipe(places, less(3), where(made, 0)) }
    })
    expect(opsOf(planOf(made, false))).toEqual(['iota', 'less', 'relu', 'where'])
  })

  test('copies nothing to another device for its shape', () => {
    const made = graphOf(x => ({ y: x.pipe(relu(), on(device(0)), places, on(device(1)), add(1)) }))
    expect(opsOf(planOf(made, false))).toEqual(['iota', 'peer', 'add'])
    const there = graphOf(x => ({ y: x.pipe(relu(), on(device(1)), places, add(1)) }))
    expect(opsOf(planOf(there, false))).toEqual(['iota', 'add'])
  })

  test('keeps parameters, and states with a name', () => {
    const made = graph({ x: matrix }, ({ x }) => {
      const total = x.pipe(upload(), relu(), delay(0, { name: 'before' }))
      return {
        y: total.pipe(places, download()),
        z: param('w', matrix).pipe(iota({ axis: 1 }), download()),
      }
    }) as unknown as Graph
    const { buffers } = planOf(made, true)
    expect(buffers.filter(({ life }) => life === 'param').map(({ name }) => name)).toEqual(['w'])
    expect(buffers.filter(({ life }) => life === 'state').map(({ name }) => name)).toContain('before')
  })

  test.each<[string, (x: Matrix) => DeviceFlow<AnyTensor>]>([
    ['as it is', x => x],
    ['through a view', x => x.pipe(reshape([64]))],
  ])('leaves positions after the operation that the program orders them after: %s', (_, view) => {
    const made = graphOf(x => {
      const first = x.pipe(on(lane('side')), mul(2))
      return { first, y: view(x.pipe(after(first))).pipe(places, add(1)) }
    })
    for (const fuse of [false, true]) {
      const { nodes } = planOf(made, fuse)
      const ordered = nodes.filter(({ after = [] }) => after.length > 0)
      expect(ordered.map(({ op }) => op)).toEqual([fuse ? 'fused' : 'iota'])
    }
  })
})
