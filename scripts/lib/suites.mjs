// What `npm test` leaves to `.ci/run`, so that it takes some four minutes on two cores. Every law is still
// tried: property tests look at a tenth of their cases (spec/fixtures/runs.ts). The files that are left out each
// start many processes, read whole pages of the documentation, or compile and interpret for many seconds what
// other files try in small.

/** The share of its cases that a property test looks at in `npm test`. */
export const quickShare = 0.1

export const leftToCi = [
  ['spec/conformance/docs.test.ts', 'type-checks and runs all code of the documentation'],
  ['spec/conformance/addon.test.ts', 'worker threads, exits and 100,000 ticks, each in a process of its own'],
  ['spec/conformance/allocator/disposal.test.ts', 'ends of a process, each in a process of its own'],
  ['spec/conformance/trees/soak.test.ts', 'some thousands of launches of random trees'],
  ['spec/conformance/cli.test.ts', 'a process for each call of each command of braid'],
  ['spec/conformance/files-cli.test.ts', 'a process for each file, pipe and interruption of braid'],
  ['spec/conformance/explain-cli.test.ts', 'a process for each call of braid explain'],
  ['spec/conformance/build.test.ts', 'builds and their locks, each in processes of its own'],
  ['spec/conformance/build-command.test.ts', 'builds of a package, each in processes of its own'],
  ['spec/conformance/no-addon.test.ts', 'a package without an addon, in processes of its own'],
  ['spec/conformance/kept-choices.test.ts', 'a process for each opening of products'],
  ['spec/conformance/watch-cli.test.ts', 'processes of braid run --watch'],
  ['spec/conformance/simulate-cli.test.ts', 'a process for each call of braid simulate'],
  ['spec/conformance/snapshot-cli.test.ts', 'a process for each call of braid snapshot'],
  ['spec/conformance/allocator/replay.test.ts', 'traces of files, replayed by each policy'],
  ['spec/conformance/endings.test.ts', 'ends of processes and threads, each in a process of its own'],
  ['spec/conformance/broken-plans.test.ts', 'every field of plans changed, in a process of its own'],
  ['spec/conformance/tasks.test.ts', 'processes that drop a task'],
  ['spec/conformance/user-lines.test.ts', 'a process for each way to load a program'],
  ['spec/conformance/shared-device.test.ts', 'processes and threads that share one device'],
  ['spec/conformance/split.test.ts', 'long lines, interpreted in four ways'],
  ['spec/conformance/attention-gradients.test.ts', 'gradients of attention, interpreted in four ways'],
  ['spec/laws/compiler/fuse-modes.test.ts', 'graphs of thousands of operations, compiled in each mode'],
  ['spec/laws/compiler/deep.test.ts', 'a chain of 30,000 operations, and 3,000 scans in one another'],
  ['spec/laws/compiler/least-memory.test.ts', 'training steps, compiled for many budgets'],
  ['spec/laws/machine/rows.test.ts', 'all models of the bench, compiled and predicted'],
  ['spec/laws/verify/bound-kind.test.ts', 'bounds beside those of a slow oracle'],
  ['spec/conformance/empty-axes.test.ts', 'each operator with each of its axes empty'],
  ['spec/conformance/gradients.test.ts', 'gradients of each operator, on each device'],
  ['spec/conformance/one-memory.test.ts', 'sessions and lanes that share the memory of a device'],
  ['spec/conformance/pool.test.ts', 'graphs of thousands of operations, and their pools'],
  ['spec/conformance/full-queue.test.ts', 'streams filled with thousands of pieces of work'],
  ['spec/laws/compiler/fuse-latency.test.ts', 'graphs with fused kernels and without, each predicted'],
  ['spec/laws/compiler/wait-at-reuse.test.ts', 'plans compiled for many budgets'],
  ['spec/laws/compiler/place.test.ts', 'work on chosen lanes, predicted for each choice'],
  ['spec/laws/compiler/devices.test.ts', 'generated graphs for several devices'],
  ['spec/laws/machine/graph-mode.test.ts', 'models of the bench, compiled in each mode'],
  ['spec/laws/language/slopes.test.ts', 'gradients beside differences of values'],
  ['spec/laws/language/long-bodies.test.ts', 'runs of tsc on bodies of hundreds of operations'],
]

/** The folder that the C++ tests are built in, apart from the addon's, whose compiler options differ. */
export const testFolder = 'native/build-tests'
