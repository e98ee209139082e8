// Small instances of the graphs that schedulers are compared on, written as a user would, each on lanes of
// its own: so that a reader learns from their plans what the compiler does with such a shape.
import {
  add,
  delay,
  div,
  download,
  exp,
  type Flow,
  graph,
  type Lane,
  lane,
  matmul,
  max,
  mul,
  on,
  param,
  relu,
  reshape,
  sigmoid,
  sub,
  sum,
  type Tensor,
  tensor,
  upload,
} from '../../dsl/index.js'

const copy = lane('copy')
const [a, b, c, d] = [lane('a'), lane('b'), lane('c'), lane('d')]
const side = 16
const square = tensor('f32', [side, side])
type Tile = Flow<'device', Tensor<'f32', [16, 16]>>

const flat = reshape([side * side])
type Scalar = Flow<'device', Tensor<'f32', []>>

/** All of a tile added up on one lane. */
const total = (x: Tile, here: Lane): Scalar => x.pipe(on(here), flat, sum(0)) as Scalar

/** Two steps on each of three lanes, then all on one. */
const chains = graph('chains', { x: square }, ({ x }) => {
  const whole = x.pipe(upload(copy))
  const [p, q, r] = [a, b, c].map(here => whole.pipe(on(here), relu(), sigmoid()))
  return { y: p!.pipe(on(a), add(q!), add(r!), download(copy)) }
})

/** Four values, two by two: no lane waits for more than one other at a time. */
const tree = graph('tree', { x: square }, ({ x }) => {
  const whole = x.pipe(upload(copy))
  const [p, q, r, s] = [a, b, c, d].map((here, i) => whole.pipe(on(here), mul(i + 2)))
  const left = p!.pipe(on(a), add(q!))
  const right = r!.pipe(on(c), add(s!))
  return { y: left.pipe(on(a), add(right), download(copy)) }
})

/**
 * What two lanes read comes from above, and one waits for the other: the second diamond's top needs no wait
 * for the first's.
 */
const diamonds = graph('diamonds', { x: square }, ({ x }) => {
  const top = x.pipe(upload(copy), on(a), relu())
  const middle = top.pipe(on(a), mul(2), add(top.pipe(on(b), mul(3))))
  return { y: middle.pipe(on(a), mul(4), add(middle.pipe(on(b), mul(5))), download(copy)) }
})

/** Values are read one and two layers on: a wait that a later one brings along is left out. */
const layered = graph('layered', { x: square }, ({ x }) => {
  const whole = x.pipe(upload(copy))
  const p = whole.pipe(on(a), relu())
  const q = whole.pipe(on(b), sigmoid())
  const r = p.pipe(on(c), add(q))
  const s = r.pipe(on(b), mul(2), add(p))
  return { y: s.pipe(on(c), add(r), add(q), download(copy)) }
})

/**
 * A state that one lane reads and another stores: the store comes after this tick's read, and the next tick's
 * read after the store.
 */
const stateful = graph('stateful-pipeline', { x: square }, ({ x }) => {
  const now = x.pipe(upload(copy), on(a), relu())
  const smooth = now.pipe(on(b), add(now.pipe(on(b), delay(0))), mul(0.5))
  return { y: smooth.pipe(on(c), sub(now), download(copy)) }
})

/**
 * Two layers: weights come ahead on their own lane, forward, then backward, and each gradient leaves as soon
 * as it is there.
 */
const fsdp = graph('fsdp', { x: square }, ({ x }) => {
  const [gather, reduce] = [lane('gather'), lane('reduce')]
  const weight = (name: string) => param(name, square, { on: 'host' })
  const [w0, w1] = [weight('w0'), weight('w1')]
  const fetch = (w: typeof w0): Tile => w.pipe(upload(gather, { ahead: 1 })) as Tile
  const h0 = x.pipe(upload(copy)) as Tile
  const h1 = h0.pipe(on(a), matmul(fetch(w0)), relu()) as Tile
  const h2 = h1.pipe(on(a), matmul(fetch(w1)), relu()) as Tile
  const g2 = h2.pipe(on(a), sub(1)) as Tile
  const g1 = g2.pipe(on(a), matmul(fetch(w1)), mul(h1)) as Tile
  return {
    dw1: h1.pipe(on(a), matmul(g2), download(reduce)),
    dw0: h0.pipe(on(a), matmul(g1), download(reduce)),
  }
})

/**
 * Three tiles by three, right-looking, of a factorisation whose steps stand for those of LAPACK: what they
 * read and write is theirs.
 */
const cholesky = graph('cholesky', { x: square }, ({ x }) => {
  const n = 3
  const lanes: readonly Lane[] = [a, b, c]
  const whole = x.pipe(upload(copy)) as Tile
  const tile = Array.from({ length: n }, (_, i) =>
    Array.from({ length: i + 1 }, (_, j) => whole.pipe(on(lanes[(i + j) % 3]!), mul(1 + n * i + j)) as Tile),
  )
  for (let k = 0; k < n; k++) {
    const root = tile[k]![k]!.pipe(on(lanes[0]!), exp()) as Tile
    tile[k]![k] = root
    for (let i = k + 1; i < n; i++) tile[i]![k] = tile[i]![k]!.pipe(on(lanes[i % 3]!), div(root)) as Tile
    for (let i = k + 1; i < n; i++)
      for (let j = k + 1; j <= i; j++)
        tile[i]![j] = tile[i]![j]!.pipe(
          on(lanes[(i + j) % 3]!),
          sub(tile[i]![k]!.pipe(on(lanes[(i + j) % 3]!), matmul(tile[j]![k]!)) as Tile),
        ) as Tile
  }
  return Object.fromEntries(
    tile.flatMap((row, i) => row.map((value, j) => [`l${i}${j}`, value.pipe(download(copy))] as const)),
  )
})

/**
 * Task Bench's stencil, three wide and three steps: each task reads its neighbours of the step before, one
 * lane a column.
 */
const stencil = graph('task-bench-stencil', { x: square }, ({ x }) => {
  const lanes = [a, b, c]
  const whole = x.pipe(upload(copy)) as Tile
  let row = lanes.map((here, i) => whole.pipe(on(here), mul(i + 2)) as Tile)
  for (let step = 1; step < 3; step++)
    row = lanes.map((here, i) => {
      const near = row.slice(Math.max(0, i - 1), i + 2)
      return near.slice(1).reduce((total, value) => total.pipe(on(here), add(value)) as Tile, near[0]!)
    })
  return Object.fromEntries(row.map((value, i) => [`y${i}`, value.pipe(download(copy))] as const))
})

/** GrCUDA's vector benchmark: two squares on two lanes, and the sum of their difference on the first. */
const vec = graph('grcuda-vec', { x: square, y: square }, ({ x, y }) => {
  const p = x.pipe(upload(copy), on(a))
  const q = y.pipe(upload(copy), on(b))
  return { z: total(p.pipe(on(a), mul(p), sub(q.pipe(on(b), mul(q)))) as Tile, a).pipe(download(copy)) }
})

/**
 * GrCUDA's Black–Scholes: independent kernels, each behind its own copies, so that copies and kernels
 * overlap.
 */
const options = graph('grcuda-options', { x0: square, x1: square, x2: square }, inputs =>
  Object.fromEntries(
    Object.values(inputs).map(
      (x, i) => [`y${i}`, x.pipe(upload(copy), on([a, b, c][i]!), exp(), download(d))] as const,
    ),
  ),
)

/**
 * GrCUDA's ensemble: two concurrent classifiers, each ending in a softmax, and the better of the two.
 */
const ensemble = graph('grcuda-ensemble', { x: square }, ({ x }) => {
  const [ridge, bayes] = [param('ridge', square), param('bayes', square)]
  const whole = x.pipe(upload(copy)) as Tile
  const softmax = (scores: Tile, here: Lane): Tile => {
    const raised = scores.pipe(on(here), exp()) as Tile
    return raised.pipe(on(here), div(raised.pipe(on(here), sum({ axis: 1, keepDims: true })))) as Tile
  }
  const p = softmax(whole.pipe(on(a), sub(0.5), matmul(ridge), add(1)) as Tile, a)
  const q = softmax(whole.pipe(on(b), matmul(bayes)) as Tile, b)
  return { y: p.pipe(on(a), add(q), max({ axis: 1 }), download(copy)) }
})

/**
 * GrCUDA's HITS, two rounds: hubs from authorities and authorities from hubs, each normalised, on two lanes
 * that cross.
 */
const hits = graph('grcuda-hits', { x: square }, ({ x }) => {
  const whole = x.pipe(upload(copy)) as Tile
  let hubs = whole.pipe(on(a), relu()) as Tile
  let authorities = whole.pipe(on(b), sigmoid()) as Tile
  for (let round = 0; round < 2; round++) {
    const nextHubs = authorities.pipe(on(a), matmul(whole)) as Tile
    const nextAuthorities = hubs.pipe(on(b), matmul(whole)) as Tile
    hubs = nextHubs.pipe(on(a), div(total(nextHubs, a))) as Tile
    authorities = nextAuthorities.pipe(on(b), div(total(nextAuthorities, b))) as Tile
  }
  return { hubs: hubs.pipe(download(copy)), authorities: authorities.pipe(download(copy)) }
})

/**
 * GrCUDA's image pipeline: three blurs, two of them to edges, one to sharpen with, and masks that join them.
 */
const image = graph('grcuda-image', { x: square }, ({ x }) => {
  const picture = x.pipe(upload(copy)) as Tile
  const blur = (here: Lane, radius: number): Tile => picture.pipe(on(here), mul(1 / radius)) as Tile
  const [small, large, unsharp] = [blur(a, 2), blur(b, 3), blur(c, 4)]
  const fine = small.pipe(on(a), sub(picture), relu()) as Tile
  const coarse = large.pipe(on(b), sub(picture), relu()) as Tile
  const stretched = coarse.pipe(on(b), sub(coarse.pipe(on(d), flat, max({ axis: 0 })))) as Tile
  const sharp = picture.pipe(on(c), mul(1.5), sub(unsharp)) as Tile
  const joined = sharp.pipe(on(c), mul(stretched)) as Tile
  return { y: joined.pipe(on(a), add(fine), download(copy)) }
})

/** GrCUDA's siamese network: two branches of two layers each, joined to one. */
const siamese = graph('grcuda-siamese', { x: square, y: square }, ({ x, y }) => {
  const [w0, w1, w2] = [param('w0', square), param('w1', square), param('w2', square)]
  const branch = (input: Tile, here: Lane): Tile =>
    input.pipe(on(here), matmul(w0), relu(), matmul(w1), relu()) as Tile
  const p = branch(x.pipe(upload(copy)) as Tile, a)
  const q = branch(y.pipe(upload(copy)) as Tile, b)
  return { z: p.pipe(on(a), sub(q), matmul(w2), sigmoid(), download(copy)) }
})

/** GrCUDA's conjugate gradients, one round: the product by halves of the matrix, then what waits for both. */
const gradients = graph('grcuda-gradients', { x: square }, ({ x }) => {
  const [upper, lower] = [param('upper', square), param('lower', square)]
  const p = x.pipe(upload(copy)) as Tile
  const [u, l] = [p.pipe(on(a), matmul(upper)) as Tile, p.pipe(on(b), matmul(lower)) as Tile]
  const alpha = total(p.pipe(on(a), mul(u), add(p.pipe(on(a), mul(l)))) as Tile, a)
  const next = p.pipe(on(a), sub(u), mul(alpha)) as Tile
  const rest = p.pipe(on(b), sub(l), mul(alpha)) as Tile
  return { y: next.pipe(on(a), add(rest), download(copy)) }
})

/** GrCUDA's product by blocks of rows: independent parts, put together at the end. */
const parts = graph('grcuda-parts', { x: square }, ({ x }) => {
  const whole = x.pipe(upload(copy)) as Tile
  const [p, q, r] = [a, b, c].map(
    (here, i) => whole.pipe(on(here), matmul(param(`rows${i}`, square))) as Tile,
  )
  return { y: p!.pipe(on(a), add(q!), add(r!), flat, download(copy)) }
})

export const families = {
  chains,
  tree,
  diamonds,
  layered,
  'stateful-pipeline': stateful,
  fsdp,
  cholesky,
  'task-bench-stencil': stencil,
  'grcuda-vec': vec,
  'grcuda-options': options,
  'grcuda-ensemble': ensemble,
  'grcuda-hits': hits,
  'grcuda-image': image,
  'grcuda-siamese': siamese,
  'grcuda-gradients': gradients,
  'grcuda-parts': parts,
} as const
