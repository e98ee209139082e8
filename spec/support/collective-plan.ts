import type { CollectiveSpec, Plan } from '../../dsl/ir/plan.js'
import { planOf } from './plans.js'

const each: readonly CollectiveSpec[] = [
  { kind: 'allReduce', communicator: 0, count: 256, dtype: 'f32', how: 'sum' },
  { kind: 'allGather', communicator: 0, count: 128, dtype: 'bf16' },
  { kind: 'reduceScatter', communicator: 0, count: 128, dtype: 'f32', how: 'mean' },
  { kind: 'broadcast', communicator: 0, count: 256, dtype: 'i32', root: 1 },
  { kind: 'reduce', communicator: 0, count: 256, dtype: 'f32', how: 'max', root: 0 },
  {
    kind: 'permute',
    communicator: 0,
    count: 256,
    dtype: 'u8',
    pairs: [
      [0, 1],
      [1, 0],
    ],
  }, // prettier-ignore
  { kind: 'send', communicator: 1, count: 256, dtype: 'f32', peer: 1 },
  { kind: 'recv', communicator: 1, count: 256, dtype: 'f32', peer: 1 },
]

/** Every form that a collective takes in a file; whatever a rank is, it says the same. */
export const withCollectives: Plan = (() => {
  const plan = planOf({
    name: 'collectives',
    lanes: ['comm'],
    buffers: [{ name: 'x', life: 'state', init: 0 }],
    commands: each.map((_, i) => ['run', i, 0, [0], [0]]),
  })
  return {
    ...plan,
    communicators: [
      {
        id: 0,
        name: 'data',
        groups: [
          [0, 1],
          [2, 3],
        ],
      }, // prettier-ignore
      { id: 1, name: 'all', size: 4 },
    ],
    nodes: plan.nodes.map((node, i) => ({ ...node, peerAccess: i === 0, collective: each[i]! })),
  }
})()
