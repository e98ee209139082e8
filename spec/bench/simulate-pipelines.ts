// Ten pipelines to hold `simulate` against: what bounds them is in turn a link, the tensor cores, device
// memory, the host's feeding, and how lanes share a device.
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  type CompileOptions,
  cast,
  download,
  gelu,
  graph,
  lane,
  map,
  matmul,
  mul,
  on,
  param,
  relu,
  silu,
  slice,
  tensor,
  upload,
} from '../../dsl/index.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Machine } from '../../dsl/machine/machine.js'

export interface Pipeline {
  readonly name: string
  readonly plan: Plan
  /** Bytes that each tick gives to the input called `x`; 0: the graph has none. */
  readonly input: number
  /** Whether the device's clock is to be looked at: products draw so much power that it gives way. */
  readonly clocked?: boolean
}

const mebi = 2 ** 20
const planOf = (
  net: Parameters<typeof compile>[0],
  machine: Machine | string,
  options: CompileOptions = {},
): Plan => orThrow(compile(net, { mode: 'eager', machine, fuse: false, ...options }))

/**
 * Weights of 128 MiB from pinned memory, `rows` rows: `ahead` uploads run ahead of the product that reads
 * them.
 */
const weights = (layers: number, rows: number, ahead: number) =>
  graph(`weights, ahead ${ahead}, ${rows} rows`, {}, () => {
    const copy = lane('copy')
    let y = param('x', tensor('bf16', [rows, 8192])).pipe(on(lane('math', { priority: 'high' })))
    for (let i = 0; i < layers; i++)
      y = y.pipe(
        matmul(param(`w[${i}]`, tensor('bf16', [8192, 8192]), { on: 'host' }).pipe(upload(copy, { ahead }))),
        relu(),
      )
    return { y: y.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

const square = (n: number) => tensor('bf16', [n, n])

/** Branches of products on lanes of their own, which meet at the end. */
const products = (branches: number, depth: number, n: number) =>
  graph(`${branches} branches of ${depth} products of ${n}`, {}, () => {
    const x = param('x', square(n))
    const w = param('w', square(n))
    const ends = Array.from({ length: branches }, (_, b) => {
      let y = x.pipe(on(lane(`branch${b}`)), mul(1 / (b + 2)))
      for (let i = 0; i < depth; i++) y = y.pipe(matmul(w))
      return y
    })
    const sum = ends.slice(1).reduce((total, end) => total.pipe(on(lane('branch0')), add(end)), ends[0]!)
    return { y: sum.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

/** Branches of elementwise kernels over `size` MiB each. */
const elementwise = (branches: number, depth: number, size: number) =>
  graph(`${branches} branches of ${depth} elementwise over ${size} MiB`, {}, () => {
    const x = param('x', tensor('f32', [size * 256, 1024]))
    const ends = Array.from({ length: branches }, (_, b) => {
      let y = x.pipe(on(lane(`branch${b}`)), mul(1 / (b + 2)))
      for (let i = 1; i < depth; i++) y = y.pipe(i % 2 ? relu() : mul(1.5 + i))
      return y
    })
    const sum = ends.slice(1).reduce((total, end) => total.pipe(on(lane('branch0')), add(end)), ends[0]!)
    return { y: sum.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

/** Fork and join again and again, each side a product small enough to leave room for the other. */
const diamonds = (count: number, n: number) =>
  graph(`${count} diamonds of products of ${n}`, {}, () => {
    const w = param('w', square(n))
    const v = param('v', square(n))
    let y = param('x', square(n)).pipe(on(lane('left')), mul(0.5))
    for (let i = 0; i < count; i++) {
      const right = y.pipe(on(lane('right')), matmul(v))
      y = y.pipe(on(lane('left')), matmul(w), add(right))
    }
    return { y: y.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

const chain = (depth: number, n: number) =>
  graph(`chain of ${depth} products of ${n}`, {}, () => {
    const w = param('w', square(n))
    let y = param('x', square(n)).pipe(on(lane('math')), mul(0.5))
    for (let i = 0; i < depth; i++) y = y.pipe(matmul(w))
    return { y: y.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

/** Frames come up, are worked on, and go down, each on a lane of its own. */
const frames = (size: number) =>
  graph(`frames of ${size} MiB`, { x: tensor('f32', [size * 256, 1024]) }, ({ x }) => ({
    y: x.pipe(
      upload(lane('up')),
      on(lane('math')),
      map(value => value.mul(1.5).add(0.25)),
      relu(),
      silu(),
      download(lane('down')),
    ),
  }))

const elements = (depth: number, size: number) =>
  graph(`chain of ${depth} elementwise over ${size} MiB`, {}, () => {
    let y = param('x', tensor('bf16', [size * 512, 1024])).pipe(on(lane('math')), mul(0.5))
    for (let i = 1; i < depth; i++) y = y.pipe(i % 3 === 0 ? gelu() : i % 3 === 1 ? relu() : mul(1.25))
    return { y: y.pipe(cast('f32'), slice(0, 0, 4), download(lane('out'))) }
  })

/** Copies in both directions at once, a kernel between. */
const bothWays = (count: number, size: number) =>
  graph(`${count} × ${size} MiB both ways`, {}, () =>
    Object.fromEntries(
      Array.from({ length: count }, (_, i) => [
        `y${i}`,
        param(`p${i}`, tensor('f32', [size * 256, 1024]), { on: 'host' }).pipe(
          upload(lane('up')),
          on(lane('math')),
          mul(2),
          download(lane('down')),
        ),
      ]),
    ),
  )

/** The pipelines, compiled for the machine that they are predicted for. */
export const pipelines = (machine: Machine | string): readonly Pipeline[] => {
  const of = (net: Parameters<typeof compile>[0], options: CompileOptions = {}, input = 0): Pipeline => {
    const plan = planOf(net, machine, options)
    return { name: plan.name, plan, input, clocked: true }
  }
  return [
    of(weights(8, 6144, 1), { memory: 576 * mebi }),
    of(weights(8, 16_384, 2)),
    of(products(4, 6, 2048)),
    of(elementwise(4, 6, 64)),
    of(diamonds(16, 1536)),
    of(chain(8, 8192)),
    of(frames(1), { inFlight: 3 }, mebi),
    of(frames(64), { inFlight: 3 }, 64 * mebi),
    of(elements(24, 256)),
    of(bothWays(4, 64)),
  ]
}

/** Products on `lanes` lanes beside each other, `depth` on each, and next to nothing else. */
const abreast = (lanes: number, depth: number, n: number) =>
  graph(`${lanes} × ${depth} products of ${n}`, {}, () => {
    const w = param('w', square(n))
    const ends = Array.from({ length: lanes }, (_, l) => {
      let y = param(`x${l}`, square(n)).pipe(on(lane(`lane${l}`)))
      for (let i = 0; i < depth; i++) y = y.pipe(matmul(w))
      return [`y${l}`, y.pipe(slice(0, 0, 4), download(lane('out')))] as const
    })
    return Object.fromEntries(ends)
  })

/** Two lanes that copy up: what the engine that both need makes of them. */
const uploads = (count: number, size: number) =>
  graph(`${count} × ${size} MiB up beside another lane's`, {}, () => {
    const up = (name: string, rows: number, on: string) =>
      param(name, tensor('f32', [rows * 256, 1024]), { on: 'host' }).pipe(upload(lane(on)))
    const first = Array.from({ length: count }, (_, i) => up(`p${i}`, size, 'first'))
    const second = Array.from({ length: count }, (_, i) => up(`q${i}`, size, 'second'))
    const ends = [...first, ...second].map((p, i) => [
      `y${i}`,
      p.pipe(slice(0, 0, 1), on(lane('math')), mul(2), download()),
    ])
    return Object.fromEntries(ends)
  })

/** Work of one kind and next to nothing else: what latencies, calls and company cost. Not among the ten. */
export const probes = (machine: Machine | string): readonly Pipeline[] => {
  const small = (name: string, lanes: number, depth: number, size = 1024, down = size) =>
    graph(name, {}, () => {
      let y = param('x', tensor('f32', [size])).pipe(on(lane('lane0')), mul(0.5))
      for (let i = 1; i < depth; i++) y = y.pipe(on(lane(`lane${i % lanes}`)), mul(1 + i / depth))
      return { y: y.pipe(slice(0, 0, down), download(lane('lane0'))) }
    })
  const copies = graph('64 copies of 4 KiB up', {}, () =>
    Object.fromEntries([
      [
        'y',
        Array.from({ length: 64 }, (_, i) =>
          param(`p${i}`, tensor('f32', [1024]), { on: 'host' }).pipe(upload(lane('up'))),
        )
          .reduce((sum, p) => sum.pipe(on(lane('up')), add(p)))
          .pipe(download(lane('up'))),
      ],
    ]),
  )
  return [
    small('200 small kernels, one lane', 1, 200),
    small('200 small kernels, two lanes in turn', 2, 200),
    small('24 kernels over 1 MiB, one lane', 1, 24, 1 << 18),
    small('24 kernels over 8 MiB, one lane', 1, 24, 1 << 21),
    small('24 kernels over 32 MiB, one lane', 1, 24, 1 << 23),
    small('24 kernels over 32 MiB, 16 bytes down', 1, 24, 1 << 23, 4),
    copies,
    uploads(6, 8),
    ...[1024, 1536, 2048, 4096].flatMap(n => [1, 2, 4].map(lanes => abreast(lanes, n < 4096 ? 12 : 4, n))),
  ].map(net => {
    const plan = planOf(net, machine)
    return { name: plan.name, plan, input: 0, clocked: /products/.test(plan.name) }
  })
}
