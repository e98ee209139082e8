/**
 * The limits of a plan, so that a file cannot ask for more than a machine can hold. All are far beyond any
 * plan in use. `compile` makes no plan beyond them, `parsePlan` reads none, and native/executor/decode.h has
 * the same for `devices`, `inFlight` and `lanes`: so every plan that is made or read can be opened.
 */
export const limits = {
  devices: 64,
  inFlight: 256,
  lanes: 1024,
  buffers: 2 ** 22,
  nodes: 2 ** 22,
  commands: 2 ** 24,
  /** Edges of one graph. */
  edges: 2 ** 24,
  /** Events are numbered below this. */
  events: 2 ** 22,
  /** Buffers that one run reads, or writes. */
  accesses: 4096,
  /** The rate of an input or output. */
  rate: 4096,
  /** Characters of a name or a place in a file. */
  name: 4096,
  /** Characters of a kernel's source. */
  source: 2 ** 22,
  /** Dimensions of a shape. */
  rank: 32,
  /** Communicators of a plan, and ranks of one. */
  communicators: 1024,
  ranks: 2 ** 16,
  /** Instructions of one fused kernel. */
  code: 2 ** 16,
  /** Initial values that one state buffer lists. */
  init: 2 ** 24,
  /** Bytes of one buffer, and of all together with their slots: what a number holds exactly. */
  bytes: Number.MAX_SAFE_INTEGER,
  /** Of a place in an arena: what a kernel may read at once. */
  arenaAlignment: 16,
  /** Faults that are listed at most. */
  faults: 100,
} as const
