import type { KernelSpec } from '../../dsl/ir/kernel-spec.js'
import type { Plan } from '../../dsl/ir/plan.js'
import { planOf } from './plans.js'

const dense = (k: number) => ({ dtype: 'f32' as const, batchStride: k })

/** One kernel of each kind, each reaching exactly to the end of its buffers. */
const kernels: readonly KernelSpec[] = [
  { kind: 'copy', bytes: 512 },
  {
    kind: 'matmul',
    m: 8,
    n: 4,
    k: 16,
    batch: 1,
    transposeB: true,
    a: dense(128),
    b: dense(64),
    c: dense(32),
    workspace: 256,
  },
  {
    kind: 'map',
    shape: [4, 8],
    compute: 'f32',
    operands: [{ dtype: 'f32', offset: 7, strides: [8, -1] }],
    code: [
      ['operand', 0],
      ['const', Number.NEGATIVE_INFINITY],
      ['max', 0, 1],
      ['const', -0],
      ['add', 2, 3],
    ],
    results: [{ value: 4, dtype: 'f32' }],
  },
  { kind: 'reduce', how: 'max', outer: 4, length: 8, inner: 1, input: 'f32', output: 'f32' },
  {
    kind: 'cuda',
    name: 'twice',
    source:
      'extern "C" __global__ void twice(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x]; }',
    grid: [1, 1, 1],
    block: [32, 1, 1],
    sharedBytes: 0,
    scalars: [{ i32: 4 }, { f32: 0.5 }],
  },
  { kind: 'copy', bytes: 16 },
]

const bare = planOf({
  name: 'one kernel of each kind',
  lanes: ['main'],
  buffers: [
    { name: 'x', life: 'input', bytes: 512 },
    { name: 'a', bytes: 512 },
    { name: 'w', life: 'param', bytes: 256 },
    { name: 'c', bytes: 128 },
    { name: 'workspace', life: 'state', bytes: 256 },
    { name: 'm', bytes: 128 },
    { name: 'r', bytes: 64 },
    { name: 'r.tail', bytes: 16, alias: 6, aliasOffset: 48 },
    { name: 'y', life: 'output', bytes: 16 },
    { name: 'z', bytes: 16 },
  ],
  commands: [
    ['alloc', 1, 0],
    ['run', 0, 0, [0], [1]],
    ['alloc', 3, 0],
    ['run', 1, 0, [1, 2], [3, 4]],
    ['free', 1],
    ['alloc', 5, 0],
    ['run', 2, 0, [3], [5]],
    ['free', 3],
    ['alloc', 6, 0],
    ['run', 3, 0, [5], [7]],
    ['free', 5],
    ['alloc', 9, 0],
    ['run', 4, 0, [7], [9]],
    ['free', 6],
    ['run', 5, 0, [9], [8]],
    ['free', 9],
  ],
})

export const withKernels: Plan = {
  ...bare,
  tolerance: 1e-6,
  buffers: bare.buffers.map(buffer => (buffer.id === 4 ? { ...buffer, dtype: 'f32', shape: [8, 8], init: 0 } : buffer)),
  nodes: bare.nodes.map((node, i) => ({
    ...node,
    op: kernels[i]!.kind,
    kernel: kernels[i]!,
    flops: 10,
    movedBytes: 20,
  })),
}
