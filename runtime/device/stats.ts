// Names for the row of numbers that native/bindings/caching_report.h describes.

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

// Those of `Allocator` in native/allocator/caching/allocator.h, in its order.
const rungs = ['cache', 'order', 'done', 'wait', 'gather', 'move', 'grow', 'last']

const counterNames = [
  ...rungs.map(rung => `served.${rung}`),
  'num_alloc_retries',
  'num_ooms',
  'num_oom_rejections',
  'num_device_alloc',
  'num_device_free',
  // PyTorch counts the times at which all streams were waited for; here one outstanding use is waited for at a time, and counted.
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
  'oversize_allocations.allocated',
  'oversize_segments.allocated',
]

const names = [
  ...pools.flatMap(pool => figures.flatMap(figure => metrics.map(metric => `${figure}.${pool}.${metric}`))),
  ...counterNames,
]

/**
 * Figures of one allocator, by name. PyTorch's names where the meaning is the same (`allocated_bytes.all.current`,
 * `reserved_bytes.large_pool.peak`, `num_ooms`); Braid's own beside them: `served.*` (allocations by the rung that served them), `uses.*`,
 * `waits.*`, `queries`, `events.created`, `pages.*`. Uses, waits, queries and events are of the whole device, pinned memory included.
 */
export type AllocatorStats = Readonly<Record<string, number>>

export const statsFrom = (row: Float64Array, maxSplit: number): AllocatorStats => {
  const stats: Record<string, number> = {}
  names.forEach((name, i) => {
    stats[name] = row[i] ?? 0
  })
  // As PyTorch says that there is none.
  stats['max_split_size'] = Number.isFinite(maxSplit) ? maxSplit : -1
  return stats
}
