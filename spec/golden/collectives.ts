import {
  allGather,
  allReduce,
  communicator,
  download,
  graph,
  lane,
  matmul,
  on,
  param,
  reduceScatter,
  relu,
  reshape,
  tensor,
  upload,
} from '../../dsl/index.js'

const square = tensor('f32', [64, 64])
const copy = lane('copy')
const gather = lane('gather')
const links = lane('links')
const math = lane('math', { priority: 'high' })
const rows = lane('rows')
const world = communicator('world', 4)
const pairs = communicator('pairs', {
  groups: [
    [0, 1],
    [2, 3],
  ],
})

/**
 * Two layers in shards of four ranks, gathered at most one ahead of their product. The input is summed over
 * pairs of ranks, and each rank gets the mean of its own rows of the output. Both communicators share ranks,
 * so no rank has concurrent calls over both: the sum and the gathers are on two lanes, and wait for each
 * other.
 */
export const collectives = graph('collectives', { x: square }, ({ x }) => {
  const full = (name: string) =>
    param(name, tensor('f32', [16, 64])).pipe(
      allGather(world, gather, { ahead: 1 }),
      on(math),
      reshape([64, 64]),
    )
  const sums = x.pipe(upload(copy), allReduce(pairs, 'sum', links), on(math))
  const y = sums.pipe(matmul(full('w0')), relu(), matmul(full('w1')))
  return { y: y.pipe(reshape([4, 16, 64]), reduceScatter(world, 'mean', gather), download(rows)) }
})
