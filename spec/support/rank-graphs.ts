import fc from 'fast-check'
import {
  add,
  after,
  allGather,
  allReduce,
  broadcast,
  type Communicator,
  communicator,
  download,
  type Graph,
  graph,
  lane,
  matmul,
  mul,
  on,
  param,
  permute,
  reduceScatter,
  relu,
  reshape,
  sub,
  tensor,
  upload,
} from '../../dsl/index.js'

// biome-ignore lint/suspicious/noExplicitAny: sizes here are numbers that only a test knows.
type Anything = any

export interface Sharded {
  readonly layers: number
  readonly ranks: number
  readonly ahead?: number
  readonly width?: number
  readonly rows?: number
  /** Shards are uploaded before they are gathered. */
  readonly offloaded?: boolean
  /** Gradients have a communicator and a lane of their own. */
  readonly apart?: boolean
}

const window = ({ ahead }: Sharded): { readonly ahead?: number } => (ahead === undefined ? {} : { ahead })

/** Layers whose weights are in shards, gathered for their one product. */
export const forward = (made: Sharded): Graph => {
  const { layers, ranks, width = 64, rows = 16, offloaded = false } = made
  const world = communicator('world', ranks)
  const shard = tensor('f32', [width / ranks, width])
  return graph('forward', { x: tensor('f32', [rows, width]) }, ({ x }): Anything => {
    let y: Anything = x.pipe(upload())
    for (let i = 0; i < layers; i++) {
      const own: Anything = offloaded
        ? param(`w${i}`, shard, { on: 'host' }).pipe(upload(lane('shards'), window(made)))
        : param(`w${i}`, shard)
      y = y.pipe(matmul(own.pipe(allGather(world, undefined, window(made)), reshape([width, width]))), relu())
    }
    return { y: y.pipe(download()) }
  }) as unknown as Graph
}

/** A training step of such layers: backward the weights are gathered once more, gradients are averaged and shared out, and each rank steps its shards. */
export const step = (made: Sharded): Graph => {
  const { layers, ranks, width = 64, apart = false } = made
  const world = communicator('world', ranks)
  const grads = apart ? communicator('grads', ranks) : world
  const [gathers, scatters] = apart ? [lane('gathers'), lane('scatters')] : []
  return graph('step', { x: tensor('f32', [width, width]) }, ({ x }): Anything => {
    const shards: Anything[] = Array.from({ length: layers }, (_, i) =>
      param(`w${i}`, tensor('f32', [width / ranks, width])),
    )
    const full = (i: number): Anything =>
      shards[i].pipe(allGather(world, gathers, window(made)), on(lane('math')), reshape([width, width]))
    const seen: Anything[] = [x.pipe(upload(), on(lane('math')))]
    for (let i = 0; i < layers; i++) seen.push(seen[i].pipe(matmul(full(i)), relu()))
    const stepped: Record<string, Anything> = { y: seen[layers].pipe(download()) }
    let dy = seen[layers]
    for (let i = layers - 1; i >= 0; i--) {
      const dw = seen[i].pipe(
        matmul(dy),
        reshape([ranks, width / ranks, width]),
        reduceScatter(grads, 'mean', scatters),
      )
      stepped[`w${i}`] = shards[i].pipe(on(lane('math')), sub(dw.pipe(on(lane('math')), mul(0.01))), download())
      if (i > 0) dy = dy.pipe(matmul(full(i), { transpose: true }))
    }
    return stepped
  }) as unknown as Graph
}

/** Layers whose weights are cut by columns, then by rows: a sum among the ranks after every other product. */
export const tensorParallel = (layers: number, ranks: number): Graph => {
  const world = communicator('tensor', ranks)
  return graph('tensor parallel', { x: tensor('f32', [16, 64]) }, ({ x }): Anything => {
    let y: Anything = x.pipe(upload())
    for (let i = 0; i < layers; i++) {
      const up: Anything = param(`up${i}`, tensor('f32', [64, 256 / ranks]))
      const down: Anything = param(`down${i}`, tensor('f32', [256 / ranks, 64]))
      y = y.pipe(add(y.pipe(matmul(up), relu(), matmul(down), allReduce(world, 'sum'))))
    }
    return { y: y.pipe(download()) }
  }) as unknown as Graph
}

/** Communicators of four ranks: two of all of them, the rows and columns of a mesh, and its rows the other way round. */
export const meshes: readonly Communicator[] = [
  communicator('all', 4),
  communicator('other', 4),
  communicator('rows', {
    groups: [
      [0, 1],
      [2, 3],
    ],
  }), // prettier-ignore
  communicator('columns', {
    groups: [
      [0, 2],
      [1, 3],
    ],
  }), // prettier-ignore
  communicator('turned', {
    groups: [
      [1, 0],
      [3, 2],
    ],
  }), // prettier-ignore
]

const kinds = ['relu', 'add', 'after', 'allReduce', 'broadcast', 'permute', 'gather', 'param'] as const

export interface Move {
  readonly kind: (typeof kinds)[number]
  readonly over: number
  readonly lane: number
  readonly of: number
  readonly with: number
}

export const moves = (most: number): fc.Arbitrary<readonly Move[]> =>
  fc.array(
    fc.record({
      kind: fc.constantFrom(...kinds, 'allReduce', 'allReduce', 'gather'),
      over: fc.nat(meshes.length - 1),
      lane: fc.nat(3),
      of: fc.nat(5),
      with: fc.nat(5),
    }),
    { minLength: 2, maxLength: most },
  )

/** Moves in any order, on lanes of the user's and the compiler's; what nobody reads leaves the graph. */
export const mixed = (made: readonly Move[]): Graph =>
  graph('mixed', { x: tensor('f32', [16]) }, ({ x }): Anything => {
    const values: Anything[] = [x.pipe(upload())]
    const read = new Set<number>()
    const latest = (back: number): Anything => {
      const at = Math.max(0, values.length - 1 - back)
      read.add(at)
      return values[at]
    }
    made.forEach(({ kind, over, lane: on_, of, with: other }, i) => {
      const lanes = [undefined, lane('a'), lane('b'), lane('c')]
      const own = lanes[on_]
      const world = meshes[over]!
      const value = (): Anything => {
        switch (kind) {
          case 'relu':
            return own === undefined ? latest(of).pipe(relu()) : latest(of).pipe(on(own), relu())
          case 'add':
            return latest(of).pipe(add(latest(other)))
          case 'after': {
            const value = latest(of)
            const [when, what] =
              over % 2 === 0 ? (['start', relu()] as const) : (['finish', allReduce(world, 'min', own)] as const)
            return value.pipe(after(latest(other), when), what)
          }
          case 'allReduce':
            return latest(of).pipe(allReduce(world, 'max', own))
          case 'broadcast':
            return latest(of).pipe(broadcast(world, other % world.size, own))
          case 'permute':
            return latest(of).pipe(
              permute(
                world,
                [
                  [0, 1],
                  [1, 0],
                ],
                own,
              ),
            ) // prettier-ignore
          case 'gather':
            return latest(of).pipe(allGather(world, own), relu(), reduceScatter(world, 'sum', lanes[(on_ + over) % 4]))
          case 'param': {
            const shard: Anything = param(`p${i}`, tensor('f32', [16 / world.size]))
            return shard.pipe(allGather(world, own, { ahead: other % 3 }), reshape([16]))
          }
        }
      }
      values.push(value())
    })
    const leaves = values.flatMap((value, i) => (read.has(i) ? [] : [[`y${i}`, value.pipe(download())]]))
    return Object.fromEntries(leaves)
  }) as unknown as Graph
