// The cases of the list that are no test, or only in part, each with its reason. Every other case is a test
// whose title begins with its number. `coverage.test.ts` compares the two, so no case is counted twice or
// left out.

export interface Elsewhere {
  readonly number: number
  /** The case, in the words of the list. */
  readonly case: string
  /** `graphs`: the case waits for Braid's graphs. `none`: Braid has no counterpart. */
  readonly kind: 'graphs' | 'none'
  readonly why: string
  /** Where the case will be tested, or which cases stand for it. */
  readonly where: string
}

/** A case that is tested in part: the part that is not tested. */
export interface Partly {
  readonly number: number
  readonly not: string
  readonly why: string
}

/** The number of cases, and of lines in the contract of `recordUse`. */
export const cases = 153
export const contractLines = 9

const graphs = 'the suite of graphs, on the same devices'
const trees = 'the suite of plan trees'

const waiting = (number: number, text: string, why: string, where = graphs): Elsewhere => ({
  number,
  case: text,
  kind: 'graphs',
  why,
  where,
})

export const elsewhere: readonly Elsewhere[] = [
  waiting(
    46,
    'no event operation on a capturing stream from the eager path',
    'not restated yet: a captured lane refuses recordUse and malloc, and the events of other lanes with it',
  ),
  {
    number: 79,
    case: 'regions of compiled code are numbered in the trace',
    kind: 'none',
    why: 'the history is of the allocator by hand; a compiled plan has a name and a line for every buffer',
    where: 'labels: 75 and 76; plans: explain',
  },
  waiting(
    95,
    'a stream says whether it is being captured',
    'not restated yet: a builder knows whether it captures, a lane does not say it',
  ),
  waiting(
    96,
    'nothing runs at capture, replay gives the result',
    'not restated by its number yet; builder.test.ts has it: nothing runs before the launch',
  ),
  waiting(97, 'reset and capture again', 'not restated yet'),
  waiting(
    98,
    'capture on the default stream is refused',
    'not restated yet: there is no default stream here, each lane is a stream of its own',
  ),
  waiting(99, 'a graph without nodes warns', 'not restated yet'),
  waiting(
    100,
    'memory that ends while capturing is a clean error',
    'not restated yet: a lane that is being captured allocates nothing, and a graph of a plan takes its arena when it is opened',
  ),
  waiting(
    101,
    'after a failed capture the stream can be captured again',
    'not restated yet, and no random numbers are drawn on a device',
  ),
  waiting(102, 'two successive graphs share a pool', 'plans that share an arena', trees),
  waiting(
    103,
    'graphs replayed at once need pools of their own',
    'plans that share an arena are never in flight together',
    trees,
  ),
  waiting(
    104,
    'three graphs out of order corrupt only a shared pool',
    'a plan tree refuses or copies instead',
    trees,
  ),
  waiting(
    105,
    'statistics of graphs, and results that outlive them',
    'not restated yet: a lane that is being captured allocates nothing',
  ),
  waiting(
    106,
    'record_stream inside a capture is handled after it',
    'inside a graph reuse is by edges of the graph',
  ),
  waiting(
    107,
    'inside a capture memory is reclaimed after a join, not before',
    'inside a graph reuse is by edges; the same of plans is 152 and 153',
  ),
  waiting(
    108,
    'with four streams a partial join is not enough',
    'inside a graph reuse is by edges; the same of plans is 141',
  ),
  waiting(
    109,
    'a block deferred in one capture serves the next',
    'there is no deferring: offsets are planned',
    trees,
  ),
  waiting(
    110,
    'a use from before the capture holds a block back',
    'a graph’s arena is its own from opening to closing',
  ),
  waiting(
    111,
    'blocks of forked streams share the capture’s pool',
    'not restated yet: a captured lane allocates nothing; a graph of a plan has one arena, whatever its lanes',
  ),
  waiting(112, 'capture modes for calls of other threads', 'not restated yet; GraphBuilder takes the mode'),
  waiting(
    113,
    'a raw graph is kept and instantiated again',
    'not restated by its number yet; definition.test.ts has it: a definition is instantiated more than once',
  ),
  waiting(
    114,
    'waiting on the host inside a capture is an error',
    'not restated by its number yet; builder.test.ts has it: what needs the real order of a lane is refused',
  ),
  waiting(
    115,
    'external events measure a replay',
    'not restated yet; events of a graph are in definition.test.ts, their times are not',
  ),
  waiting(
    116,
    'a multi-stream graph is drawn as DOT',
    'not restated by its number yet; definition.test.ts draws a graph as DOT',
  ),
  waiting(
    117,
    'a hundred captures do not leak workspaces',
    'not restated yet; that workspaces are one a lane is 32 and 72',
  ),
  waiting(
    118,
    'statistics return to their base after many graphs',
    'not restated yet: a lane that is being captured allocates nothing, so a graph changes no statistics but those of the blocks that it keeps',
  ),
  waiting(119, 'replays advance the random numbers', 'no random numbers are drawn on a device yet'),
  waiting(
    120,
    'graphed callables equal the eager ones bit by bit',
    'not restated by its number yet; graph-plans.test.ts compares graph mode with eager, bit for bit',
  ),
  waiting(
    121,
    'pinned blocks used by a captured copy are never recycled',
    'a graph’s pinned slots are its own from opening to closing',
  ),
  waiting(
    122,
    'checkpoints of a pool give the same layout again',
    'a plan’s offsets are data, so nothing is restored; entry contracts and clobber sets are of plan trees',
    trees,
  ),
  waiting(123, 'trees of recorded graphs', 'plan trees', trees),
]

export const partly: readonly Partly[] = [
  {
    number: 26,
    not: 'an assertion that fails on a GPU',
    why: 'it ends CUDA for the process (docs/internals/decisions, 17), so the host device stands for it',
  },
  {
    number: 65,
    not: 'two threads',
    why: 'each thread has lanes of its own, and which of two threads takes the next segment depends on their timing; that what they share is right is tested in one-memory.test.ts',
  },
  {
    number: 69,
    not: 'background threads and registered memory',
    why: 'settings for them are read and noted: Braid has nothing that they could change',
  },
  {
    number: 70,
    not: 'two threads that open two devices',
    why: 'two worker threads open one device at once in one-memory.test.ts, which is the harder case: they share its memory',
  },
  {
    number: 77,
    not: 'leaving out actions by name',
    why: 'a history is plain data, which a reader can filter',
  },
  {
    number: 78,
    not: 'frames of C++ and of TorchScript',
    why: 'allocations come from TypeScript, whose frames are kept',
  },
  {
    number: 90,
    not: 'threads',
    why: 'a pool belongs to the thread that made it; the memory that threads share gives every pool its number under one lock',
  },
  {
    number: 94,
    not: 'threads',
    why: 'a pool belongs to the thread that made it: another thread cannot name it, so nothing of that thread can go there',
  },
]
