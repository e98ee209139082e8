// Names for the row of numbers that native/bindings/allocator_report.h describes.

const metrics = ['current', 'peak', 'allocated', 'freed']
const pools = ['all', 'small_pool', 'large_pool']
const figures = [
  'allocation',
  'segment',
  'active',
  'inactive_split',
  'allocated_bytes',
  'reserved_bytes',
  'active_bytes',
  'inactive_split_bytes',
  'requested_bytes',
]

/**
 * The fallback chain of an allocation, in order: its lane's cache, order, completion, a wait, coalescing,
 * moving pages, growing, and the last resorts.
 */
export const fallbacks = ['cache', 'order', 'done', 'wait', 'gather', 'move', 'grow', 'last'] as const

const counterNames = [
  ...fallbacks.map(name => `served.${name}`),
  'num_alloc_retries',
  'num_ooms',
  'num_oom_rejections',
  'num_device_alloc',
  'num_device_free',
  // PyTorch counts waits for all streams; Braid waits for one pending use at a time, and counts each wait.
  'num_sync_all_streams',
  'pages.moves',
  'pages.moved',
  'pages.made',
  'uses.recorded',
  'uses.shared',
  'waits.issued',
  'waits.elided',
  'queries',
  'events.created',
]

const names = [
  ...pools.flatMap(pool => figures.flatMap(figure => metrics.map(metric => `${figure}.${pool}.${metric}`))),
  ...counterNames,
  ...['oversize_allocations', 'oversize_segments'].flatMap(figure =>
    metrics.map(metric => `${figure}.${metric}`),
  ),
]

/**
 * Figures of one allocator, by name. PyTorch's names where the meaning is the same
 * (`allocated_bytes.all.current`, `reserved_bytes.large_pool.peak`, `num_ooms`), and Braid's own: `served.*`
 * (allocations by the step of the fallback chain that served them), `uses.*`, `waits.*`, `queries`,
 * `events.created`, `pages.*`. `policy.NAME` is 1 for the policy that the memory has. Uses, waits, queries
 * and events count for the whole device, pinned memory included.
 *
 * `inactive_split` counts the free pieces of segments that are in use in part, free neighbours as one, and
 * `inactive_split_bytes` their bytes; of plain segments alone, as in PyTorch, since the pages of expandable ones
 * go back by themselves. Nothing keeps count of them as blocks come and go: their peaks and sums are of the
 * moments at which these figures were read. `oversize_allocations` are live blocks of `max_split_size` and more,
 * `oversize_segments` the plain segments.
 */
export type AllocatorStats = Readonly<Record<string, number>>

export const statsFrom = (row: Float64Array, maxSplit: number, policy: string): AllocatorStats => {
  const stats: Record<string, number> = {}
  names.forEach((name, i) => {
    stats[name] = row[i] ?? 0
  })
  stats[`policy.${policy}`] = 1
  // PyTorch writes -1 for "no bound".
  stats['max_split_size'] = Number.isFinite(maxSplit) ? maxSplit : -1
  return stats
}
